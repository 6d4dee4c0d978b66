"""Does ComBat help at unseen sites?"""

from __future__ import annotations

import pandas as pd

from brio.formatting import state_p

from .comparisons import (
    compare_pair,
    compare_sites,
    describe_scores,
    difference_cells,
    name_family,
    site_scores,
    with_interval,
)
from .evidence import describe_protocol, name_source, read_runs
from .markdown import fixed, interval, state, with_sd, write_commands, write_page, write_table

FILE = "harmonisation.md"
TITLE = "Does ComBat help at unseen sites?"
FOLDER = "harmonisation/aal116-combat"
POLICIES = {
    "identity": "scans of the test site stay as they are",
    "pooled": "the average site effect is removed",
    "unlabelled": "its site effect is estimated from its own scans without labels (transductive)",
}


def page() -> str:
    """Return the page."""
    plain = read_runs("unseen-sites/aal116")
    plain = plain[plain["method"] == "ridge"]
    runs = {"none": plain} | {policy: read_runs(f"{FOLDER}/{policy}") for policy in POLICIES}
    auc, acc = (
        pd.DataFrame({name: site_scores(part, metric)["ridge"] for name, part in runs.items()})
        for metric in ("auc", "acc")
    )
    table, means = compare_sites(auc, "none", "harmonisation"), describe_scores(auc)
    accuracy = compare_pair(acc, "unlabelled", "none", "single pairs", "accuracy with ComBat")
    rows = []
    for name in auc:
        row = means.loc[name]
        cells = [with_sd(row["mean"], row["sd"]), interval(row["low"], row["high"]), fixed(acc[name].mean())]
        rows.append([name, POLICIES.get(name, "ridge without ComBat"), *cells, *difference_cells(table, name)])
    header = [
        "policy",
        "what happens at the test site",
        "AUC",
        "95 % interval",
        "ACC",
        "AUC minus none",
        "95 % interval",
        "p",
    ]
    return write_page(
        TITLE,
        state(
            "**No gain is shown.** ComBat before ridge changes the mean AUC at unseen sites by at most "
            f"{fixed(table['mean'].abs().max())} points, whatever happens at the test site. Unlabelled scans of the "
            f"test site change the accuracy by {with_interval(accuracy)} points: not shown either "
            f"({state_p(accuracy['p'])}).",
            bool((table["p_holm"] > 0.05).all()) and accuracy["p"] > 0.05,
        ),
        f"AAL116, ridge; {describe_protocol(plain)}. ComBat is fitted to the source sites of each fold. "
        f"{name_family('harmonisation')} No network "
        "was tried. Jobs with ComBat are of version 0.1.0; the ridge of that version chose another penalty where "
        "several scored alike.",
        write_commands(
            "brio run abide-aal --method ridge --seeds 3 --set harmonise.kind=combat --set "
            "harmonise.unseen=identity --out combat/identity",
        ),
        write_table(header, rows),
        name_source(FOLDER, "unseen-sites/aal116/ridge"),
    )
