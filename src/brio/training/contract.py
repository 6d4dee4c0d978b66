"""The contract of a method.

The contract covers the inputs of a method (scans, the source scans of a run, the batches of a step), its outputs
(fitted runs, predictions, explanations), the facts it declares about itself, and the class that combines these.
"""

from __future__ import annotations

import inspect
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..cohort import Cohort
from ..cohort.covariates import COVARIATE_COLUMNS, read_covariates, read_hemispheres, read_repetition_times
from ..cohort.scans import read_session_frames
from ..connectome import BoldRule, Connectomes, ReestimateRequest, edge_cut, source_mean
from ..console import Progress, silent
from ..device import ComputeDevice
from ..draws import draw_uniform_tensor
from ..errors import BrioError
from ..protocol import Fold
from ..settings import check_domains
from .random_numbers import uniform_from_keys


@dataclass(frozen=True)
class MethodSettings:
    """Settings of a method; their values are checked against their domains."""

    def __post_init__(self) -> None:
        check_domains(self)


NEEDS = {
    "bold": "BOLD series resampled to a common length and repetition time",
    "sites": "site of every source scan",
    "sex": "sex of every participant",
    "age": "age of every participant",
    "motion": "mean framewise displacement of every scan",
    "hemisphere": "hemisphere of each ROI",
}
"""What a method may need besides connectomes and labels, and what each means."""


Tensors = dict[str, Tensor]


class RunState(NamedTuple):
    """The tensors of a run besides the parameters of its neural network, by name.

    For one run the tensors have the shapes that its method gives them; for a stack of runs there is an additional first
    axis [R].

    Attributes
    ----------
    learned : dict of Tensor
        Tensors learned from the source scans before training, without gradient descent.
    training : dict of Tensor
        Tensors that only the loss or a refresh reads; a fitted run predicts without them.
    inference : dict of Tensor
        Tensors derived from the current weights; the neural network reads them.

    Examples
    --------
    >>> RunState.from_learned(mean=torch.zeros(5, 5)).learned["mean"].shape
    torch.Size([5, 5])
    """

    learned: Tensors
    training: Tensors
    inference: Tensors

    @classmethod
    def from_learned(cls, **learned: Tensor) -> RunState:
        """Make the state of a run after :meth:`NeuralMethod.learn` and before training."""
        return cls(learned, {}, {})

    def select(self, rows: Tensor) -> RunState:
        """Select some runs of a stack by position (int64)."""
        return RunState(*({name: t[rows] for name, t in group.items()} for group in self))


class Scans(NamedTuple):
    """A batch of scans, in the form that neural networks receive.

    Attributes
    ----------
    A : Tensor, shape [B, P, P]
        FC, with zero rows for ROIs without signal.
    alive : Tensor of bool, shape [B, P]
        Whether an ROI has signal.
    cut : Tensor, shape [B]
        Smallest absolute FC among the strongest ``edge_share`` (a setting) of the edges; 0 if the method has no such
        setting.
    n_frames : Tensor, shape [B]
        Number of valid frames of the scan. Re-estimates are as long as the full scan, so they have the same number.
    bold : Tensor, shape [B, T, P]
        z-scored BOLD series of equal length, with the windows of a scan one after the other; T = 0 if not needed.
    covariates : Tensor, shape [B, C]
        Those of sex, age and motion that the method needs, in this order.
    state : RunState
        Tensors of the run besides its parameters; empty until the neural network is called.

    Examples
    --------
    >>> scans = Scans.of(torch.zeros(8, 5, 5))
    >>> [len(part.A) for part in scans.split(3)]
    [3, 3, 2]
    """

    A: Tensor
    alive: Tensor
    cut: Tensor
    n_frames: Tensor
    bold: Tensor
    covariates: Tensor
    state: RunState = RunState({}, {}, {})

    @staticmethod
    def of(A: Tensor, alive: Tensor | None = None) -> Scans:
        """Make scans from connectomes, for methods that need nothing else; ``n_frames`` and ``cut`` are 0.

        Parameters
        ----------
        A : Tensor, shape [B, P, P]
        alive : Tensor of bool, shape [B, P], optional
            By default every ROI has signal.

        Returns
        -------
        Scans

        Examples
        --------
        >>> Scans.of(torch.zeros(2, 5, 5)).alive.all()
        tensor(True)
        """
        if alive is None:
            alive = torch.ones(A.shape[:-1], dtype=torch.bool, device=A.device)
        zeros = A.new_zeros(A.shape[:-2])
        no_bold, no_covariates = A.new_zeros(*A.shape[:-2], 0, A.shape[-1]), A.new_zeros(*A.shape[:-2], 0)
        return Scans(A, alive, zeros, zeros, no_bold, no_covariates)

    def map(self, change: Callable[[Tensor], Tensor]) -> Scans:
        """Apply a function to every tensor of the scans; the state is unchanged."""
        return Scans._make([*map(change, self[:-1]), self.state])

    def split(self, size: int, axis: int = 0) -> list[Scans]:
        """Split scans along an axis into portions of ``size``; all portions have the same state."""
        return [
            Scans._make([*part, self.state]) for part in zip(*(t.split(size, axis) for t in self[:-1]), strict=True)
        ]


class InputShape(NamedTuple):
    """Sizes for which a neural network is built.

    Attributes
    ----------
    n_rois : int
    n_sites : int
        Number of source sites; in a stack, the largest number in any run.
    n_frames : int
        Number of frames of the BOLD series; 0 if not needed.

    Examples
    --------
    >>> InputShape(n_rois=116, n_sites=17, n_frames=0).n_rois
    116
    """

    n_rois: int
    n_sites: int
    n_frames: int


def check_needs(cohort: Cohort, method: Method, requester: str) -> None:
    """Raise a user-facing error if the cohort lacks what a method needs.

    Sites are not checked: every cohort used for training has them.
    """
    needs, settings = method.needs, method.settings
    read_covariates(cohort, _covariates(needs), requester, partly=not method.needs_all)
    if "bold" in needs and read_session_frames(cohort.participants) is not None:
        raise BrioError(
            f"{requester} needs time series, but the connectomes of this cohort are averaged over sessions; import the "
            "scans with --sessions join, first or all"
        )
    if "bold" in needs and _bold_rule(settings).tr is not None:
        read_repetition_times(cohort, requester)
    if "hemisphere" in needs:
        read_hemispheres(cohort, requester)


def _bold_rule(settings: Any) -> BoldRule:
    return BoldRule(settings.bold_frames, settings.bold_tr, getattr(settings, "bold_windows", 1))


def _covariates(needs: frozenset[str]) -> list[str]:
    return [name for name in COVARIATE_COLUMNS if name in needs]


class Inputs:
    """The scans of a cohort on a device, with the data that one method needs.

    Nothing here is learned: each row depends only on its own scan.
    """

    def __init__(
        self, connectomes: Connectomes, needs: frozenset[str], settings: Any, requester: str, needs_all: bool = True
    ) -> None:
        self.connectomes = connectomes
        cohort, device, dtype = connectomes.cohort, connectomes.device, connectomes.dtype
        self._share: float | None = getattr(settings, "edge_share", None)
        zeros = connectomes.full.new_zeros(len(connectomes))
        cut = zeros if self._share is None else connectomes.edge_cut(self._share)
        n_frames = torch.from_numpy(connectomes.n_frames).to(device, dtype)
        if connectomes.without_frames:
            n_frames.fill_(torch.nan)  # a method that reads it without saying so must not go unnoticed
        known = read_covariates(cohort, _covariates(needs), requester, partly=not needs_all)
        covariates = torch.from_numpy(known).to(device, dtype)
        self._rule = _bold_rule(settings) if "bold" in needs else None
        self._tr = None if self._rule is None or self._rule.tr is None else read_repetition_times(cohort, requester)
        none = connectomes.full.new_zeros(len(connectomes), 0, connectomes.n_rois)
        bold = none if self._rule is None else connectomes.bold(self._rule, self._tr)
        self._all = Scans(connectomes.full, connectomes.alive, cut, n_frames, bold, covariates)

    def shape(self, n_sites: int) -> InputShape:
        """Return the sizes that a network is built for, with at most ``n_sites`` source sites."""
        return InputShape(self.connectomes.n_rois, n_sites, self._all.bold.shape[1])

    def take(self, index: Tensor, A: Tensor | None = None) -> Scans:
        """Gather scans by position in the cohort. Shapes: index [...], A [..., P, P]."""
        full, *others, state = self._all
        return Scans._make([full[index] if A is None else A, *(t[index] for t in others), state])

    def iterate_reestimates(
        self, request: ReestimateRequest, max_bytes: int | None = None
    ) -> Iterator[tuple[np.ndarray, Scans]]:
        """Iterate over re-estimates of scans, chunk by chunk; their BOLD consists of the same resampled frames."""
        connectomes = self.connectomes
        for chunk, A in connectomes.iterate_reestimates(request, max_bytes):
            flat = A.flatten(0, 1)
            index = torch.from_numpy(request.scans[chunk]).to(connectomes.device).repeat_interleave(request.K)
            scans = self.take(index, flat)
            if self._share is not None:
                scans = scans._replace(cut=edge_cut(flat, self._share))
            if self._rule is not None:
                scans = scans._replace(bold=connectomes.resampled_bold(request.select(chunk), self._rule, self._tr))
            yield chunk, scans


@dataclass(frozen=True, eq=False)
class Run:
    """A fold and a seed, which define one training.

    Attributes
    ----------
    fold : Fold
        Positions of source, validation and test scans.
    seed : int
        Seed of all random numbers.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> from brio.protocol import leave_one_site_out
    >>> folds = leave_one_site_out(simulate(Simulation(n_sites=5, per_class=5)), seed=0)
    >>> Run(folds[0], seed=0).fold.name
    'site01'
    """

    fold: Fold
    seed: int


@dataclass(frozen=True, eq=False)
class SourceScans:
    """The source scans of a run: the only scans from which it may learn.

    Attributes
    ----------
    connectomes : Connectomes
        Connectomes of the whole cohort; index them only with ``scans``.
    scans : ndarray of int64, shape [n]
        Positions of the source scans in the cohort.
    site, label : ndarray, shape [n]
    seed : int

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> cohort = simulate(Simulation(n_sites=3, per_class=5))
    >>> rows = np.flatnonzero(cohort.sites != "site03")
    >>> source = SourceScans(Connectomes(cohort), rows, cohort.sites[rows], cohort.labels[rows], seed=0)
    >>> len(source.by_site()), source.mean_connectome("source-mean").shape
    (2, torch.Size([24, 24]))
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
            Site of every scan, if it differs from the cohort's.
        """
        cohort, scans = connectomes.cohort, run.fold.source
        sites = cohort.sites if sites is None else sites
        return cls(connectomes, scans, sites[scans], cohort.labels[scans], run.seed)

    def mean_connectome(self, dead_rois: str) -> Tensor:
        """Return the values for edges of ROIs without signal: the source mean connectome, or zero. Shape [P, P]."""
        if dead_rois == "zero":
            return torch.zeros_like(self.connectomes.full[0])
        return source_mean([self.connectomes.site_mean(members) for members in self.by_site()])

    def by_site(self) -> list[np.ndarray]:
        """Return the positions of the scans of each source site, sites in sorted order."""
        return [self.scans[self.site == e] for e in np.unique(self.site)]


class StepContext:
    """One training step of one run. At inference, neural networks receive None instead.

    Parameters
    ----------
    key : Tensor, int64 scalar
        Key of the random numbers of the step.
    real : Tensor, shape [B]
        1 for graphs of the batch, 0 for graphs that pad the stack.
    site : Tensor of int64, shape [B]
        Source site of each graph, 0 to E - 1.
    update_statistics : bool
        Whether this pass updates running statistics; False for a look-ahead inside a step.

    Examples
    --------
    >>> step = StepContext(torch.tensor(0), real=torch.ones(4), site=torch.zeros(4, dtype=torch.int64))
    >>> step.draw_uniform((2, 3), like=step.real).shape
    torch.Size([2, 3])
    """

    def __init__(self, key: Tensor, real: Tensor, site: Tensor, update_statistics: bool = True) -> None:
        self.key, self.real, self.site, self.update_statistics = key, real, site, update_statistics
        self._n_draws = 0

    def draw_keys(self) -> Tensor:
        """Draw two keys for the next random numbers of the step; each call gives new keys. Shape [2], int32."""
        self._n_draws += 1
        words = [draw_uniform_tensor(self.key, 2 * self._n_draws + i) * 2.0**32 - 2.0**31 for i in (0, 1)]
        return torch.stack(words).to(torch.int32)

    def draw_uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Draw new uniform numbers in (0, 1), in the precision and on the device of ``like``."""
        return uniform_from_keys(self.draw_keys(), shape, like)

    def draw_permutation(self) -> Tensor:
        """Draw a random order of the graphs of the batch, with padding at the end. Shape [B], int64."""
        return torch.argsort(self.draw_uniform(self.real.shape, self.real) + 2.0 * (1.0 - self.real), stable=True)


@dataclass(frozen=True)
class Stage:
    """A part of the training with one loss.

    Attributes
    ----------
    name : str
        Name shown in the progress line; a loss may depend on it.
    epochs : int
        Length of the stage; it may be 0.
    frozen : tuple of str
        Prefixes of names: parameters with these prefixes are not updated.
    selectable : bool
        Whether checkpoints of this stage may be chosen.
    refresh_every : int or None
        Number of epochs between calls of :meth:`NeuralMethod.refresh`; the first call is before the first epoch of the
        stage. None for no refreshes.
    fresh_optimiser : bool
        Whether to reset the running averages of the optimiser when the stage begins.

    Examples
    --------
    >>> Stage("warm-up", epochs=20, frozen=("classify",), selectable=False).epochs
    20
    """

    name: str
    epochs: int
    frozen: tuple[str, ...] = ()
    selectable: bool = True
    refresh_every: int | None = None
    fresh_optimiser: bool = False


class Batch(NamedTuple):
    """Scans of one step of one run, with the same number from each source site and class.

    Scans are in one flat axis, ordered by E sites, 2 classes (0, then 1) and n scans. Sites that pad the stack are
    last.

    Attributes
    ----------
    scans : Scans
        The scans, with a first axis B = E * 2 * n.
    cell_weight : Tensor, shape [E, 2]
        Share of each cell (site and class) in the loss; 0 for padding.
    pair_weight : Tensor, shape [E (E - 1) / 2]
        Share of each pair of source sites; 0 for padding.
    epoch : Tensor, scalar
        Number of the epoch, counted from 1.
    step : StepContext
        Random numbers and padding of this step.
    stage : Stage
        The stage to which the step belongs.

    Examples
    --------
    This batch has one site, two classes, and one scan of each class:

    >>> step = StepContext(torch.tensor(0), torch.ones(2), torch.zeros(2, dtype=torch.int64))
    >>> scans, share = Scans.of(torch.zeros(2, 3, 3)), torch.full((1, 2), 0.5)
    >>> batch = Batch(scans, share, torch.ones(0), torch.tensor(1.0), step)
    >>> batch.cells, batch.label
    ((1, 2, 1), tensor([0., 1.]))
    """

    scans: Scans
    cell_weight: Tensor
    pair_weight: Tensor
    epoch: Tensor
    step: StepContext
    stage: Stage = Stage("training", 1)

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
        """Share of each scan in a loss with equal weights of source sites and classes; sums to one. Shape [B]."""
        return (self.cell_weight[:, :, None] / self.cells[2]).expand(self.cells).flatten()

    @property
    def site_weight(self) -> Tensor:
        """Share of each source site, 0 for padding; sums to one. Shape [E]."""
        return self.cell_weight.sum(1)

    @property
    def real(self) -> Tensor:
        """1 for scans, 0 for padding of the stack. Shape [B]."""
        return self.step.real


class Output(NamedTuple):
    """The minimal output of a neural network for each scan; a network may return more.

    Attributes
    ----------
    logit : Tensor, shape [B]
    representation : Tensor, shape [B, d]
        Input of the classifier.

    Examples
    --------
    >>> Output(logit=torch.zeros(4), representation=torch.zeros(4, 16)).logit.shape
    torch.Size([4])
    """

    logit: Tensor
    representation: Tensor


NetworkCall = Callable[[Tensors, Scans, StepContext], Any]
"""The function ``call(params, scans, step)`` with which :meth:`NeuralMethod.objective` runs the network of one run."""


def name_tensors(parameters: Tensors, state: RunState) -> Tensors:
    """Put all tensors of a run into one dictionary, each under the name of its group."""
    groups = {"parameters": parameters, **state._asdict()}
    return {f"{group}.{name}": t for group, tensors in groups.items() for name, t in tensors.items()}


def group_tensors(named: Tensors) -> tuple[Tensors, RunState]:
    """Split what ``name_tensors`` made into parameters and state."""
    groups: dict[str, Tensors] = {"parameters": {}, "learned": {}, "training": {}, "inference": {}}
    for full_name, tensor in named.items():
        group, _, name = full_name.partition(".")
        if group not in groups or not name:
            raise BrioError(f"the weights contain the tensor '{full_name}' of an unknown group; fit the model again")
        groups[group][name] = tensor
    parameters = groups.pop("parameters")
    return parameters, RunState(**groups)


@dataclass(eq=False)
class FittedRun:
    """A fitted run in memory.

    Attributes
    ----------
    run : Run
    test_logit : ndarray, shape [n_test]
        Margin of each test scan, in the order of ``run.fold.test``.
    validation_auc : float
        AUC on the validation scans at the chosen checkpoint or penalty; without validation scans, the AUC on the inner
        folds; NaN if training diverged.
    selected_epoch : int or None
        Epoch of the checkpoint, counted from 1; None if the method has no epochs or training diverged.
    trained_epochs : int or None
        Number of epochs until the run stopped.
    block_length : float or None
        Block length of the re-estimates in this fold; None if nothing was re-estimated.
    parameters : dict of Tensor
        Parameters and running statistics at the chosen checkpoint, or the coefficients of a model without epochs.
    state : RunState
        Tensors of the run besides its parameters.
    details : dict
        Further facts about the run (for example a penalty), ready for JSON. If ``calibration`` is present, it holds the
        slope and intercept that turn a margin into the logit of a probability; otherwise margins are such logits.
    steps : int or None
        Number of optimisation steps until the run stopped. If inner folds chose the epoch, their steps are counted, but
        not the steps of the subsequent training.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> from brio.protocol import leave_one_site_out
    >>> folds = leave_one_site_out(simulate(Simulation(n_sites=5, per_class=5)), seed=0)
    >>> fitted = FittedRun(Run(folds[0], seed=0), np.zeros(len(folds[0].test)), validation_auc=0.5)
    >>> fitted.state.learned
    {}
    """

    run: Run
    test_logit: np.ndarray
    validation_auc: float
    selected_epoch: int | None = None
    trained_epochs: int | None = None
    block_length: float | None = None
    parameters: Tensors = field(default_factory=dict)
    state: RunState = field(default_factory=RunState.from_learned)
    details: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None

    @property
    def tensors(self) -> Tensors:
        """All its tensors under the names they are stored with, see ``name_tensors``."""
        return name_tensors(self.parameters, self.state)

    def require_finite(self, name: str) -> None:
        """Raise a user-facing error if the training of this run diverged.

        Parameters
        ----------
        name : str
            Name of the method.
        """
        if not (np.isfinite(self.validation_auc) and np.isfinite(self.test_logit).all()):
            where = f"method '{name}', fold {self.run.fold.name}, seed {self.run.seed}"
            raise BrioError(f"{where}: training diverged, so no checkpoint has a finite score; lower learning_rate")


class Prediction(NamedTuple):
    """Predictions of a fitted run for some scans.

    Attributes
    ----------
    margin : ndarray of float64, shape [n]
        Margins.
    representation : ndarray of float64, shape [n, d]
        Input of the classifier.

    Examples
    --------
    >>> Prediction(margin=np.zeros(4), representation=np.zeros((4, 16))).margin.shape
    (4,)
    """

    margin: np.ndarray
    representation: np.ndarray


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a fitted run uses of a connectome: coefficients of edges, factors, or both.

    Attributes
    ----------
    edge_values : str
        Description of the value of an edge, such as ``"Fisher z"``; empty if edges have no coefficients.
    coefficients : ndarray of float64, shape [edges], or None
        Change of the margin if the value of one edge increases by one and all others are unchanged.
    beyond_edges : str
        Description of other parts of the margin; empty if the margin consists only of coefficients times values of
        edges and an intercept.
    assignment : ndarray of float64, shape [J, P], or None
        Share of each ROI in each factor; a column sums to 1 / P. None if the method has no factors.

    Examples
    --------
    >>> Explanation("Fisher z", coefficients=np.zeros(10)).assignment is None
    True
    """

    edge_values: str = ""
    coefficients: np.ndarray | None = None
    beyond_edges: str = ""
    assignment: np.ndarray | None = None


class ExplainedScans(NamedTuple):
    """What a fitted run uses of B scans: values of edges, contributions of factors, or both.

    Attributes
    ----------
    margin : ndarray of float64, shape [B]
    edges : ndarray of float64, shape [B, edges], or None
        Values of the edges, minus their means over the source scans. The coefficients of an :class:`Explanation`
        multiply these values.
    contributions : ndarray of float64, shape [B, J], or None
        Contribution of each factor to the margin; the contributions and the intercept add up to the margin.

    Examples
    --------
    >>> ExplainedScans(margin=np.zeros(4), edges=np.zeros((4, 10))).contributions is None
    True
    """

    margin: np.ndarray
    edges: np.ndarray | None = None
    contributions: np.ndarray | None = None


@dataclass(frozen=True)
class MethodFacts:
    """Facts that a method declares about itself, for the plan, the summary and the progress display.

    Attributes
    ----------
    epochs : int or None
        Largest number of epochs; None if the method is not trained in epochs.
    reestimates : int or None
        Number of re-estimates of each scan (K); None if nothing is re-estimated.
    dead_rois : str or None
        Values for edges of an ROI without signal, as named in the method's setting.
    refits : bool
        Whether a run is trained again with its validation scans after the epoch has been chosen.
    relative_cost : float
        Rough cost of one run, in epochs of a simple neural network. It affects the displayed remaining time and, with
        Dask, the order in which stacks are trained, but no result.
    setting_without_validation : str
        Setting with which the method needs no validation scans, as ``key=value``; empty if there is none.
    chooses_epochs_by_inner_folds : bool
        Whether inner folds of the source scans choose the number of epochs if a fold has no validation scans.
    balances_classes : bool
        Whether the loss weights both classes equally, so that a logit of 0 stands for equal shares, whatever the share
        of patients among the source scans.
    holds : str
        Description of the information on source scans in a fitted run, for the model card.
    keeps_scans : str
        Description of data of individual source scans in a fitted run; empty if every number comes from many scans.
    explains : str
        Description of what :meth:`Method.explain` returns; empty if it returns None.
    uses_seed : bool
        Whether the seed affects anything besides the validation sites of a fold.
    frames_for : str
        Description of uses of the frames besides BOLD and re-estimates; empty if there are none.

    Examples
    --------
    >>> MethodFacts(epochs=80, dead_rois="source-mean").uses_seed
    True
    """

    epochs: int | None = None
    reestimates: int | None = None
    dead_rois: str | None = None
    refits: bool = False
    relative_cost: float = 2.0
    setting_without_validation: str = ""
    chooses_epochs_by_inner_folds: bool = False
    balances_classes: bool = False
    holds: str = "weights of a neural network, learned from all source scans"
    keeps_scans: str = ""
    explains: str = ""
    uses_seed: bool = True
    frames_for: str = ""


class TensorSpec(NamedTuple):
    """Requirements on a stored tensor; its values must always be finite."""

    shape: tuple[int | str, ...] | None
    low: float = -math.inf  # range of its values
    high: float = math.inf
    whole: bool = False  # whether it holds whole numbers (int64), else float32 or float64


ANY_TENSOR = TensorSpec(None)


class Method(ABC):
    """A method that learns from source sites and predicts scans of other sites.

    A subclass gets its name from the decorator :func:`brio.authoring.method`, declares the frozen dataclass of its
    ``settings``, and fits any number of runs at once. A fitted run can predict any scans: full scans or re-estimates.

    Parameters
    ----------
    settings : dataclass, optional
        An instance of ``Settings``; by default, one with the default values of the method.

    Examples
    --------
    >>> from brio.methods import make_method
    >>> ridge = make_method("ridge", {"penalties": 9})
    >>> isinstance(ridge, Method), ridge.settings.penalties
    (True, 9)
    """

    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Data needed besides connectomes and labels: "bold", "sites", "sex", "age", "motion" or "hemisphere"."""

    needs_all: ClassVar[bool] = True
    """Whether all needed covariates must be known; if not, those that a cohort lacks are NaN."""

    version: ClassVar[int] = 1
    """Part of the key of a run; increase it whenever the predictions of the method change."""

    needs_validation: bool = True
    """Whether the method chooses its model on validation scans; see ``MethodFacts`` for folds without them."""

    is_linear: ClassVar[bool] = False
    """Whether the margin is linear in features of a scan."""

    fits_on_cpu: ClassVar[bool] = False
    """Whether runs are fitted on the CPU, even in a job on a GPU; see :meth:`place_fit`."""

    Settings: ClassVar[type]
    """Dataclass of the settings: the type of ``settings`` in the subclass."""

    def __init_subclass__(cls) -> None:
        annotation = inspect.get_annotations(cls).get("settings")
        if "Settings" not in vars(cls) and annotation is not None:
            known = vars(sys.modules[cls.__module__])
            cls.Settings = eval(annotation, known) if isinstance(annotation, str) else annotation

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
            Connectomes of the whole cohort. Each run may learn only from its source scans.
        runs : sequence of Run
        progress : Progress
            Function that is called with a message and the completed share.

        Returns
        -------
        list of FittedRun
            The fitted runs, in the order of ``runs``.
        """

    @abstractmethod
    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Predict margins and representations of any scans with a fitted run.

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
        """Declare the tensors of a fitted run by their stored names, so that brio can check a stored model.

        A name that ends in ``*`` stands for all names with this prefix. By default brio checks only that values are
        finite.
        """
        return {"*": ANY_TENSOR}

    def changes_after(self, declaration: str, *names: str) -> bool:
        """Return whether a subclass redefines the methods that make the state, but not its declaration."""
        order = type(self).__mro__

        def find_owner(name: str) -> int:
            return next(k for k, owner in enumerate(order) if name in vars(owner))

        return min(map(find_owner, names)) < find_owner(declaration)

    @property
    def facts(self) -> MethodFacts:
        """Facts for the plan, the summary and the progress display."""
        return MethodFacts()

    def training_scans(self, cohort: Cohort, fold: Fold) -> np.ndarray:
        """Return the positions of the scans of a fold on which the finished model was trained.

        Returns
        -------
        ndarray of int64, shape [n]
            The source scans; after a refit, also the validation scans.
        """
        return fold.source

    def gather_inputs(self, connectomes: Connectomes) -> Inputs:
        """Gather the scans of a cohort with the data that this method needs."""
        return Inputs(connectomes, self.needs, self.settings, f"method '{self.name}'", self.needs_all)

    def predict_margins(self, fitted: FittedRun, connectomes: Connectomes, scans: np.ndarray) -> np.ndarray:
        """Predict margins of scans of a cohort.

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
        raise BrioError(
            f"method '{self.name}' has no connectome factors, so no contributions; use 'brio' or a variant of it"
        )

    def intercept(self, fitted: FittedRun) -> float | None:
        """Return the part of a margin to which no factor contributes; None if the method has no factors."""
        return None

    def explain(self, fitted: FittedRun) -> Explanation | None:
        """Return what a fitted run uses of a connectome; None if it has neither coefficients nor factors."""
        return None

    def read_explained(self, fitted: FittedRun, scans: Scans) -> ExplainedScans:
        """Compute for scans what :meth:`explain` describes: margins, values of edges, contributions of factors.

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
        raise BrioError(f"method '{self.name}' has no edge coefficients or factors to explain; use another method")

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the least memory in bytes that one run needs besides connectomes and a pass of re-estimates.

        With this estimate brio rejects a job that does not fit into memory before it starts. Return 0 if the method
        needs no other large memory.

        Parameters
        ----------
        n_scans, n_rois : int
            Numbers of scans and ROIs of the whole cohort.
        """
        return 0.0

    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int:
        """Estimate the memory in bytes of one more run in a stack. It determines how many runs train together."""
        return 0
