"""What a study is: arms to train, a function that finds something in them, and the files it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..drawing import save_figure
from ..errors import BrioError, nearest
from ..results import StoredStudy, StudyRecord
from ..results.format import format_frame
from ..version import __version__
from .arms import Arm, display_name
from .context import StudyContext

__all__ = ["BEYOND", "PAPER", "Finding", "Study", "find_study", "list_studies", "run_study", "study"]


@dataclass(frozen=True, eq=False)
class Finding:
    """What a study found.

    Attributes
    ----------
    table : DataFrame
        Tidy: one row per observation, with ``folds``, ``seeds``, ``epochs`` and ``K`` of the runs behind it.
    summary : DataFrame
        The few rows that a reader wants to see of it.
    text : list of str
        What was found, a sentence each.
    draw : function
        Draws the figure.
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
    """An experiment, of the paper or beyond it.

    Attributes
    ----------
    name, title : str
    paper : str
        What the paper reports, in words.
    arms : function of a StudyContext
        What must be trained first.
    find : function of a StudyContext
        Makes the :class:`Finding`.
    """

    name: str
    title: str
    paper: str
    arms: Callable[[StudyContext], list[Arm]]
    find: Callable[[StudyContext], Finding]

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
    name: str, title: str, paper: str, arms: Callable[[StudyContext], list[Arm]]
) -> Callable[[Callable[[StudyContext], Finding]], Callable[[StudyContext], Finding]]:
    """Register a function that makes a finding as a study.

    Parameters
    ----------
    name, title : str
    paper : str
        What the paper reports, in words; its figures are not at hand.
    arms : function of a StudyContext
        What must be trained first.
    """

    def register(find: Callable[[StudyContext], Finding]) -> Callable[[StudyContext], Finding]:
        _STUDIES[name] = Study(name, title, paper, arms, find)
        return find

    return register


def list_studies() -> list[Study]:
    """List all studies: those of the paper in its order, then those that go beyond it."""
    return [_STUDIES[name] for name in (*PAPER, *BEYOND)]


def find_study(name: str) -> Study:
    """Return a study by name."""
    if name not in _STUDIES:
        raise BrioError(f"study '{name}' is unknown; {nearest(name, [*_STUDIES, 'paper'])}")
    return _STUDIES[name]


def run_study(name: str, context: StudyContext) -> Path:
    """Train what a study needs, make its finding and write it to ``studies/<name>`` of the context's folder.

    The files are ``table.csv``, ``figure.svg``, ``figure.png``, ``finding.md`` and ``study.json``.

    Parameters
    ----------
    name : str
        Of a study; ``paper`` for all of the paper's.
    context : StudyContext

    Returns
    -------
    Path
        Folder of the study, or of all studies.
    """
    selected = [_STUDIES[one] for one in PAPER] if name == "paper" else [find_study(name)]
    for one in selected:
        context.say(f"{one.name}: {one.title}")
        context.train(one.arms(context))
        with context.job.device.network_precision():  # diagnostics apply fitted networks
            finding = one.find(context)
        _write_finding(one, finding, context)
    place = context.out / "studies"
    return place if name == "paper" else place / name


def _write_finding(one: Study, finding: Finding, context: StudyContext) -> None:
    """Write the files of a study; figures come first, so that one that fails leaves the old files as they are."""
    place = context.out / "studies" / one.name
    place.mkdir(parents=True, exist_ok=True)
    figure = finding.draw()
    for ending in ("svg", "png"):
        save_figure(figure, place / f"figure.{ending}")
    arms = one.arms(context)
    smoke = context.explain_smoke(arms)
    text = [f"This is a smoke run ({smoke}): no basis for a claim.", *finding.text] if smoke else finding.text
    paragraphs = [f"# {one.title}", *text, *_name_devices(arms, context), format_frame(_with_display_names(finding))]
    paragraphs += [f"The paper: {one.paper}", f"![{one.title}](figure.png)"]
    table = finding.table
    record = StudyRecord(
        name=one.name,
        title=one.title,
        paper=one.paper,
        text=tuple(text),
        smoke=smoke,
        cohort=context.cohort.name,
        atlas=context.cohort.atlas.name,
        fingerprint=context.cohort.fingerprint,
        n_scans=len(context.cohort),
        folds=int(table["folds"].max()) if len(table) else 0,
        seeds=context.job.spec.seeds,
        epochs=_distinct(table["epochs"]),
        K=_distinct(table["K"]),
        arms=tuple(a.name for a in arms),
        options=context.options(arms),
        brio=__version__,
    )
    float_format = None if finding.digits is None else f"%.{finding.digits}g"
    StoredStudy(place, record, "\n\n".join(paragraphs) + "\n", table).write(float_format)


def _distinct(column: pd.Series) -> tuple[int, ...]:
    return tuple(sorted({int(value) for value in column.dropna()}))


def _name_devices(arms: list[Arm], context: StudyContext) -> list[str]:
    """Name the devices on which the arms were computed, where there are several."""
    computed: dict[str, list[str]] = {}
    for a in arms:
        for device in context.results_of(a).rows["device"].dropna().unique():
            computed.setdefault(str(device), []).append(display_name(a.name))
    if len(computed) < 2:
        return []
    usual = max(computed, key=lambda device: len(computed[device]))
    rest = "; ".join(f"on {device}: {', '.join(names)}" for device, names in computed.items() if device != usual)
    return [f"Computed on {usual}; {rest}."]


def _with_display_names(finding: Finding) -> pd.DataFrame:
    """The summary as readers see it: arms under the names that are printed, without what the text says of tests."""
    summary = finding.summary.drop(columns="warning", errors="ignore")
    if "arm" in summary:
        summary = summary.assign(arm=summary["arm"].map(display_name))
    return summary.rename(columns=lambda name: f"to {display_name(name[3:])}" if name.startswith("to ") else name)
