"""Draw the figures of the README and of the documentation as svg.

    python docs/draw_figures.py [--images docs/images]

Folds and re-estimates come from brio itself, on simulated scans. The prediction is one of the
demonstration: ``make readme`` stores its numbers in the drawing, from which it is drawn again here. Each figure is a
light card, so that it is legible on dark pages too.
"""

import argparse
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import torch

from brio.cohort.simulate import simulate
from brio.connectome.resampling import index_resamples, reestimate
from brio.demo import SIMULATION
from brio.protocol.folds import leave_one_site_out

IMAGES = Path(__file__).parent / "images"
PREDICTION = "prediction.svg"
WIDTH = 440
"""Width of every figure in its own units: a telephone shows a text of size 14 in 11 pixels."""
SHOWN = 500
"""Width in pixels where there is room."""
INK, MUTED, LINE, BLUE, ORANGE, AMBER = "#1f2933", "#56616b", "#cfd6dd", "#0072B2", "#C04F00", "#E69F00"
N_REESTIMATES, BLOCK_LENGTH = 20, 20


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """Write one element; numbers are rounded to tenths, and ``_`` stands for ``-`` in names."""
    words = []
    for key, value in attributes.items():
        shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        words.append(f" {key.rstrip('_').replace('_', '-')}={quoteattr(shown)}")
    return f"<{name}{''.join(words)}>{content}</{name}>"


def write(x: float, y: float, words: str, size: int = 14, fill: str = INK, **attributes: Any) -> str:
    """Write a line of text."""
    return tag("text", escape(words), x=x, y=y, font_size=size, fill=fill, **attributes)


def explain(x: float, y: float, name: str, words: str) -> str:
    """Write a name in bold and behind it what it means."""
    bold = tag("tspan", escape(name), fill=INK, font_weight="bold")
    return tag("text", f"{bold}  {escape(words)}", x=x, y=y, font_size=14, fill=MUTED)


def box(x: float, y: float, width: float, height: float, fill: str, **attributes: Any) -> str:
    """Draw a rectangle."""
    return tag("rect", x=x, y=y, width=width, height=height, fill=fill, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = LINE, width: float = 1.0, **attributes: Any) -> str:
    """Draw a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=width, **attributes)


def dot(x: float, y: float, radius: float, fill: str, **attributes: Any) -> str:
    """Draw a disc."""
    return tag("circle", cx=x, cy=y, r=radius, fill=fill, **attributes)


def draw_card(title: str, height: float, shapes: Iterable[str], metadata: str = "") -> str:
    """Put shapes on a light card with a title for those who cannot see it."""
    head = tag("title", escape(title)) + (tag("metadata", escape(metadata)) if metadata else "")
    card = box(0.5, 0.5, WIDTH - 1, height - 1, "#ffffff", rx=8, stroke=LINE)
    return (
        tag(
            "svg",
            "\n".join(["", head, card, *shapes, ""]),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {height:g}",
            width=SHOWN,
            height=round(SHOWN * height / WIDTH),
            role="img",
            font_family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
        )
        + "\n"
    )


def draw_data_flow() -> str:
    """Draw the way from scans to a report and to a prediction, with the command of each step."""
    steps = (
        ("Your scans", "time series or images from several sites", "brio import"),
        ("Audit", "duplicate scans, missing regions, confounds", "brio audit"),
        ("Connectomes", "correlations, also from other minutes of a scan", ""),
        ("Folds", "each site is the test site once", "brio run"),
        ("Methods", "linear, neural, BRIO, confound baselines", ""),
    )
    shapes = []
    for k, (title, detail, command) in enumerate(steps):
        y = 14 + 72 * k
        shapes += _draw_step(14, y, 412, title, detail, command, BLUE)
        shapes += [_draw_arrow(220, y + 54)] if k < len(steps) - 1 else []
    y = 14 + 72 * len(steps)
    shapes += [_draw_arrow(115, y - 18), _draw_arrow(325, y - 18)]
    for x, title, command, *below in (
        (14, "Evaluation report", "brio report", "Check all numbers", "brio verify"),
        (227, "Model with evidence", "brio fit", "Class or no call", "brio predict"),
    ):
        shapes += [*_draw_step(x, y, 199, title, "", command, ORANGE), _draw_arrow(x + 99, y + 54)]
        shapes += _draw_step(x, y + 72, 199, below[0], "", below[1], ORANGE)
    return draw_card("Workflow from scans to a report and to a model, with the command of each step", y + 140, shapes)


def _draw_step(x: float, y: float, width: float, title: str, detail: str, command: str, colour: str) -> list[str]:
    """Draw a step; its command stands below where there is no detail."""
    beside = {"x": x + width - 10, "y": y + 22, "text_anchor": "end"} if detail else {"x": x + 14, "y": y + 44}
    return [
        box(x, y, width, 54, "#f6f8fa", rx=6, stroke=LINE),
        box(x, y, 5, 54, colour, rx=2),
        write(x + 14, y + 22, title, font_weight="bold"),
        write(x + 14, y + 43, detail, fill=MUTED),
        write(words=command, font_family="monospace", **beside),
    ]


def _draw_arrow(x: float, y: float) -> str:
    return line(x, y + 1, x, y + 11, MUTED, 1.5) + tag("path", d=f"M{x - 5:g} {y + 10:g}h10l-5 7z", fill=MUTED)


def draw_folds() -> str:
    """Draw the folds of eight sites as brio makes them: one row per fold, one column per site."""
    cohort = simulate(replace(SIMULATION, per_class=2, last_site_per_class=2, n_rois=8, frames=60, duplicates=0))
    names = np.unique(cohort.sites).tolist()
    left, top, wide, high = 68, 50, 44, 25
    shapes = [write(left, 24, "Sites of the cohort", font_weight="bold")]
    shapes += [
        write(left + (k + 0.5) * wide, 44, name.removeprefix("site0"), fill=MUTED, text_anchor="middle")
        for k, name in enumerate(names)
    ]
    for row, fold in enumerate(leave_one_site_out(cohort, seed=0)):
        y = top + row * high
        shapes.append(write(14, y + 18, f"fold {row + 1}", fill=MUTED))
        for k, name in enumerate(names):
            role = "test" if name in fold.test_sites else "val." if name in fold.validation_sites else ""
            fill = {"test": ORANGE, "val.": AMBER, "": BLUE}[role]
            shapes.append(box(left + k * wide + 1, y + 1, wide - 3, high - 3, fill, rx=3))
            ink = "#ffffff" if role == "test" else INK
            middle = left + (k + 0.5) * wide - 0.5
            shapes += [write(middle, y + 18, role, fill=ink, text_anchor="middle")] if role else []
    y = top + high * len(names) + 24
    for fill, role, what in (
        (BLUE, "source", "weights and means are learned from these"),
        (AMBER, "validation", "used to choose checkpoint and penalty"),
        (ORANGE, "test", "scored once, after all choices are made"),
    ):
        shapes += [box(14, y - 12, 15, 15, fill, rx=3), explain(36, y, role, what)]
        y += 23
    shapes.append(write(14, y + 6, "One AUC per test site; intervals and tests over sites."))
    return draw_card("Leave-one-site-out: each site is the test site of one fold", y + 22, shapes)


def draw_reestimation() -> str:
    """Draw one simulated scan, resamples of its blocks, their connectomes, and the spread of two connections."""
    cohort = simulate(replace(SIMULATION, n_sites=2, per_class=2, last_site_per_class=2, duplicates=0))
    scan = cohort.scan(2)
    n_frames, n_blocks = len(scan), -(-len(scan) // BLOCK_LENGTH)
    frames, length = torch.from_numpy(np.array(scan)), np.array([n_frames])
    blocks, keys = np.array([BLOCK_LENGTH]), np.array([1])
    index_of_frames = index_resamples(length, blocks, keys, N_REESTIMATES)[0][0].numpy()
    A = reestimate(frames, np.array([0]), length, blocks, keys, N_REESTIMATES)[0].numpy()
    whole = reestimate(frames, np.array([0]), length, length, np.array([0]), 1)[0, 0].numpy()
    left, wide = 14.0, 310.0
    step = wide / n_frames

    def draw_blocks(y: float, starts: np.ndarray) -> list[str]:
        """Draw blocks end to end; the darker, the later in the scan."""
        shapes = []
        for b, start in enumerate(starts):
            frames_left = min(BLOCK_LENGTH, n_frames - b * BLOCK_LENGTH)
            shade = 0.12 + 0.88 * float(start) / n_frames
            x = left + step * b * BLOCK_LENGTH
            shapes.append(box(x, y, step * frames_left - 0.8, 16, BLUE, fill_opacity=f"{shade:.2f}"))
        return shapes

    shapes = [explain(14, 24, "One scan", "signals of two of its regions")]
    shapes.append(write(426, 24, "connectome", fill=MUTED, text_anchor="end"))
    for roi, colour in ((6, INK), (7, ORANGE)):
        course = 62 - 5.5 * (scan[:, roi] - scan[:, roi].mean()) / scan[:, roi].std()
        points = " ".join(f"{left + step * t:.1f},{y:.1f}" for t, y in enumerate(course) if t % 2 == 0)
        shapes.append(tag("polyline", points=points, fill="none", stroke=colour, stroke_width=1.0))
    shapes += draw_blocks(92, np.arange(n_blocks) * BLOCK_LENGTH) + _draw_matrix(352, 34, whole)
    shapes.append(explain(14, 146, f"K = {N_REESTIMATES} re-estimates", "blocks drawn with replacement"))
    for k in range(3):
        y = 160 + 84 * k
        shapes.append(write(14, y + 22, f"re-estimate {k + 1}", fill=MUTED))
        shapes += draw_blocks(y + 29, index_of_frames[k, ::BLOCK_LENGTH]) + _draw_matrix(352, y, A[k])
    shapes.append(write(389, 420, "⋮", 18, MUTED, text_anchor="middle"))
    shapes.append(explain(14, 440, "Spread", "of one connection over re-estimates"))
    for row, (name, pair) in enumerate({"coupled in every minute": (0, 1), "one short burst": (6, 7)}.items()):
        y, centre, scale = 476.0 + 52 * row, 130.0, 270.0
        shapes += [write(14, y - 12, name), line(14, y + 6, 426, y + 6)]
        shapes += [
            dot(centre + scale * float(z), y + 6, 4.5, BLUE, fill_opacity="0.45") for z in A[:, pair[0], pair[1]]
        ]
        x = centre + scale * float(whole[pair])
        shapes.append(line(x, y - 6, x, y + 18, ORANGE, 2.5))
    shapes += [write(130 + 270 * z, 560, f"{z:g}", fill=MUTED, text_anchor="middle") for z in (0, 0.5, 1)]
    shapes.append(write(14, 584, "Line: whole scan. Dots: re-estimates (Fisher z).", fill=MUTED))
    return draw_card("Re-estimation: connectomes from resampled blocks of a scan, and their spread", 600, shapes)


def _draw_matrix(
    x: float, y: float, A: np.ndarray, regions: Iterable[int] = (0, 1, 2, 6, 7, 8, 18, 19, 20)
) -> list[str]:
    """Draw nine regions of a connectome: positive blue, negative orange, the deeper the stronger."""
    part = A[np.ix_(list(regions), list(regions))]
    cells = [box(x, y, 74, 74, "#f6f8fa", stroke=LINE)]
    for (i, j), z in np.ndenumerate(part):
        if i != j and abs(z) >= 0.05:
            opacity = f"{min(1.0, abs(float(z))):.1f}"
            cells.append(box(x + 1 + 8 * j, y + 1 + 8 * i, 8, 8, BLUE if z > 0 else ORANGE, fill_opacity=opacity))
    return cells


def draw_prediction(facts: dict[str, Any]) -> str:
    """Draw three predictions of the demonstration and say what each part of them is."""
    left, wide, top = 30.0, 380.0, 64.0

    def place(probability: float) -> float:
        return left + wide * probability

    band = [1 / (1 + np.exp(sign * facts["threshold"])) for sign in (1, -1)]
    bottom = top + 66 * len(facts["scans"])
    shapes = [write(14, 24, "Probability of being a patient", font_weight="bold")]
    shapes.append(box(place(band[0]), top - 12, place(band[1]) - place(band[0]), bottom - top + 12, "#eceff2"))
    shapes.append(line(place(0.5), top - 12, place(0.5), bottom, MUTED, 1.0, stroke_dasharray="4 3"))
    shapes += [
        write(place(share), 46, f"{100 * share:.0f}%", fill=MUTED, text_anchor="middle")
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    for row, scan in enumerate(facts["scans"]):
        y = top + 66 * row + 40
        sure = not scan["crosses"]
        called = scan["predicted"] != "no call"
        colour = MUTED if not called else ORANGE if scan["predicted"] == "patient" else BLUE
        percent = 100 * scan["probability"]
        shown = "below 1%" if percent < 1 else "above 99%" if percent > 99 else f"{percent:.0f}%"
        shapes.append(explain(14, y - 20, scan["predicted"], f"{shown}, {scan['participant_id']}"))
        shapes.append(line(place(scan["low"]), y, place(scan["high"]), y, colour, 2.5))
        fill = colour if sure else "#ffffff"
        shapes.append(dot(place(scan["probability"]), y, 7.0, fill, stroke=colour, stroke_width=2.5))
    notes = (
        ("dot", "probability from this scan"),
        ("line", "95% interval for other minutes of this scan"),
        ("hollow", "other minutes may give the other class"),
        ("grey band", "no call, because too close to one half"),
        ("flag", "none of these scans is flagged"),
    )
    y = bottom + 26
    for name, meaning in notes:
        shapes.append(explain(14, y, name, meaning))
        y += 22
    expected, observed = (f"{100 * facts[name]:.0f}%" for name in ("expected", "observed"))
    shapes.append(write(14, y + 8, f"Correct predicted classes: expected {expected}, here {observed}."))
    return draw_card("Parts of a prediction: probability, interval, class", y + 24, shapes, json.dumps(facts))


FIGURES = {
    "data-flow.svg": draw_data_flow,
    "leave-one-site-out.svg": draw_folds,
    "re-estimation.svg": draw_reestimation,
}


def draw_figures(images: Path = IMAGES) -> dict[str, str]:
    """Return the text of every figure, by file name; the prediction from the numbers that its file holds."""
    stored = re.search("<metadata>(.*?)</metadata>", (images / PREDICTION).read_text(encoding="utf-8"), re.DOTALL)
    if stored is None:
        raise SystemExit(f"{images / PREDICTION}: holds no numbers of a prediction; run `make readme`")
    return {name: draw() for name, draw in FIGURES.items()} | {PREDICTION: draw_prediction(json.loads(stored[1]))}


def main() -> None:
    """Write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder of the figures")
    images = parser.parse_args().images
    for name, text in draw_figures(images).items():
        (images / name).write_text(text, encoding="utf-8")
        print(images / name)


if __name__ == "__main__":
    main()
