"""Could the AUC be due to chance?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from brio.results import ESTIMANDS
from brio.studies.refits import compute_p

from .evidence import ATLASES, read_arms

STUDY = "permutation"


@cache
def summary() -> pd.DataFrame:
    """Return observed and permuted AUC of each atlas, method and estimand, in percent."""
    rows = []
    for atlas in ATLASES:
        for method, table in read_arms(STUDY, atlas).items():
            for column, estimand in zip(("auc", "pair_weighted_auc"), ESTIMANDS, strict=True):
                observed = 100 * table.loc[table["permutation"] == 0, column].item()
                permuted = 100 * table.loc[table["permutation"] > 0, column].to_numpy()
                low, high = np.quantile(permuted, [0.025, 0.975])
                rows.append(
                    {"atlas": atlas, "method": method, "estimand": estimand, "observed": observed}
                    | {"mean": permuted.mean(), "sd": permuted.std(ddof=1), "low": low, "high": high}
                    | {"largest": permuted.max(), "n": len(permuted), "p": compute_p(observed, permuted)}
                )
    return pd.DataFrame(rows)


def list_drawn(atlas: str) -> pd.DataFrame:
    """Return each observed AUC with the interval of the permuted ones, under its mean of AUC, for the figure."""
    own = summary().query("atlas == @atlas").set_index("method")
    return own.assign(mean=own["observed"], group=own["estimand"]).sort_values("group", kind="stable")
