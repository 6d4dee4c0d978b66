"""Factors on a brain: one that turns (nilearn's viewer) and three flat views for paper."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["COLOURS", "flat_views", "turning_brain"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#4B9CD3", "#555555")
"""Okabe and Ito's, the light ones darkened for white paper; the first J are those of the factors."""

_STYLE = """<style>
body { margin: 0; font: 14px sans-serif; color: #566370 }
#connectome-plot > div { margin: 0 auto }
#select-view { margin: 6px 10px } .modebar { display: none }
</style>"""
_SCRIPT = """<script>
$(document).ready(() => { try {
  const plain = getLayout
  getLayout = (...words) => ({ ...plain(...words), hovermode: 'closest' })
  const plot = document.getElementById('connectome-plot')
  const update = updateLayout // it fails where the frame changes its size before the first drawing is done
  updateLayout = (...words) => { try { update(...words) } catch (error) { setTimeout(() => update(...words), 500) } }
  const dots = plot.data.flatMap((trace, k) => trace.type === 'scatter3d' ? [k] : [])
  const labels = connectomeInfo.connectome.marker_labels
  Plotly.restyle(plot, { mode: 'markers', hoverinfo: 'text', hovertext: [labels] }, dots)
  surfaceRelayout()
} catch (error) { console.info('the viewer shows its labels as it does by itself') } })
</script>"""
"""Names appear under the pointer, not all at once."""

_VIEWS = (("from the left", -1, 1, 2, -1), ("from behind", 1, 0, 2, -1), ("from above", 1, 0, 1, 1))
"""Title; sign and axis across, axis up, and the sign along the third axis towards the reader."""


def turning_brain(xyz: Sequence[Sequence[float]], labels: Sequence[str], factor: Sequence[int]) -> str | None:
    """A page with a brain that turns, to be put into a frame; None where nilearn is not installed.

    The viewer writes labels into its script as they are, and its 3D labels read a little HTML: they are escaped here.
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
    page = re.sub(r"<link\b[^>]*>", "", view.html)  # its icon lies on the network
    return page.replace("</body>", f"{_STYLE}{_SCRIPT}</body>")


def flat_views(xyz: Sequence[Sequence[float]], factor: Sequence[int]) -> list[dict[str, Any]]:
    """ROIs seen from three sides: where each lies in a square of 200, for one drawing a view."""
    at = np.asarray(xyz, dtype=float)
    centre = (at.max(0) + at.min(0)) / 2
    reach = max(float((at.max(0) - at.min(0)).max()), 1.0)
    scaled = (at - centre) / reach * 176
    out = []
    for title, sign, across, up, near in _VIEWS:
        towards = near * scaled[:, ({0, 1, 2} - {across, up}).pop()]
        dots = [
            {
                "x": round(100 + sign * float(scaled[u, across]), 1),
                "y": round(100 - float(scaled[u, up]), 1),
                "factor": int(factor[u]),
            }
            for u in np.argsort(towards, kind="stable")  # the nearest is drawn last
        ]
        out.append({"title": title, "dots": dots})
    return out
