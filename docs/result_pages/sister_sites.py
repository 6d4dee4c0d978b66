"""What it changes that some sites of ABIDE are samples of one institution."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from brio.formatting import format_p, format_signed, state_p
from brio.protocol import adjust_holm

from .comparisons import compare_pair, with_interval
from .evidence import read_measured_table
from .markdown import atlas_label, fixed, in_words, state, write_commands, write_table
from .unseen_scores import ATLASES, scores

MEASUREMENT = "sister-sites.txt"
SCORES = ["with_sister", "without_sister", "without_others"]


@cache
def measured() -> pd.DataFrame:
    """Return the AUC at each site that has a sister, by cohort and method, with and without it as a source site."""
    table = read_measured_table(MEASUREMENT)
    return table.astype(dict.fromkeys(SCORES, float))


def _compare(atlas: str, method: str) -> tuple[pd.DataFrame, pd.Series]:
    table = measured()
    own = table[(table["cohort"] == atlas) & (table["method"] == method)].set_index("site")[SCORES]
    return own, compare_pair(own, "with_sister", "without_sister", "sister sites", f"{atlas_label(atlas)}, {method}")


def write_sisters() -> list[str]:
    """Return the section on sites of one institution."""
    names = sorted(measured()["site"].unique())
    cases = [(atlas, str(method)) for atlas in ATLASES for method in measured()["method"].unique()]
    rows, gains = [], []
    for atlas, method in cases:
        own, gain = _compare(atlas, method)
        gains.append(gain)
        means = [fixed(own[column].mean()) for column in SCORES]
        rows.append([atlas_label(atlas), f"`{method}`", *means, with_interval(gain), format_p(gain["p"])])
    corrected = adjust_holm(np.array([gain["p"] for gain in gains]))
    most, largest = max(zip(cases, gains, strict=True), key=lambda pair: pair[1]["mean"])
    single = {atlas: scores(atlas).drop(index=names) for atlas in ATLASES}
    without = {
        atlas: compare_pair(single[atlas], "ridge", "brio", "single pairs", f"{atlas_label(atlas)}, without sisters")
        for atlas in ATLASES
    }
    gaps = [f"{with_interval(d)}, {state_p(d['p'])}" for d in without.values()]
    header = ["atlas", "method", "with the sister", "without it", "without as many other scans", "with minus without"]
    return [
        "## Sites of one institution",
        f"{in_words(names)} are, by their names, two samples each of three institutions. In the tables of this page "
        "a sister may be among the source or validation sites, so these six are new samples rather than new hospitals. "
        "Does that help? Linear models with all other sites as source sites, without the sister, and without as many "
        "scans of each class from other sites (mean of ten draws); mean AUC at the six sites:",
        write_table([*header, "p, not corrected"], rows),
        state(
            f"The means differ by {format_signed(min(g['mean'] for g in gains))} to "
            f"{format_signed(max(g['mean'] for g in gains))} points. The largest gain, of `{most[1]}` on "
            f"{atlas_label(most[0])}, is one at all six sites, while as many other scans are worth little; "
            f"corrected for the {len(cases)} rows it is not shown ({state_p(corrected.min())}). Six sites show only "
            "large gains, and networks were not tried.",
            bool((corrected > 0.05).all()) and largest["better"] == largest["n"] == len(names),
        ),
        f"At the {len(single['aal116'])} sites without a sister the means are lower: ridge has "
        f"{in_words(fixed(single[a]['ridge'].mean()) for a in ATLASES)}, BRIO "
        f"{in_words(fixed(single[a]['brio'].mean()) for a in ATLASES)} (AAL116, CC200). The difference of the two is "
        f"{in_words(gaps)}, without correction.",
        write_commands("python benchmarks/sister_sites.py abide-aal --with abide-cc"),
    ]
