"""The bench of a study: one cohort, and arms that are trained when they are first asked for and kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..connectome import Connectomes
from ..diagnostics import estimate_source_block_length, measure_discrepancies
from ..errors import BrioError, nearest
from ..jobs.execute import announce, execute, planned
from ..jobs.fitted import load_fitted_runs, load_run_details
from ..jobs.plan import Plan, split_settings
from ..jobs.prepare import Prepared, prepare
from ..jobs.resume import earlier_plan, going_on
from ..jobs.tables import FULL_SEEDS
from ..methods import find_method, list_methods, make_method
from ..progress import Progress, silent
from ..protocol.metrics import ONE_CLASS
from ..training import FittedRun, Method, Run
from .arms import Arm, Finished
from .handed_in import keep, read_handed_in

__all__ = ["HANDED_IN", "Bench"]

HANDED_IN = "handed-in"


class Bench:
    """What studies share: the audited cohort, the protocol, and the runs of every arm under ``out/arms``.

    An arm is an ordinary job in a folder of its own, so two studies that ask for the same arm share its runs, and a
    study that was killed goes on.

    Parameters
    ----------
    cohort : Cohort or path of a cohort folder
    out : path
        ``arms/<protocol>/<arm>`` and ``studies/<name>`` are written here; rows that were handed in to
        ``handed-in/<protocol>/<arm>``.
    seeds : int
    folds : names, optional
        Only these test sites (and as many of the folds in distribution): a smoke run.
    settings : dict, optional
        Settings of all arms that have them, of the protocol and the audit; methods with other settings than their own
        make a smoke run.
    methods : names, optional
        What studies that compare methods compare, instead of what the paper does.
    finished : folders
        Of ``brio run`` or ``brio tune``, whose rows stand for the arms they hold, tuned ones where methods are compared
        with each other. Studies that look into fitted models train these arms themselves.
    words
        As for :func:`brio.run`.

    Attributes
    ----------
    left_out : dict of str
        Methods that :meth:`fed` left out, and why.
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
            find_method(name)  # an unknown name is told before anything is read
        _check_words(dict(settings or {}))
        self._asked = {
            "methods": self.methods,
            "seeds": seeds,
            "settings": dict(settings or {}),
            "folds": None if folds is None else list(folds),
            "companions": [c.atlas.name for c in words.get("companions", ())],
            "exclude": words.get("exclude", True),
            "runs_per_stack": words.get("runs_per_stack"),
            "finished": ["/".join(Path(f).resolve().parts[-2:]) for f in finished],
        }
        self.prepared = prepare(cohort, seeds=seeds, settings=settings, folds=folds, **words)
        p = self.prepared
        self.handed_in = [read_handed_in(Path(f), p.used.fingerprint, p.protocol_settings) for f in finished]
        announce(dataclasses.replace(p, say=say))
        self.left_out: dict[str, str] = {}
        self._finished: dict[Arm, Finished] = {}
        self._trained: dict[Arm, Finished] = {}
        self._discrepancies: dict[Arm, pd.DataFrame] = {}
        self._block_lengths: dict[tuple[str, int], float] = {}

    @property
    def graphs(self) -> Connectomes:
        """Connectomes of the cohort after exclusions."""
        return self.prepared.graphs

    @property
    def cohort(self) -> Cohort:
        return self.prepared.used

    def asked(self, arms: Sequence[Arm]) -> dict[str, Any]:
        """How a study with some arms was asked for, so that it can be asked for again; where its arms were trained,
        which need not be here. Of folders that were handed in the last two names."""
        trained = sorted(self.out.glob("arms/*/*/plan.json")) if arms else []
        here = self.prepared.device.name
        return self._asked | {"device": json.loads(trained[0].read_text("utf-8"))["device"] if trained else here}

    def smoke(self, arms: Sequence[Arm] = ()) -> str:
        """Why nothing may be claimed from some arms; empty where all folds, three seeds and own settings count."""
        p = self.prepared
        why = ["not every fold"] if p.folds is not None else []
        why += [f"{len(p.seeds)} seed{'s' if len(p.seeds) > 1 else ''}"] if len(p.seeds) < FULL_SEEDS else []
        why += [f"{key}={value}" for key, value in p.of_methods.items()]
        for a in arms:
            why += [f"{a.name} handed in with {key}={value}" for key, value in self.finished(a).changed.items()]
        return ", ".join(why)

    def fed(self, names: Sequence[str]) -> list[str]:
        """Those of some methods whose needs the cohort meets; of each other one a line says, once, what it lacks."""
        lacks = {name: self.prepared.lack(name) for name in names}
        for name, lack in lacks.items():
            if lack and name not in self.left_out:
                self.left_out[name] = lack
                self.say(f"left out: {lack}")
        return [name for name, lack in lacks.items() if not lack]

    def settings(self, method: str) -> Any:
        """The settings of a method's plain arm."""
        return make_method(method, self.prepared.given(method)).settings

    def train(self, arms: Sequence[Arm]) -> None:
        """Run every arm that is not finished; what one lacks is told before the first is trained."""
        wanted = [a for a in dict.fromkeys(arms) if a not in self._finished]
        plans = {a: self._planned(a) for a in wanted}
        taken = {a: self._taken(a, plan) for a, plan in plans.items()}
        left = [a for a in wanted if taken[a] is None]
        for a in left:
            earlier = earlier_plan(self._folder(a))
            if earlier is not None:
                going_on(earlier, plans[a], self._folder(a))
        for a, found in taken.items():
            if found is not None:
                keep(found, plans[a], self._prepared(a), self.out / HANDED_IN / a.protocol)
                self._finished[a] = found
        todo = [a for a in dict.fromkeys(a.untuned for a in left) if a not in self._finished]
        for number, a in enumerate(todo):

            def told(message: str, share: float, number: int = number) -> None:
                done = f"arm {number + 1} of {len(todo)}" if len(todo) > 1 else ""
                self.progress(", ".join(filter(None, [done, message])), (number + share) / len(todo))

            self._finished[a] = self._executed(a, told)
        self._finished |= {a: self._finished[a.untuned] for a in left}

    def finished(self, arm: Arm) -> Finished:
        """The finished runs of an arm, trained here or handed in."""
        self.train([arm])
        return self._finished[arm]

    def trained(self, arm: Arm) -> Finished:
        """The runs of an arm that were trained here and have their weights, also where rows of it were handed in."""
        if arm not in self._trained:
            done = self.finished(arm)
            here = done.folder == self._folder(arm)
            self._trained[arm] = done if here else self._executed(arm, self.progress)
        return self._trained[arm]

    def rows(self, arms: Sequence[Arm]) -> pd.DataFrame:
        """Every run of some arms, with the name of its arm and what its runs are made of (epochs, K)."""
        self.train(arms)
        parts = []
        for a in arms:
            done = self._finished[a]
            facts = {key: done.facts[key] for key in ("epochs", "K")}
            parts.append(done.rows.assign(arm=a.name, **facts))
        return pd.concat(parts, ignore_index=True)

    def fitted(self, arm: Arm) -> tuple[Method, list[FittedRun]]:
        """The method and the fitted runs of an arm, with their weights."""
        return load_fitted_runs(self._prepared(arm), arm.method, self.trained(arm).folder)

    def details(self, arm: Arm, *names: str) -> pd.DataFrame:
        """Of every run of an arm that was trained here: fold, seed, and what it noted under some names."""
        found = load_run_details(self._prepared(arm), arm.method, self.trained(arm).folder)
        return pd.DataFrame([{"fold": r.fold.name, "seed": r.seed} | {k: n.get(k) for k in names} for r, n in found])

    def discrepancies(self, arm: Arm) -> pd.DataFrame:
        """D_site and predictive variation of every run of an arm, on the same re-estimates for all arms."""
        if arm not in self._discrepancies:
            method, fitted_runs = self.fitted(arm)
            lengths = [self.block_length(o.run) for o in fitted_runs]
            found = measure_discrepancies(method, fitted_runs, self.graphs, lengths)
            scores = self.trained(arm).rows.set_index(["fold", "seed"])["auc"]
            where = pd.MultiIndex.from_frame(found[["fold", "seed"]])
            self._discrepancies[arm] = found.assign(method=arm.name, auc=scores.loc[where].to_numpy())
        return self._discrepancies[arm]

    def block_length(self, run: Run) -> float:
        """The block length of a fold and seed that all diagnostics share."""
        key = run.fold.name, run.seed
        if key not in self._block_lengths:
            self._block_lengths[key] = estimate_source_block_length(self.graphs, run)
        return self._block_lengths[key]

    def _planned(self, arm: Arm) -> Plan:
        """The plan of an arm; an error where it lacks something, or where none of its runs can be scored."""
        plan = planned(self._prepared(arm), [arm.method])
        runs = [job.run for job in plan.jobs.values()]
        if all(len(np.unique(self.cohort.labels[run.fold.test])) < 2 for run in runs):
            names = ", ".join(dict.fromkeys(run.fold.name for run in runs))
            raise BrioError(f"fold {names}: {ONE_CLASS}, so there is no AUC to study; ask for other folds")
        return plan

    def _taken(self, arm: Arm, plan: Plan) -> Finished | None:
        """The rows of an arm from the first folder handed in that holds it."""
        wanted = [(job.run.fold.name, job.run.seed) for job in plan.jobs.values()]
        found = next(filter(None, (folder.runs_of(arm, wanted) for folder in self.handed_in)), None)
        if found is None and any(f.runs_of(dataclasses.replace(arm, tuned=True), wanted) for f in self.handed_in):
            self.say(f"{arm.name}: tuned rows are not compared with parts of it that nobody tuned; it is trained here")
        return found

    def _prepared(self, arm: Arm, progress: Progress = silent) -> Prepared:
        p, folds = self.prepared, self.prepared.folds
        if folds is not None and arm.protocol == "kfold":
            folds = [str(k + 1) for k in range(min(len(set(folds)), p.protocol_settings.n_folds))]
        of_methods = self.prepared.given(arm.method) | dict(arm.settings)
        return dataclasses.replace(p, protocol=arm.protocol, of_methods=of_methods, folds=folds, progress=progress)

    def _executed(self, arm: Arm, progress: Progress) -> Finished:
        result = execute(self._prepared(arm, progress), [arm.method], self._folder(arm))
        return Finished(arm, self._folder(arm), result.rows, result.summary)

    def _folder(self, arm: Arm) -> Path:
        return self.out / "arms" / arm.protocol / arm.name


def _check_words(settings: dict[str, Any]) -> None:
    """Raise what is wrong with settings before anything is read: those unknown to every method, and harmonisation."""
    parts = split_settings(settings)
    known = {f.name for e in list_methods() for f in dataclasses.fields(e.method_class.Settings)}
    for key in parts[""]:
        if key not in known:
            raise BrioError(f"setting '{key}' is unknown to every method; {nearest(key, known)}")
    if parts["harmonise"]:
        raise BrioError(
            "harmonise is not for studies, which look into models of connectomes as they are; 'brio run' takes it"
        )
