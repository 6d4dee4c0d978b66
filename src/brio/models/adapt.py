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
    Scans that are no connectomes of its regions (the flag ``foreign``) are left out. An adapted model is adapted anew
    from the original.
    """
    widths = choose_widths(model.evidence, slope_width, intercept_width)
    check_atlas(model.atlas, cohort)
    check_classes(model.classes, cohort)
    labelled = _select_labelled(model, cohort)
    compute = resolve_device(device)
    local = _drop_foreign_scans(model, Connectomes(labelled, compute.torch_device))
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
        n_foreign=len(labelled) - len(local),
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


def _drop_foreign_scans(model: Model, connectomes: Connectomes) -> Cohort:
    """Select the scans that are connectomes of the regions of the model; an error where none is."""
    cohort, checked = connectomes.cohort, model.check_scans(connectomes)
    meant = ~checked["flag"].str.split().map(lambda codes: "foreign" in codes).to_numpy(dtype=bool)
    if not meant.any():
        raise BrioError(
            f"{cohort.name}: none of the {len(cohort)} labelled scans is like those of the model, the first because: "
            f"{checked['reasons'].iloc[0]}; check that the columns are the regions of its rois.tsv in that order, and "
            "name them (--atlas-table), which lets brio put them in order"
        )
    return cohort.select(meant)
