"""The engine of this process: one stack after the other, all of them or one shard."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import BrioError
from ...progress import Progress
from ...results import RunStore
from ..job import Job
from ..plan import JobPlan
from ..spec import Engine


@dataclass(frozen=True)
class Shard:
    """Stacks ``number``, ``number + count``, ... of every plan."""

    number: int  # from 1
    count: int  # of shards

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise BrioError(f"--shard {text}: write i/n with i from 1 to n, for example 2/8")
        return cls(int(match[1]), int(match[2]))

    def numbers(self, n_stacks: int) -> range:
        """Return the numbers of its stacks, from 1."""
        return range(self.number, n_stacks + 1, self.count)


@dataclass(frozen=True)
class LocalEngine(Engine):
    """Train stacks in this process."""

    shard: Shard | None = None  # train only these stacks. Other processes then share the folder of the job

    @property
    def shares_folder(self) -> bool:
        """Whether other processes write to the folder at the same time: if this one has a shard."""
        return self.shard is not None

    def train(self, job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
        """Train one stack after the other, in the order of the plan; the first that fails ends the job."""
        from ..train import close_if_finished, estimate_costs, train_stack

        costs = estimate_costs(plan, job.cohort)
        mine = range(1, len(costs) + 1) if self.shard is None else self.shard.numbers(len(costs))
        total, done = sum(costs[number - 1] for number in mine), 0.0
        for number in mine:
            cost = costs[number - 1]
            if not close_if_finished(plan, number, store):
                progress = _take_share(job.progress, done, cost, total)
                train_stack(job, plan, number, store, progress=progress, allow_divergence=allow_divergence)
            done += cost


def _take_share(progress: Progress, done: float, cost: float, total: float) -> Progress:
    """Report the progress of one stack as the share of all stacks that is done."""

    def report(message: str, share: float) -> None:
        progress(message, (done + cost * share) / total)

    return report
