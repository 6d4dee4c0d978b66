"""The first page: what holds of the paper, what does not, what to use."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pandas as pd

from brio.formatting import format_signed, state_p

from . import (
    ablation,
    brio_plus,
    factors,
    in_distribution,
    scan_length,
    sensitivity,
    speed,
    stability,
    unseen_scores,
    unseen_sites,
)
from .comparisons import JUDGEMENT, Verdict, describe_scores, reverse, site_scores
from .evidence import describe_protocol, read_paper, read_runs, read_summaries
from .markdown import STATISTICS, atlas_label, fixed, in_words, interval, keep_together, state, write_page, write_table
from .own_studies import describe_versions

FILE = "index.md"
TITLE = "Results"
ATLASES = ("aal116", "cc200")
PAGES_WITH_VERDICTS = (unseen_sites, in_distribution, ablation, sensitivity, stability, factors, scan_length, speed)


@cache
def verdicts() -> tuple[Verdict, ...]:
    """Return the verdicts on all claims of the paper."""
    return tuple(verdict for module in PAGES_WITH_VERDICTS for verdict in module.verdicts())


@cache
def headline_scores(atlas: str) -> pd.DataFrame:
    """Return the AUC at each test site of the six methods of the small table, all with the same folds and seeds."""
    scores = unseen_scores.scores(atlas)
    plus = read_runs(f"brio-plus/{atlas}-17-source-sites")
    seeds = read_runs(unseen_scores.folder(atlas))["seed"].unique()
    best = unseen_scores.networks(atlas)[0]
    table = scores[["brio", best, "ridge", "fc-tangent-ridge", "log-ridge"]]
    return table.assign(**{"brio-plus": site_scores(plus[plus["seed"].isin(seeds)])["brio-plus"]})


def headline_table() -> str:
    """Return the small table of the summary and the README."""
    labels = {
        "brio": "BRIO (`brio`)",
        "ridge": "ridge regression (`ridge`)",
        "fc-tangent-ridge": "ridge with tangent space (`fc-tangent-ridge`)",
        "log-ridge": "ridge on log-connectomes (`log-ridge`)",
        "brio-plus": "BRIO plus (`brio-plus`)",
    }
    described = {atlas: describe_scores(headline_scores(atlas)) for atlas in ATLASES}
    rows = []
    for k, name in enumerate(headline_scores("aal116")):
        names = [str(headline_scores(atlas).columns[k]) for atlas in ATLASES]
        label = labels.get(name, f"best network ({' / '.join(f'`{n}`' for n in dict.fromkeys(names))})")
        row = [label]
        for atlas, own in zip(ATLASES, names, strict=True):
            scores = described[atlas].loc[own]
            row += [fixed(scores["mean"]), interval(scores["low"], scores["high"])]
        rows.append(row)
    header = ["method"]
    for atlas in ATLASES:
        header += [f"AUC, {atlas_label(atlas)}", "95 % interval"]
    return write_table(header, rows)


def headline_note() -> str:
    """Return what the numbers of the small table are."""
    n = read_summaries(unseen_scores.folder("aal116"))["ridge"].n_scans
    return (
        f"Mean AUC in percent over test sites and its 95 % corrected t interval over sites: ABIDE I, {n} scans, "
        f"{describe_protocol(read_runs(unseen_scores.folder('aal116')))}. Every method has its own settings; "
        "`log-ridge` and `brio-plus` choose their penalty on inner folds; `mlp` is a perceptron on the edges."
    )


def _what_holds() -> list[str]:
    ridge = {atlas: reverse(unseen_scores.differences(atlas, "ridge")).loc["brio"] for atlas in ATLASES}
    plus, log_ridge = (
        {atlas: brio_plus.gains(atlas).loc[name] for atlas in ATLASES} for name in ("ridge", "log-ridge")
    )
    plus_mean = {atlas: brio_plus.scores(atlas)["brio-plus"].mean() for atlas in ATLASES}
    log_ridge_mean = {atlas: brio_plus.scores(atlas)["log-ridge"].mean() for atlas in ATLASES}
    above = [
        f"{len(unseen_scores.baselines_below_brio(a))} of {len(unseen_scores.baselines(a))} on {atlas_label(a)}"
        for a in ATLASES
    ]
    relevance, support, backbone, shuffled = (
        [ablation.differences(a).loc[arm] for a in ATLASES]
        for arm in ("brio-wo-tr", "brio-wo-rs", "backbone", "brio-shuffled")
    )
    return [
        state(
            "**Ridge regression is more accurate than BRIO on AAL116.** On the entries of the connectome it is "
            f"{fixed(ridge['aal116']['mean'])} (AAL116) and {fixed(ridge['cc200']['mean'])} (CC200) points above BRIO "
            f"as we built it from the paper ({state_p(ridge['aal116']['p_holm'])} and "
            f"{state_p(ridge['cc200']['p_holm'])}). The paper has no linear model in its table.",
            ridge["aal116"]["p_holm"] <= 0.05 < ridge["cc200"]["p_holm"] and all(d["mean"] > 0 for d in ridge.values()),
        ),
        state(
            f"**BRIO is not shown to be above most of the paper's baselines.** It is above {in_words(above)}. Its mean "
            f"AUC is {in_words(fixed(unseen_scores.scores(atlas)['brio'].mean()) for atlas in ATLASES)}; the paper "
            f"reports {in_words(fixed(unseen_scores.paper(atlas).loc['brio', 'auc']) for atlas in ATLASES)}.",
            all(v.word == "not shown" for v in unseen_sites.verdicts()[:2]),
        ),
        state(
            "**No part of BRIO changes its AUC significantly, and alignment of shuffled sites did no worse.** BRIO "
            f"(version 3) changes by {in_words(format_signed(d['mean']) for d in relevance)} points on AAL116 and "
            f"CC200 without task relevance, by {in_words(format_signed(d['mean']) for d in support)} without support "
            f"under re-estimation, by {in_words(format_signed(d['mean']) for d in backbone)} without alignment and by "
            f"{in_words(format_signed(d['mean']) for d in shuffled)} with names of source sites that are shuffled "
            "within classes (none is significant).",
            all(d["p_holm"] > 0.05 for d in (*relevance, *support, *backbone, *shuffled))
            and all(d["mean"] >= 0 for d in shuffled),
        ),
        state(
            "**Most of what the paper says of stability holds.** Sites that agree do not imply stable predictions, and "
            "BRIO's predictions change less under re-estimation than those of alignment without qualification. That "
            "support makes them so is not shown; task relevance does.",
            all(v.word == "agrees" for v in stability.verdicts()[:3])
            and bool((stability.variation("agreement-of-ablations").loc[stability.SUPPORT, "p_holm"] > 0.05).all())
            and stability.variation("agreement-of-ablations").loc["brio-wo-tr", "p_holm"] <= 0.05,
        ),
        state(
            "**No difference between BRIO plus and `log-ridge` is shown, and no gain over ridge at new "
            "hospitals.** With all other sites as source sites it has "
            f"{fixed(plus_mean['aal116'])} and {fixed(plus_mean['cc200'])}, `log-ridge` "
            f"{fixed(log_ridge_mean['aal116'])} and {fixed(log_ridge_mean['cc200'])}; it is "
            f"{fixed(plus['aal116']['mean'])} and {fixed(plus['cc200']['mean'])} points above ridge "
            f"({state_p(plus['aal116']['p_holm'])} and {state_p(plus['cc200']['p_holm'])}). Where unstable evidence "
            "in a network of its own misleads, which is simulated, it loses less than `log-ridge`.",
            all(d["p_holm"] > 0.05 for d in (*plus.values(), *log_ridge.values())),
        ),
    ]


def _what_to_use() -> list[str]:
    mean = {atlas: headline_scores(atlas).mean() for atlas in ATLASES}
    tangent = {atlas: unseen_scores.differences(atlas, "ridge").loc["fc-tangent-ridge"] for atlas in ATLASES}
    best = [unseen_scores.networks(atlas)[0] for atlas in ATLASES]
    behind = [unseen_scores.differences(atlas, "ridge").loc[b] for atlas, b in zip(ATLASES, best, strict=True)]
    control = unseen_scores.scores("aal116")["covariates-only"].mean()
    other = brio_plus.development_difference("aal116", "other sites", "ridge")
    return [
        "Start with `ridge`, and run the controls beside it: age, sex and motion alone reach "
        f"{fixed(control)} here, and every other score has to be read against that.",
        f"`fc-tangent-ridge` adds tangent space: {format_signed(tangent['aal116']['mean'])} and "
        f"{format_signed(tangent['cc200']['mean'])} points, no gain shown.",
        "`log-ridge` has the highest mean of the linear models. `brio-plus` adds a penalty on what re-estimation "
        "changes: no gain here, a guard where a scan's passing states mislead. A caution: at the sites of AAL116 that "
        f"were never test sites while it was made, it is {fixed(-other['mean'])} points below ridge "
        f"({state_p(other['p'])}).",
        f"If it must be a network: {in_words(dict.fromkeys(f'`{b}`' for b in best))}, {fixed(-behind[0]['mean'])} and "
        f"{fixed(-behind[1]['mean'])} points below ridge ({state_p(behind[0]['p_holm'])} and "
        f"{state_p(behind[1]['p_holm'])}).",
        f"`brio` ({fixed(mean['aal116']['brio'])} and {fixed(mean['cc200']['brio'])}) if the question is which "
        "factors carry the decision and whether they survive re-estimation; which regions they stress changes from "
        "run to run.",
    ]


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def page(titles: dict[str, str]) -> str:
    """Return the page.

    Parameters
    ----------
    titles : dict
        Titles of the other pages, by file name.
    """
    words = Counter(verdict.word for verdict in verdicts())
    job = read_summaries(unseen_scores.folder("aal116"))["ridge"]
    rows = [[v.claim, v.measured, f"[{keep_together(v.word)}]({v.page})"] for v in verdicts()]
    return write_page(
        TITLE,
        _bullets(_what_holds()),
        headline_table(),
        headline_note(),
        "## What to use",
        _bullets(_what_to_use()),
        "One disorder, one release of scans and one kind of preprocessing: a reason to start somewhere, not a law.",
        "## What holds of the paper",
        f"Of {len(verdicts())} claims {in_words(f'{k} {w}' for w, k in _in_order(words))}.",
        write_table(["the paper", "measured here", "verdict"], rows),
        JUDGEMENT,
        "## One page for each question",
        _bullets([f"[{title}]({file})" for file, title in titles.items()]),
        "```{toctree}\n:hidden:\n\n" + "\n".join(file.removesuffix(".md") for file in titles) + "\n```",
        "## How to read these pages",
        _bullets(
            [
                "AUC, ACC and differences are in percent and points. Scores are per test site; seeds are averaged "
                f"first. {STATISTICS}",
                "*Shown* means a p value of at most 0.05 after Holm's correction for the comparisons of the table. "
                "*Not shown* does not mean equal.",
                f"The audit leaves {job.n_scans} scans and excludes {job.n_excluded}. The paper's cohort has "
                f"{read_paper()['n_scans']:,} scans, of which {read_paper()['n_controls']} are of controls. This "
                f"release has {read_paper()['n_controls_of_the_release']} of them before the audit, so the paper's "
                "cohort cannot be a subset.",
                "The comparisons at unseen and at known sites and our own studies (permutation, learning curve, "
                f"subgroups, calibration, decision curve, adaptation) are of version {describe_versions()}. BRIO is of "
                "its version 3 in the ablation and at known sites, and of version 2 at unseen sites. The "
                "paper's studies of stability, factors and scan length are of versions 1 and 2. Sensitivity, "
                "efficiency, tuning and harmonisation are of version 1, which is that of 0.1.0; their pages say so. "
                "Where a page says nothing else, networks ran on NVIDIA H200 in "
                "TF32, and linear models and BRIO plus on CPUs.",
                "Six of the 20 sites are two samples each of three institutions, so that a sister of the test site may "
                "be a source site; [what that is worth](unseen-sites.md#sites-of-one-institution).",
                "Every number is computed from the files in `evidence/` by `make results`; no participant-level row "
                "is stored there.",
            ]
        ),
    )


def _in_order(words: Counter[str]) -> list[tuple[str, int]]:
    plural = {
        "agrees": "agree",
        "in part": "agree in part",
        "not shown": "are not shown",
        "contradicted": "are contradicted",
    }
    return [(text, words[word]) for word, text in plural.items() if words[word]]
