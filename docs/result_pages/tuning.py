"""Did tuning help?"""

from __future__ import annotations

from collections import Counter

import pandas as pd

from brio.formatting import format_p, format_signed
from brio.protocol import adjust_holm

from .comparisons import compare_pair, name_family, site_scores, with_interval
from .evidence import name_source, read_runs, read_tuning
from .markdown import code, fixed, in_words, signed_interval, state, write_commands, write_page, write_table

FILE = "tuning.md"
TITLE = "Did tuning help?"
TUNED = "tuning/aal116"
OWN = "unseen-sites/aal116"
ARMS = "studies/aal116/arms"
CHANGED_METHODS = ("brio", "brio-plus", "xg-gnn", "disco", "deci", "core")
"""Methods that compute something else than in version 0.1.0, with which tuning ran."""
OWN_OF_EARLIER_VERSION = ["brio", "core"]
"""Methods that have changed since they were tuned, but were run with their own settings by the same version."""


def _pairs() -> pd.DataFrame:
    tuned, own = site_scores(read_runs(TUNED)), site_scores(read_runs(OWN))
    own = own.assign(**{name: site_scores(read_runs(f"{ARMS}/{name}"))[name] for name in OWN_OF_EARLIER_VERSION})
    rows = {}
    for name in tuned:
        if name in CHANGED_METHODS and name not in OWN_OF_EARLIER_VERSION:
            continue
        d = compare_pair(pd.DataFrame({"tuned": tuned[name], "own": own[name]}), "tuned", "own", "tuning", name)
        rows[name] = d.to_dict() | {"tuned": tuned[name].mean(), "own": own[name].mean()}
    table = pd.DataFrame(rows).T.sort_values("mean", ascending=False)
    return table.assign(p=adjust_holm(table["p"].to_numpy(float)))


def page() -> str:
    """Return the page."""
    pairs, tuning = _pairs(), read_tuning(TUNED)
    lambdas = Counter(site["lambda_env"] for site in tuning["brio"].choices["brio"].values())
    budgets = Counter(record.tried[name] for name, record in tuning.items())
    rows = [
        [
            f"`{n}`",
            fixed(r["tuned"]),
            fixed(r["own"]),
            format_signed(r["mean"]),
            signed_interval(r["low"], r["high"]),
            format_p(r["p"]),
        ]
        for n, r in pairs.iterrows()
    ]
    disc, others = pairs.loc["disc"], pairs.drop("disc")
    return write_page(
        TITLE,
        state(
            "**No gain is shown, but DISC may have one.** Choosing among a few configurations on two validation sites "
            f"changed {len(others)} methods by {format_signed(others['mean'].min())} to "
            f"{format_signed(others['mean'].max())} points. DISC, which stays at chance with its own settings "
            f"({fixed(disc['own'])}), gained {with_interval(disc)} points; after correction for {len(pairs)} "
            "comparisons that is not shown.",
            bool((pairs["p"] > 0.05).all()) and disc["low"] > 0,
        ),
        "So the comparison at [unseen sites](unseen-sites.md) has every method with its own settings. Read its row of "
        "DISC with this page.",
        f"On AAL116, {len(tuning)} methods were tuned with version 0.1.0, "
        f"{in_words(f'{n} of them among {b} configurations' for b, n in budgets.items())} for each test site, "
        "trained with seed 0 and judged by AUC on the validation sites. Test sites were not looked at.",
        write_commands(
            "brio tune abide-aal --method gcn --budget 4 --seeds 3 --device cuda --records-only --out tuning/gcn",
        ),
        write_table(["method", "tuned, AUC", "own settings, AUC", "tuned minus own", "95 % interval", "p"], rows),
        "Tuned rows are in full precision, rows with own settings in TF32 and, but for "
        f"{code(OWN_OF_EARLIER_VERSION)}, of a later version that computes the same, so the difference is not of the "
        "settings alone. "
        f"{name_family('tuning')} Methods "
        f"that compute something else since ({code(sorted(set(tuning) - set(pairs.index)))}) are left out.",
        "`lambda_env` of BRIO was chosen as "
        + in_words(f"{value:g} at {n} test sites" for value, n in sorted(lambdas.items()))
        + ". CC200 was not tuned.",
        name_source(TUNED, OWN, *(f"{ARMS}/{name}" for name in OWN_OF_EARLIER_VERSION)),
    )
