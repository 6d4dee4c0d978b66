"""Are the intervals and called classes of predictions as accurate as stated?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from brio.drawing import make_panels, series_style

from .evidence import read_measured_tables, read_measurement
from .markdown import fixed

COVERAGE, RISK = "prediction-intervals-coverage.svg", "prediction-intervals-risk.svg"
WANTED = 80
"""Accuracy that ``brio predict`` asks for by default, in percent."""


@dataclass(frozen=True)
class Measurement:
    """The stored output of ``benchmarks/prediction_intervals.py`` for one method and atlas. Shares are in percent."""

    file: str
    method: str
    atlas: str

    @property
    def label(self) -> str:
        """Return method and atlas as figures name them."""
        return f"{self.method}, {self.atlas}"

    @cached_property
    def lines(self) -> list[str]:
        """Return its lines; the first is the command that made it."""
        return read_measurement(self.file).splitlines()

    @property
    def command(self) -> str:
        """Return the command that made it."""
        return self.lines[0].removeprefix("# ")

    @property
    def n_sites(self) -> int:
        """Return the number of sites that were left out in turn."""
        (part,) = (part for part in self.lines[1].split(", ") if part.endswith(" sites left out in turn"))
        return int(part.split()[0])

    @cached_property
    def coverage(self) -> pd.DataFrame:
        """Return how often the interval holds the other half, by frames of a half and nominal level."""
        table = read_measured_tables(self.file)[0].set_index("frames of a half")
        shares = table.filter(like="holds, nominal").map(_read_percent)
        return shares.rename(columns=lambda name: int(name.removeprefix("holds, nominal ").removesuffix("%")))

    @cached_property
    def n_scans(self) -> pd.Series:
        """Return the number of scans, by frames of a half."""
        return read_measured_tables(self.file)[0].set_index("frames of a half")["scans"].astype(int)

    @cached_property
    def risk(self) -> pd.Series:
        """Return the accuracy of the most decided scans, by their share."""
        return read_measured_tables(self.file)[1].map(_read_percent).set_index("most decided")["accuracy"]

    @cached_property
    def rules(self) -> pd.DataFrame:
        """Return what rules promised and achieved at sites that did not choose them, by wanted accuracy."""
        return read_measured_tables(self.file)[2].map(_read_percent).set_index("wanted accuracy")

    @property
    def uncorrected(self) -> float:
        """Return how often the 95% interval without the learned factor holds the other half."""
        (line,) = (text for text in self.lines if text.startswith("nominal 95%"))
        return _read_percent(line.split("without the factor: ")[1].split(";")[0])


MEASURED = (
    Measurement("prediction-intervals.txt", "ridge", "AAL116"),
    Measurement("prediction-intervals-log-ridge.txt", "log-ridge", "AAL116"),
    Measurement("prediction-intervals-cc200.txt", "ridge", "CC200"),
)
SOURCES = [f"measurements/{measured.file}" for measured in MEASURED]


def _read_percent(cell: str) -> float:
    return float(cell.removesuffix("%").strip())


def span(values: Iterable[float]) -> str:
    """Return the smallest and the largest of some shares."""
    shares = list(values)
    return f"{fixed(min(shares))} to {fixed(max(shares))}%"


def summarise() -> pd.DataFrame:
    """Return one row for each measurement: coverage over all scans by level, what rules achieve, and more."""
    rows = [
        measured.coverage.loc["all"].to_dict()
        | {
            "uncorrected": measured.uncorrected,
            "rises": measured.coverage[95].iloc[-1] > measured.coverage[95].iloc[1],
            "achieved": measured.rules.loc[WANTED, "achieved at left-out sites"],
            "decided": measured.rules.loc[WANTED, "decided"],
            "every": measured.risk[100],
            "sites": measured.n_sites,
            "scans": measured.n_scans["all"],
            "fewest": measured.n_scans.min(),
        }
        for measured in MEASURED
    ]
    return pd.DataFrame(rows)


def coverage_by_length() -> pd.Series:
    """Return how often the 95% interval holds, of each measurement and length of a half."""
    return pd.concat([measured.coverage.drop(index="all")[95] for measured in MEASURED])


def draw_coverage() -> Any:
    """Draw measured against nominal coverage, by the length of a half, one panel for each measurement."""
    figure, axes = make_panels(len(MEASURED), 10.0, 3.6, sharey=True)
    for axis, measured in zip(axes, MEASURED, strict=True):
        axis.plot([40, 100], [40, 100], color="0.7", linewidth=0.8)
        for k, (frames, row) in enumerate(measured.coverage.drop(index="all").iterrows()):
            axis.plot(row.index, row, linewidth=1, markersize=5, label=f"{frames} frames", **series_style(k))
        axis.set_title(measured.label, fontsize=10)
        axis.set_xlabel("nominal, %")
    axes[0].set_ylabel("contains the logit of the other half, %")
    axes[0].legend(fontsize=8, frameon=False, title="half a scan", title_fontsize=8)
    return figure


def draw_risk() -> Any:
    """Draw the accuracy of the most decided scans against their share."""
    figure, (axis,) = make_panels(1, 5.6, 3.6)
    for k, measured in enumerate(MEASURED):
        axis.plot(measured.risk, linewidth=1, markersize=5, label=measured.label, **series_style(k))
    axis.set_xlabel("scans with a called class, %")
    axis.set_ylabel("accuracy at unseen sites, %")
    axis.legend(fontsize=8, frameon=False)
    return figure


FIGURES = {COVERAGE: draw_coverage, RISK: draw_risk}
"""Figures of the page, by file name in ``docs/images``."""


def list_coverage() -> pd.DataFrame:
    """Return measured minus nominal coverage over all scans, under the nominal one, for the figure.

    Intervals are those of a share of independent scans.
    """
    rows = []
    for level in (80, 90, 95):
        for measured in MEASURED:
            share = measured.coverage.loc["all", level]
            half = 1.96 * (share * (100 - share) / measured.n_scans["all"]) ** 0.5
            rows.append(
                (measured.label, share - level, share - level - half, share - level + half, f"{level}% interval")
            )
    return pd.DataFrame(rows, columns=["name", "mean", "low", "high", "group"]).set_index("name")
