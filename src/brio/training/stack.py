"""The runs axis: the parameters of many runs of one method, side by side."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.utils._pytree import tree_map

from .. import draws
from ..connectome import Connectomes
from ..device import pass_budget
from .ambient import during_step
from .contract import Batch, FittedRun, Params, Run, SourceScans, Stage
from .inputs import Inputs, InputShape, Scans
from .source_cells import SourceCells

if TYPE_CHECKING:
    from .contract import NeuralMethod

__all__ = ["Stack"]


class Stack:
    """R runs of one neural method.

    Attributes
    ----------
    params : dict of Tensor, shapes [R, ...]
        Trainable parameters, leaves of the graph.
    buffers : dict of Tensor, shapes [R, ...]
        Running statistics, changed in place by training steps.
    context : dict of Tensor, shapes [R, ...]
        What each run learned from its source scans outside gradient descent.
    """

    def __init__(
        self,
        method: NeuralMethod,
        inputs: Inputs | None,
        runs: Sequence[Run],
        network: nn.Module,
        params: Params,
        buffers: Params,
        context: dict[str, Tensor],
        sources: SourceCells | None,
    ) -> None:
        self.method, self._inputs, self.runs, self.network = method, inputs, list(runs), network
        self.params, self.buffers, self.context, self._sources = params, buffers, context, sources
        if sources is not None:
            self._cell_weight = self.tensor(sources.cell_weight)
            self._pair_weight = self.tensor(sources.pair_weight)

    @classmethod
    def build(cls, method: NeuralMethod, connectomes: Connectomes, runs: Sequence[Run]) -> Stack:
        """Fresh networks, each initialised from its own seed, and their contexts."""
        cohort = connectomes.cohort
        inputs, sources = method.inputs(connectomes), SourceCells(cohort, runs)
        shape = inputs.shape(int(sources.n_sites.max()))
        networks, contexts = [], []
        for run in runs:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(draws.key(run.seed, "initial weights").view(np.int64)))
                networks.append(method.network(shape))
            scans = run.fold.source
            source = SourceScans(connectomes, scans, cohort.sites[scans], cohort.labels[scans], run.seed)
            contexts.append(method.context(source))
        params, buffers = stack_module_state(networks)
        params = {name: _placed(p.detach(), connectomes.full).requires_grad_() for name, p in params.items()}
        buffers = {name: _placed(b, connectomes.full) for name, b in buffers.items()}
        context = {name: torch.stack([c[name] for c in contexts]) for name in contexts[0]}
        return cls(method, inputs, runs, networks[0], params, buffers, context, sources)

    @classmethod
    def restore(cls, method: NeuralMethod, like: Scans, fitted_runs: Sequence[FittedRun]) -> Stack:
        """The stack of finished runs, for inference on scans such as these."""
        network = method.network(InputShape(like.A.shape[-1], 1, like.bold.shape[-2]))
        unread = method.only_for_training
        stacked = {
            name: _placed(torch.stack([o.weights[name] for o in fitted_runs]), like.A)
            for name in fitted_runs[0].weights
            if not name.removeprefix("context.").startswith(unread or ("\0",))
        }
        held = {name for name, _ in network.named_parameters()}, {name for name, _ in network.named_buffers()}
        params, buffers = ({name: t for name, t in stacked.items() if name in names} for names in held)
        context = {name.removeprefix("context."): t for name, t in stacked.items() if name.startswith("context.")}
        return cls(method, None, [o.run for o in fitted_runs], network, params, buffers, context, None)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def sources(self) -> SourceCells:
        """Source scans of the runs; a restored stack has none."""
        if self._sources is None:
            raise RuntimeError("a stack of finished runs has no source scans")
        return self._sources

    @property
    def inputs(self) -> Inputs:
        """The scans of the cohort; a restored stack has none."""
        if self._inputs is None:
            raise RuntimeError("a stack of finished runs has no cohort")
        return self._inputs

    @property
    def connectomes(self) -> Connectomes:
        return self.inputs.connectomes

    @functools.cached_property
    def membership(self) -> tuple[Tensor, Tensor]:
        """:meth:`brio.training.source_cells.SourceCells.membership` of the runs, on the device."""
        scans, weight = self.sources.membership()
        return self.tensor(scans), self.tensor(weight)

    def tensor(self, array: np.ndarray) -> Tensor:
        """A host array on the device, floating point in the stack's precision."""
        return _placed(torch.from_numpy(np.asarray(array, order="C")), next(iter(self.params.values())))

    def losses(self, scans: Tensor, key: Tensor, epoch: Tensor, stage: Stage) -> Tensor:
        """Loss of every run on its batch.

        Parameters
        ----------
        scans : Tensor of int64, shape [R, E, 2, n]
            Positions in the cohort.
        key : Tensor of int64, shape [R]
            Address of the random numbers of the step.
        epoch : Tensor, scalar

        Returns
        -------
        Tensor, shape [R]
        """
        self.network.train()
        taken = self.inputs.take(scans.flatten(1))

        def loss(
            params: Params,
            buffers: Params,
            context: dict[str, Tensor],
            scans: Scans,
            cell_weight: Tensor,
            pair_weight: Tensor,
            key: Tensor,
        ) -> Tensor:
            batch = Batch(scans, cell_weight, pair_weight, epoch)

            def call(params: Params, scans: Scans) -> Any:
                return functional_call(self.network, params | buffers, (scans, context), strict=True)

            with during_step(key, batch.real):
                return self.method.objective(call, params, batch, context, stage)

        # runs of one seed draw the same numbers: then these are drawn once for all
        one_seed = len({run.seed for run in self.runs}) == 1
        mapped = torch.vmap(loss, in_dims=(0, 0, 0, 0, 0, 0, None if one_seed else 0))
        key = key[0] if one_seed else key
        found = mapped(self.params, self.buffers, self.context, taken, self._cell_weight, self._pair_weight, key)
        if found.shape != (len(self),):  # it would be broadcast against the runs and mix them
            raise RuntimeError(f"method '{self.method.name}': its loss is not one number, but {tuple(found.shape[1:])}")
        return found

    @torch.no_grad()
    def forward(self, scans: Scans, *, shared: bool = False, runs: Tensor | None = None) -> Any:
        """Outputs of the networks without gradient, in as many passes as memory asks for.

        Parameters
        ----------
        scans : Scans
            Leading axes [R, B], or [B] if ``shared``.
        shared : bool
            All runs see the same scans.
        runs : Tensor of int64, optional
            Only these runs of the stack.

        Returns
        -------
        NamedTuple of Tensor, shapes [R, B, ...]
        """
        self.network.eval()
        params, context = self.params | self.buffers, self.context
        if runs is not None:
            params = {name: p[runs] for name, p in params.items()}
            context = {name: c[runs] for name, c in context.items()}
        axis = 0 if shared else 1
        size = self.graphs_in_a_pass(len(next(iter(params.values()))), scans.A)

        def one(params: Params, context: dict[str, Tensor], scans: Scans) -> Any:
            return functional_call(self.network, params, (scans, context))

        mapped = torch.vmap(one, in_dims=(0, 0, None) if shared else 0)
        split = [field.split(size, axis) for field in scans]
        parts = [mapped(params, context, Scans(*fields)) for fields in zip(*split, strict=True)]
        if len(parts) == 1:
            return parts[0]
        return tree_map(lambda *t: torch.cat(t, dim=1), *parts)

    def graphs_in_a_pass(self, n_runs: int, A: Tensor | None = None) -> int:
        """Scans of each run that fit into one pass."""
        A = self.connectomes.full if A is None else A
        room = pass_budget(A.device) if self._inputs is None else min(pass_budget(A.device), self.step_bytes)
        return max(1, int(room / (self.method.bytes_per_scan(A) * n_runs)))

    @functools.cached_property
    def step_bytes(self) -> int:
        """What a training step may take, and at least 64 MiB: re-estimates made together, and a pass over them, take no
        more each. Memory grows with the scans and with K until these are filled, and no further; smaller ones cost
        time, since the host waits between them."""
        return max(64 << 20, sum(self.method.bytes_per_run(self.connectomes, run) for run in self.runs))

    def margins(self, scans: np.ndarray) -> np.ndarray:
        """Logits of full scans, given by position for each run. Shape [R, n] in and out, float64."""
        passes = self.tensor(scans).split(self.graphs_in_a_pass(len(self)), 1)
        logits = [self.forward(self.inputs.take(i)).logit for i in passes]
        return torch.cat(logits, 1).double().cpu().numpy()

    def select(self, keep: np.ndarray) -> Stack:
        """The stack of some of the runs (boolean mask)."""
        index = torch.from_numpy(np.flatnonzero(keep)).to(self.connectomes.device)
        return Stack(
            self.method,
            self.inputs,
            [run for run, k in zip(self.runs, keep, strict=True) if k],
            self.network,
            {name: p.detach()[index].requires_grad_() for name, p in self.params.items()},
            {name: b[index] for name, b in self.buffers.items()},
            {name: c[index] for name, c in self.context.items()},
            self.sources.select(keep),
        )

    def state(self) -> dict[str, Tensor]:
        """Parameters, buffers and context under one set of names, detached views. Shapes [R, ...]."""
        held = {name: p.detach() for name, p in self.params.items()}
        return held | self.buffers | {f"context.{name}": c for name, c in self.context.items()}


def _placed(t: Tensor, like: Tensor) -> Tensor:
    """A tensor on the device of another one, floating point in its precision.

    A GPU takes it when it gets there; the host need not wait."""
    if like.is_cuda and not t.is_cuda:
        t = t.pin_memory().to(like.device, non_blocking=True)
    return t.to(like.device, like.dtype if t.is_floating_point() else t.dtype)
