"""What a user should know about the scans that a model is given: names of regions and classes, sites, labels."""

from __future__ import annotations

from ..cohort import Cohort
from ..cohort.class_names import ClassNames
from ..cohort.folder import find_filled
from ..cohort.given_fc import FC_ONLY
from ..cohort.sessions import SESSION_FRAMES
from ..results.format import join_names
from .model import Model

_UNNAMED = ("0", "1")
_KNOWN_COLUMNS = (
    *("participant_id", "session", "site", "label", "n_frames", "tr", "age", "sex", "mean_fd"),
    *(FC_ONLY, SESSION_FRAMES),
)


def warn_of_unnamed_rois(model: Model, cohort: Cohort) -> list[str]:
    """Warn where the order of the ROIs could not be checked."""
    without = [name for name, atlas in (("scans", cohort.atlas), ("model", model.atlas)) if atlas.is_unnamed]
    if not without:
        return []
    return [f"warning: the ROIs of the {' and the '.join(without)} have no names: columns are taken in their order"]


def warn_of_other_classes(model: Model, cohort: Cohort) -> list[str]:
    """Say which label is taken as which class of the model, where labels have other names."""
    (zero, one), (own_zero, own_one) = cohort.classes, model.classes
    names = {name.casefold() for name in cohort.classes}
    if not cohort.labelled.any() or cohort.classes == _UNNAMED:
        return []
    if names == {name.casefold() for name in model.classes}:
        return []
    people = ClassNames()
    meant = (f" ({people.positives})", f" ({people.negatives})") if model.classes == _UNNAMED else ("", "")
    return [
        f"warning: labels are {zero} and {one}, those of the model {own_zero} and {own_one}: {one} is taken as "
        f"{own_one}{meant[0]} of the model, {zero} as {own_zero}{meant[1]}; --patient and --control say it otherwise"
    ]


def remark_on_local_scans(model: Model, cohort: Cohort) -> list[str]:
    """Say what speaks against adapting a model to these scans."""
    lines = [*warn_of_unnamed_rois(model, cohort), *warn_of_other_classes(model, cohort)]
    known = cohort.labelled & find_filled(cohort.participants, "site")
    sites = sorted(set(cohort.participants["site"][known].astype(str))) if known.any() else []
    if len(sites) > 1:
        lines.append(
            f"warning: the labelled scans are of {len(sites)} sites ({join_names(sites, most=5)}), but a model is "
            "adapted to one hospital: adapt it to each of them by itself"
        )
    return lines


def suggest_label_column(cohort: Cohort) -> list[str]:
    """Say which options read labels, where no scan has one and the table has further columns."""
    further = cohort.participants.drop(columns=[*_KNOWN_COLUMNS], errors="ignore")
    if cohort.labelled.any() or further.columns.empty:
        return []
    of_two_values = [name for name in further if further[name].nunique() == 2]
    names = join_names(map(str, of_two_values or further.columns), most=8)
    return [
        f"no scan has a label; the table has further columns ({names}): if one of them holds it, name it with "
        "--label-column, --patient and --control"
    ]
