"""Factors on a brain: nilearn's interactive viewer, and three flat views for print."""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .factors import RunFactors, summarise_assignment

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#4B9CD3", "#555555")
"""The palette of Okabe and Ito, its light colours darkened for a white page; factor j has colour j."""

_STYLE = """<style>
body { margin: 0; font: 14px sans-serif; color: #566370 }
#connectome-plot > div { margin: 0 auto }
#select-view { margin: 6px 10px } .modebar { display: none }
</style>"""
_SCRIPT = """<script>
$(document).ready(() => { try {
  const originalLayout = getLayout
  getLayout = (...args) => ({ ...originalLayout(...args), hovermode: 'closest' })
  const plot = document.getElementById('connectome-plot')
  const update = updateLayout // fails if the frame is resized before the first drawing is finished
  updateLayout = (...args) => { try { update(...args) } catch (error) { setTimeout(() => update(...args), 500) } }
  const dots = plot.data.flatMap((trace, k) => trace.type === 'scatter3d' ? [k] : [])
  const labels = connectomeInfo.connectome.marker_labels
  Plotly.restyle(plot, { mode: 'markers', hoverinfo: 'text', hovertext: [labels] }, dots)
  surfaceRelayout()
} catch (error) { console.info('labels of regions are shown in the default way') } })
</script>"""
"""Shows the name of a region under the pointer, instead of all names at once."""

_VIEWS = (("from the left", -1, 1, 2, -1), ("from behind", 1, 0, 2, -1), ("from above", 1, 0, 1, 1))
"""Title; sign and axis of the horizontal direction, vertical axis, sign of the third axis towards the reader."""

_OUTLINES = (
    "-41,-72 -29,-54 -18,-46 -6,-52 2,-53 20,-46 30,-33 40,-33 60,-28 67,-20 72,-10 73,-4 73,12 68,24 58,42 50,51 "
    "34,62 8,74 -20,81 -38,82 -52,78 -76,63 -101,24 -107,8 -105,-10 -102,-16 -94,-24 -94,-34 -88,-46 -76,-58 -54,-68 "
    "-50,-72",
    "5,-72 10,-68 36,-63 46,-58 65,-32 70,-22 73,-10 71,30 67,44 62,52 50,65 42,70 12,82 0,78 -14,82 -42,70 -50,65 "
    "-62,52 -67,44 -71,30 -73,-10 -70,-22 -64,-34 -46,-58 -36,-63 -10,-68 -5,-72",
    "-21,-106 -10,-107 0,-101 8,-106 16,-107 30,-102 39,-96 54,-80 71,-48 73,-36 73,-22 56,40 48,54 41,62 20,72 10,73 "
    "0,71 -18,73 -36,65 -43,60 -56,40 -72,-20 -73,-36 -70,-50 -54,-80 -38,-97 -21,-106",
)
"""Silhouette of the MNI152 brain mask for each view, in mm, simplified to 1.2 mm."""
CENTRE = np.array([0.0, -17.0, 5.0])
HALF_EXTENT = 92.0
"""Middle of that brain, and half its length with a margin, in mm."""


def describe_brain(arm: str, runs: Sequence[RunFactors], facts: dict[str, Any] | None) -> dict[str, Any]:
    """Describe where the factors of an arm lie, for the template."""
    brain = summarise_assignment(runs) | {"arm": arm, "page": None, "views": [], "missing": "", "groups": []}
    factor = brain["factor"]
    rois = (facts or {}).get("rois")
    if facts is None or rois is None or len(rois["name"]) != len(factor):
        brain["missing"] = "This folder has no coordinates of regions (no facts.json): run the job again to get them."
        return brain
    brain["groups"] = [
        [name for name, j in zip(rois["name"], factor, strict=True) if j == group] for group in range(len(brain["pi"]))
    ]
    if rois["xyz"] is None:
        brain["missing"] = (
            f"The atlas '{facts['atlas']}' has no coordinates of all its regions, so they cannot be drawn: "
            "'brio atlas COHORT TABLE --out COHORT2' adds them to a cohort."
        )
        return brain
    brain["views"] = _project_regions(rois["xyz"], factor)
    labels = [f"{name}, factor {j + 1}" for name, j in zip(rois["name"], factor, strict=True)]
    viewer = render_brain_viewer(rois["xyz"], labels, factor)
    if viewer is None:
        brain["missing"] = "The interactive brain needs nilearn, which was not installed when this page was written."
    else:  # compressed to half its size; the script of the page decompresses it when its section is opened
        brain["page"] = base64.b64encode(gzip.compress(viewer.encode(), compresslevel=6, mtime=0)).decode()
    return brain


def render_brain_viewer(xyz: Sequence[Sequence[float]], labels: Sequence[str], factor: Sequence[int]) -> str | None:
    """Render an interactive brain as an HTML page; None where nilearn is not installed.

    Shapes: xyz [P, 3].
    """
    try:
        from nilearn.plotting import view_markers
    except ImportError:
        return None
    view = view_markers(
        np.asarray(xyz, dtype=float),
        marker_color=[COLOURS[j % len(COLOURS)] for j in factor],
        marker_size=9.0,
        marker_labels=[html.escape(label) for label in labels],
    )
    page = re.sub(r"<link\b[^>]*>", "", view.html)  # its icon would be loaded from the network
    return page.replace("</body>", f"{_STYLE}{_SCRIPT}</body>")


def _project_regions(xyz: Sequence[Sequence[float]], factor: Sequence[int]) -> list[dict[str, Any]]:
    """Project the regions and the outline of a brain on squares of 200 units, seen from three sides.

    The middle of the brain is the middle of the square, whatever regions an atlas has.
    """
    positions = np.asarray(xyz, dtype=float)
    reach = max(HALF_EXTENT, float(np.abs(positions - CENTRE).max()))
    scaled = (positions - CENTRE) / reach * 92
    views = []
    for (title, sign, across, up, towards), outline in zip(_VIEWS, _OUTLINES, strict=True):
        depth = towards * scaled[:, ({0, 1, 2} - {across, up}).pop()]
        dots = [
            {
                "x": round(100 + sign * float(scaled[u, across]), 1),
                "y": round(100 - float(scaled[u, up]), 1),
                "factor": int(factor[u]),
            }
            for u in np.argsort(depth, kind="stable")  # the nearest is drawn last
        ]
        edge = [tuple(map(float, point.split(","))) for point in outline.split()]
        points = " ".join(
            f"{100 + sign * 92 * (a - CENTRE[across]) / reach:.1f},{100 - 92 * (b - CENTRE[up]) / reach:.1f}"
            for a, b in edge
        )
        views.append({"title": title, "dots": dots, "outline": points})
    return views
