"""What a method is: settings and a way to fit runs; a neural method is a network and a loss for one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..cohort import Cohort
from ..connectome import Connectomes, source_mean
from ..errors import BrioError
from ..progress import Progress, silent
from ..protocol import Fold
from ..settings import require, setting
from ..spaces import choice
from .inputs import Inputs, InputShape, Scans

if TYPE_CHECKING:
    from .stack import Stack

__all__ = [
    "Batch",
    "FittedRun",
    "Method",
    "NeuralMethod",
    "NeuralSettings",
    "Output",
    "Params",
    "Prediction",
    "Run",
    "SourceScans",
    "Stage",
]

Params = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Run:
    """One training: a fold and a seed."""

    fold: Fold
    seed: int


@dataclass(eq=False)
class FittedRun:
    """What a finished run leaves behind.

    Attributes
    ----------
    run : Run
    test_logit : ndarray, shape [n_test]
        Logit margin of each test scan, in the order of ``run.fold.test``.
    validation_auc : float
        AUC on the validation scans at the chosen checkpoint or penalty; NaN where training diverged.
    selected_epoch : int or None
        Epoch of the checkpoint, counted from 1; None where a method has no epochs.
    trained_epochs : int or None
    block_length : float or None
        Fold-level block length l_b, unrounded; None where nothing was re-estimated.
    weights : dict of Tensor
        Parameters of the chosen model and everything it learned from the source sites.
    details : dict
        Further plain facts worth a line in the results (a penalty, say).
    """

    run: Run
    test_logit: np.ndarray
    validation_auc: float
    selected_epoch: int | None = None
    trained_epochs: int | None = None
    block_length: float | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def require_finite(self, name: str) -> None:
        """Raise an error for people if the training of this run of a method diverged."""
        if not (np.isfinite(self.validation_auc) and np.isfinite(self.test_logit).all()):
            raise BrioError(
                f"method '{name}', fold {self.run.fold.name}, seed {self.run.seed}: training diverged, no checkpoint "
                "has a finite score; lower learning_rate"
            )


class Prediction(NamedTuple):
    """What a fitted run says of scans."""

    margin: np.ndarray  # [n] logit margin, float64
    representation: np.ndarray  # [n, d] what its classifier reads, float64


class Method(ABC):
    """A way to learn from source sites and score scans of others.

    A subclass names itself through :func:`brio.methods.method`, has a frozen dataclass ``Settings``
    and fits any number of runs at once. A fitted run answers for any scans: full ones or re-estimates.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What it needs besides connectomes and labels, see :data:`brio.training.inputs.NEEDS`."""

    version: ClassVar[int] = 1
    """Raised whenever the numbers of the method change; part of the name of a finished run."""

    needs_validation: bool = True
    """Whether it chooses its model by validation scans, so that a fold must have some."""

    Settings: ClassVar[type]

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    @abstractmethod
    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans; fitted_runs in the order of ``runs``."""

    @abstractmethod
    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Logit margins and representations of any scans under a fitted run."""

    def training_scans(self, cohort: Cohort, fold: Fold) -> np.ndarray:
        """Positions of the scans of a fold that the finished model has learned from."""
        return fold.source

    def inputs(self, connectomes: Connectomes) -> Inputs:
        """The scans of a cohort with what this method needs of them."""
        return Inputs(connectomes, self.needs, self.settings, f"method '{self.name}'")

    def margins(self, fitted: FittedRun, connectomes: Connectomes, scans: np.ndarray) -> np.ndarray:
        """Logit margins of scans of a cohort, by position, under a fitted run."""
        index = torch.from_numpy(np.asarray(scans)).to(connectomes.device)
        return self.predict(fitted, self.inputs(connectomes).take(index)).margin

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
    schedule : {"constant", "cosine"}
        Learning rate over the epochs: as it is, or falling to a tenth along half a cosine.
    refit : bool
        Whether a run, once its epoch is chosen on validation scans, is trained again to that epoch with these scans
        among the source scans.
    """

    epochs: int = 220
    patience: int | None = 80
    learning_rate: float = setting(3e-4, choice(1e-4, 3e-4, 1e-3))
    weight_decay: float = 1e-4
    cell_batch: int = 4
    validation_auc: Literal["pooled", "site-mean"] = "pooled"
    dead_rois: Literal["source-mean", "zero"] = "source-mean"
    schedule: Literal["constant", "cosine"] = "constant"
    refit: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "cell_batch"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.patience is None or self.patience >= 1, "patience", self.patience, "at least 1, or none")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")


class Batch(NamedTuple):
    """Scans of one step of one run, equally many from each source site and class.

    ``scans`` lie flat: E sites, 2 classes (0, then 1), n scans of each. Sites that only pad the stack come last.
    """

    scans: Scans  # leading axis B = E * 2 * n
    cell_weight: Tensor  # [E, 2] share of each site and class in the loss; 0 for padding
    pair_weight: Tensor  # [E (E - 1) / 2] share of each pair of source sites; 0 for padding
    epoch: Tensor  # scalar, counted from 1

    @property
    def cells(self) -> tuple[int, int, int]:
        """E, 2 and n: what ``x.unflatten(0, batch.cells)`` needs."""
        n_sites = len(self.cell_weight)
        return n_sites, 2, len(self.scans.A) // (2 * n_sites)

    @property
    def label(self) -> Tensor:
        """Class of each scan, 0.0 or 1.0. Shape [B]."""
        classes = torch.arange(2, device=self.cell_weight.device, dtype=self.cell_weight.dtype)
        return classes[None, :, None].expand(self.cells).flatten()

    @property
    def site(self) -> Tensor:
        """Source site of each scan, 0 to E - 1. Shape [B], int64."""
        return (
            torch.arange(len(self.cell_weight), device=self.cell_weight.device)[:, None, None]
            .expand(self.cells)
            .flatten()
        )

    @property
    def weight(self) -> Tensor:
        """Share of each scan in a loss that weighs source sites and classes equally; sums to one. Shape [B]."""
        return (self.cell_weight[:, :, None] / self.cells[2]).expand(self.cells).flatten()

    @property
    def site_weight(self) -> Tensor:
        """Share of each source site, 0 for padding; sums to one. Shape [E]."""
        return self.cell_weight.sum(1)

    @property
    def real(self) -> Tensor:
        """1 for scans, 0 for those that pad the stack. Shape [B]."""
        return (self.weight > 0).to(self.cell_weight.dtype)


class Output(NamedTuple):
    """The least a network says of each scan; a method's own output may say more while it trains."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, d] what the classifier reads


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
    fresh_optimiser : bool
        Forget the optimiser's running averages when the stage begins.
    """

    name: str
    epochs: int
    frozen: tuple[str, ...] = ()
    selectable: bool = True
    refresh_every: int | None = None
    fresh_optimiser: bool = False


@dataclass(frozen=True, eq=False)
class SourceScans:
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

    The trainer stacks the parameters of all runs along a first axis and maps network and loss over it, so both must be
    plain tensor code: no branches on values, no ``.item()``, no boolean indexing. Random numbers come from
    :mod:`brio.training.ambient`; running statistics are buffers, changed in place during training.
    """

    settings: NeuralSettings
    only_for_training: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of parameters and context entries that inference does not read."""
    peak_matrices_per_scan: ClassVar[float] = 28.0
    """About how many P x P matrices a step keeps alive for each scan; decides how many runs train together."""

    @abstractmethod
    def network(self, shape: InputShape) -> nn.Module:
        """A freshly initialised network: ``network(scans, context)`` returns an :class:`Output` or more.

        What it draws at random must not depend on ``shape.n_sites``, which is that of the stack.
        """

    def context(self, source: SourceScans) -> dict[str, Tensor]:
        """What the run learns from its source scans before training.

        Here ``mean``, which stands in for the edges of ROIs without signal (:func:`brio.connectome.fill_dead`).
        """
        return {"mean": self.dead_roi_fill(source)}

    def dead_roi_fill(self, source: SourceScans) -> Tensor:
        """What the edges of an ROI without signal hold: the source mean connectome, or zero. Shape [P, P]."""
        graphs = source.connectomes
        if self.settings.dead_rois == "zero":
            return torch.zeros_like(graphs.full[0])
        return source_mean([graphs.site_mean(m) for m in source.by_site()])

    def training_scans(self, cohort: Cohort, fold: Fold) -> np.ndarray:
        return fold.without_validation(cohort).source if self.settings.refit else fold.source

    def stages(self) -> list[Stage]:
        """The stretches of training, in order."""
        return [Stage("training", self.settings.epochs)]

    def loss(self, out: Any, batch: Batch, context: dict[str, Tensor], stage: Stage) -> Tensor:
        """Loss of one run on one batch."""
        raise NotImplementedError(f"method '{self.name}' has neither a loss nor an objective of its own")

    def objective(
        self,
        call: Callable[[Params, Scans], Any],
        params: Params,
        batch: Batch,
        context: dict[str, Tensor],
        stage: Stage,
    ) -> Tensor:
        """What a step descends on: the loss of the network's output.

        A method that trains on other inputs than the batch (mixtures), or under other weights (a look ahead),
        overrides this; ``call(params, scans)`` runs the network.
        """
        return self.loss(call(params, batch.scans), batch, context, stage)

    def begin_stage(self, stack: Stack, stage: Stage) -> None:
        """Called once when the stack enters a stage."""

    def refresh(self, stack: Stack, due: np.ndarray, count: np.ndarray) -> None:
        """Called before a step for the runs that are due, with how many refreshes each has had."""

    def update_inference_state(self, stack: Stack) -> None:
        """Called before the stack is scored: put into the context what inference needs of the present weights."""

    def remove_padding(self, weights: dict[str, Tensor], n_sites: int) -> dict[str, Tensor]:
        """The weights of one run without what only filled the stack up to its largest number of source sites."""
        return weights

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        from .trainer import train

        return train(self, connectomes, runs, progress)

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        from .stack import Stack

        out = Stack.restore(self, scans, [fitted]).forward(scans, shared=True)
        margin, representation = (t[0].double().cpu().numpy() for t in (out.logit, out.representation))
        return Prediction(margin, representation)

    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int:
        cohort = connectomes.cohort
        n_sites = len(np.unique(cohort.sites[self.training_scans(cohort, run.fold)]))
        graph = connectomes.n_rois**2 * torch.empty(0, dtype=connectomes.dtype).element_size()
        return int(2 * n_sites * self.settings.cell_batch * graph * self.peak_matrices_per_scan)

    def bytes_per_scan(self, A: Tensor) -> float:
        """Memory that a network needs without gradients for one of the graphs A; decides how many go in one pass."""
        return A.shape[-1] ** 2 * A.element_size() * self.peak_matrices_per_scan / 2.8
