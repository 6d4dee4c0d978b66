"""The runs axis: the parameters of many runs of one method, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.utils._pytree import tree_map

from .. import draws
from ..connectome import Connectomes
from .contract import Batch, Outcome, Run, Source, Stage
from .sources import Sources

if TYPE_CHECKING:
    from .contract import NeuralMethod

__all__ = ["Stack"]

_PASS_BYTES = {"cpu": 128 << 20, "cuda": 4 << 30}


class Stack:
    """R runs of one neural method.

    Attributes
    ----------
    params : dict of Tensor, shapes [R, ...]
        Trainable parameters, leaves of the graph.
    context : dict of Tensor, shapes [R, ...]
        What each run learned from its source scans outside gradient descent.
    """

    def __init__(
        self,
        method: NeuralMethod,
        connectomes: Connectomes,
        runs: Sequence[Run],
        network: nn.Module,
        params: dict[str, Tensor],
        context: dict[str, Tensor],
        sources: Sources | None,
    ) -> None:
        self.method, self.connectomes, self.runs = method, connectomes, list(runs)
        self.network, self.params, self.context, self._sources = network, params, context, sources
        if sources is not None:
            self._cell_weight = self.tensor(sources.cell_weight)
            self._pair_weight = self.tensor(sources.pair_weight)

    @classmethod
    def build(cls, method: NeuralMethod, connectomes: Connectomes, runs: Sequence[Run]) -> Stack:
        """Fresh networks, each initialised from its own seed, and their contexts."""
        cohort = connectomes.cohort
        networks, contexts = [], []
        for run in runs:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(draws.key(run.seed, "initial weights").view(np.int64)))
                networks.append(method.network(connectomes.n_rois))
            scans = run.fold.source
            source = Source(connectomes, scans, cohort.sites[scans], cohort.labels[scans], run.seed)
            contexts.append(method.context(source))
        params, _ = stack_module_state(networks)
        params = {
            name: p.detach().to(connectomes.device, connectomes.dtype).requires_grad_() for name, p in params.items()
        }
        context = {name: torch.stack([c[name] for c in contexts]) for name in contexts[0]}
        return cls(method, connectomes, runs, networks[0], params, context, Sources(cohort, runs))

    @classmethod
    def restore(cls, method: NeuralMethod, connectomes: Connectomes, outcomes: Sequence[Outcome]) -> Stack:
        """The stack of finished runs, for inference on any cohort of the same atlas."""
        network = method.network(connectomes.n_rois)
        names = {name for name, _ in network.named_parameters()}
        unread = {f"context.{name}" for name in method.only_for_training}
        stacked = {
            name: torch.stack([o.weights[name].to(connectomes.device) for o in outcomes])
            for name in outcomes[0].weights
            if name not in unread
        }
        params = {name: t.to(connectomes.dtype) for name, t in stacked.items() if name in names}
        context = {name.removeprefix("context."): t for name, t in stacked.items() if name not in names}
        context = {n: t.to(connectomes.dtype) if t.is_floating_point() else t for n, t in context.items()}
        return cls(method, connectomes, [o.run for o in outcomes], network, params, context, None)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def sources(self) -> Sources:
        """Source scans of the runs; a restored stack has none."""
        if self._sources is None:
            raise RuntimeError("a stack of finished runs has no source scans")
        return self._sources

    def tensor(self, array: np.ndarray) -> Tensor:
        """A host array on the device, floating point in the stack's precision."""
        t = torch.from_numpy(np.ascontiguousarray(array)).to(self.connectomes.device)
        return t.to(self.connectomes.dtype) if t.is_floating_point() else t

    def losses(self, scans: np.ndarray | Tensor, stage: Stage) -> Tensor:
        """Loss of every run on its batch. ``scans``: shape [R, E, 2, n]; returns shape [R]."""
        index = scans if isinstance(scans, Tensor) else self.tensor(scans)
        batch = Batch(self.connectomes.full[index], self.connectomes.alive[index], self._cell_weight, self._pair_weight)

        def loss(params: dict[str, Tensor], context: dict[str, Tensor], batch: Batch) -> Tensor:
            out = functional_call(
                self.network, params, (batch.A.flatten(0, 2), batch.alive.flatten(0, 2), context), strict=True
            )
            return self.method.loss(out, batch, context, stage)

        return torch.vmap(loss)(self.params, self.context, batch)

    @torch.no_grad()
    def forward(self, A: Tensor, alive: Tensor, *, shared: bool = False, runs: Tensor | None = None) -> Any:
        """Outputs of the networks without gradient, in as many passes as memory asks for.

        Parameters
        ----------
        A, alive : Tensor, shapes [R, B, P, P] and [R, B, P], or without the first axis if ``shared``
        shared : bool
            All runs see the same graphs.
        runs : Tensor of int64, optional
            Only these runs of the stack.

        Returns
        -------
        NamedTuple of Tensor, shapes [R, B, ...]
        """
        params, context = self.params, self.context
        if runs is not None:
            params = {name: p[runs] for name, p in params.items()}
            context = {name: c[runs] for name, c in context.items()}
        axis = 0 if shared else 1
        size = self.graphs_in_a_pass(len(next(iter(params.values()))))

        def one(params: dict[str, Tensor], context: dict[str, Tensor], A: Tensor, alive: Tensor) -> Any:
            return functional_call(self.network, params, (A, alive, context), strict=True)

        mapped = torch.vmap(one, in_dims=(0, 0, None, None) if shared else 0)
        parts = [
            mapped(params, context, a, v) for a, v in zip(A.split(size, axis), alive.split(size, axis), strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        return tree_map(lambda *t: torch.cat(t, dim=1), *parts)

    def graphs_in_a_pass(self, n_runs: int) -> int:
        """Graphs of each run that fit into one pass; about ten matrices of each are alive at a time."""
        graph = self.connectomes.full[0].nbytes
        return max(1, _PASS_BYTES[self.connectomes.device.type] // (10 * graph * n_runs))

    def margins(self, scans: np.ndarray) -> np.ndarray:
        """Logits of full scans, given by position for each run. Shape [R, n] in and out, float64."""
        index = self.tensor(scans)
        passes = index.split(self.graphs_in_a_pass(len(self)), 1)
        logits = [self.forward(self.connectomes.full[i], self.connectomes.alive[i]).logit for i in passes]
        return torch.cat(logits, 1).double().cpu().numpy()

    def select(self, keep: np.ndarray) -> Stack:
        """The stack of some of the runs (boolean mask)."""
        index = torch.from_numpy(np.flatnonzero(keep)).to(self.connectomes.device)
        return Stack(
            self.method,
            self.connectomes,
            [run for run, k in zip(self.runs, keep, strict=True) if k],
            self.network,
            {name: p.detach()[index].requires_grad_() for name, p in self.params.items()},
            {name: c[index] for name, c in self.context.items()},
            self.sources.select(keep),
        )

    def state(self) -> dict[str, Tensor]:
        """Parameters and context under one set of names, detached views. Shapes [R, ...]."""
        held = {name: p.detach() for name, p in self.params.items()}
        return held | {f"context.{name}": c for name, c in self.context.items()}
