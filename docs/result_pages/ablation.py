"""Which parts of BRIO raise its AUC, and does alignment need the true sites?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_p, format_percent, format_signed

from .comparisons import (
    Verdict,
    compare_pair,
    compare_sites,
    describe_scores,
    difference_cells,
    judge,
    name_family,
    shown,
    site_scores,
    with_interval,
)
from .evidence import describe_protocol, name_source, read_jobs, read_methods, read_paper_claim, read_runs
from .markdown import arm_label, atlas_label, fixed, in_words, state, with_sd, write_commands, write_page, write_table
from .people import pair_weighted

FILE = "ablation.md"
TITLE = "Which parts of BRIO raise its AUC?"
ATLASES = ("aal116", "cc200")
JOBS = {atlas: f"brio-versions/{atlas}/version-3" for atlas in ATLASES}
PAPER_ARMS = ["brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf"]
ARMS = {  # what is left out, the weights of factors, the strength of alignment, names of source sites
    "brio-wo-rs": ("re-estimation support", "relevance", "1", "own"),
    "brio-wo-tr": ("task relevance", "support", "mean support", "own"),
    "brio-wo-sm": ("strength modulation", "relevance x support", "1", "own"),
    "brio-wo-sf": ("support in the weights", "relevance", "sum of relevance x support", "own"),
    "brio-wo-qg": ("qualification guidance", "equal", "1", "own"),
    "backbone": ("alignment", "", "0", "own"),
    "brio-shuffled": ("what names of sites mean", "relevance x support", "sum of relevance x support", "shuffled"),
    "backbone-shuffled": ("alignment, and what names of sites mean", "", "0", "shuffled"),
}


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of each arm at each test site."""
    return site_scores(read_runs(JOBS[atlas]), metric)[["brio", *ARMS]]


@cache
def differences(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC of all arms to BRIO."""
    return compare_sites(scores(atlas), "brio", "ablation", atlas_label(atlas))


def _gain(atlas: str, ending: str = "") -> pd.Series:
    """BRIO minus backbone, with true or with shuffled names of sites; one pair, not corrected."""
    names = f"{atlas_label(atlas)}, {ending.removeprefix('-') or 'own'} names"
    return compare_pair(scores(atlas), f"brio{ending}", f"backbone{ending}", "single pairs", names)


def _gain_at(atlas: str, first: int) -> float:
    """BRIO minus backbone at every second site by name, from the first (development sites) or the second on."""
    auc = scores(atlas).sort_index().iloc[first::2]
    return float((auc["brio"] - auc["backbone"]).mean())


def _table(atlas: str) -> str:
    auc, acc, table = scores(atlas), scores(atlas, "acc"), differences(atlas)
    described, methods, pairs = describe_scores(auc), read_methods(JOBS[atlas]), pair_weighted(read_jobs(JOBS[atlas]))
    rows = []
    for arm in auc:
        origin = "" if arm == "brio" else "paper" if arm in PAPER_ARMS else "ours"
        at = f"{table.loc[arm, 'better']} of {table.loc[arm, 'n']}" if arm in table.index else ""
        own = [with_sd(*described.loc[arm, ["mean", "sd"]]), fixed(pairs[arm])]
        own += [format_percent(methods[arm].auc_of_averaged_logits.mean), fixed(acc[arm].mean())]
        rows.append([arm_label(arm), origin, *own, *difference_cells(table, arm), at])
    header = ["arm", "from", "AUC", "pair-weighted", "seeds averaged", "ACC", "AUC minus BRIO", "95 % interval", "p"]
    return write_table([*header, "sites where it is better"], rows)


def _conclusion() -> list[str]:
    table = pd.concat({atlas: differences(atlas) for atlas in ATLASES})
    arms = {arm: [table.loc[(atlas, arm)] for atlas in ATLASES] for arm in ARMS}
    one_part = table.loc[(slice(None), [*PAPER_ARMS, "brio-wo-qg"]), :]
    own, shuffled = ([_gain(atlas, ending) for atlas in ATLASES] for ending in ("", "-shuffled"))
    alone = [compare_pair(scores(a), "backbone-shuffled", "backbone", "single pairs", atlas_label(a)) for a in ATLASES]
    return [
        state(
            "**No part of BRIO changes its AUC significantly.** The backbone, which does not align, is "
            f"{in_words(fixed(-d['mean']) for d in arms['backbone'])} points below BRIO on AAL116 and CC200 "
            f"(p = {in_words(format_p(d['p_holm']) for d in arms['backbone'])}); arms that leave out one part of "
            f"qualification, or all of it, differ from BRIO by {format_signed(one_part['mean'].min())} to "
            f"{format_signed(one_part['mean'].max())}. The smallest difference that the test would detect with 80 % "
            f"power, corrected for {len(ARMS)} comparisons, is {fixed(table['detectable_in_family'].min())} to "
            f"{fixed(table['detectable_in_family'].max())} points.",
            bool((table["p_holm"] > 0.05).all()) and all(d["mean"] < 0 for d in arms["backbone"]),
        ),
        state(
            "**Alignment of true sites was not better than alignment of shuffled ones.** With the names of source "
            "sites shuffled within classes BRIO has an AUC that differs by "
            f"{in_words(format_signed(d['mean']) for d in arms['brio-shuffled'])} points from that with true names "
            f"(p = {in_words(format_p(d['p_holm']) for d in arms['brio-shuffled'])}). Alignment adds "
            f"{in_words(with_interval(d) for d in own)} points to the backbone with true names and "
            f"{in_words(with_interval(d) for d in shuffled)} with shuffled ones. Without any alignment, shuffled names "
            f"change the AUC of the backbone by {in_words(with_interval(d) for d in alone)} points; neither change is "
            "significant. With true names every site has the same weight in the loss; with shuffled names a true site "
            "has about the weight of its size. Support S is computed from the shuffled names, too. Whether either "
            "explains the change was not tested.",
            all(d["mean"] >= 0 for d in arms["brio-shuffled"])
            and all(d["mean"] > 0 for d in (*own, *shuffled, *alone))
            and all(d["p"] > 0.05 for d in alone),
        ),
    ]


def page() -> str:
    """Return the page."""
    return write_page(
        TITLE,
        *_conclusion(),
        f"Every arm has the settings of BRIO (version 3); {describe_protocol(read_runs(JOBS['aal116']))}; TF32. "
        f"{name_family('ablation')} The settings were chosen for BRIO on ten of these sites; there it is "
        f"{in_words(fixed(_gain_at(a, 0)) for a in ATLASES)} points above the backbone on AAL116 and CC200, at the "
        f"other ten {in_words(fixed(_gain_at(a, 1)) for a in ATLASES)}.",
        write_table(
            ["arm", "without", "weights of factors", "strength of alignment", "names of source sites"],
            [[arm_label(arm), *cells] for arm, cells in ARMS.items()],
        ),
        "BRIO weighs factors by relevance x support, and its strength is the sum of these. Shuffling takes part in "
        "training alone: batches, clouds, qualification and support S see the shuffled names of source scans; "
        "validation and test sites stay as they are.",
        write_commands(
            "brio study ablation abide-aal --with abide-cc --out abide-studies-aal --device cuda-tf32",
            "brio study ablation abide-cc --with abide-aal --out abide-studies-cc --device cuda-tf32",
        ),
        *(block for atlas in ATLASES for block in (f"## {atlas_label(atlas)}", _table(atlas))),
        f"The paper: {read_paper_claim('studies/aal116/ablation')}",
        "Versions 1 and 2 of BRIO stand in [before and after](unseen-sites.md#brio-before-and-after).",
        name_source(*JOBS.values()),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdicts on the paper's ablation."""
    out = []
    for atlas in ATLASES:
        table, acc = differences(atlas).loc[PAPER_ARMS], scores(atlas, "acc").mean()
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
