"""How do the methods compare at sites they were trained on?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.results import mean_correction

from .comparisons import Verdict, compare_kfold, describe_scores, difference_cells, fold_scores, shown
from .evidence import link_figure, name_earlier_rows, name_source, read_methods, read_paper_claim, read_runs
from .markdown import (
    STATISTICS,
    code,
    fixed,
    in_words,
    interval,
    state,
    training,
    with_sd,
    write_blocks,
    write_commands,
    write_page,
)
from .unseen_scores import baselines

FILE = "in-distribution.md"
TITLE = "How do the methods compare at sites they were trained on?"
ATLASES = ("aal116", "cc200")
STUDY = "studies/aal116/in-distribution"


def folder(atlas: str) -> str:
    """Return the folder of the jobs on an atlas."""
    return f"in-distribution/{atlas}"


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of every method in every fold of every seed."""
    return fold_scores(read_runs(folder(atlas)), metric)


@cache
def differences(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC to BRIO."""
    return compare_kfold(read_runs(folder(atlas)), "brio")


def ranks(metric: str) -> pd.Series:
    """Return the rank of BRIO and the paper's baselines on AAL116 by their mean score."""
    means = scores("aal116", metric)[["brio", *baselines("aal116")]].mean()
    return means.rank(ascending=False).astype(int)


def _table(atlas: str) -> str:
    auc = describe_scores(scores(atlas), mean_correction(read_runs(folder(atlas)), "kfold"))
    acc, methods = scores(atlas, "acc"), read_methods(folder(atlas))
    rows = []
    for name, row in auc.iterrows():
        method = methods[str(name)]
        cells = [
            f"`{name}`",
            "control" if method.control else method.family,
            with_sd(row["mean"], row["sd"]),
            interval(row["low"], row["high"]),
            with_sd(acc[name].mean(), acc[name].std(ddof=1)),
            *difference_cells(differences(atlas), str(name)),
            training(method),
        ]
        rows.append((method, cells))
    header = ["method", "family", "AUC", "95 % interval", "ACC", "AUC minus BRIO", "95 % interval", "p"]
    return write_blocks([*header, "epochs (steps)"], rows)


def _conclusion() -> list[str]:
    auc, table = scores("aal116").mean(), differences("aal116")
    above, below = shown(table, 1), shown(table, -1)
    paper_rows = table.loc[baselines("aal116")]
    higher = paper_rows[paper_rows["mean"] > 0].sort_values("mean", ascending=False)
    paper_below = [str(name) for name in paper_rows.index if name in below.index]
    on_cc200 = shown(differences("cc200"), 1).sort_values("mean", ascending=False)
    return [
        state(
            f"**Linear models lead here too.** On AAL116 BRIO has a mean AUC of {fixed(auc['brio'])}: it ranks "
            f"{ranks('auc')['brio']} of the paper's {len(ranks('auc'))} methods in AUC and {ranks('acc')['brio']} "
            f"in ACC. Shown above it are {code(above.sort_values('mean', ascending=False).index)} "
            f"(+{fixed(above['mean'].min())} to +{fixed(above['mean'].max())} points). On CC200 BRIO has "
            f"{fixed(scores('cc200')['brio'].mean())}; shown above it are {code(on_cc200.index)} "
            f"(+{fixed(on_cc200['mean'].min())} to +{fixed(on_cc200['mean'].max())} points).",
            "fc-tangent-ridge" in above.index
            and "ridge" in on_cc200.index
            and all(scores(atlas).mean().idxmax() == "fc-tangent-ridge" for atlas in ATLASES),
        ),
        f"Of the paper's methods, {in_words(f'`{n}` ({fixed(auc[n])})' for n in higher.index)} have a higher mean "
        f"than BRIO on AAL116; shown below BRIO are {code(paper_below)}. `{ranks('acc').idxmin()}` has the highest "
        "ACC of the paper's methods.",
    ]


def page() -> str:
    """Return the page."""
    runs = read_runs(folder("aal116"))
    return write_page(
        TITLE,
        *_conclusion(),
        f"{runs['fold'].nunique()} folds stratified by site and class (7 parts train, 2 validate, 1 tests), "
        f"{runs['seed'].nunique()} seeds, every method with its own settings. SD is over the folds of all seeds. "
        "Intervals and p values allow for folds that share scans: corrected resampled t (Nadeau and Bengio); p values "
        f"are corrected by Holm's method for the comparisons of a table. {STATISTICS}",
        write_commands(
            "brio run abide-aal --with abide-cc --protocol kfold --method gcn --seeds 3 --device cuda-tf32 "
            "--records-only --out in-distribution/aal116/gcn",
        ),
        "## AAL116",
        name_earlier_rows(folder("aal116")),
        _table("aal116"),
        f"The paper: {read_paper_claim(STUDY)}",
        "The figure is of version 0.1.0.",
        link_figure(f"{STUDY}/figure.svg", "AUC and ACC in distribution"),
        "## CC200",
        "The networks of the paper's table await their run on this atlas.",
        _table("cc200"),
        name_source(*map(folder, ATLASES)),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdict on the paper's in-distribution table."""
    auc, acc = ranks("auc")["brio"], ranks("acc")["brio"]
    above = [name for name in baselines("aal116") if name in shown(differences("aal116"), 1).index]
    word = "agrees" if max(auc, acc) <= 2 else "contradicted" if len(above) >= 2 else "not shown"
    return [
        Verdict(
            "In distribution BRIO ranks first or second in AUC and ACC",
            f"AAL116: rank {auc} in AUC and {acc} in ACC of {len(ranks('auc'))}; {len(above)} baselines shown above it",
            word,
            FILE,
        )
    ]
