"""Is BRIO plus better than linear models?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.results.format import format_p, format_percent, format_signed, state_p

from .brio_plus_parts import write_in_distribution, write_parts, write_simulated
from .comparisons import (
    compare_pair,
    compare_sites,
    describe_scores,
    difference_cells,
    reverse,
    shown,
    site_scores,
)
from .evidence import (
    describe_protocol,
    name_source,
    read_jobs,
    read_methods,
    read_runs,
    read_summaries,
)
from .markdown import (
    STATISTICS,
    atlas_label,
    code,
    fixed,
    in_words,
    interval,
    signed_interval,
    state,
    with_sd,
    write_commands,
    write_page,
    write_table,
)
from .people import pair_cells, pair_header, pair_weighted, write_people

FILE = "brio-plus.md"
TITLE = "Is BRIO plus better than linear models?"
ATLASES = ("aal116", "cc200")
SOURCES = (19, 17)
CHOICES = {
    19: "Linear models choose their penalty on inner folds (one source site withheld in turn); they draw nothing, so "
    "their seeds are one run. `brio` chooses its epoch on two validation sites and is then trained again on all source "
    "sites (`--set refit=true`).",
    17: "Linear models choose their penalty, `brio` its epoch, on the two validation sites. BRIO plus chooses its "
    "penalty on inner folds.",
}


def folder(atlas: str, sources: int) -> str:
    """Return the folder of the jobs with so many source sites."""
    return f"brio-plus/{atlas}-{sources}-source-sites"


@cache
def scores(atlas: str, sources: int) -> pd.DataFrame:
    """Return the AUC of each method at each test site."""
    return site_scores(read_runs(folder(atlas, sources)))


@cache
def differences(atlas: str, sources: int) -> pd.DataFrame:
    """Return the differences in AUC to BRIO plus."""
    return compare_sites(scores(atlas, sources), "brio-plus")


def linear_models(atlas: str, sources: int) -> list[str]:
    """Return the linear models, highest mean first."""
    methods = read_methods(folder(atlas, sources))
    return [str(m) for m in describe_scores(scores(atlas, sources)).index if methods[str(m)].family == "linear"]


def gains(atlas: str, sources: int) -> pd.DataFrame:
    """Return BRIO plus minus each other method."""
    return reverse(differences(atlas, sources))


def _unseen_table(atlas: str, sources: int) -> str:
    runs, methods = read_runs(folder(atlas, sources)), read_methods(folder(atlas, sources))
    acc, table = site_scores(runs, "acc").mean(), gains(atlas, sources)
    pairs = pair_weighted(read_jobs(folder(atlas, sources)))
    rows = []
    for name, row in describe_scores(scores(atlas, sources)).iterrows():
        means = [
            with_sd(row["mean"], row["sd"]),
            interval(row["low"], row["high"]),
            *pair_cells(pairs, str(name)),
            format_percent(methods[str(name)].auc_of_averaged_logits.mean),
            fixed(acc[name]),
        ]
        rows.append([f"`{name}`", *means, *difference_cells(table, str(name))])
    header = ["method", "AUC", "95 % interval", *pair_header(pairs), "AUC, seeds averaged", "ACC"]
    return write_table([*header, "BRIO plus minus it", "95 % interval", "p"], rows)


def development_parts(atlas: str) -> dict[str, list[str]]:
    """Return the sites where BRIO plus was developed (every second one by name), and the rest."""
    names = sorted(scores(atlas, SOURCES[0]).index)
    return {"development sites": names[::2], "other sites": names[1::2]}


@cache
def development_difference(atlas: str, part: str, method: str) -> pd.Series:
    """Return BRIO plus minus a method at one half of the sites."""
    sites = development_parts(atlas)[part]
    return compare_pair(scores(atlas, SOURCES[0]).loc[sites], "brio-plus", method)


def _development_table(atlas: str) -> str:
    rows, parts = [], development_parts(atlas)
    for name in describe_scores(scores(atlas, SOURCES[0])).index:
        row = [f"`{name}`"]
        for part, sites in parts.items():
            row.append(fixed(scores(atlas, SOURCES[0]).loc[sites, name].mean()))
            if name == "brio-plus":
                row += ["", "", ""]
                continue
            d = development_difference(atlas, part, str(name))
            row += [format_signed(d["mean"]), signed_interval(d["low"], d["high"]), format_p(d["p"])]
        rows.append(row)
    header = ["method"]
    for part in parts:
        header += [f"AUC, {part}", "BRIO plus minus it", "95 % interval", "p"]
    return write_table(header, rows)


def _conclusion() -> list[str]:
    cases = [(atlas, sources) for sources in SOURCES for atlas in ATLASES]
    highest = all(
        scores(*case)["brio-plus"].mean() > scores(*case)[linear_models(*case)].mean().max() for case in cases
    )
    against = [differences(*case).loc[["ridge", "fc-tangent-ridge"], "p_holm"].min() for case in cases]
    rows = []
    for atlas, sources in cases:
        mean, best = scores(atlas, sources).mean(), linear_models(atlas, sources)[0]
        ridge = gains(atlas, sources).loc["ridge"]
        rows.append(
            [
                atlas_label(atlas),
                str(sources),
                fixed(mean["brio-plus"]),
                fixed(mean["ridge"]),
                format_signed(ridge["mean"]),
                signed_interval(ridge["low"], ridge["high"]),
                format_p(ridge["p_holm"]),
                f"`{best}` {fixed(mean[best])}",
                code(sorted(shown(differences(atlas, sources), -1).index)),
            ]
        )
    header = ["atlas", "source sites", "BRIO plus", "ridge", "BRIO plus minus ridge", "95 % interval", "p"]
    header += ["best linear model", "shown below BRIO plus"]
    other = {atlas: development_difference(atlas, "other sites", "ridge") for atlas in ATLASES}
    own = {atlas: development_difference(atlas, "development sites", "ridge") for atlas in ATLASES}
    return [
        state(
            "**It has a higher mean AUC than every linear model, and no gain over ridge is shown.** After Holm's "
            f"correction neither `ridge` nor `fc-tangent-ridge` is shown to be lower in any of the {len(cases)} "
            f"settings (p from {format_p(min(against))} on).",
            highest and min(against) > 0.05,
        ),
        write_table(header, rows),
        state(
            f"**Development flattered it on AAL116.** Its settings were chosen on {own['aal116']['n']} development "
            f"sites. There it is {fixed(own['aal116']['mean'])} points above ridge; at the {other['aal116']['n']} "
            f"other sites it is {fixed(-other['aal116']['mean'])} points *below* "
            f"({state_p(other['aal116']['p'])}). On CC200 it is above in both halves "
            f"({format_signed(own['cc200']['mean'])} and {format_signed(other['cc200']['mean'])}).",
            own["aal116"]["mean"] > 0 > other["aal116"]["mean"] and other["cc200"]["mean"] > 0,
        ),
    ]


def page() -> str:
    """Return the page."""
    blocks = []
    for sources in SOURCES:
        runs = read_runs(f"{folder('aal116', sources)}/brio-plus")
        blocks += [f"## {sources} source sites", f"{describe_protocol(runs)}. " + CHOICES[sources]]
        for atlas in ATLASES:
            blocks += [f"### {atlas_label(atlas)}, {sources} source sites", _unseen_table(atlas, sources)]
            order = describe_scores(scores(atlas, sources)).index
            blocks += write_people(read_jobs(folder(atlas, sources)), "brio-plus", order)
    linear = {(a, s): -differences(a, s).loc["log-ridge", "mean"] for a in ATLASES for s in SOURCES}
    shown_linear = [key for key in linear if differences(*key).loc["log-ridge", "p_holm"] <= 0.05]
    cc200 = read_summaries(folder("cc200", 19))
    return write_page(
        TITLE,
        *_conclusion(),
        "[What BRIO plus is](../brio-plus.md) is described with its method. p values are from Wilcoxon's signed-rank "
        "test over sites, corrected by Holm's method for the rows of a table, unless a table says otherwise. "
        f"{STATISTICS}",
        write_commands(
            "brio run abide-aal --method brio-plus --method log-ridge --seeds 5 --device cuda --out brio-plus",
            "brio run abide-aal --method ridge --method fc-tangent-ridge --seeds 5 --set "
            "protocol.validation_sites=0 --set choose_by=source-sites --out linear",
        ),
        *blocks,
        "The rows of `brio-plus` are of its version 2. BRIO plus is above `log-ridge`, its linear path on a fixed "
        f"view, by {in_words(fixed(v) for v in linear.values())} points; this is shown in {len(shown_linear)} of "
        f"{len(linear)} settings "
        f"({in_words(f'{atlas_label(a)} with {s} source sites' for a, s in shown_linear)}).",
        "The rows of `brio` on CC200 are in TF32 and of a second import of the same scans (fingerprint "
        f"{cc200['brio'].fingerprint[:8]} instead of {cc200['ridge'].fingerprint[:8]}).",
        "## Development sites",
        "The development sites are every second one by name: "
        f"{in_words(development_parts('aal116')['development sites'])}. The others were never test sites while BRIO "
        f"plus was made, but they were among the source sites. {SOURCES[0]} source sites; p values are not corrected.",
        write_commands(
            "python benchmarks/development_sites.py brio-plus evidence/brio-plus/aal116-19-source-sites/*/results.csv",
        ),
        *(block for atlas in ATLASES for block in (f"### {atlas_label(atlas)}, halves", _development_table(atlas))),
        *write_parts(),
        *write_in_distribution(),
        *write_simulated(),
        name_source("brio-plus"),
    )
