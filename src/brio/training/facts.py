"""What a method declares about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodFacts:
    """Facts that a method declares about itself, for the plan, the summary and the progress display.

    Attributes
    ----------
    epochs : int or None
        Largest number of epochs; None where nothing is trained by epochs.
    reestimates : int or None
        Re-estimates of each scan at a time (K); None where nothing is re-estimated.
    dead_rois : str or None
        What the edges of an ROI without signal hold, as the method's setting names it.
    refits : bool
        Whether a run is trained again with its validation scans once the epoch is chosen.
    relative_cost : float
        Rough cost of one run, in epochs of a plain network. Only the display of the time left uses it.
    setting_without_validation : str
        Setting under which the method needs no validation scans, as ``key=value``; empty if there is none.
    chooses_epochs_by_inner_folds : bool
        Whether inner folds of the source scans choose the number of epochs of a run whose fold has no validation scans.
    balances_classes : bool
        Whether the loss weighs both classes alike, so that a logit of 0 stands for equal shares, whatever the share of
        patients among the source scans.
    holds : str
        What a fitted run holds of its source scans, for the card of a model.
    keeps_scans : str
        What it holds of single source scans, in words; empty where every number is made of many scans.
    explains : str
        What :meth:`Method.explain` returns, in words; empty where it returns None.
    uses_seed : bool
        Whether a seed decides anything besides the validation sites of a fold.
    frames_for : str
        What it needs the frames of scans for besides BOLD and re-estimates, in words; empty where connectomes do.
    """

    epochs: int | None = None
    reestimates: int | None = None
    dead_rois: str | None = None
    refits: bool = False
    relative_cost: float = 2.0
    setting_without_validation: str = ""
    chooses_epochs_by_inner_folds: bool = False
    balances_classes: bool = False
    holds: str = "weights of a network, each of them learned from all source scans"
    keeps_scans: str = ""
    explains: str = ""
    uses_seed: bool = True
    frames_for: str = ""
