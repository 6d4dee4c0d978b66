"""The types of an explanation: what a fitted run reads of a connectome. Nothing in here computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a fitted run reads of a connectome: coefficients of edges, factors, or both.

    Attributes
    ----------
    edge_values : str
        What the value of an edge is, in words, such as ``"Fisher z"``; empty where edges have no coefficients.
    coefficients : ndarray of float64, shape [edges], or None
        Change of the margin when the value of an edge grows by one, all others as they are.
    beyond_edges : str
        What else the margin is made of, in words; empty where it is nothing but coefficients times values of edges
        and an intercept.
    assignment : ndarray of float64, shape [J, P], or None
        Share of each ROI in each factor; a column sums to 1 / P. None where the method has no factors.
    """

    edge_values: str = ""
    coefficients: np.ndarray | None = None
    beyond_edges: str = ""
    assignment: np.ndarray | None = None


class ExplainedScans(NamedTuple):
    """What a fitted run reads of B scans.

    Attributes
    ----------
    margin : ndarray of float64, shape [B]
    edges : ndarray of float64, shape [B, edges], or None
        Values of the edges that the coefficients of an :class:`Explanation` multiply, less their means over the source
        scans.
    contributions : ndarray of float64, shape [B, J], or None
        What each factor adds to the margin; with the intercept they add up to it.
    """

    margin: np.ndarray
    edges: np.ndarray | None = None
    contributions: np.ndarray | None = None
