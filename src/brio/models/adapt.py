"""Adapt a model to a hospital with labelled scans of its own: ``brio adapt``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..cohort import Cohort
from ..connectome import Connectomes
from ..device import resolve_device
from ..errors import BrioError
from ..protocol import average_margins
from .adaptation import choose_widths, expect_gain, fit_adaptation
from .known_scans import list_known_scans
from .model import Model, check_atlas, check_classes
from .ranges import check_ranges, describe_reasons

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

    Both are fitted to the labelled scans of the hospital and shrunk towards no change, so that few scans do little.
    Scans out of range of the model are left out, since it abstains for such scans. An adapted model is adapted anew
    from the original.

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
        If the ROIs are not those of the model, no scan has a label, the model was fitted to a labelled one, all of them
        are out of range, or they are of one class and no prevalence is given.
    """
    widths = choose_widths(model.evidence, slope_width, intercept_width)
    check_atlas(model.atlas, cohort)
    check_classes(model.classes, cohort)
    labelled = _select_labelled(model, cohort)
    compute = resolve_device(device)
    local, reasons = _select_in_range(model, Connectomes(labelled, compute.torch_device))
    original = replace(model, adaptation=None)
    with compute.network_precision():
        logits, _ = original.compute_logits(Connectomes(local, compute.torch_device))
    source_share = find_implied_share(model)
    people, logits = average_margins(local, np.arange(len(local)), logits)
    labels = local.labels[people]
    adaptation = fit_adaptation(labels, logits, widths, prevalence, source_share)
    adaptation = expect_gain(adaptation, labels, logits, source_share)
    adaptation = replace(
        adaptation,
        n_out_of_range=len(labelled) - len(local),
        out_of_range_reasons=reasons,
        known_scans=list_known_scans(local),
    )
    return replace(original, adaptation=adaptation)


def find_implied_share(model: Model) -> float:
    """Return the share of patients that the logits of a model stand for: one half where its loss balances classes."""
    if model.method.facts.balances_classes:
        return 0.5
    n_controls, n_patients = np.array(list(model.training.sites.values())).sum(0)
    return float(n_patients / (n_patients + n_controls))


def _select_labelled(model: Model, cohort: Cohort) -> Cohort:
    """Select the scans with a label; an error where there are none, or the model learned from one of them."""
    if not cohort.labelled.any():
        raise BrioError(
            f"{cohort.name}: no scan has a label; a model is adapted to labelled scans: name their column and values "
            "with --label-column, --patient and --control"
        )
    labelled = cohort.select(cohort.labelled)
    learned = int(model.find_learned_scans(labelled).sum())
    if learned:
        which = "these very scans" if learned == len(labelled) else f"{learned} of the {len(labelled)} labelled scans"
        raise BrioError(f"{cohort.name}: the model was fitted to {which}; give scans that it has not seen")
    return labelled


def _select_in_range(model: Model, connectomes: Connectomes) -> tuple[Cohort, str]:
    """Select the scans that are like those of the model, and count why others are not; an error where none is."""
    cohort, ranges = connectomes.cohort, check_ranges(model.ranges, model.mean, connectomes)
    inside = (ranges["in_range"] == "yes").to_numpy()
    if not inside.any():
        raise BrioError(
            f"{cohort.name}: all {len(cohort)} labelled scans are out of range of the model, the first one because: "
            f"{ranges['reasons'].iloc[0]}; 'brio predict' says why for each"
        )
    return cohort.select(inside), describe_reasons(ranges)
