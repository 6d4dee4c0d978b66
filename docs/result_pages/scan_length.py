"""What do shorter scans cost?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_p, format_signed

from .comparisons import Verdict, arm_scores, compare_sites, describe_scores, judge, name_family, shown
from .evidence import (
    describe_runs_of_today,
    link_figure,
    name_source,
    read_paper_claim,
    read_study,
)
from .markdown import arm_label, fixed, in_words, signed_interval, state, write_page, write_table

FILE = "scan-length.md"
TITLE = "What do shorter scans cost?"
STUDY = "studies/aal116-version-2/scan-length"
OLD = "studies/aal116/scan-length"
SHARES = (75.0, 50.0)


@cache
def change(share: float, folder: str = STUDY) -> pd.DataFrame:
    """Return the change in AUC of each arm at each test site with a share of the frames, over windows and seeds."""
    rows = read_study(folder)
    runs = rows[rows["share"] == share].groupby(["arm", "fold", "seed"], sort=False)["change"].mean()
    return arm_scores(runs.reset_index(), "change")


@cache
def differences(share: float, folder: str = STUDY) -> pd.DataFrame:
    """Return the differences to the change of BRIO."""
    return compare_sites(change(share, folder), "brio", "scan length", f"{share:g} %, {folder}")


def _table() -> str:
    out = []
    for arm in change(SHARES[0]):
        row = [arm_label(arm)]
        for share in SHARES:
            loss, table = describe_scores(change(share)).loc[arm], differences(share)
            row += [format_signed(loss["mean"]), signed_interval(loss["low"], loss["high"])]
            row.append(format_p(table.loc[arm, "p_holm"]) if arm in table.index else "")
        out.append(row)
    header = ["arm"]
    for share in SHARES:
        header += [f"{share:g} % of the frames", "95 % interval", "p, against BRIO"]
    return write_table(header, out)


def page() -> str:
    """Return the page."""
    half = change(50.0).mean()
    most, before = (arm_label(str(c.mean().idxmin())) for c in (change(50.0), change(50.0, OLD)))
    old = change(50.0, OLD).mean()
    apart = max(abs(differences(share)["mean"]).max() for share in SHARES)
    return write_page(
        TITLE,
        state(
            "**All arms lose, and no order among them is shown.** With half of the frames the AUC at unseen sites "
            f"falls by {fixed(-half.max())} to {fixed(-half.min())} points. The arms differ from BRIO by at most "
            f"{fixed(apart)} points.",
            all(len(shown(differences(s), sign)) == 0 for s in SHARES for sign in (1, -1)),
        ),
        "Change in AUC at test sites when their connectomes are computed from the first, middle or last part of the "
        f"frames; checkpoints stay. AAL116; {describe_runs_of_today()} "
        f"{name_family('scan length')}",
        _table(),
        state(
            f"With the settings of version 0.1.0 no order was shown either: the losses at half of the frames were "
            f"{fixed(-old.max())} to {fixed(-old.min())} points, the largest that of {before} (here {most}).",
            all(len(shown(differences(s, OLD), sign)) == 0 for s in SHARES for sign in (1, -1)),
        ),
        f"The paper: {read_paper_claim(STUDY)}",
        link_figure(f"{STUDY}/figure.svg", "Change in AUC with shorter scans"),
        name_source(STUDY, OLD),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdicts on scan length."""
    losses = [
        compare_sites(change(share).assign(whole=0.0), "whole", "scan length", f"{share:g} % against whole scans")
        for share in SHARES
    ]
    lost, gained, n = (
        sum(map(len, part)) for part in zip(*((shown(t, -1), shown(t, 1), t) for t in losses), strict=True)
    )
    tables = [differences(share) for share in SHARES]
    below, above, m = (
        sum(map(len, part)) for part in zip(*((shown(t, -1), shown(t, 1), t) for t in tables), strict=True)
    )
    return [
        Verdict(
            "All models lose AUC when fewer frames are kept",
            f"shown in {lost} of {n} cases ({in_words(f'{share:g} %' for share in SHARES)} of the frames)",
            judge(lost, gained, n),
            FILE,
        ),
        Verdict("BRIO loses least", f"shown in {below} of {m} comparisons", judge(below, above, m), FILE),
    ]
