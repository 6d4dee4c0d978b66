"""How much AUC is lost with shorter scans?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from .comparisons import Verdict, arm_scores, compare_sites, count_shown, describe_scores, group_rows, judge
from .evidence import read_study
from .markdown import in_words

STUDY = "studies/aal116/scan-length"
SHARES = (75.0, 50.0)


@cache
def change(share: float) -> pd.DataFrame:
    """Return the change in AUC of each arm at each test site with a share of the frames, over windows and seeds."""
    rows = read_study(STUDY)
    runs = rows[rows["share"] == share].groupby(["arm", "fold", "seed"], sort=False)["change"].mean()
    return arm_scores(runs.reset_index(), "change")


@cache
def differences(share: float) -> pd.DataFrame:
    """Return the differences to the change of BRIO."""
    return compare_sites(change(share), "brio", "scan length", f"{share:g}%")


def count_differences() -> tuple[int, int, int]:
    """Count the arms that lose significantly more and less than BRIO, and all, at all shares."""
    return count_shown(differences(share) for share in SHARES)


def list_losses() -> pd.DataFrame:
    """Return the change in AUC of each arm, under the share of the frames, for the figure."""
    return group_rows({f"{share:g}% of the frames": describe_scores(change(share)) for share in SHARES})


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdicts on scan length."""
    lost, gained, n = count_shown(
        compare_sites(
            change(share).assign(**{"full scans": 0.0}), "full scans", "scan length", f"{share:g}% of the frames"
        )
        for share in SHARES
    )
    below, above, m = count_differences()
    shares = in_words(f"{share:g}%" for share in SHARES)
    return [
        (
            "All models lose AUC when fewer frames are kept",
            f"significant in {lost} of {n} cases ({shares} of the frames)",
            judge(lost, gained, n),
        ),
        ("BRIO loses the least AUC", f"significant in {below} of {m} comparisons", judge(below, above, m)),
    ]
