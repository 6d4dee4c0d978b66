"""The choice of a penalty: the best AUC, and where penalties tie the stronger one."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...errors import BrioError

ChosenOn = Literal["validation", "source-sites"]
"""What scored the penalties: the validation scans, or inner folds over source sites."""

_WITHOUT_AUC: dict[ChosenOn, str] = {
    "validation": "the validation scans hold one class only, so no penalty can be chosen; use more validation sites",
    "source-sites": "a source site holds one class only, so its inner fold has no AUC and no penalty can be chosen; "
    "exclude the site, or choose on validation scans (choose_by=validation)",
}


def choose_penalty(scores: np.ndarray, penalties: np.ndarray, chosen_on: ChosenOn, fold_name: str) -> np.ndarray:
    """Choose the penalty with the highest score; of several the strongest, since it gives the simplest model.

    Shapes: scores [penalties] or [penalties, B], penalties [penalties]; returns [] or [B].
    """
    if np.isnan(scores).all(axis=0).any():
        raise BrioError(f"fold {fold_name}: {_WITHOUT_AUC[chosen_on]}")
    from_strongest = np.argsort(-penalties, kind="stable")
    return from_strongest[np.nanargmax(scores[from_strongest], axis=0)]
