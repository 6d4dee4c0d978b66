"""What a folder holds: jobs with their tables, the arms a report compares, and studies."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import BrioError
from ...jobs.facts import FACTS
from ...jobs.tables import METRICS
from ...jobs.tuned import TUNED

__all__ = ["Arm", "Evidence", "PlannedRun", "Study", "read_folder"]

_SUMMARY = ("cohort", "atlas", "fingerprint", "n_scans", "n_excluded", "protocol", "folds", "seeds", "smoke_run")
_TEXT = {"dtype": {"fold": str, "site": str, "participant_id": str}, "na_values": [""], "keep_default_na": False}


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One folder of ``brio run`` or ``brio tune``."""

    folder: Path
    plan: dict[str, Any]
    summary: dict[str, Any]
    rows: pd.DataFrame
    predictions: pd.DataFrame
    audit: dict[str, Any] | None
    facts: dict[str, Any] | None
    tuning: dict[str, Any] | None

    @property
    def n_excluded(self) -> int:
        return len(self.plan["excluded"])

    @property
    def n_before(self) -> int:
        """Scans before exclusions."""
        return self.summary["n_scans"] + self.n_excluded

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """What is written of each finished run, without its predictions; ``folder`` says where its weights are."""
        found = []
        for key in (key for stack in self.plan["stacks"] for key in stack):
            path = self.folder / "runs" / key / "run.json"
            if path.is_file():
                record = _json(path)
                record.pop("predictions", None)
                found.append(record | {"folder": path.parent})
        return found


@dataclass(frozen=True, eq=False)
class Arm:
    """A method with settings, as one line of a table.

    Attributes
    ----------
    name : str
        What the reader sees: the method's name, or that of the arm where it has settings of its own.
    method : str
    job : PlannedRun
    plain : bool
        Whether it is the method as it comes, on the scans that most arms have: such arms are compared with each other;
        the settings of a sensitivity study, say, are not rivals.
    """

    name: str
    method: str
    job: PlannedRun
    plain: bool

    @property
    def found(self) -> dict[str, Any]:
        """Its entry in the summary."""
        return self.job.summary["methods"][self.method]

    @property
    def protocol(self) -> str:
        return self.job.summary["protocol"]

    @property
    def control(self) -> bool:
        return bool(self.found["control"])

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Its runs, under the name of the arm."""
        mine = self.job.rows[self.job.rows["method"] == self.method]
        return mine.assign(method=self.name)

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """What it said of test scans; runs that diverged said nothing."""
        mine = self.job.predictions[self.job.predictions["method"] == self.method]
        return mine.dropna(subset=["logit"])

    @property
    def records(self) -> list[dict[str, Any]]:
        return [r for r in self.job.records if r["row"]["method"] == self.method]


@dataclass(frozen=True, eq=False)
class Study:
    """A table and a figure of the paper, made again."""

    name: str
    folder: Path
    told: dict[str, Any]
    found: str
    table: pd.DataFrame | None


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything a report is made of.

    ``unfinished`` names arms that have no results yet, ``elsewhere`` those that studies count but other folders hold.
    """

    folder: Path
    jobs: list[PlannedRun]
    arms: list[Arm]
    studies: list[Study] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @property
    def audited(self) -> PlannedRun | None:
        """The first job that is compared, rather one that has its audit beside it."""
        jobs = [arm.job for arm in self.main]
        return next((job for job in jobs if job.audit is not None), jobs[0] if jobs else None)

    def under(self, protocol: str) -> list[Arm]:
        """The arms of a protocol."""
        return [arm for arm in self.arms if arm.protocol == protocol]

    @property
    def protocol(self) -> str:
        """The protocol the verdict is about: unseen sites, where they were tested."""
        return "loso" if self.under("loso") or not self.arms else self.arms[0].protocol

    @property
    def main(self) -> list[Arm]:
        """The methods of that protocol; where there are none as they come, all its arms."""
        arms = self.under(self.protocol)
        return [arm for arm in arms if arm.plain] or arms

    @property
    def varied(self) -> list[Arm]:
        """Arms of that protocol that vary the settings or the scans of a method."""
        main = set(self.main)
        return [arm for arm in self.under(self.protocol) if arm not in main]

    @property
    def smoke(self) -> str:
        """Why a study says of itself that it is a smoke run, or nothing; jobs say so in their summaries."""
        return next((str(study.told["smoke"]) for study in self.studies if study.told.get("smoke")), "")


def read_folder(folder: Path) -> Evidence:
    """Read a folder of ``brio run``, ``brio tune`` or ``brio study``.

    Raises
    ------
    BrioError
        If it is none of them, or something in it cannot be read.
    """
    if not folder.is_dir():
        raise BrioError(f"{folder}: there is no such folder; give the --out of 'brio run', 'brio tune' or 'brio study'")
    if (folder / "summary.json").is_file():
        job = _job(folder)
        arms = [Arm(name, name, job, plain=True) for name in job.summary["methods"]]
        return Evidence(folder, [job], arms, _studies(folder))
    places = sorted(p for p in (folder / "arms").glob("*/*") if p.is_dir())
    trained = {p.parts[-2:] for p in places}
    places += sorted(p for p in (folder / "handed-in").glob("*/*") if p.is_dir() and p.parts[-2:] not in trained)
    finished = [p for p in places if (p / "summary.json").is_file()]
    studies = _studies(folder)
    if not finished and not studies:
        told = "its runs are not finished" if (folder / "plan.json").is_file() or places else "it holds no results"
        raise BrioError(
            f"{folder}: {told} (no summary.json, no studies); give the folder of a finished 'brio run', 'brio tune' or "
            "'brio study'"
        )
    jobs = [_job(p) for p in finished]
    prints = Counter(job.summary["fingerprint"] for job in jobs if job.summary["protocol"] == "loso") or Counter(
        job.summary["fingerprint"] for job in jobs
    )
    usual = prints.most_common(1)[0][0] if prints else ""
    own = {p.parts[-2:] for p in places}
    arms = [arm for job in jobs for arm in _arms(job, usual, own)]
    waiting = ["/".join(p.parts[-2:]) for p in places if p not in finished]
    counted = {str(name) for study in studies for name in study.told.get("arms") or ()}
    elsewhere = sorted(counted - {p.name.removesuffix(TUNED) for p in places})
    return Evidence(folder, jobs, arms, studies, waiting, elsewhere)


def _arms(job: PlannedRun, usual: str, places: set[tuple[str, ...]]) -> list[Arm]:
    """The arms of a job under ``arms/``, which is named after its arm; that of tuned rows says so in its name where
    the method is among the places with its own settings as well."""
    methods, own = list(job.summary["methods"]), job.folder.name
    same = job.summary["fingerprint"] == usual
    if [own] == [f"{name}{TUNED}" for name in methods]:
        twin = (job.folder.parent.name, methods[0]) in places
        return [Arm(own if twin else methods[0], methods[0], job, plain=same)]
    if len(methods) == 1:
        return [Arm(own, methods[0], job, plain=same and own == methods[0])]
    return [Arm(m if own == m else f"{own}: {m}", m, job, plain=False) for m in methods]


def _job(folder: Path) -> PlannedRun:
    summary, plan = _json(folder / "summary.json"), _json(folder / "plan.json")
    _check(summary, plan, folder)
    optional = {n: _json(folder / n) if (folder / n).is_file() else None for n in ("audit.json", FACTS, "tuning.json")}
    return PlannedRun(
        folder=folder,
        plan=plan,
        summary=summary,
        rows=_csv(folder / "results.csv", ("method", "fold", "seed", "auc", "n_test", "n_source")),
        predictions=_predictions(folder / "predictions.csv", plan),
        audit=optional["audit.json"],
        facts=optional[FACTS],
        tuning=optional["tuning.json"],
    )


def _predictions(path: Path, plan: dict[str, Any]) -> pd.DataFrame:
    """What a job said of test scans; of rows that were handed in it need not be known."""
    columns = ("method", "fold", "seed", "site", "label", "logit")
    if "handed_in" in plan and not path.is_file():
        return pd.DataFrame(columns=[*columns, "participant_id", "probability"])
    return _csv(path, columns)


def _check(summary: dict[str, Any], plan: dict[str, Any], folder: Path) -> None:
    """Raise an error for people where a table of the job lacks what every report shows."""
    try:
        for name in _SUMMARY:
            summary[name]
        for name in ("methods", "stacks", "seeds", "excluded"):
            plan[name]
        for found in summary["methods"].values():
            for metric in (*METRICS, "auc_of_averaged_logits"):
                found[metric]["mean"], found[metric]["interval"], found[metric]["sd"], found[metric]["n"]
            found["control"], found["transductive"], found["family"]
        for name in summary["methods"]:
            plan["methods"][name]["settings"]
    except (KeyError, TypeError, AttributeError) as error:
        raise BrioError(
            f"{folder}: summary.json or plan.json is not what 'brio run' writes ({error!r} is missing or wrong); "
            "run it again"
        ) from error


def _studies(folder: Path) -> list[Study]:
    if not (folder / "studies").is_dir():
        return []
    from ...studies import known_studies  # only for their order

    out = []
    order = {study.name: k for k, study in enumerate(known_studies())}
    places = [p for p in (folder / "studies").glob("*") if p.is_dir()]
    for place in sorted(places, key=lambda p: (order.get(p.name, len(order)), p.name)):
        if not (place / "study.json").is_file():
            continue
        text = place / "found.md"
        table = place / "table.csv"
        out.append(
            Study(
                place.name,
                place,
                _json(place / "study.json"),
                text.read_text(encoding="utf-8", errors="replace") if text.is_file() else "",
                _csv(table, ()) if table.is_file() else None,
            )
        )
    return out


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrioError(f"{path}: cannot be read ({error}); finish or repeat the run that wrote it") from error
    if not isinstance(found, dict):
        raise BrioError(f"{path}: holds no table of facts; repeat the run that wrote it")
    return found


def _csv(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, **_TEXT)
    except (OSError, ValueError) as error:
        raise BrioError(f"{path}: cannot be read ({error}); finish or repeat the run that wrote it") from error
    for column in columns:
        if column not in table:
            raise BrioError(f"{path}: has no column '{column}'; repeat the run that wrote it")
    return table
