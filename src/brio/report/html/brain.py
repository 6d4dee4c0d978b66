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

__all__ = ["describe_brain", "render_brain_viewer"]

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


def describe_brain(arm: str, runs: Sequence[RunFactors], facts: dict[str, Any] | None) -> dict[str, Any]:
    """Describe where the factors of an arm lie, for the template.

    Parameters
    ----------
    arm : str
        Name of the arm.
    runs : sequence of RunFactors
    facts : dict or None
        Counts and ranges of the cohort, with the names and coordinates of its regions.

    Returns
    -------
    dict
        The assignment of :func:`brio.report.html.factors.summarise_assignment`; ``groups`` of region names, flat
        ``views``, and ``page`` with the packed viewer, each empty where it cannot be drawn: ``missing`` says why.
    """
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
    else:  # compressed to half its size; the script of the page decompresses it when it is scrolled into view
        brain["page"] = base64.b64encode(gzip.compress(viewer.encode(), mtime=0)).decode()
    return brain


def render_brain_viewer(xyz: Sequence[Sequence[float]], labels: Sequence[str], factor: Sequence[int]) -> str | None:
    """Render an interactive brain as an HTML page; None where nilearn is not installed.

    Parameters
    ----------
    xyz : shape [P, 3]
        Coordinates of the regions, in mm.
    labels : P strings
        Escaped here: the viewer writes them into a script.
    factor : P integers
        Factor of each region, from 0.

    Returns
    -------
    str or None
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
    """Project the regions on squares of 200 units, seen from three sides."""
    positions = np.asarray(xyz, dtype=float)
    centre = (positions.max(0) + positions.min(0)) / 2
    extent = max(float((positions.max(0) - positions.min(0)).max()), 1.0)
    scaled = (positions - centre) / extent * 176
    views = []
    for title, sign, across, up, towards in _VIEWS:
        depth = towards * scaled[:, ({0, 1, 2} - {across, up}).pop()]
        dots = [
            {
                "x": round(100 + sign * float(scaled[u, across]), 1),
                "y": round(100 - float(scaled[u, up]), 1),
                "factor": int(factor[u]),
            }
            for u in np.argsort(depth, kind="stable")  # the nearest is drawn last
        ]
        views.append({"title": title, "dots": dots})
    return views
