"""The types of training: what a method is, and what a network and a loss are handed. Nothing in here trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..cohort import Cohort
from ..connectome import Connectomes
from ..errors import BrioError
from ..progress import Progress, silent
from ..protocol import Fold
from .fitted_run import FittedRun, Prediction, Run, RunState, Tensors
from .inputs import Inputs, InputShape, Scans
from .step_context import StepContext

__all__ = [
    "Batch",
    "Method",
    "MethodFacts",
    "NetworkCall",
    "Output",
    "SourceScans",
    "StackableMethod",
    "Stage",
]


@dataclass(frozen=True)
class MethodFacts:
    """What a job plans and prints with, declared by the method itself.

    Attributes
    ----------
    epochs : int or None
        Largest number of epochs; None where nothing is trained by epochs.
    reestimates : int or None
        Re-estimates of each scan at a time (K); None where nothing is re-estimated.
    dead_rois : str or None
        What the edges of an ROI without signal hold, as the method's setting names it.
    refits : bool
        Whether a run is trained again with its validation scans once the epoch is chosen.
    relative_cost : float
        Effort of one run compared with others, for the display of the time left.
    without_validation : str
        Setting with which the method needs no validation scans; empty where there is none.
    """

    epochs: int | None = None
    reestimates: int | None = None
    dead_rois: str | None = None
    refits: bool = False
    relative_cost: float = 2.0
    without_validation: str = ""


class Method(ABC):
    """A way to learn from source sites and to score scans of other sites.

    A subclass names itself through :func:`brio.methods.method`, has a frozen dataclass ``Settings``
    and fits any number of runs at once. A fitted run predicts for any scans: full ones or re-estimates.

    Parameters
    ----------
    settings : dataclass, optional
        An instance of ``Settings``; by default the method's own values.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What it needs besides connectomes and labels, see :data:`brio.training.inputs.NEEDS`."""

    version: ClassVar[int] = 1
    """Raised whenever the numbers of the method change; part of the key of a finished run."""

    needs_validation: bool = True
    """Whether it chooses its model by validation scans, so that a fold must have some."""

    Settings: ClassVar[type]

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    @abstractmethod
    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans; fitted runs in the order of ``runs``.

        Parameters
        ----------
        connectomes : Connectomes
            Of the whole cohort; a run learns from its source scans only.
        runs : sequence of Run
        progress : Progress
            Called with a message and the share that is done.
        """

    @abstractmethod
    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Predict logit margins and representations of any scans with a fitted run."""

    @property
    def facts(self) -> MethodFacts:
        """What a job plans and prints with."""
        return MethodFacts()

    def training_scans(self, cohort: Cohort, fold: Fold) -> np.ndarray:
        """Positions of the scans of a fold that the finished model has learned from."""
        return fold.source

    def inputs(self, connectomes: Connectomes) -> Inputs:
        """Gather the scans of a cohort with what this method needs of them."""
        return Inputs(connectomes, self.needs, self.settings, f"method '{self.name}'")

    def margins(self, fitted: FittedRun, connectomes: Connectomes, scans: np.ndarray) -> np.ndarray:
        """Predict logit margins of scans of a cohort.

        Parameters
        ----------
        fitted : FittedRun
        connectomes : Connectomes
        scans : ndarray of int64, shape [n]
            Positions in the cohort.

        Returns
        -------
        ndarray, shape [n]
        """
        index = torch.from_numpy(np.asarray(scans)).to(connectomes.device)
        return self.predict(fitted, self.inputs(connectomes).take(index)).margin

    def contributions(self, fitted: FittedRun, scans: Scans) -> np.ndarray:
        """Contributions of connectome factors to the margins of scans, Eq. (10). Shape [n, J].

        Raises
        ------
        BrioError
            If the method has no factors.
        """
        raise BrioError(f"method '{self.name}' has no connectome factors, hence no contributions")

    def intercept(self, fitted: FittedRun) -> float | None:
        """The part of a margin that no factor contributes; None where the method has no factors."""
        return None

    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int:
        """Memory that one more run in a stack needs; decides how many train together."""
        return 0


class Batch(NamedTuple):
    """Scans of one step of one run, equally many from each source site and class.

    ``scans`` lie flat: E sites, 2 classes (0, then 1), n scans of each. Sites that only pad the stack come last.
    """

    scans: Scans  # leading axis B = E * 2 * n
    cell_weight: Tensor  # [E, 2] share of each site and class in the loss; 0 for padding
    pair_weight: Tensor  # [E (E - 1) / 2] share of each pair of source sites; 0 for padding
    epoch: Tensor  # scalar, counted from 1
    step: StepContext  # random numbers and padding of this step

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
        return self.step.site

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
        return self.step.real


class Output(NamedTuple):
    """The least that a network returns for each scan; a method's own output may hold more while it trains."""

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
    """All that a run may learn from: its source scans.

    Attributes
    ----------
    connectomes : Connectomes
        Of the whole cohort.
    scans : ndarray of int64, shape [n]
        Positions of the source scans in the cohort.
    site, label : ndarray, shape [n]
    seed : int
    """

    connectomes: Connectomes
    scans: np.ndarray
    site: np.ndarray
    label: np.ndarray
    seed: int

    @classmethod
    def of_run(cls, connectomes: Connectomes, run: Run) -> SourceScans:
        """Gather the source scans of a run."""
        cohort, scans = connectomes.cohort, run.fold.source
        return cls(connectomes, scans, cohort.sites[scans], cohort.labels[scans], run.seed)

    def by_site(self) -> list[np.ndarray]:
        """Positions of the scans of each source site, sites in sorted order."""
        return [self.scans[self.site == e] for e in np.unique(self.site)]


class NetworkCall(Protocol):
    """Runs the network of one run under given parameters, as :meth:`NeuralMethod.objective` is handed it."""

    def __call__(self, params: Tensors, scans: Scans, step: StepContext) -> Any: ...


class StackableMethod(Protocol):
    """What a stack of runs asks of a method; :class:`brio.training.NeuralMethod` has all of it."""

    name: ClassVar[str]
    training_only: ClassVar[tuple[str, ...]]

    def inputs(self, connectomes: Connectomes) -> Inputs: ...
    def network(self, shape: InputShape) -> nn.Module: ...
    def learn(self, source: SourceScans) -> Tensors: ...
    def objective(self, call: NetworkCall, params: Tensors, batch: Batch, state: RunState, stage: Stage) -> Tensor: ...
    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int: ...
    def bytes_per_scan(self, A: Tensor) -> float: ...
