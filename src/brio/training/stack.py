"""A stack: batches balanced across sites and classes, the weights of several runs along one axis, AdamW for them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.utils._pytree import tree_map

from .. import draws
from ..cohort import Cohort
from ..connectome import Connectomes
from ..device import pass_budget
from ..errors import BrioError
from . import contract
from .contract import Batch, FittedRun, Inputs, Run, RunState, Scans, Stage, StepContext, Tensors

if TYPE_CHECKING:
    from .neural import NeuralMethod


def group_by_cell(site: np.ndarray, label: np.ndarray, where: str = "") -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """List the scans of each site and class; ``where`` begins the error where a site holds one class only.

    Shapes: site [n], label [n]; returns names [E].
    """
    names = np.unique(site)
    members = [[np.flatnonzero((site == name) & (label == c)) for c in (0, 1)] for name in names]
    for name, (controls, patients) in zip(names, members, strict=True):
        if not len(controls) or not len(patients):
            raise BrioError(f"{where}source site {name} has one class only, but both are needed; leave the site out")
    return names, members


def cell_average_weights(site: np.ndarray, label: np.ndarray) -> Tensor:
    """Return the weights that average scans over cells: 1 / N_ec for scans of site e and class c, else 0.

    For one run, as :meth:`SourceCells.cell_average` for a stack.

    Shapes: site [n], label [n]; returns [E, 2, n].
    """
    names, members = group_by_cell(site, label)
    weight = torch.zeros(len(names), 2, len(site), dtype=torch.float64)
    for e, cells in enumerate(members):
        for c, scans in enumerate(cells):
            weight[e, c, torch.from_numpy(scans)] = 1.0 / len(scans)
    return weight


class SourceCells:
    """The scans of each cell (run, source site, class) of a stack.

    Shapes: sites [N], members [R, E, 2, most], size [R, E, 2], n_sites [R].
    """

    def __init__(self, cohort: Cohort, runs: Sequence[Run], sites: Sequence[np.ndarray] | None = None) -> None:
        labels = cohort.labels
        sites = [cohort.sites] * len(runs) if sites is None else sites
        cells = []
        for run, own in zip(runs, sites, strict=True):
            source = run.fold.source
            _, members = group_by_cell(own[source], labels[source], f"fold {run.fold.name}: ")
            cells.append([[source[m] for m in of_site] for of_site in members])
        self.n_sites = np.array([len(run_cells) for run_cells in cells])
        most = max(len(m) for run in cells for site in run for m in site)
        shape = (len(runs), int(self.n_sites.max()), 2)
        self.size = np.zeros(shape, dtype=np.int64)
        self.members = np.zeros((*shape, most), dtype=np.int64)
        for r, run_cells in enumerate(cells):
            self.members[r] = run_cells[0][0][0]  # padding points at some source scan of the run; its weight is zero
            for e, site_cells in enumerate(run_cells):
                for c, scans in enumerate(site_cells):
                    self.size[r, e, c] = len(scans)
                    self.members[r, e, c, : len(scans)] = scans
        self.seeds = np.array([run.seed for run in runs], dtype=np.int64)
        self._ids = draws.addresses(cohort.ids)

    @property
    def real(self) -> np.ndarray:
        """Whether each member is a scan of the cell; the others pad it. Shape [R, E, 2, most]."""
        return np.arange(self.members.shape[-1]) < self.size[..., None]

    @property
    def cell_weight(self) -> np.ndarray:
        """Share of each cell in a loss that weighs source sites and classes equally. Shape [R, E, 2]."""
        return (self.size > 0) / (2.0 * self.n_sites[:, None, None])

    @property
    def pair_weight(self) -> np.ndarray:
        """Share of each unordered pair of source sites. Shape [R, E (E - 1) / 2]."""
        first, second = np.triu_indices(self.size.shape[1], 1)
        real = self.size[:, :, 0] > 0
        pairs = self.n_sites * (self.n_sites - 1) / 2.0
        return (real[:, first] & real[:, second]) / np.maximum(pairs, 1.0)[:, None]

    def cell_average(self) -> tuple[np.ndarray, np.ndarray]:
        """Source scans of each run and the weights that average them over their cells.

        Sums over a run's source scans do not depend on how many other scans the cohort holds, not even in the last bit.

        Shapes: returns scans [R, n], weight [R, E, 2, n].
        """
        total = self.size.sum((1, 2))
        scans = np.repeat(self.members[:, 0, 0, :1], total.max(), axis=1)
        weight = np.zeros((*self.size.shape, int(total.max())))
        for r, real in enumerate(self.real):
            site, label, _ = np.nonzero(real)
            scans[r, : total[r]] = self.members[r][real]
            weight[r, site, label, np.arange(total[r])] = 1.0 / self.size[r, site, label]
        return scans, weight

    def select(self, keep: np.ndarray) -> SourceCells:
        """Select some of the runs (boolean mask, shape [R])."""
        out = object.__new__(SourceCells)
        out.n_sites, out.size, out.members = self.n_sites[keep], self.size[keep], self.members[keep]
        out.seeds, out._ids = self.seeds[keep], self._ids
        return out

    def shuffle(self, *address: str | int) -> np.ndarray:
        """Order the scans of each cell by draws from seed, address and participant. Shape [R, E, 2, most]."""
        key = draws.draw_uniform(self.seeds[:, None, None, None], *address, self._ids[self.members])
        order = np.argsort(np.where(self.real, key, 2.0), axis=-1, kind="stable")
        return np.take_along_axis(self.members, order, axis=-1)

    def steps(self, cell_batch: int) -> np.ndarray:
        """Optimisation steps of an epoch: as many batches as fit into the number of source scans. Shape [R]."""
        return np.maximum(1, self.size.sum((1, 2)) // (2 * self.n_sites * cell_batch))

    def batches(self, epoch: int, cell_batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the scans of every step of an epoch.

        The scans of a cell come in an order drawn from seed, epoch and participant. A cell with fewer scans than the
        epoch needs starts over, so the counts of two scans of a cell differ by at most one.

        Shapes: returns batches [steps, R, E, 2, cell_batch], active [steps, R].
        """
        steps, ordered = self.steps(cell_batch), self.shuffle("batches", epoch)
        slot = np.arange(int(steps.max()) * cell_batch) % np.maximum(self.size, 1)[..., None]
        drawn = np.take_along_axis(ordered, slot, axis=-1)  # [R, E, 2, steps * n]
        drawn = drawn.reshape(*self.size.shape, int(steps.max()), cell_batch)
        return np.moveaxis(drawn, 3, 0), np.arange(int(steps.max()))[:, None] < steps


class StackedAdamW:
    """Decoupled weight decay (Loshchilov & Hutter 2019) for parameters with a leading runs axis.

    ``torch.optim.AdamW`` has one step count for all parameters; here each run has its own, since the runs of a stack
    have epochs of different lengths. A parameter without a gradient is not changed, not even by the decay.

    Shapes: params [R, ...].
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, params: Tensors, learning_rate: float, weight_decay: float) -> None:
        self.params, self.weight_decay = params, weight_decay
        self.mean = {name: torch.zeros_like(p) for name, p in params.items()}
        self.square = {name: torch.zeros_like(p) for name, p in params.items()}
        first = next(iter(params.values()))
        self.steps = torch.zeros(len(first), dtype=torch.float64, device=first.device)
        # changed in place, so that a recorded CUDA graph reads the new value
        self.rate = torch.full((), learning_rate, dtype=torch.float64, device=first.device)

    def forget(self) -> None:
        """Reset running averages and step counts, in place."""
        for tensor in (*self.mean.values(), *self.square.values(), self.steps):
            tensor.zero_()

    @torch.no_grad()
    def step(self, active: Tensor) -> None:
        """Update the active runs from the gradients in ``.grad``. ``active``: bool, shape [R]."""
        self.steps += active
        names = [name for name, p in self.params.items() if p.grad is not None]
        if not names:
            return
        params, mean, square = ([group[n] for n in names] for group in (self.params, self.mean, self.square))
        grads = [p.grad for p in params if p.grad is not None]
        count = self.steps.clamp_min(1)

        def shape(value: Tensor) -> list[Tensor]:
            """One value for each run, shaped to multiply each parameter."""
            value = value.to(params[0].dtype)
            return [value.view(-1, *(1,) * (p.ndim - 1)) for p in params]

        # all factors of an inactive run are zero: nothing of it moves
        keep1, keep2, decay, size = (
            shape(torch.where(active, value, torch.zeros_like(value)))
            for value in (
                torch.full_like(count, 1 - self.beta1),
                torch.full_like(count, 1 - self.beta2),
                (self.rate * self.weight_decay).expand_as(count),
                self.rate / (1 - self.beta1**count),
            )
        )
        root = shape((1 - self.beta2**count).rsqrt())
        torch._foreach_add_(mean, torch._foreach_mul(torch._foreach_sub(grads, mean), keep1))
        squared = torch._foreach_mul(grads, grads)
        torch._foreach_add_(square, torch._foreach_mul(torch._foreach_sub(squared, square), keep2))
        scale = torch._foreach_mul(torch._foreach_sqrt(square), root)
        torch._foreach_add_(scale, self.epsilon)
        change = torch._foreach_div(torch._foreach_mul(mean, size), scale)
        torch._foreach_add_(change, torch._foreach_mul(params, decay))
        torch._foreach_sub_(params, change)
        for p in params:
            p.grad = None

    def select(self, params: dict[str, Tensor], keep: Tensor) -> None:
        """Continue with some of the runs."""
        self.params = params
        self.mean = {name: m[keep] for name, m in self.mean.items()}
        self.square = {name: s[keep] for name, s in self.square.items()}
        self.steps = self.steps[keep]


class Stack:
    """R runs of one neural method.

    Make one with :meth:`build` (to train) or :meth:`restore` (to predict).

    Attributes
    ----------
    method : NeuralMethod
    runs : list of Run
    network : torch.nn.Module
        Network of one run, called with the parameters of each.
    params : dict of Tensor, shapes [R, ...]
        Trainable parameters, leaves of autograd.
    buffers : dict of Tensor, shapes [R, ...]
        Running statistics, changed in place by training steps.
    state : RunState, shapes [R, ...]
        Tensors of each run besides its parameters.
    inputs, sources, connectomes
        Scans of the cohort, source scans of the runs, connectomes; a restored stack has none of them.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> from brio.methods import make_method
    >>> from brio.protocol import leave_one_site_out
    >>> cohort = simulate(Simulation(n_sites=5, per_class=5))
    >>> runs = [contract.Run(fold, seed=0) for fold in leave_one_site_out(cohort, seed=0)]
    >>> stack = Stack.build(make_method("mlp", {"width": 4}), Connectomes(cohort), runs)
    >>> {len(tensor) for tensor in stack.params.values()}
    {5}
    """

    def __init__(
        self,
        method: NeuralMethod,
        inputs: Inputs | None,
        runs: Sequence[Run],
        network: nn.Module,
        params: Tensors,
        buffers: Tensors,
        state: RunState,
        sources: SourceCells | None,
    ) -> None:
        self.method, self.runs, self.network = method, list(runs), network
        self.params, self.buffers, self.state = params, buffers, state
        if inputs is not None and sources is not None:
            self.inputs, self.sources, self.connectomes = inputs, sources, inputs.connectomes
            self._weights = self.to_tensor(sources.cell_weight), self.to_tensor(sources.pair_weight)

    @classmethod
    def build(cls, method: NeuralMethod, connectomes: Connectomes, runs: Sequence[Run]) -> Stack:
        """Build new networks, each initialised from its own seed, and learn what each run needs before training.

        Parameters
        ----------
        method : NeuralMethod
        connectomes : Connectomes
        runs : sequence of Run

        Returns
        -------
        Stack
        """
        sites = [method.name_sites(connectomes.cohort, run) for run in runs]
        inputs, sources = method.gather_inputs(connectomes), SourceCells(connectomes.cohort, runs, sites)
        shape = inputs.shape(int(sources.n_sites.max()))
        networks, learned = [], []
        for run, own_sites in zip(runs, sites, strict=True):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(draws.key(run.seed, "initial weights").view(np.int64)))
                networks.append(method.network(shape))
            learned.append(method.learn(contract.SourceScans.of_run(connectomes, run, own_sites)))
        params, buffers = stack_module_state(networks)
        params = {name: _place_like(p.detach(), connectomes.full).requires_grad_() for name, p in params.items()}
        buffers = {name: _place_like(b, connectomes.full) for name, b in buffers.items()}
        state = RunState({name: torch.stack([one[name] for one in learned]) for name in learned[0]}, {}, {})
        return cls(method, inputs, runs, networks[0], params, buffers, state, sources)

    @classmethod
    def restore(cls, method: NeuralMethod, like: Scans, fitted_runs: Sequence[FittedRun]) -> Stack:
        """Restore the stack of fitted runs, for inference.

        Parameters
        ----------
        method : NeuralMethod
            With the settings that the runs were fitted with.
        like : Scans
            Scans like those to be predicted; they determine shape, precision and device.
        fitted_runs : sequence of FittedRun
            Their tensors have the same shapes.

        Returns
        -------
        Stack

        Raises
        ------
        BrioError
            If a fitted run lacks a tensor that inference reads.
        """
        # Building the network draws weights that are replaced below; the global random state must not change.
        # n_sites only shapes what inference does not read (training_only), so any value does.
        with torch.random.fork_rng(devices=[]):
            network = method.network(contract.InputShape(like.A.shape[-1], 1, like.bold.shape[-2]))

        def stack_tensors(names: Iterable[str], tensors: list[Tensors]) -> Tensors:
            for name in names:
                if any(name not in one for one in tensors):
                    whose = f"method '{method.name}': the stored weights lack '{name}'"
                    raise BrioError(f"{whose}, perhaps because an earlier version wrote them; fit the run again")
            return {name: _place_like(torch.stack([one[name] for one in tensors]), like.A) for name in names}

        parameters = [fitted.parameters for fitted in fitted_runs]
        params, buffers = (
            stack_tensors([name for name, _ in named if not is_training_only(name, method)], parameters)
            for named in (network.named_parameters(), network.named_buffers())
        )
        states = [fitted.state for fitted in fitted_runs]
        learned = stack_tensors(states[0].learned, [state.learned for state in states])
        inference = stack_tensors(states[0].inference, [state.inference for state in states])
        runs = [fitted.run for fitted in fitted_runs]
        return cls(method, None, runs, network, params, buffers, RunState(learned, {}, inference), None)

    def __len__(self) -> int:
        return len(self.runs)

    @functools.cached_property
    def cell_average(self) -> tuple[Tensor, Tensor]:
        """Source scans of each run, and the weights that average them over cells. Shapes [R, n] and [R, E, 2, n]."""
        scans, weight = self.sources.cell_average()
        return self.to_tensor(scans), self.to_tensor(weight)

    def to_tensor(self, array: np.ndarray) -> Tensor:
        """Put an array on the device, floating point in the stack's precision."""
        return _place_like(torch.from_numpy(np.asarray(array, order="C")), next(iter(self.params.values())))

    def compute_losses(self, scans: Tensor, key: Tensor, epoch: Tensor, stage: Stage) -> Tensor:
        """Compute the loss of every run on its batch.

        Parameters
        ----------
        scans : Tensor of int64, shape [R, E, 2, n]
            Positions in the cohort.
        key : Tensor of int64, shape [R]
            Key of the random numbers of the step (``brio.draws.key``).
        epoch : Tensor, scalar
            Counted from 1.
        stage : Stage

        Returns
        -------
        Tensor, shape [R]
        """
        self.network.train()
        scans_of_runs = self.inputs.take(scans.flatten(1))
        cells = scans.shape[1:]  # sites, classes and scans of each
        site = torch.arange(cells[0], device=scans.device)[:, None, None].expand(cells).flatten()

        def loss(params: Tensors, buffers: Tensors, state: RunState, scans: Scans, *more: Tensor) -> Tensor:
            cell_weight, pair_weight, key = more
            real = (cell_weight > 0).to(cell_weight.dtype)[:, :, None].expand(cells).flatten()
            step = StepContext(key, real, site)
            batch = Batch(scans._replace(state=state), cell_weight, pair_weight, epoch, step, stage)

            def call(params: Tensors, scans: Scans, step: StepContext) -> Any:
                return functional_call(self.network, params | buffers, (scans, step), strict=True)

            return self.method.objective(call, params, batch)

        # runs of one seed draw the same numbers: then these are drawn once for all
        one_seed = len({run.seed for run in self.runs}) == 1
        mapped = torch.vmap(loss, in_dims=(0, 0, 0, 0, 0, 0, None if one_seed else 0))
        key = key[0] if one_seed else key
        losses = mapped(self.params, self.buffers, self.state, scans_of_runs, *self._weights, key)
        if losses.shape != (len(self),):  # it would be broadcast against the runs and mix them
            shape = tuple(losses.shape[1:])
            raise RuntimeError(f"method '{self.method.name}': its loss must be a single number, but has shape {shape}")
        return losses

    @torch.no_grad()
    def forward(self, scans: Scans, *, shared: bool = False, runs: Tensor | None = None) -> Any:
        """Run the networks without gradient, in as many passes as memory requires.

        Parameters
        ----------
        scans : Scans
            Leading axes [R, B], or [B] if ``shared``.
        shared : bool
            Whether all runs see the same scans.
        runs : Tensor of int64, optional
            Positions of the runs to take; by default all.

        Returns
        -------
        NamedTuple of Tensor
            Shapes [R, B, ...], or [len(runs), B, ...] if ``runs`` is given.
        """
        self.network.eval()
        params, state = self.params | self.buffers, self.state
        if runs is not None:
            params = {name: p[runs] for name, p in params.items()}
            state = state.select(runs)
        axis = 0 if shared else 1
        size = self.scans_per_pass(len(next(iter(params.values()))), scans.A)

        def one(params: Tensors, state: RunState, scans: Scans) -> Any:
            return functional_call(self.network, params, (scans._replace(state=state), None))

        mapped = torch.vmap(one, in_dims=(0, 0, None) if shared else 0)
        parts = [mapped(params, state, part) for part in scans.split(size, axis)]
        if len(parts) == 1:
            return parts[0]
        return tree_map(lambda *t: torch.cat(t, dim=1), *parts)

    def scans_per_pass(self, n_runs: int, A: Tensor | None = None) -> int:
        """Compute how many scans of each run fit into one pass without gradient.

        Parameters
        ----------
        n_runs : int
        A : Tensor, shape [..., P, P], optional
            Connectomes like those of the pass; by default those of the cohort.

        Returns
        -------
        int
            At least 1.
        """
        A = self.connectomes.full if A is None else A
        room = min(pass_budget(A.device), self.step_bytes) if hasattr(self, "inputs") else pass_budget(A.device)
        return max(1, int(room / (self.method.bytes_per_scan(A) * n_runs)))

    @functools.cached_property
    def step_bytes(self) -> int:
        """Limit in bytes for one chunk of re-estimates, and for one pass over it.

        It is what a training step needs, at least 64 MiB, on a GPU 4 GiB. The limit bounds memory for any number of
        scans and any K; a smaller one would be slower, since a pass takes the host some milliseconds.
        """
        least = (4 << 30) if self.connectomes.device.type == "cuda" else (64 << 20)
        return max(least, sum(self.method.bytes_per_run(self.connectomes, run) for run in self.runs))

    def score_scans(self, scans: np.ndarray) -> np.ndarray:
        """Compute the logits of full scans of each run.

        Parameters
        ----------
        scans : ndarray of int64, shape [R, n]
            Positions in the cohort.

        Returns
        -------
        ndarray of float64, shape [R, n]
        """
        passes = self.to_tensor(scans).split(self.scans_per_pass(len(self)), 1)
        logits = [self.forward(self.inputs.take(i)).logit for i in passes]
        return torch.cat(logits, 1).double().cpu().numpy()

    def select(self, keep: np.ndarray) -> Stack:
        """Select some of the runs (boolean mask, shape [R])."""
        index = torch.from_numpy(np.flatnonzero(keep)).to(self.connectomes.device)
        return Stack(
            self.method,
            self.inputs,
            [run for run, k in zip(self.runs, keep, strict=True) if k],
            self.network,
            {name: p.detach()[index].requires_grad_() for name, p in self.params.items()},
            {name: b[index] for name, b in self.buffers.items()},
            self.state.select(index),
            self.sources.select(keep),
        )

    def checkpoint(self) -> Tensors:
        """Return parameters, running statistics and state by name (``name_tensors``), detached views [R, ...]."""
        return contract.name_tensors({name: p.detach() for name, p in self.params.items()} | self.buffers, self.state)


def is_training_only(name: str, method: NeuralMethod) -> bool:
    """Return whether a parameter or buffer, or a module that contains it, is not read by inference."""
    return any(name == part or name.startswith(f"{part}.") for part in method.training_only)


def _place_like(t: Tensor, like: Tensor) -> Tensor:
    """Put a tensor on the device of another one, floating point in its precision.

    The copy to a GPU is asynchronous; the host does not wait."""
    if like.is_cuda and not t.is_cuda:
        t = t.pin_memory().to(like.device, non_blocking=True)
    return t.to(like.device, like.dtype if t.is_floating_point() else t.dtype)
