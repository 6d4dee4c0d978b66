"""The model card: what a model is, what it was fitted to, how good it is, and what it holds of participants."""

from __future__ import annotations

from ..formatting import format_percent
from . import evidence, ranges
from .attacks import read_measured_attacks
from .model import Model
from .predict import DEFAULT_ACCURACY
from .text import fill_text


def write_card(model: Model) -> str:
    """Write the card of a model as Markdown."""
    measured = read_measured_attacks(model.method.name)  # on ABIDE
    return fill_text(
        "card.md.j2",
        model=model,
        training=model.training,
        ranges=model.ranges,
        facts=model.method.facts,
        settings=vars(model.method.settings),
        evidence=model.evidence,
        rule=None if model.evidence is None else evidence.choose_rule(model.evidence.rules, DEFAULT_ACCURACY),
        wanted_accuracy=DEFAULT_ACCURACY,
        measured=measured,
        attacks=model.attacks or measured,
        n_sessions=len(model.known_scans.digests) - model.training.n_scans,
        flags=evidence,
        usual=ranges,
        percent=format_percent,
        describe_range=_describe_range,
    )


def _describe_range(limits: tuple[float, ...] | None, unit: str) -> str:
    if limits is None:
        return "unknown"
    return f"{limits[0]:.3g} {unit}" if limits[0] == limits[1] else f"{limits[0]:.3g} to {limits[1]:.3g} {unit}"
