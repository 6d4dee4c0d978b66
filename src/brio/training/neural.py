"""A neural method: a network and a loss for one run, trained for many runs at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..cohort import Cohort
from ..connectome import Connectomes
from ..console import Progress, silent
from ..protocol import Fold
from ..settings import BatchSize, Epochs, LearningRate, Weight, choice, setting
from . import contract
from .contract import Batch, FittedRun, InputShape, Method, Run, RunState, Scans, SourceScans, Stage, Tensors
from .stack import Stack, is_training_only
from .trainer import CheckpointStore, Trainer


@dataclass(frozen=True)
class NeuralSettings(contract.MethodSettings):
    """Settings that all neural networks share.

    Attributes
    ----------
    epochs : int
        Largest number of epochs. The number of batches in an epoch is the number of source scans divided by the
        number of scans in a batch, rounded down, and at least one.
    patience : int or None
        A run stops after this many epochs without a better validation AUC; ``none`` trains to the end.
    learning_rate, weight_decay : float
        Settings of the optimiser AdamW.
    cell_batch : int
        Number of scans of each source site and class in a batch. If a site has too few scans of a class, they are
        repeated.
    validation_auc : {"pooled", "site-mean"}
        AUC that chooses the checkpoint: over all validation scans together, or the mean of the AUCs of the sites.
    dead_rois : {"source-mean", "zero"}
        Values for edges of an ROI without signal: the mean connectome of the source sites, or zero.
    schedule : {"constant", "cosine"}
        Learning rate over the epochs: constant, or decreasing to a tenth of its initial value along half a cosine.
    refit : bool
        Whether a run is trained again, up to the epoch chosen on the validation scans, with these scans among the
        source scans.

    Examples
    --------
    >>> NeuralSettings(epochs=10).patience
    25
    """

    epochs: Epochs = 80
    patience: Epochs | None = 25
    learning_rate: LearningRate = setting(3e-4, choice(1e-4, 3e-4, 1e-3))
    weight_decay: Weight = 1e-4
    cell_batch: BatchSize = 4
    validation_auc: Literal["pooled", "site-mean"] = "pooled"
    dead_rois: Literal["source-mean", "zero"] = "source-mean"
    schedule: Literal["constant", "cosine"] = "constant"
    refit: bool = False


class NeuralMethod(Method):
    """A neural network and a loss, written for one run and trained for many runs at once.

    The trainer stacks the parameters of several runs along a first axis and maps network and loss over it, so both must
    be plain tensor code: no branches on values, no ``.item()``, no boolean indexing. Random numbers come from the
    :class:`~brio.training.StepContext` of the step; running statistics are buffers, changed in place during training.

    Parameters
    ----------
    settings : dataclass, optional
        An instance of ``Settings``; by default the method's own values.

    Examples
    --------
    >>> class Mine(NeuralMethod):
    ...     settings: NeuralSettings
    ...     def network(self, shape):
    ...         return nn.Linear(shape.n_rois, 1)
    >>> Mine(NeuralSettings(epochs=10)).facts.epochs
    10
    """

    settings: NeuralSettings
    training_only: ClassVar[tuple[str, ...]] = ()
    """Names of parameters, buffers or submodules of the network that inference does not read."""
    site_rows: ClassVar[tuple[str, ...]] = ()
    """Names of parameters and buffers with a row for each source site; a fitted run keeps the rows of its own sites."""
    peak_matrices_per_scan: ClassVar[float] = 28.0
    """Approximate number of P x P matrices that a step keeps for each scan; limits how many runs train together."""

    @abstractmethod
    def network(self, shape: InputShape) -> nn.Module:
        """Build a freshly initialised network.

        ``network(scans, step)`` returns an :class:`Output` or more; ``step`` is None at inference. Random initial
        values must not depend on ``shape.n_sites``, because this number belongs to the stack and not to the run.
        """

    def name_sites(self, cohort: Cohort, run: Run) -> np.ndarray:
        """Name the site of every scan for the training of a run; some ablations shuffle these names. Shape [N]."""
        return cohort.sites

    def learn(self, source: SourceScans) -> Tensors:
        """Learn tensors from the source scans before training; they become ``state.learned``.

        By default, this is ``mean``, the values for edges of ROIs without signal (``brio.connectome.fill_dead``).
        """
        return {"mean": source.mean_connectome(self.settings.dead_rois)}

    @property
    def facts(self) -> contract.MethodFacts:
        s = self.settings
        return contract.MethodFacts(
            epochs=s.epochs,
            dead_rois=s.dead_rois,
            refits=s.refit,
            relative_cost=float(s.epochs),
            chooses_epochs_by_inner_folds=True,
            balances_classes=True,
        )

    def training_scans(self, cohort: Cohort, fold: Fold) -> np.ndarray:
        return fold.move_validation_to_source(cohort).source if self.settings.refit else fold.source

    def declare_tensors(self, n_rois: int) -> dict[str, contract.TensorSpec]:
        """Declare the parameters and buffers of a new neural network, and the state."""
        s = self.settings
        n_frames = getattr(s, "bold_frames", 0) * getattr(s, "bold_windows", 1) if "bold" in self.needs else 0
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = self.network(InputShape(n_rois, 1, n_frames))
        tensors = dict(network.named_parameters()) | dict(network.named_buffers())
        declared = {f"parameters.{part}{end}": contract.ANY_TENSOR for part in self.training_only for end in ("", ".*")}
        declared |= {
            f"parameters.{name}": contract.TensorSpec(tuple(t.shape), whole=not t.is_floating_point())
            for name, t in tensors.items()
            if not is_training_only(name, self)
        }
        if self.changes_after("declare_state", "learn", "begin_stage", "update_inference_state"):
            return declared | {"learned.*": contract.ANY_TENSOR, "inference.*": contract.ANY_TENSOR}
        return declared | self.declare_state(n_rois)

    def declare_state(self, n_rois: int) -> dict[str, contract.TensorSpec]:
        """Declare the tensors that :meth:`learn` returns (``learned.``) and that inference reads (``inference.``)."""
        return {"learned.mean": contract.TensorSpec((n_rois, n_rois))}

    def stages(self) -> list[Stage]:
        """Return the stages of the training, in order."""
        return [Stage("training", self.settings.epochs)]

    def loss(self, out: Any, batch: Batch) -> Tensor:
        """Compute the loss of one run on one batch.

        Parameters
        ----------
        out : Output
            The output of the neural network for the batch.
        batch : Batch
            The batch, with the stage (``batch.stage``) and the state of the run (``batch.scans.state``).

        Returns
        -------
        Tensor, scalar
        """
        raise NotImplementedError(f"method '{self.name}' has no loss; define loss() or override objective()")

    def objective(self, call: contract.NetworkCall, params: Tensors, batch: Batch) -> Tensor:
        """Compute what a training step minimises: the loss of the network's output.

        Override this to train on inputs other than the batch (mixtures), or with other weights (a look-ahead).

        Parameters
        ----------
        call : function
            ``call(params, scans, step)`` runs the network.
        params : dict of Tensor
            Parameters of the run.
        batch : Batch

        Returns
        -------
        Tensor, scalar
        """
        return self.loss(call(params, batch.scans, batch.step), batch)

    def begin_stage(self, stack: Stack, stage: Stage) -> None:
        """Prepare a stage. brio calls this once when the stack enters the stage."""

    def refresh(self, stack: Stack, due: np.ndarray, number: int) -> None:
        """Refresh the state. brio calls this before an epoch in which a refresh is due.

        Parameters
        ----------
        stack : Stack
        due : ndarray of bool, shape [R]
            Runs that have not stopped.
        number : int
            Number of earlier refreshes in the stage.
        """

    def update_inference_state(self, stack: Stack) -> None:
        """Update the tensors of ``state.inference`` from the current weights. brio calls this before scoring."""

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        """Remove the padding of one run, which fills it up to the largest number of source sites in its stack.

        Parameters
        ----------
        parameters : dict of Tensor
        state : RunState
        n_sites : int
            Number of source sites of the run.
        """
        own = {name: parameters[name][:n_sites].contiguous().clone() for name in self.site_rows}
        return parameters | own, state

    def block_length(self, state: RunState) -> float | None:
        """Return the block length of the re-estimates of a run, not rounded; None if nothing is re-estimated."""
        return None

    def fit(
        self,
        connectomes: Connectomes,
        runs: Sequence[Run],
        progress: Progress = silent,
        checkpoints: CheckpointStore | None = None,
    ) -> list[FittedRun]:
        """Fit every run and score its test scans.

        Parameters
        ----------
        connectomes : Connectomes
            Connectomes of the whole cohort. Each run learns only from its source scans.
        runs : sequence of Run
        progress : Progress
            Function that is called with a message and the completed share.
        checkpoints : CheckpointStore, optional
            Store for the state of the stack between epochs. An interrupted fit resumes from there if everything that
            changes during training is in the stack (``params``, ``buffers``, ``state``).

        Returns
        -------
        list of FittedRun
            The fitted runs, in the order of ``runs``.
        """
        return Trainer(self, connectomes, checkpoints).fit(runs, progress)

    def predict(self, fitted: FittedRun, scans: Scans) -> contract.Prediction:
        out = Stack.restore(self, scans, [fitted]).forward(scans, shared=True)
        margin, representation = (t[0].double().cpu().numpy() for t in (out.logit, out.representation))
        return contract.Prediction(margin, representation)

    def bytes_per_run(self, connectomes: Connectomes, run: Run) -> int:
        cohort = connectomes.cohort
        n_sites = len(np.unique(cohort.sites[self.training_scans(cohort, run.fold)]))
        graph = connectomes.n_rois**2 * torch.empty(0, dtype=connectomes.dtype).element_size()
        return int(2 * n_sites * self.settings.cell_batch * graph * self.estimate_peak_matrices())

    def bytes_per_scan(self, A: Tensor) -> float:
        """Estimate the memory for one graph A without gradients. It determines how many graphs are in one pass."""
        return A.shape[-1] ** 2 * A.element_size() * self.estimate_peak_matrices() / 2.8

    def estimate_peak_matrices(self) -> float:
        """Estimate ``peak_matrices_per_scan`` if the settings change it considerably."""
        return self.peak_matrices_per_scan
