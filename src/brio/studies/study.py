"""What a study is: arms to train, something to find in them, and the files that tell it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..drawing import save_figure
from ..errors import BrioError, nearest
from ..jobs.store import write_atomically
from ..version import __version__
from .arms import Arm, printed
from .bench import Bench
from .summaries import p_value

__all__ = ["BEYOND", "PAPER", "Finding", "Study", "known_studies", "markdown", "run_study", "study"]


@dataclass(frozen=True, eq=False)
class Finding:
    """What a study found.

    Attributes
    ----------
    table : DataFrame
        Tidy: one row an observation, ``folds``, ``seeds``, ``epochs`` and ``K`` of the runs behind it included.
    summary : DataFrame
        What a reader wants to see of it, a few rows.
    text : list of str
        What was found, a sentence each.
    draw : function
        Makes the figure.
    digits : int, optional
        Significant digits of the table as it is written; by default all.
    """

    table: pd.DataFrame
    summary: pd.DataFrame
    text: list[str]
    draw: Callable[[], Any]
    digits: int | None = None


@dataclass(frozen=True)
class Study:
    """An experiment, of the paper or beyond it."""

    name: str
    title: str
    paper: str
    arms: Callable[[Bench], list[Arm]]
    find: Callable[[Bench], Finding]

    @property
    def summary(self) -> str:
        """First line of its docstring."""
        return (self.find.__doc__ or "").strip().splitlines()[0]


_STUDIES: dict[str, Study] = {}
PAPER = (
    *("comparison", "in-distribution", "ablation", "sensitivity", "agreement", "alignment", "mismatch", "retention"),
    *("scan-length", "efficiency", "regions", "propositions"),
)
BEYOND = ("plus",)


def study(
    name: str, title: str, paper: str, arms: Callable[[Bench], list[Arm]]
) -> Callable[[Callable[[Bench], Finding]], Callable[[Bench], Finding]]:
    """Register what finds something as a study.

    Parameters
    ----------
    name, title : str
    paper : str
        What the paper says it found, in words; its figures are not at hand.
    arms : function of the bench
        What must be trained first.
    """

    def register(find: Callable[[Bench], Finding]) -> Callable[[Bench], Finding]:
        _STUDIES[name] = Study(name, title, paper, arms, find)
        return find

    return register


def known_studies() -> list[Study]:
    """All studies, in the order in which the paper tells them, then those that go beyond it."""
    return [_STUDIES[name] for name in (*PAPER, *BEYOND)]


def find_study(name: str) -> Study:
    """A study by name."""
    if name not in _STUDIES:
        raise BrioError(f"study '{name}' is unknown; {nearest(name, [*_STUDIES, 'paper'])}")
    return _STUDIES[name]


def run_study(name: str, bench: Bench) -> Path:
    """Train what a study needs, find what it asks, and write it to ``studies/<name>`` of the bench's folder.

    ``table.csv``, ``figure.svg``, ``figure.png``, ``found.md`` and ``study.json``; ``paper`` runs all that are the
    paper's.
    """
    chosen = [_STUDIES[name] for name in PAPER] if name == "paper" else [find_study(name)]
    for s in chosen:
        bench.say(f"{s.name}: {s.title}")
        bench.train(s.arms(bench))
        with bench.prepared.device.network_precision():  # diagnostics apply fitted networks
            found = s.find(bench)
        _write(s, found, bench)
    place = bench.out / "studies"
    return place if name == "paper" else place / name


def _write(s: Study, found: Finding, bench: Bench) -> None:
    place = bench.out / "studies" / s.name
    place.mkdir(parents=True, exist_ok=True)
    form = None if found.digits is None else f"%.{found.digits}g"
    write_atomically(place / "table.csv", found.table.to_csv(index=False, lineterminator="\n", float_format=form))
    figure = found.draw()
    for ending in ("svg", "png"):
        save_figure(figure, place / f"figure.{ending}")
    smoke = bench.smoke(s.arms(bench))
    head = [f"This is a smoke run ({smoke}): no basis for a claim."] if smoke else []
    lines = [f"# {s.title}", "", *(line for text in (*head, *found.text, *_where(s, bench)) for line in (text, ""))]
    lines += [
        markdown(_shown(found.summary)),
        "",
        f"The paper: {s.paper}",
        "",
        f"![{s.title}](figure.png)",
    ]
    write_atomically(place / "found.md", "\n".join(lines) + "\n")
    facts = {
        "name": s.name,
        "title": s.title,
        "paper": s.paper,
        "text": [*head, *found.text],
        "smoke": smoke,
        "cohort": bench.cohort.name,
        "atlas": bench.cohort.atlas.name,
        "fingerprint": bench.cohort.fingerprint,
        "n_scans": len(bench.cohort),
        "folds": int(found.table["folds"].max()) if len(found.table) else 0,
        "seeds": len(bench.prepared.seeds),
        **{name: sorted({int(v) for v in found.table[name].dropna()}) for name in ("epochs", "K")},
        "arms": [a.name for a in s.arms(bench)],
        "asked": bench.asked(s.arms(bench)),
        "brio": __version__,
    }
    write_atomically(place / "study.json", json.dumps(facts, indent=1, default=str) + "\n")


def _where(s: Study, bench: Bench) -> list[str]:
    """On which devices the arms were computed, where it was more than one."""
    found: dict[str, list[str]] = {}
    for a in s.arms(bench):
        for device in bench.finished(a).rows["device"].dropna().unique():
            found.setdefault(str(device), []).append(printed(a.name))
    if len(found) < 2:
        return []
    usual = max(found, key=lambda device: len(found[device]))
    rest = "; ".join(f"on {device}: {', '.join(names)}" for device, names in found.items() if device != usual)
    return [f"Computed on {usual}; {rest}."]


def _shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A summary as readers see it: arms under the names that are printed, without what the text says of tests."""
    told = summary.drop(columns="warning", errors="ignore")
    if "arm" in told:
        told = told.assign(arm=told["arm"].map(printed))
    return told.rename(columns=lambda name: f"to {printed(name[3:])}" if name.startswith("to ") else name)


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown; numbers with as many digits as they deserve, what is missing as a dash.

    Examples
    --------
    >>> print(markdown(pd.DataFrame({"arm": ["a"], "auc": [71.234], "p": [None]})))
    | arm | auc | p |
    | --- | --- | --- |
    | a | 71.2 | - |
    """
    columns = [list(map(str, table.columns)), ["---"] * table.shape[1]]
    told = zip(*(_cells(table[name]) for name in table.columns), strict=True)
    return "\n".join("| " + " | ".join(row) + " |" for row in [*columns, *told])


def _cells(column: pd.Series) -> list[str]:
    """A column in words: percentages with one decimal, small numbers with three digits, p as sentences have it."""
    numbers = pd.to_numeric(column, errors="coerce").dropna().abs()
    form = "{:z.1f}" if (numbers >= 5).any() else "{:z.3g}"  # z: what rounds to nothing is not negative

    def cell(value: Any) -> str:
        if value is None or value is pd.NA or value != value:
            return "-"
        if not isinstance(value, float):
            return str(value).replace("|", "\\|")
        return p_value(value) if column.name == "p" else form.format(value)

    return [cell(value) for value in column]
