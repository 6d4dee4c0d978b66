"""What a study is: arms to train, a function that derives a finding from them, and the files it writes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype

from ..drawing import render_figure
from ..errors import BrioError, nearest
from ..formatting import format_frame, format_interval, format_signed
from ..protocol import LEAST_SITES, explain_few_sites, find_two_class_sites
from ..results import StoredStudy, StudyRecord
from ..version import __version__
from .context import Arm, StudyContext, display_name, list_own_arms


@dataclass(frozen=True, eq=False)
class Finding:
    """The result of a study."""

    table: pd.DataFrame  # tidy: one row per observation, with folds, seeds, epochs and K of the runs behind it
    summary: pd.DataFrame  # the small table that readers see
    text: list[str]  # what was found, in a few sentences
    draw: Callable[[], Any]  # draws the figure and returns it
    digits: int | None = None  # significant digits of the table in its file; by default all


MakeFinding = Callable[[StudyContext, list[Arm]], Finding]


@dataclass(frozen=True)
class Study:
    """An experiment of the paper, or one of ours."""

    name: str
    list_arms: Callable[[StudyContext], list[Arm]]  # lists the arms to train first
    make_finding: MakeFinding  # derives the Finding from the trained arms
    title: str
    paper: str  # what the paper reports, in words
    kfold: bool = False  # whether it may be made under k-fold; all others are about sites that are left out

    @property
    def summary(self) -> str:
        """The first line of the docstring of ``make_finding``, which ``brio studies`` prints."""
        return (self.make_finding.__doc__ or "").strip().splitlines()[0]

    def find(self, context: StudyContext) -> Finding:
        """Train the arms and derive the finding; nothing is written but the arms."""
        return self.make_finding(context, self.list_arms(context))


_STUDIES: dict[str, Study] = {}
_FACTS = tomllib.loads(resources.files(__package__).joinpath("studies.toml").read_text(encoding="utf-8"))
PAPER, BEYOND = tuple(_FACTS["paper"]), tuple(_FACTS["beyond"])
"""Studies of the paper, and studies that are not in it."""


def register_study(
    name: str, list_arms: Callable[[StudyContext], list[Arm]] = list_own_arms
) -> Callable[[MakeFinding], MakeFinding]:
    """Register a function that makes a finding as a study of ``studies.toml``. Use it as a decorator."""

    def register(make_finding: MakeFinding) -> MakeFinding:
        facts = (_FACTS["paper"] | _FACTS["beyond"])[name]
        _STUDIES[name] = Study(name, list_arms, make_finding, **facts)
        return make_finding

    return register


def list_studies() -> list[Study]:
    """List all studies: those of the paper in its order, then ours."""
    return [_STUDIES[name] for name in (*PAPER, *BEYOND)]


def find_study(name: str) -> Study:
    """Return a study by its name."""
    if name not in _STUDIES:
        raise BrioError(f"study '{name}' is unknown; {nearest(name, [*_STUDIES, 'paper'])}")
    return _STUDIES[name]


def choose_label(name: str, questions: Sequence[str]) -> str | None:
    """Return the question that defines all labels of a study; ``labels`` compares several, others take at most one."""
    if name == "labels" or not questions:
        return None
    if len(questions) > 1:
        raise BrioError(f"study '{name}' uses one label; give only one, or compare several with the study 'labels'")
    return questions[0]


def run_study(name: str, context: StudyContext) -> Path:
    """Train the arms of a study, derive its finding and write it to ``studies/<name>`` in the context's folder.

    The files are ``table.csv``, ``figure.svg``, ``figure.png``, ``finding.md`` and ``study.json``.
    """
    for study in _select_studies(name, context):
        context.say(f"{study.name}: {study.title}")
        context.train(arms := study.list_arms(context))
        with context.job.device.network_precision():  # diagnostics apply fitted networks
            finding = study.make_finding(context, arms)
        _write_finding(study, finding, arms, context)
    place = context.out / "studies"
    return place if name == "paper" else place / name


def run_study_shard(name: str, context: StudyContext) -> bool:
    """Train the stacks of a study's arms that belong to the shard of the context's job; no finding is derived."""
    selected = _select_studies(name, context)
    return context.train_shard([arm for study in selected for arm in study.list_arms(context)])


def _select_studies(name: str, context: StudyContext) -> list[Study]:
    """Return the studies that a name stands for; raise an error if one cannot be made under the protocol."""
    selected = [_STUDIES[key] for key in PAPER] if name == "paper" else [find_study(name)]
    by_kfold = ", ".join(one.name for one in list_studies() if one.kfold)
    protocol, n_sites = context.job.spec.protocol, len(find_two_class_sites(context.cohort))
    for study in selected:
        if protocol == "kfold" and not study.kfold:
            raise BrioError(
                f"study '{study.name}' does not support k-fold; use --protocol loso and at least {LEAST_SITES} sites "
                f"with both classes, or a study that supports k-fold ({by_kfold})"
            )
        if n_sites < LEAST_SITES and "loso" in (
            {context.protocol_of(a) for a in study.list_arms(context)} or {protocol}
        ):
            raise BrioError(
                f"study '{study.name}' leaves sites out and needs at least {LEAST_SITES} sites with both classes, but "
                f"there {'is' if n_sites == 1 else 'are'} {n_sites}; add sites, or use --protocol kfold"
                + ("" if study.kfold else f" with a study that supports it ({by_kfold})")
            )
    return selected


def _write_finding(study: Study, finding: Finding, arms: list[Arm], context: StudyContext) -> None:
    """Write the files of a study; figures are drawn first, so that a failure leaves all files unchanged."""
    place = context.out / "studies" / study.name
    figure = finding.draw()
    figures = {f"figure.{ending}": render_figure(figure, ending) for ending in ("svg", "png")}
    table, smoke = finding.table, context.explain_smoke(arms)
    epochs, K = (tuple(sorted({int(value) for value in table[key].dropna()})) for key in ("epochs", "K"))
    record = StudyRecord(
        name=study.name,
        title=study.title,
        paper=study.paper,
        smoke=smoke,
        cohort=context.cohort.name,
        atlas=context.cohort.atlas.name,
        fingerprint=context.cohort.fingerprint,
        n_scans=len(context.cohort),
        folds=int(table["folds"].max()) if len(table) else 0,
        seeds=context.job.spec.seeds,
        epochs=epochs,
        K=K,
        arms=tuple(dict.fromkeys(a.name for a in arms)),
        options=context.record_options(arms),
        brio=__version__,
    )
    few_sites = explain_few_sites(record.folds) if context.job.spec.protocol == "loso" else ""
    text = [*([record.smoke_note] if smoke else []), *finding.text, *filter(None, [few_sites])]
    record = replace(record, text=tuple(text))
    paragraphs = record.frame([*text, *_describe_devices(arms, context), _format_summary(finding.summary)])
    float_format = None if finding.digits is None else f"%.{finding.digits}g"
    StoredStudy(place, record, "\n\n".join(paragraphs) + "\n", table).write(float_format, figures)


def _describe_devices(arms: list[Arm], context: StudyContext) -> list[str]:
    """Name the devices on which the arms were computed, if there are several."""
    if not arms:
        return []
    by_device = context.collect_rows(arms).groupby("device")["arm"].unique().map(list)
    if len(by_device) < 2:
        return []
    usual = by_device.map(len).idxmax()
    others = by_device.drop(usual).items()
    rest = "; ".join(f"{', '.join(map(display_name, names))} on {device}" for device, names in others)
    return [f"Computed on {usual}, except for {rest}."]


_INTERVALS = {"": "95% interval", "difference ": "interval of difference", "random ": "random subgroups"}
"""Prefix of the names of both ends of an interval in a summary, and the header of their joint column."""


def _format_summary(summary: pd.DataFrame) -> str:
    """Write a summary as readers see it: display names of arms, intervals in one column, no warnings."""
    shown = summary.drop(columns="warning", errors="ignore")
    if "arm" in shown:
        shown["arm"] = shown["arm"].map(display_name)
    references = [name for name in shown if name.startswith("minus ")]
    ends = shown.filter(["difference low", "difference high"]).astype(float).abs()
    in_points = bool(references) or (ends >= 5).any(axis=None)  # other differences are not in percent
    signed = format_signed if in_points else "{:+z.3g}".format
    for name in shown:
        if name in references or (" minus " in name and is_float_dtype(shown[name])):
            shown[name] = shown[name].map(signed, na_action=None if name in references else "ignore")
    for prefix, header in _INTERVALS.items():
        low, high = f"{prefix}low", f"{prefix}high"
        if low in shown:
            write = signed if prefix == "difference " else "{:.1f}".format
            joined = [format_interval(pair, write, whole=100) for pair in shown[[low, high]].to_numpy(dtype=float)]
            shown = shown.assign(**{low: joined}).drop(columns=high).rename(columns={low: header})
    headers = {name: f"AUC minus {display_name(name.removeprefix('minus '))}" for name in references}
    return format_frame(shown.rename(columns=headers))
