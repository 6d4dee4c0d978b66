"""Adapt a model to a hospital with labelled scans of its own: ``brio adapt``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..cohort import Cohort
from ..connectome import Connectomes
from ..device import resolve_device
from ..errors import BrioError
from .adaptation import choose_widths, expect_gain, fit_adaptation
from .model import Model, check_atlas

__all__ = ["adapt_model"]


def adapt_model(
    model: Model,
    cohort: Cohort,
    *,
    prevalence: float | None = None,
    slope_width: float | None = None,
    intercept_width: float | None = None,
    device: str = "auto",
) -> Model:
    """Adapt a model to a hospital: slope and intercept of its logits change, its weights never do.

    Both are fitted to the labelled scans of the hospital and shrunk towards no change, so that few scans do little. An
    adapted model is adapted anew from the original.

    Parameters
    ----------
    model : Model
    cohort : Cohort
        Scans of the hospital. Those without a label are not read; sites are not needed.
    prevalence : float, optional
        Share of patients at the hospital. By default it is that of the labelled scans.
    slope_width, intercept_width : float, optional
        Standard deviations between hospitals of the logarithm of the slope and of the intercept. By default those
        between test sites in the evidence of the model, or 0.25 and 0.5 where it has none.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}

    Returns
    -------
    Model
        With its ``adaptation``.

    Raises
    ------
    BrioError
        If the ROIs are not those of the model, no scan has a label, the labelled scans are of one class and no
        prevalence is given, or the model was fitted to these very scans.
    """
    widths = choose_widths(model.evidence, slope_width, intercept_width)
    check_atlas(model.atlas, cohort)
    _check_labels(model, cohort)
    original = replace(model, adaptation=None)
    local = cohort.select(np.flatnonzero(cohort.labelled))
    compute = resolve_device(device)
    with compute.network_precision():
        logits, _ = original.compute_logits(Connectomes(local, compute.torch_device))
    source_share = find_implied_share(model)
    adaptation = fit_adaptation(local.labels, logits, widths, prevalence, source_share)
    return replace(original, adaptation=expect_gain(adaptation, local.labels, logits, source_share))


def find_implied_share(model: Model) -> float:
    """Return the share of patients that the logits of a model stand for: one half where its loss balances classes."""
    if model.method.facts.balances_classes:
        return 0.5
    n_controls, n_patients = np.array(list(model.training.sites.values())).sum(0)
    return float(n_patients / (n_patients + n_controls))


def _check_labels(model: Model, cohort: Cohort) -> None:
    if not cohort.labelled.any():
        raise BrioError(f"{cohort.name}: no scan has a label; a model is adapted to labelled scans")
    if cohort.fingerprint in (model.training.fingerprint, model.training.whole_fingerprint):
        raise BrioError(f"{cohort.name}: the model was fitted to these very scans; give scans that it has not seen")
    if cohort.classes == model.classes[::-1]:
        zero, one = model.classes
        raise BrioError(f"{cohort.name}: its classes are exchanged; the model has {zero} for 0 and {one} for 1")
