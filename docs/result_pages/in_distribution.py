"""How do the methods compare at sites they were trained on?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.results import mean_correction
from brio.results.format import state_p

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
FOLDERS = ("in-distribution/aal116", "brio-plus/aal116-10-folds")
STUDY = "studies/aal116/in-distribution"


@cache
def runs() -> pd.DataFrame:
    """Return all runs; of ``brio-plus`` and the linear models only the seeds that the networks have."""
    own, more = (read_runs(folder) for folder in FOLDERS)
    more = more[(more["method"] != "log-ridge") & more["seed"].isin(own["seed"].unique())]
    return pd.concat([own, more], ignore_index=True)


@cache
def scores(metric: str = "auc") -> pd.DataFrame:
    """Return the score of every method in every fold of every seed."""
    return fold_scores(runs(), metric)


@cache
def differences() -> pd.DataFrame:
    """Return the differences in AUC to BRIO."""
    return compare_kfold(runs(), "brio")


def ranks(metric: str) -> pd.Series:
    """Return the rank of BRIO and the paper's baselines by their mean score."""
    means = scores(metric)[["brio", *baselines("aal116")]].mean()
    return means.rank(ascending=False).astype(int)


def _table() -> str:
    auc, acc = describe_scores(scores(), mean_correction(runs(), "kfold")), scores("acc")
    methods = read_methods(FOLDERS[0]) | read_methods(FOLDERS[1])
    rows = []
    for name, row in auc.iterrows():
        method = methods[str(name)]
        cells = [
            f"`{name}`",
            "control" if method.control else method.family,
            with_sd(row["mean"], row["sd"]),
            interval(row["low"], row["high"]),
            with_sd(acc[name].mean(), acc[name].std(ddof=1)),
            *difference_cells(differences(), str(name)),
            training(method),
        ]
        rows.append((method, cells))
    header = ["method", "family", "AUC", "95 % interval", "ACC", "AUC minus BRIO", "95 % interval", "p"]
    return write_blocks([*header, "epochs (steps)"], rows)


def page() -> str:
    """Return the page."""
    auc, table = scores().mean(), differences()
    above, below = shown(table, 1), shown(table, -1)
    paper_rows = table.loc[baselines("aal116")]
    higher = paper_rows[paper_rows["mean"] > 0].sort_values("mean", ascending=False)
    best_acc = ranks("acc").idxmin()
    return write_page(
        TITLE,
        state(
            f"**Linear models lead here too.** BRIO has a mean AUC of {fixed(auc['brio'])}: it ranks "
            f"{ranks('auc')['brio']}th of the paper's {len(ranks('auc'))} methods in AUC and {ranks('acc')['brio']}th "
            f"in ACC. Shown above it are {code(above.sort_values('mean', ascending=False).index)} "
            f"(+{fixed(above['mean'].min())} to +{fixed(above['mean'].max())} points).",
            {"ridge", "fc-tangent-ridge"} <= set(above.index) and min(ranks("auc")["brio"], ranks("acc")["brio"]) > 3,
        ),
        f"Of the paper's methods, {in_words(f'`{n}` ({fixed(auc[n])})' for n in higher.index)} have a higher mean "
        f"than BRIO, none shown to differ; below BRIO only {code([n for n in paper_rows.index if n in below.index])} "
        f"is shown. `{best_acc}` has the highest ACC of the paper's methods.",
        name_earlier_rows(FOLDERS[0]),
        f"AAL116, {runs()['fold'].nunique()} folds stratified by site and class (7 parts train, 2 validate, 1 tests), "
        f"{runs()['seed'].nunique()} seeds, every method with its own settings. SD is over the folds of all seeds. "
        "Intervals and p values allow for folds that share scans: corrected resampled t (Nadeau and Bengio); p values "
        f"are corrected by Holm's method for {len(table)} comparisons. {STATISTICS}",
        write_commands(
            "brio run abide-aal --protocol kfold --method gcn --seeds 3 --device cuda-tf32 --out "
            "in-distribution/aal116/gcn",
        ),
        _table(),
        f"The paper: {read_paper_claim(STUDY)}",
        link_figure(f"{STUDY}/figure.svg", "AUC and ACC in distribution"),
        name_source(*FOLDERS) + " CC200 has rows for linear models and BRIO plus only: see [BRIO plus](brio-plus.md).",
        f"`core-scaffold` and `mlp` have a higher mean than BRIO that is not shown to differ "
        f"({state_p(table.loc['core-scaffold', 'p_holm'])} and {state_p(table.loc['mlp', 'p_holm'])}).",
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdict on the paper's in-distribution table."""
    auc, acc = ranks("auc")["brio"], ranks("acc")["brio"]
    above = [name for name in baselines("aal116") if name in shown(differences(), 1).index]
    word = "agrees" if max(auc, acc) <= 2 else "contradicted" if len(above) >= 2 else "not shown"
    return [
        Verdict(
            "In distribution BRIO ranks first or second in AUC and ACC",
            f"rank {auc} in AUC and {acc} in ACC of {len(ranks('auc'))}; {len(above)} baselines shown above it",
            word,
            FILE,
        )
    ]
