"""Did tuning help?"""

from __future__ import annotations

from collections import Counter

import pandas as pd

from brio.results.format import format_p, format_signed

from .comparisons import compare_pair, site_scores
from .evidence import name_source, read_runs, read_tuning
from .markdown import code, fixed, in_words, signed_interval, state, write_page, write_table

FILE = "tuning.md"
TITLE = "Did tuning help?"
TUNED = "unseen-sites/aal116"
METHODS = ["coral", "irm", "gsat", "brainood", "core", "brio"]


def _pairs() -> pd.DataFrame:
    rows = {}
    tuned = site_scores(read_runs(TUNED))
    for name in METHODS:
        own = site_scores(read_runs(f"studies/aal116/arms/{name}"))[name]
        d = compare_pair(pd.DataFrame({"tuned": tuned[name], "own": own}), "tuned", "own")
        rows[name] = d.to_dict() | {"tuned": tuned[name].mean(), "own": own.mean()}
    return pd.DataFrame(rows).T


def page() -> str:
    """Return the page."""
    pairs, tuning = _pairs(), read_tuning(TUNED)
    lambdas = Counter(site["lambda_env"] for site in tuning["brio"].choices["brio"].values())
    budgets = Counter(record.tried[name] for name, record in tuning.items())
    first = site_scores(read_runs("repeats/aal116-full-precision"))["brio"]
    brio = compare_pair(pd.DataFrame({"tuned": site_scores(read_runs(TUNED))["brio"], "own": first}), "tuned", "own")
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
    return write_page(
        TITLE,
        state(
            "**No gain is shown.** Choosing among a few configurations on two validation sites changed the mean AUC "
            f"by {format_signed(pairs['mean'].min())} to {format_signed(pairs['mean'].max())} points in the six "
            "methods that were also run with their own settings.",
            bool((pairs["mean"] < 1).all()) and len(pairs) == 6,
        ),
        f"On AAL116, {len(tuning)} methods were tuned: "
        f"{in_words(f'{n} among {b} configurations' for b, n in budgets.items())} for each test site, trained with "
        "seed 0 and judged by AUC on the validation sites. Test sites were not looked at.",
        write_table(["method", "tuned, AUC", "own settings, AUC", "tuned minus own", "95 % interval", "p"], rows),
        "Tuned rows are in full precision, rows with own settings in TF32, so the difference is not of the settings "
        "alone. p values are from Wilcoxon's signed-rank test over sites and not corrected. For `brio` there is a job "
        f"in full precision with its own settings: tuned minus own {format_signed(brio['mean'])} "
        f"({signed_interval(brio['low'], brio['high'])}).",
        "`lambda_env` of BRIO was chosen as "
        + in_words(f"{value:g} at {n} test sites" for value, n in sorted(lambdas.items()))
        + ". CC200 was not tuned: its networks have the settings chosen on AAL116.",
        f"Tuned methods: {code(sorted(tuning))}.",
        name_source(TUNED, "studies/aal116/arms", "repeats/aal116-full-precision"),
    )
