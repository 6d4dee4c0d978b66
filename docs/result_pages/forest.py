"""Draw the figure of a page as svg: one row per method or setting, its value as a glyph, its 95% interval as a line.

A figure is as wide as a phone, so that two stand side by side on a wide screen. Its card has light and dark colours of
its own, so that it can be read on any page.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from brio.formatting import format_number, format_signed
from brio.methods import find_method
from brio.studies.context import display_name

from .markdown import set_signs

FIGURES: dict[str, str] = {}
"""Each figure that the pages have asked for, by the name of its file."""
WIDTH, ROW, LEGEND = 370, 18, 17
GLYPHS = {  # family (or work that is timed or tested): glyph, colour, colour in the dark
    "linear": ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "#0072b2", "#5cb8ee"),
    "neural": ("M-3.6-3.6h7.2v7.2h-7.2z", "#c2500a", "#f0924a"),
    "domain generalisation": ("M0-4.6L4.4 3.4H-4.4z", "#a0439b", "#d893d3"),
    "BRIO": ("M0-5.2L5.2 0L0 5.2L-5.2 0z", "#00805c", "#3fc795"),
    "work": ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "#59636e", "#a3adb8"),
    "confound baseline": ("M-3.5-3.5L3.5 3.5M-3.5 3.5L3.5-3.5", "#6e6e6e", "#a8a8a8"),
}
FAMILIES = {"linear": "linear", "BRIO": "BRIO", "control": "confound baseline"}
FAMILIES |= dict.fromkeys(["OOD", "graph OOD"], "domain generalisation")
"""Families of figures by those of the registry; the others are neural."""
NAMES = {
    "brio-plus": "BRIO plus",
    "covariates-only": "age, sex, motion",
    "length-only": "scan length",
    "dead-rois-only": "missing regions",
}
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def name_row(row: str) -> str:
    """Return the name of a method or an arm in figures."""
    return NAMES.get(row, display_name(row))


def name_family(row: str) -> str:
    """Return the family of a method or an arm in figures."""
    return FAMILIES.get(find_method(row.split(",")[0]).family, "neural")


def choose_ticks(low: float, high: float, log: bool) -> list[float]:
    """Return up to six round values of an axis.

    Examples
    --------
    >>> choose_ticks(43, 81, False), choose_ticks(0.8, 150, True)
    ([50.0, 60.0, 70.0, 80.0], [1.0, 10.0, 100.0])
    """
    if log:
        factors = (1, 2, 5) if high < 50 * low else (1,)
        every = [round(factor * 10.0**k, 6) for k in range(-4, 6) for factor in factors]
        return [tick for tick in every if low <= tick <= high]
    steps = (factor * 10.0**power for power in range(-4, 6) for factor in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step < 5)
    return [round(k * step, 6) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def draw(name: str, rows: pd.DataFrame, title: str, lines: dict[float, str] | None = None, **options: Any) -> str:
    """Keep a figure under a name and return the Markdown that shows it.

    Columns of ``rows`` are ``mean`` and, where there are intervals, ``low`` and ``high``; ``group`` is a heading above
    rows. ``lines`` are words for reference values. Options: ``digits`` of the values, ``sign`` for differences, ``log``
    for a logarithmic axis, ``family`` of all rows.
    """
    digits = options.get("digits", 1)
    sign, log, family = (options.get(key) for key in ("sign", "log", "family"))
    table, lines = rows.reindex(columns=["mean", "low", "high", "group"]), lines or {}
    drawn_values = [table["mean"], table["low"], table["high"], pd.Series(list(lines))]
    values = pd.concat(drawn_values).astype(float).dropna()
    scale = math.log10 if log else float
    labels = [name_row(str(row)) for row in table.index]
    left, right = 14 + 6.4 * max(map(len, labels)), WIDTH - 54
    least, most = scale(values.min()), scale(values.max())
    pad = 0.03 * (most - least)

    def place(value: float) -> float:
        return left + (scale(value) - least + pad) / (most - least + 2 * pad) * (right - left)

    y, drawn, headings, group = 46.0 if lines else 32.0, [], [], None
    top = y
    for label, (row, cells) in zip(labels, table.iterrows(), strict=True):
        if isinstance(cells["group"], str) and cells["group"] != group:
            group, y = cells["group"], y + ROW + 3
            headings.append((set_signs(group), y - 5))
        mean, low, high = map(float, cells[["mean", "low", "high"]])
        text = (format_signed if sign else format_number)(mean, digits)
        reach = None if math.isnan(low) else (place(low), place(high))
        drawn.append((label, family or name_family(str(row)), y + ROW / 2, place(mean), reach, set_signs(text)))
        y += ROW
    ends = (10**least, 10**most) if log else (least, most)
    shown = [one for one in GLYPHS if one in {row[1] for row in drawn}]
    FIGURES[f"forest-{name}.svg"] = _TEMPLATES.get_template("forest.svg").render(
        title=set_signs(title),
        width=WIDTH,
        height=y + 30 + (LEGEND * -(-len(shown) // 2) if len(shown) > 1 else 0),
        top=top,
        bottom=y + 2,
        ticks=[(place(tick), set_signs(f"{tick:g}")) for tick in choose_ticks(*ends, bool(log))],
        lines=[(place(value), word) for value, word in lines.items()],
        headings=headings,
        rows=drawn,
        glyphs=GLYPHS,
        legend=[(one, 8 + 180 * (k % 2), y + 38 + LEGEND * (k // 2)) for k, one in enumerate(shown) if len(shown) > 1],
    )
    places = [f(table["mean"].astype(float)) for f in (pd.Series.argmax, pd.Series.argmin)]
    groups = [f" ({of})" if isinstance(of, str) else "" for of in table["group"]]
    best, worst = (set_signs(f'the row labelled "{labels[k]}"{groups[k]}') for k in places)
    return f"![{title}. Highest value: {best}; lowest value: {worst}.](figures/forest-{name}.svg)"
