"""What a method is: settings and a way to fit runs; a neural method is a network and a loss for one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..connectome import Connectomes
from ..progress import Progress, silent
from ..protocol import Fold
from ..settings import require

if TYPE_CHECKING:
    from .stack import Stack

__all__ = ["Batch", "Method", "NeuralMethod", "NeuralSettings", "Outcome", "Run", "Source", "Stage"]


@dataclass(frozen=True, eq=False)
class Run:
    """One training: a fold and a seed."""

    fold: Fold
    seed: int


@dataclass(eq=False)
class Outcome:
    """What a finished run leaves behind.

    Attributes
    ----------
    run : Run
    test_logit : ndarray, shape [n_test]
        Logit margin of each test scan, in the order of ``run.fold.test``.
    validation_auc : float
        AUC on the validation scans at the chosen checkpoint or penalty.
    selected_epoch : int or None
        Epoch of the checkpoint, counted from 1; None where a method has no epochs.
    trained_epochs : int or None
    block_length : float or None
        Fold-level block length l_b, unrounded; None where nothing was re-estimated.
    weights : dict of Tensor
        Parameters of the chosen model and everything it learned from the source sites.
    notes : dict
        Further plain facts worth a line in the results (a penalty, say).
    """

    run: Run
    test_logit: np.ndarray
    validation_auc: float
    selected_epoch: int | None = None
    trained_epochs: int | None = None
    block_length: float | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


class Method(ABC):
    """A way to learn from source sites and score scans of others.

    A subclass names itself through :func:`brio.methods.method`, has a frozen dataclass ``Settings``
    and fits any number of runs at once.
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    """Raised whenever the numbers of the method change; part of the name of a finished run."""

    Settings: ClassVar[type]

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    @abstractmethod
    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[Outcome]:
        """Fit every run and score its test scans; outcomes in the order of ``runs``."""

    @abstractmethod
    def margins(self, outcome: Outcome, connectomes: Connectomes, scans: np.ndarray) -> np.ndarray:
        """Logit margins of further scans under a fitted run."""

    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int:
        """Memory one more run in a stack needs; decides how many train together."""
        return 0


@dataclass(frozen=True)
class NeuralSettings:
    """Settings that every trained network shares.

    Attributes
    ----------
    epochs : int
        Largest number of epochs; an epoch has as many batches as fit into the number of source scans.
    patience : int or None
        A run stops after this many epochs without a better validation AUC; ``none`` trains to the end.
    learning_rate, weight_decay : float
        AdamW, as in the paper.
    cell_batch : int
        Scans of each source site and class in a batch; smaller cells go round.
    validation_auc : {"pooled", "site-mean"}
        The checkpoint is chosen by the AUC over all validation scans together, or by the mean of the sites' own AUCs.
    dead_rois : {"source-mean", "zero"}
        What the edges of an ROI without signal hold: the mean connectome of the source sites, or zero.
    """

    epochs: int = 220
    patience: int | None = 80
    learning_rate: float = 3e-4
    weight_decay: float = 1e-4
    cell_batch: int = 4
    validation_auc: Literal["pooled", "site-mean"] = "pooled"
    dead_rois: Literal["source-mean", "zero"] = "source-mean"

    def __post_init__(self) -> None:
        for name in ("epochs", "cell_batch"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.patience is None or self.patience >= 1, "patience", self.patience, "at least 1, or none")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")


class Batch(NamedTuple):
    """Graphs of one step of one run, equally many from each source site and class."""

    A: Tensor  # [E, 2, n, P, P] full-scan FC
    alive: Tensor  # [E, 2, n, P]
    cell_weight: Tensor  # [E, 2] share of each site and class in the loss; 0 for padding
    pair_weight: Tensor  # [E (E - 1) / 2] share of each pair of source sites; 0 for padding


@dataclass(frozen=True)
class Stage:
    """A stretch of training under one loss.

    Attributes
    ----------
    name : str
    epochs : int
    frozen : tuple of str
        Parameters whose names start with one of these are not updated.
    selectable : bool
        Whether checkpoints of this stage may be chosen.
    refresh_every : int or None
        Call :meth:`NeuralMethod.refresh` before every so many optimisation steps of the stage.
    """

    name: str
    epochs: int
    frozen: tuple[str, ...] = ()
    selectable: bool = True
    refresh_every: int | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """All that a run may learn from: its source scans."""

    connectomes: Connectomes
    scans: np.ndarray
    site: np.ndarray
    label: np.ndarray
    seed: int

    def by_site(self) -> list[np.ndarray]:
        """Scans of each source site, sites in sorted order."""
        return [self.scans[self.site == e] for e in np.unique(self.site)]


class NeuralMethod(Method):
    """A network and a loss, written for one run and trained for all runs at once.

    The trainer stacks the parameters of all runs along a first axis and maps ``network`` and ``loss`` over it.
    """

    settings: NeuralSettings
    only_for_training: ClassVar[tuple[str, ...]] = ()
    """Entries of the context that a finished run keeps as a record and inference does not read."""

    @abstractmethod
    def network(self, n_rois: int) -> nn.Module:
        """A freshly initialised network: ``network(A, alive, context)`` returns a NamedTuple with ``logit`` [B]."""

    @abstractmethod
    def context(self, source: Source) -> dict[str, Tensor]:
        """What the run learns from its source scans before training (support, means, block length)."""

    def stages(self) -> list[Stage]:
        """The stretches of training, in order."""
        return [Stage("training", self.settings.epochs)]

    @abstractmethod
    def loss(self, out: Any, batch: Batch, context: dict[str, Tensor], stage: Stage) -> Tensor:
        """Loss of one run on one batch; ``out`` has the leading axis E * 2 * n."""

    def enter(self, stack: Stack, stage: Stage) -> None:
        """Called once when the stack enters a stage."""

    def refresh(self, stack: Stack, due: np.ndarray, count: np.ndarray) -> None:
        """Called before a step for the runs that are due, with how many refreshes each has had."""

    def unpadded(self, weights: dict[str, Tensor], n_sites: int) -> dict[str, Tensor]:
        """The weights of one run without what only filled the stack up to its largest number of source sites."""
        return weights

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[Outcome]:
        from .trainer import train

        return train(self, connectomes, runs, progress)

    def margins(self, outcome: Outcome, connectomes: Connectomes, scans: np.ndarray) -> np.ndarray:
        from .stack import Stack

        return Stack.restore(self, connectomes, [outcome]).margins(scans[None])[0]

    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int:
        n_sites = len(np.unique(connectomes.cohort.sites[run.fold.source]))
        graph = connectomes.n_rois**2 * torch.empty(0, dtype=connectomes.dtype).element_size()
        return 2 * n_sites * self.settings.cell_batch * graph * 28
