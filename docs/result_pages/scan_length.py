"""What do shorter scans cost?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.results.format import format_p, format_signed

from .comparisons import Verdict, arm_scores, compare_sites, describe_scores, judge, shown
from .evidence import (
    describe_old_runs,
    link_figure,
    name_source,
    read_paper_claim,
    read_study,
)
from .markdown import arm_label, fixed, in_words, signed_interval, state, write_page, write_table

FILE = "scan-length.md"
TITLE = "What do shorter scans cost?"
STUDY = "studies/aal116/scan-length"
EARLIER = "repeats/aal116-before-encoder-kernels/scan-length"
SHARES = (75.0, 50.0)


@cache
def change(share: float, folder: str = STUDY) -> pd.DataFrame:
    """Return the change in AUC of each arm at each test site with a share of the frames, over windows and seeds."""
    rows = read_study(folder)
    runs = rows[rows["share"] == share].groupby(["arm", "fold", "seed"], sort=False)["change"].mean()
    return arm_scores(runs.reset_index(), "change")


@cache
def differences(share: float) -> pd.DataFrame:
    """Return the differences to the change of BRIO."""
    return compare_sites(change(share), "brio")


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
    most, earlier = (arm_label(str(c.mean().idxmin())) for c in (change(50.0), change(50.0, EARLIER)))
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
        f"frames; checkpoints stay. AAL116; {describe_old_runs('studies/aal116/arms/brio')} p "
        "values are from Wilcoxon's signed-rank test over sites, corrected by Holm's method for two comparisons.",
        _table(),
        f"The largest mean loss at half of the frames is that of {most} here and that of {earlier} in an earlier job.",
        f"The paper: {read_paper_claim(STUDY)}",
        link_figure(f"{STUDY}/figure.svg", "Change in AUC with shorter scans"),
        name_source(STUDY, EARLIER),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdicts on scan length."""
    losses = [compare_sites(change(share).assign(whole=0.0), "whole") for share in SHARES]
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
