"""The bench of a study: one cohort, and arms that are trained when they are first asked for and kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..cohort import Cohort
from ..connectome import Connectomes
from ..diagnostics import run_discrepancies, source_block_length
from ..methods import entry
from ..progress import Progress, silent
from ..runs.execute import announce, execute
from ..runs.fitted import fitted_runs
from ..runs.plan import method_settings
from ..runs.prepare import Prepared, prepare
from ..runs.tables import FULL_SEEDS
from ..training import Method, Outcome, Run
from .arms import Arm, Finished, read_finished

__all__ = ["Bench"]


class Bench:
    """What studies share: the audited cohort, the protocol, and the runs of every arm under ``out/arms``.

    An arm is an ordinary job in a folder of its own, so two studies that ask for the same arm share its runs, and a
    study that was killed goes on.

    Parameters
    ----------
    cohort : Cohort or path of a cohort folder
    out : path
        ``arms/<protocol>/<arm>`` and ``studies/<name>`` are written here.
    seeds : int
    folds : names, optional
        Only these test sites (and as many of the folds in distribution): a smoke run.
    settings : dict, optional
        Settings of all arms that have them, of the protocol and the audit; methods with other settings than their own
        make a smoke run.
    methods : names, optional
        What studies that compare methods compare, instead of what the paper does.
    finished : folders
        Of ``brio run`` or ``brio tune``, whose rows stand for the arms they hold.
    words
        As for :func:`brio.run`.
    """

    def __init__(
        self,
        cohort: Cohort | str | Path,
        out: str | Path,
        *,
        seeds: int = FULL_SEEDS,
        folds: Sequence[str] | None = None,
        settings: dict[str, Any] | None = None,
        methods: Sequence[str] | None = None,
        finished: Sequence[str | Path] = (),
        progress: Progress = silent,
        say: Callable[[str], None] = lambda line: None,
        **words: Any,
    ) -> None:
        self.out, self.progress, self.say = Path(out), progress, say
        self.methods = None if methods is None else list(dict.fromkeys(methods))
        for name in self.methods or ():
            entry(name)  # an unknown name is told before anything is read
        self.elsewhere = [Path(folder) for folder in finished]
        self.prepared = prepare(cohort, seeds=seeds, settings=settings, folds=folds, **words)
        announce(dataclasses.replace(self.prepared, say=say))
        self._finished: dict[Arm, Finished] = {}
        self._discrepancies: dict[Arm, pd.DataFrame] = {}
        self._block_lengths: dict[tuple[str, int], float] = {}

    @property
    def graphs(self) -> Connectomes:
        """Connectomes of the cohort after exclusions."""
        return self.prepared.graphs

    @property
    def cohort(self) -> Cohort:
        return self.prepared.used

    @property
    def smoke(self) -> str:
        """Why nothing may be claimed from this bench; empty where all folds, three seeds and own settings count."""
        p = self.prepared
        why = ["not every fold"] if p.folds is not None else []
        why += [f"{len(p.seeds)} seed{'s' if len(p.seeds) > 1 else ''}"] if len(p.seeds) < FULL_SEEDS else []
        why += [f"{key}={value}" for key, value in p.of_methods.items()]
        return ", ".join(why)

    def train(self, arms: Sequence[Arm]) -> None:
        """Run every arm that is not finished; a method that the cohort cannot feed is an error before the first."""
        todo = [a for a in dict.fromkeys(arms) if a not in self._finished]
        for a in todo:
            method_settings([a.method], self._settings(a))
        for number, a in enumerate(todo):

            def told(message: str, share: float, number: int = number) -> None:
                done = f"arm {number + 1} of {len(todo)}" if len(todo) > 1 else ""
                self.progress(", ".join(filter(None, [done, message])), (number + share) / len(todo))

            self._finished[a] = self._taken(a) or self._trained(a, told)

    def finished(self, arm: Arm) -> Finished:
        """The finished runs of an arm."""
        self.train([arm])
        return self._finished[arm]

    def rows(self, arms: Sequence[Arm]) -> pd.DataFrame:
        """Every run of some arms, with the name of its arm and what its runs are made of (epochs, K)."""
        self.train(arms)
        parts = []
        for a in arms:
            done = self._finished[a]
            facts = {key: done.facts[key] for key in ("epochs", "K")}
            parts.append(done.rows.assign(arm=a.name, **facts))
        return pd.concat(parts, ignore_index=True)

    def fitted(self, arm: Arm) -> tuple[Method, list[Outcome]]:
        """The method and the fitted runs of an arm, with their weights."""
        if self.finished(arm).folder != self._folder(arm):  # rows that were handed in come without weights
            self._finished[arm] = self._trained(arm, self.progress)
        return fitted_runs(self._prepared(arm), arm.method, self._folder(arm))

    def discrepancies(self, arm: Arm) -> pd.DataFrame:
        """D_site and predictive variation of every run of an arm, on the same re-estimates for all arms."""
        if arm not in self._discrepancies:
            method, outcomes = self.fitted(arm)
            lengths = [self.block_length(o.run) for o in outcomes]
            found = run_discrepancies(method, outcomes, self.graphs, lengths)
            scores = self.finished(arm).rows.set_index(["fold", "seed"])["auc"]
            where = pd.MultiIndex.from_frame(found[["fold", "seed"]])
            self._discrepancies[arm] = found.assign(method=arm.name, auc=scores.loc[where].to_numpy())
        return self._discrepancies[arm]

    def block_length(self, run: Run) -> float:
        """The block length of a fold and seed that all diagnostics share."""
        key = run.fold.name, run.seed
        if key not in self._block_lengths:
            self._block_lengths[key] = source_block_length(self.graphs, run)
        return self._block_lengths[key]

    def _settings(self, arm: Arm) -> dict[str, Any]:
        """Settings of an arm: its own, and of those given for all the ones that its method has."""
        kind = entry(arm.method)
        known = {f.name for f in dataclasses.fields(kind.make.Settings)} - set(kind.fixed)
        return {k: v for k, v in self.prepared.of_methods.items() if k in known} | dict(arm.settings)

    def _prepared(self, arm: Arm, progress: Progress = silent) -> Prepared:
        folds = self.prepared.folds
        if folds is not None and arm.protocol == "kfold":
            folds = [str(k + 1) for k in range(len(folds))]
        return dataclasses.replace(
            self.prepared, protocol=arm.protocol, of_methods=self._settings(arm), folds=folds, progress=progress
        )

    def _taken(self, arm: Arm) -> Finished | None:
        """The runs of an arm from folders that were handed in; an arm with settings of its own is not in them."""
        if not arm.settings:
            for folder in self.elsewhere:
                found = read_finished(arm, folder, self.cohort.fingerprint)
                if found is not None:
                    return found
        return None

    def _trained(self, arm: Arm, progress: Progress) -> Finished:
        result = execute(self._prepared(arm, progress), [arm.method], self._folder(arm))
        return Finished(arm, self._folder(arm), result.rows, result.summary)

    def _folder(self, arm: Arm) -> Path:
        return self.out / "arms" / arm.protocol / arm.name
