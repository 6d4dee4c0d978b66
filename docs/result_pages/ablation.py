"""Which parts of BRIO raise its AUC?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.results import MethodSummary
from brio.results.format import format_p, format_percent, format_signed

from .comparisons import (
    Verdict,
    arm_scores,
    compare_pair,
    compare_sites,
    describe_scores,
    difference_cells,
    judge,
    name_family,
    reverse,
    shown,
    site_scores,
    with_interval,
)
from .evidence import (
    describe_protocol,
    describe_version,
    link_figure,
    name_source,
    read_methods,
    read_paper_claim,
    read_runs,
    read_study,
)
from .markdown import (
    arm_label,
    atlas_label,
    fixed,
    in_words,
    signed_interval,
    state,
    with_sd,
    write_commands,
    write_page,
    write_table,
)

FILE = "ablation.md"
TITLE = "Which parts of BRIO raise its AUC?"
ATLASES = ("aal116", "cc200")
TODAY = {atlas: f"brio-versions/{atlas}/version-2-ablations" for atlas in ATLASES}
BRIO_ALONE = {atlas: f"brio-versions/{atlas}/version-2" for atlas in ATLASES}
PAPER_ARMS = ["brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf"]
WITHOUT_RELEVANCE = ["brio-wo-tr", "brio-wo-qg", "backbone"]
WITHOUT_SUPPORT = ["brio-wo-rs", "brio-wo-sm", "brio-wo-sf"]
ARMS = {  # what is left out, the weights of factors, the strength of alignment
    "brio-wo-rs": ("re-estimation support", "relevance", "1"),
    "brio-wo-tr": ("task relevance", "support", "mean support"),
    "brio-wo-sm": ("strength modulation", "relevance x support", "1"),
    "brio-wo-sf": ("support in the weights", "relevance", "sum of relevance x support"),
    "brio-wo-qg": ("qualification guidance", "equal", "1"),
    "backbone": ("alignment", "", "0"),
}
JOBS = {
    "first, full precision": "repeats/aal116-full-precision",
    "second, TF32": "repeats/aal116-before-encoder-kernels/arms",
    "third, TF32 (the study)": "studies/aal116/arms",
}


@cache
def study_scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of each arm at each test site, with the settings of version 0.1.0."""
    return arm_scores(read_study(f"studies/{atlas}/ablation"), metric)


@cache
def today_scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of each arm at each test site, with today's settings."""
    return site_scores(read_runs(TODAY[atlas]), metric)[["brio", *ARMS]]


@cache
def differences(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC of all arms to BRIO, with the settings of version 0.1.0."""
    return compare_sites(study_scores(atlas), "brio", "ablation", f"{atlas_label(atlas)}, version 0.1.0")


@cache
def today_differences(atlas: str) -> pd.DataFrame:
    """Return the same with today's settings."""
    return compare_sites(today_scores(atlas), "brio", "ablation", atlas_label(atlas))


def _repeats_earlier_job(atlas: str) -> bool:
    """Return whether every run of BRIO has the AUC that it had in an earlier job, bit for bit."""
    jobs = (read_runs(folder) for folder in (TODAY[atlas], BRIO_ALONE[atlas]))
    now, before = (runs[runs["method"] == "brio"].set_index(["fold", "seed"])["auc"].sort_index() for runs in jobs)
    return bool(now.equals(before))


def _table(auc: pd.DataFrame, acc: pd.DataFrame, table: pd.DataFrame) -> str:
    described = describe_scores(auc)
    rows = []
    for arm in auc:
        origin = "" if arm == "brio" else "paper" if arm in PAPER_ARMS else "ours"
        at = f"{table.loc[arm, 'better']} of {table.loc[arm, 'n']}" if arm in table.index else ""
        scores = [with_sd(*described.loc[arm, ["mean", "sd"]]), with_sd(acc[arm].mean(), acc[arm].std(ddof=1))]
        rows.append([arm_label(arm), origin, *scores, *difference_cells(table, arm), at])
    header = ["arm", "from", "AUC", "ACC", "AUC minus BRIO", "95 % interval", "p", "sites where it is better"]
    return write_table(header, rows)


@cache
def job_scores(job: str) -> pd.DataFrame:
    """Return the AUC of the arms of one of the three jobs on AAL116."""
    runs = read_runs(JOBS[job])
    if job.startswith("third"):  # the folder also holds arms with other settings of the same methods
        return study_scores("aal116")
    return site_scores(runs)


@cache
def job_differences(job: str) -> pd.DataFrame:
    """Return the differences to BRIO in one of the three jobs; ridge is no ablation and not in the family."""
    scores = job_scores(job)
    return compare_sites(scores[[name for name in scores if name != "ridge"]], "brio", "three jobs", job)


def _jobs_table() -> str:
    ridge = site_scores(read_runs(JOBS["first, full precision"]))["ridge"]
    rows = []
    for job in JOBS:
        scores, table = job_scores(job), job_differences(job)
        row = [job, str(len(table)), fixed(scores["brio"].mean())]
        for arm in WITHOUT_RELEVANCE:
            is_there = arm in table.index
            row += (
                [with_interval(reverse(table).loc[arm]), format_p(table.loc[arm, "p_holm"])] if is_there else ["", ""]
            )
        below = compare_pair(
            pd.DataFrame({"ridge": ridge, "brio": scores["brio"]}), "ridge", "brio", "single pairs", job
        )
        rows.append([*row, with_interval(below)])
    header = [
        "job",
        "comparisons",
        "BRIO, AUC",
        "BRIO minus w/o TR",
        "p",
        "BRIO minus w/o QG",
        "p",
        "BRIO minus backbone",
        "p",
        "ridge minus BRIO",
    ]
    return write_table(header, rows)


def _alignment_alone() -> str:
    parts = []
    for job in JOBS:
        d = compare_pair(job_scores(job), "brio-wo-qg", "backbone", "single pairs", job)
        parts.append([job, format_signed(d["mean"]), signed_interval(d["low"], d["high"]), format_p(d["p"])])
    return write_table(["job", "w/o QG minus backbone", "95 % interval", "p, not corrected"], parts)


def _are_lowest(table: pd.DataFrame) -> bool:
    """Return whether the arms without relevance are those with the lowest mean AUC."""
    return set(table["mean"].nsmallest(len(WITHOUT_RELEVANCE)).index) == set(WITHOUT_RELEVANCE)


def _conclusion() -> list[str]:
    tables, second = {atlas: today_differences(atlas) for atlas in ATLASES}, job_differences("second, TF32")
    today = pd.concat(tables)
    to_backbone = {atlas: table.loc["backbone"] for atlas, table in tables.items()}
    one_part = today.drop(index="backbone", level=1)
    lowest = [-one_part.loc[(atlas, arm), "mean"] for atlas in ATLASES for arm in ("brio-wo-tr", "brio-wo-qg")]
    support = one_part.loc[(slice(None), WITHOUT_SUPPORT), "mean"]
    detectable = one_part["detectable_in_family"]
    relevance = [-differences(atlas).loc["brio-wo-tr", "mean"] for atlas in ATLASES]
    more = [-differences(atlas).loc[arm, "mean"] for atlas in ATLASES for arm in ("brio-wo-qg", "backbone")]
    rest = [differences(atlas).loc[arm] for atlas in ATLASES for arm in WITHOUT_SUPPORT]
    return [
        state(
            "**With today's settings no part of BRIO is shown to raise its AUC.** The backbone, which does not align, "
            f"is {in_words(fixed(-row['mean']) for row in to_backbone.values())} points below BRIO on AAL116 and CC200 "
            f"(p = {in_words(format_p(row['p_holm']) for row in to_backbone.values())}).",
            bool((one_part["p_holm"] > 0.05).all())
            and all(row["p_holm"] > 0.05 for row in to_backbone.values())
            and all(row["mean"] < 0 for row in to_backbone.values()),
        ),
        state(
            "The two arms that align but do not weigh factors by task relevance (w/o TR, w/o QG) come next, "
            f"{fixed(min(lowest))} to {fixed(max(lowest))} points below BRIO; the three that use less of support (w/o "
            f"RS, w/o SM, w/o SF) differ from it by {format_signed(support.min())} to {format_signed(support.max())}. "
            f"None of these ten differences is shown (smallest p = {format_p(one_part['p_holm'].min())}). The smallest "
            "difference that a t test would detect with 80 % power, corrected for six comparisons, is "
            f"{fixed(detectable.min())} to {fixed(detectable.max())} points, depending on arm and atlas; each of the "
            "ten is below its own.",
            bool((one_part["p_holm"] > 0.05).all())
            and all(map(_are_lowest, tables.values()))
            and bool((today["mean"].groupby(level=0).idxmin().map(lambda key: key[1]) == "backbone").all())
            and min(lowest) > 0
            and bool((one_part["mean"].abs() < detectable).all()),
        ),
        state(
            "**With the settings of version 0.1.0 the backbone is shown to be below BRIO; no single part is shown to "
            f"matter.** w/o TR, which leaves out relevance alone, is {in_words(map(fixed, relevance))} points below "
            "BRIO on AAL116 and CC200 (p = "
            f"{in_words(format_p(differences(a).loc['brio-wo-tr', 'p_holm']) for a in ATLASES)}). w/o QG and the "
            f"backbone, which leave out more, are {fixed(min(more))} to {fixed(max(more))} points below it. No gain "
            "from support under re-estimation is shown there either: the three arms that use less of it are within "
            f"{fixed(max(abs(row['mean']) for row in rest))} points of BRIO.",
            all(differences(a).loc["backbone", "p_holm"] <= 0.05 for a in ATLASES)
            and all(differences(a).loc[arm, "p_holm"] > 0.05 for a in ATLASES for arm in ("brio-wo-tr", "brio-wo-qg"))
            and all(row["p_holm"] > 0.05 for row in rest)
            and min(*relevance, *more) > 0,
        ),
        state(
            "The loss of the backbone depends on the job: in an earlier job with the same settings, folds and seeds, "
            "the same three arms were lowest, but no difference survived correction (smallest p = "
            f"{format_p(second.loc[WITHOUT_RELEVANCE, 'p_holm'].min())}).",
            bool((second.loc[WITHOUT_RELEVANCE, "p_holm"] > 0.05).all()) and _are_lowest(second),
        ),
    ]


def _distance_to_ridge(methods: dict[str, MethodSummary], score: str) -> str:
    """Return by how many points BRIO is below ridge in a job, by the mean of a score."""
    ridge, own = (getattr(methods[name], score).mean for name in ("ridge", "brio"))
    return fixed(100 * (ridge - own))


def page() -> str:
    """Return the page."""
    qualified = {job: job_differences(job).loc["brio-wo-qg"] for job in JOBS}
    n_shown = sum(d["p_holm"] <= 0.05 for d in qualified.values())
    first = read_methods(JOBS["first, full precision"])
    ensembles = {
        "first": first["brio"],
        "second": read_methods(JOBS["second, TF32"])["brio"],
        "third": read_methods("studies/aal116/arms/brio")["brio"],
    }
    return write_page(
        TITLE,
        *_conclusion(),
        f"Every arm has the settings of BRIO; {describe_protocol(read_runs(TODAY['aal116']))}; TF32. "
        f"{name_family('ablation')}",
        write_table(
            ["arm", "without", "weights of factors", "strength of alignment"],
            [[arm_label(arm), *cells] for arm, cells in ARMS.items()],
        ),
        "BRIO weighs factors by relevance x support, and its strength is the sum of these. The same arms with today's "
        "settings (`--with` only lets the audit exclude scans that lack signal in either atlas; `evidence/README.md` "
        "has the jobs behind the tables):",
        write_commands(
            "brio study ablation abide-aal --with abide-cc --out abide-studies-aal --device cuda-tf32",
            "brio study ablation abide-cc --with abide-aal --out abide-studies-cc --device cuda-tf32",
        ),
        "## Today's settings",
        state(
            "Version 0.2.0: one scan of each site and class in a batch, standardised descriptors, 80 epochs without "
            "early stopping. The seven arms of an atlas are of one job. BRIO's 60 runs have the same AUC, to the last "
            "bit, as in the earlier job of BRIO alone behind [unseen sites](unseen-sites.md).",
            all(map(_repeats_earlier_job, ATLASES)),
        ),
        *(
            block
            for atlas in ATLASES
            for block in (
                f"### {atlas_label(atlas)}",
                _table(today_scores(atlas), today_scores(atlas, "acc"), today_differences(atlas)),
            )
        ),
        "## Settings of version 0.1.0",
        describe_version("studies/aal116/arms/brio"),
        *(
            block
            for atlas in ATLASES
            for block in (
                f"### {atlas_label(atlas)}",
                _table(study_scores(atlas), study_scores(atlas, "acc"), differences(atlas)),
                link_figure(f"studies/{atlas}/ablation/figure.svg", f"Ablation on {atlas_label(atlas)}, version 0.1.0"),
            )
        ),
        f"The paper: {read_paper_claim('studies/aal116/ablation')}",
        "## Three jobs on AAL116 with the settings of version 0.1.0",
        "BRIO has a higher mean than alignment without qualification in all three jobs; the gain is shown in "
        f"{n_shown} of them. The jobs share scans, folds and seeds, so none confirms another independently.",
        _jobs_table(),
        "Differences over sites; p is corrected by Holm's method for the comparisons made in that job. `ridge` is "
        "that of the first job, without correction.",
        "Alignment without qualification against no alignment:",
        _alignment_alone(),
        "Averaging the logits of three seeds raises BRIO's AUC to "
        f"{in_words(format_percent(m.auc_of_averaged_logits.mean) for m in ensembles.values())} in the three jobs, "
        f"and ridge's to {format_percent(first['ridge'].auc_of_averaged_logits.mean)} (from "
        f"{format_percent(first['ridge'].auc.mean)}). In the first job that brings BRIO from "
        f"{_distance_to_ridge(first, 'auc')} to {_distance_to_ridge(first, 'auc_of_averaged_logits')} points below "
        "ridge. Runs of other seeds have other validation sites, so their average also knows more scans.",
        name_source(
            *TODAY.values(), *BRIO_ALONE.values(), "studies/aal116/ablation", "studies/cc200/ablation", *JOBS.values()
        ),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdicts on the paper's ablation."""
    out = []
    for atlas in ATLASES:
        table, acc = today_differences(atlas).loc[PAPER_ARMS], today_scores(atlas, "acc").mean()
        below, above = shown(table, -1), shown(table, 1)
        named = f" ({in_words(map(arm_label, below.index))}, {in_words(format_signed(v) for v in below['mean'])})"
        named = named if len(below) else ""
        out.append(
            Verdict(
                f"The full method is above its four ablations in AUC and ACC ({atlas_label(atlas)})",
                f"AUC: shown for {len(below)} of {len(table)}{named}; ACC: higher mean than "
                f"{int((acc[PAPER_ARMS] < acc['brio']).sum())} of {len(table)}",
                judge(len(below), len(above), len(table)),
                FILE,
            )
        )
    return out
