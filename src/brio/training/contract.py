"""The types of training: what a method is, and what its network and its loss receive. Nothing in here trains."""

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
from ..device import ComputeDevice
from ..errors import BrioError
from ..progress import Progress, silent
from ..protocol import Fold, assign_inner_folds
from .explanation import ExplainedScans, Explanation
from .facts import MethodFacts
from .fitted_run import ANY_TENSOR, FittedRun, Prediction, Run, RunState, Tensors, TensorSpec
from .inputs import Inputs, InputShape, Scans
from .step_context import StepContext


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
    """Increase it whenever the method's predictions change; part of the key of a run."""

    needs_validation: bool = True
    """Whether it chooses its model by validation scans; see ``MethodFacts`` for what it does where a fold has none."""

    fits_on_cpu: ClassVar[bool] = False
    """Whether runs are fitted on the CPU, also in a job on a GPU; see :meth:`place_fit`."""

    Settings: ClassVar[type]

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    def place_fit(self, device: ComputeDevice) -> ComputeDevice:
        """Return the device on which this method is fitted in a job on ``device``, where the connectomes stay."""
        return ComputeDevice(torch.device("cpu")) if self.fits_on_cpu else device

    @abstractmethod
    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans.

        Parameters
        ----------
        connectomes : Connectomes
            Of the whole cohort; a run learns from its source scans only.
        runs : sequence of Run
        progress : Progress
            Called with a message and the share that is done.

        Returns
        -------
        list of FittedRun
            In the order of ``runs``.
        """

    @abstractmethod
    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Predict logit margins and representations of any scans with a fitted run.

        Parameters
        ----------
        fitted : FittedRun
        scans : Scans
            B scans, of any cohort: full scans or re-estimates.

        Returns
        -------
        Prediction
            ``margin``, shape [B], and ``representation``, shape [B, d].
        """

    def declare_tensors(self, n_rois: int) -> dict[str, TensorSpec]:
        """Declare the tensors of a fitted run by the names they are stored with, so that a stored model is checked.

        A name that ends in ``*`` stands for all that begin so. By default nothing is known but that values are finite.
        """
        return {"*": ANY_TENSOR}

    def changes_after(self, declaration: str, *names: str) -> bool:
        """Whether what makes the state is defined by a later class than what declares it: authors need not declare."""
        order = type(self).__mro__

        def find_owner(name: str) -> int:
            return next(k for k, owner in enumerate(order) if name in vars(owner))

        return min(map(find_owner, names)) < find_owner(declaration)

    @property
    def facts(self) -> MethodFacts:
        """Facts for the plan, the summary and the progress display."""
        return MethodFacts()

    def training_scans(self, cohort: Cohort, fold: Fold) -> np.ndarray:
        """Return the positions of the scans of a fold that the finished model has learned from.

        Returns
        -------
        ndarray of int64, shape [n]
            The source scans; after a refit, also the validation scans.
        """
        return fold.source

    def gather_inputs(self, connectomes: Connectomes) -> Inputs:
        """Gather the scans of a cohort with what this method needs of them."""
        return Inputs(connectomes, self.needs, self.settings, f"method '{self.name}'")

    def predict_margins(self, fitted: FittedRun, connectomes: Connectomes, scans: np.ndarray) -> np.ndarray:
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
        return self.predict(fitted, self.gather_inputs(connectomes).take(index)).margin

    def compute_contributions(self, fitted: FittedRun, scans: Scans) -> np.ndarray:
        """Compute the contributions of the connectome factors to the margins of scans, Eq. (10).

        Parameters
        ----------
        fitted : FittedRun
        scans : Scans
            B scans.

        Returns
        -------
        ndarray of float64, shape [B, J]

        Raises
        ------
        BrioError
            If the method has no factors.
        """
        raise BrioError(f"method '{self.name}' has no connectome factors, hence no contributions")

    def intercept(self, fitted: FittedRun) -> float | None:
        """Return the part of a margin that no factor contributes; None where the method has no factors."""
        return None

    def explain(self, fitted: FittedRun) -> Explanation | None:
        """Return what a fitted run reads of a connectome; None where it has neither coefficients nor factors."""
        return None

    def read_explained(self, fitted: FittedRun, scans: Scans) -> ExplainedScans:
        """Read from scans what :meth:`explain` explains: margins, values of edges, contributions of factors.

        Parameters
        ----------
        fitted : FittedRun
        scans : Scans
            B scans.

        Returns
        -------
        ExplainedScans

        Raises
        ------
        BrioError
            If the method has neither coefficients of edges nor factors.
        """
        raise BrioError(f"method '{self.name}' has neither coefficients of edges nor factors to explain")

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory in bytes that one run needs at least, besides connectomes and a pass of re-estimates.

        A job that does not fit into memory is refused by it before it begins; 0 where nothing else is large.

        Parameters
        ----------
        n_scans, n_rois : int
            Of the whole cohort.
        """
        return 0.0

    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int:
        """Estimate the memory in bytes that one more run in a stack needs; decides how many train together."""
        return 0


class Batch(NamedTuple):
    """Scans of one step of one run, equally many from each source site and class.

    Scans lie flat: E sites, 2 classes (0, then 1), n scans of each. Sites that only pad the stack come last.

    Attributes
    ----------
    scans : Scans
        Leading axis B = E * 2 * n.
    cell_weight : Tensor, shape [E, 2]
        Share of each cell (site and class) in the loss; 0 for padding.
    pair_weight : Tensor, shape [E (E - 1) / 2]
        Share of each pair of source sites; 0 for padding.
    epoch : Tensor, scalar
        Counted from 1.
    step : StepContext
        Random numbers and padding of this step.
    """

    scans: Scans
    cell_weight: Tensor
    pair_weight: Tensor
    epoch: Tensor
    step: StepContext

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
    """The least that a network returns for each scan; a method's own output may hold more while it trains.

    Attributes
    ----------
    logit : Tensor, shape [B]
    representation : Tensor, shape [B, d]
        What the classifier reads.
    """

    logit: Tensor
    representation: Tensor


@dataclass(frozen=True)
class Stage:
    """A stretch of training under one loss.

    Attributes
    ----------
    name : str
        Shown in the progress line; a loss may depend on it.
    epochs : int
        Length of the stage.
    frozen : tuple of str
        Parameters whose names start with one of these are not updated.
    selectable : bool
        Whether checkpoints of this stage may be chosen.
    refresh_every : int or None
        Call :meth:`NeuralMethod.refresh` before the first epoch of the stage and after every so many.
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
    """The source scans of a run, which are all that it may learn from.

    Attributes
    ----------
    connectomes : Connectomes
        Of the whole cohort: index it with ``scans`` only.
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
    def of_run(cls, connectomes: Connectomes, run: Run, sites: np.ndarray | None = None) -> SourceScans:
        """Gather the source scans of a run.

        Parameters
        ----------
        connectomes : Connectomes
        run : Run
        sites : ndarray of str, shape [N], optional
            Site of every scan, where it is not that of the cohort.
        """
        cohort, scans = connectomes.cohort, run.fold.source
        sites = cohort.sites if sites is None else sites
        return cls(connectomes, scans, sites[scans], cohort.labels[scans], run.seed)

    def by_site(self) -> list[np.ndarray]:
        """Return the positions of the scans of each source site, sites in sorted order."""
        return [self.scans[self.site == e] for e in np.unique(self.site)]

    def assign_inner_folds(self, fold: Fold) -> np.ndarray:
        """Assign the scans to inner folds of a closed-form model: their sites, or fifths of one site. Shape [n]."""
        return assign_inner_folds(self.connectomes.cohort, fold, least_sites=2)


class NetworkCall(Protocol):
    """The function with which :meth:`NeuralMethod.objective` runs the network of one run."""

    def __call__(self, params: Tensors, scans: Scans, step: StepContext) -> Any: ...


class StackableMethod(Protocol):
    """The part of :class:`brio.training.NeuralMethod` that :class:`Stack` uses."""

    name: ClassVar[str]
    training_only: ClassVar[tuple[str, ...]]

    def gather_inputs(self, connectomes: Connectomes) -> Inputs: ...
    def network(self, shape: InputShape) -> nn.Module: ...
    def name_sites(self, cohort: Cohort, run: Run) -> np.ndarray: ...
    def learn(self, source: SourceScans) -> Tensors: ...
    def objective(self, call: NetworkCall, params: Tensors, batch: Batch, state: RunState, stage: Stage) -> Tensor: ...
    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int: ...
    def bytes_per_scan(self, A: Tensor) -> float: ...
