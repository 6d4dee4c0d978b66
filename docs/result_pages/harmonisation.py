"""Does ComBat help at unseen sites?"""

from __future__ import annotations

import pandas as pd

from .comparisons import site_scores
from .evidence import read_runs

FOLDER, PLAIN = "harmonisation/aal116-combat", "unseen-sites/aal116/ridge"
POLICIES = {
    "none": "ridge without ComBat",
    "identity": "scans of the test site are left unchanged",
    "pooled": "the average site effect is removed from scans of the test site",
    "unlabelled": "the effect of the test site is estimated from its scans without labels (transductive)",
}


def scores(metric: str = "auc") -> pd.DataFrame:
    """Return the score of ridge at each test site, by what happens there."""
    folders = {name: PLAIN if name == "none" else f"{FOLDER}/{name}" for name in POLICIES}
    return pd.DataFrame({name: site_scores(read_runs(folder), metric)["ridge"] for name, folder in folders.items()})
