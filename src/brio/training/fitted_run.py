"""A run, the tensors it holds, and what is left of it after its fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ..errors import BrioError
from ..protocol import Fold

Tensors = dict[str, Tensor]


class TensorSpec(NamedTuple):
    """What a stored tensor must be; its values are always finite."""

    shape: tuple[int | str, ...] | None
    low: float = -math.inf  # range of its values
    high: float = math.inf
    whole: bool = False  # whether it holds whole numbers (int64), else float32 or float64


ANY_TENSOR = TensorSpec(None)


@dataclass(frozen=True, eq=False)
class Run:
    """One training: a fold and a seed."""

    fold: Fold
    seed: int


class RunState(NamedTuple):
    """What a run holds besides the parameters of its network, by name.

    For one run the tensors have the shapes that its method gives them; for a stack of runs a first axis [R] more.

    Attributes
    ----------
    learned : dict of Tensor
        Learned from the source scans before training, outside gradient descent.
    training : dict of Tensor
        Read by the loss or a refresh only; a fitted run predicts without it.
    inference : dict of Tensor
        Derived from the present weights and read by the network.
    """

    learned: Tensors
    training: Tensors
    inference: Tensors

    @classmethod
    def from_learned(cls, **learned: Tensor) -> RunState:
        """Make the state of a run that has learned something and not trained yet."""
        return cls(learned, {}, {})

    def select(self, rows: Tensor) -> RunState:
        """Select some runs of a stack by position (int64)."""
        return RunState(*({name: t[rows] for name, t in group.items()} for group in self))


def name_tensors(parameters: Tensors, state: RunState) -> Tensors:
    """Put all tensors of a run into one dictionary, each under the name of its group."""
    groups = {"parameters": parameters, **state._asdict()}
    return {f"{group}.{name}": t for group, tensors in groups.items() for name, t in tensors.items()}


def group_tensors(named: Tensors) -> tuple[Tensors, RunState]:
    """Split what :func:`name_tensors` made into parameters and state."""
    groups: dict[str, Tensors] = {"parameters": {}, "learned": {}, "training": {}, "inference": {}}
    for full_name, tensor in named.items():
        group, _, name = full_name.partition(".")
        if group not in groups or not name:
            raise BrioError(
                f"the weights hold a tensor '{full_name}' of no known group: they were written by an earlier version "
                "of brio; fit the model again"
            )
        groups[group][name] = tensor
    parameters = groups.pop("parameters")
    return parameters, RunState(**groups)


@dataclass(eq=False)
class FittedRun:
    """A run in memory after its fit.

    Attributes
    ----------
    run : Run
    test_logit : ndarray, shape [n_test]
        Logit margin of each test scan, in the order of ``run.fold.test``.
    validation_auc : float
        AUC on the validation scans at the chosen checkpoint or penalty; on the inner folds where there are no
        validation scans; NaN where training diverged.
    selected_epoch : int or None
        Epoch of the checkpoint, counted from 1; None where a method has no epochs.
    trained_epochs : int or None
        Epochs until the run stopped.
    block_length : float or None
        Fold-level block length l_b, unrounded; None where nothing was re-estimated.
    parameters : dict of Tensor
        Parameters and running statistics of the chosen network, or the coefficients of a model without one.
    state : RunState
        What the run holds besides them.
    details : dict
        Further plain facts about the run (a penalty, say), ready for JSON. ``calibration``, where there is one, holds
        slope and intercept that turn a margin into the logit of a probability; other margins are such logits already.
    steps : int or None
        Optimisation steps in the epochs until the run stopped, of all inner folds where these chose its epoch; those
        of the training that follows the choice are not counted.
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
        """All its tensors under the names they are stored with, see :func:`name_tensors`."""
        return name_tensors(self.parameters, self.state)

    def require_finite(self, name: str) -> None:
        """Raise a user-facing error if the training of this run diverged.

        Parameters
        ----------
        name : str
            Of the method.
        """
        if not (np.isfinite(self.validation_auc) and np.isfinite(self.test_logit).all()):
            raise BrioError(
                f"method '{name}', fold {self.run.fold.name}, seed {self.run.seed}: training diverged, no checkpoint "
                "has a finite score; lower learning_rate"
            )


class Prediction(NamedTuple):
    """What a fitted run predicts for some scans.

    Attributes
    ----------
    margin : ndarray of float64, shape [n]
        Logit margins.
    representation : ndarray of float64, shape [n, d]
        What the classifier reads.
    """

    margin: np.ndarray
    representation: np.ndarray
