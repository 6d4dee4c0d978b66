"""The choice of a penalty: the best AUC, and where penalties tie the stronger one."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...errors import BrioError

__all__ = ["ChosenOn", "choose_penalty"]

ChosenOn = Literal["validation", "source-sites"]
"""What scored the penalties: the validation scans, or inner folds over source sites."""

_WITHOUT_AUC: dict[ChosenOn, str] = {
    "validation": "the validation scans hold one class only, so no penalty can be chosen; use more validation sites",
    "source-sites": "a source site holds one class only, so its inner fold has no AUC and no penalty can be chosen; "
    "exclude the site, or choose on validation scans (choose_by=validation)",
}


def choose_penalty(scores: np.ndarray, penalties: np.ndarray, chosen_on: ChosenOn, fold_name: str) -> np.ndarray:
    """Choose the penalty with the highest score; of several the strongest, since it gives the simplest model.

    Parameters
    ----------
    scores : ndarray, shape [penalties] or [penalties, B]
        AUC of each penalty, for one or B columns of labels; NaN where there is none.
    penalties : ndarray, shape [penalties]
        In any order.
    chosen_on : {"validation", "source-sites"}
        What gave the scores.
    fold_name : str

    Returns
    -------
    ndarray of int64, shape [] or [B]
        Positions of the chosen penalties.

    Raises
    ------
    BrioError
        If no penalty has a score.

    Examples
    --------
    >>> int(choose_penalty(np.array([0.7, 0.8, 0.8, 0.6]), np.array([0.1, 1.0, 10.0, 100.0]), "validation", "NYU"))
    2
    """
    if np.isnan(scores).all(axis=0).any():
        raise BrioError(f"fold {fold_name}: {_WITHOUT_AUC[chosen_on]}")
    from_strongest = np.argsort(-penalties, kind="stable")
    return from_strongest[np.nanargmax(scores[from_strongest], axis=0)]
