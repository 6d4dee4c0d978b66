"""How do the methods compare at sites they were trained on?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import state_p
from brio.methods import find_method
from brio.results import mean_correction

from .comparisons import (
    Verdict,
    compare_kfold,
    describe_scores,
    difference_cells,
    fold_scores,
    name_family,
    shown,
    with_interval,
)
from .evidence import describe_fold_rule, link_figure, name_source, read_methods, read_paper_claim, read_runs
from .markdown import (
    STATISTICS,
    atlas_label,
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


def folder(atlas: str) -> str:
    """Return the folder of the jobs on an atlas."""
    return f"in-distribution/{atlas}"


def study(atlas: str) -> str:
    """Return the folder of the study on an atlas."""
    return f"studies/{atlas}/in-distribution"


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of every method in every fold of every seed."""
    return fold_scores(read_runs(folder(atlas)), metric)


@cache
def differences(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC to BRIO."""
    return compare_kfold(read_runs(folder(atlas)), "brio", atlas_label(atlas))


def ranks(atlas: str, metric: str) -> pd.Series:
    """Return the rank of BRIO and the paper's baselines by their mean score."""
    means = scores(atlas, metric)[["brio", *baselines(atlas)]].mean()
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


def _compare_paper_methods(atlas: str) -> str:
    """Return where BRIO stands among the paper's methods."""
    auc, table = scores(atlas).mean(), differences(atlas)
    paper_rows = table.loc[baselines(atlas)]
    higher = paper_rows[paper_rows["mean"] > 0].sort_values("mean", ascending=False)
    below = [str(name) for name in paper_rows.index if name in shown(table, -1).index]
    by_auc, by_acc = ranks(atlas, "auc"), ranks(atlas, "acc")
    return (
        f"Of the paper's {len(by_auc)} methods, BRIO ranks {by_auc['brio']} in AUC and {by_acc['brio']} in ACC on "
        f"{atlas_label(atlas)}: {in_words(f'`{n}` ({fixed(auc[n])})' for n in higher.index)} have a higher mean AUC; "
        f"shown below BRIO are {code(below)}. `{by_acc.idxmin()}` has the highest ACC."
    )


def _conclusion() -> list[str]:
    sentences = []
    highest = {atlas: str(scores(atlas).mean().idxmax()) for atlas in ATLASES}
    for atlas, best in highest.items():
        row = differences(atlas).loc[best]
        sentences.append(
            f"On {atlas_label(atlas)} BRIO has a mean AUC of {fixed(scores(atlas)['brio'].mean())}, `{best}` the "
            f"highest: {with_interval(row)}, {state_p(row['p_holm'])}."
        )
    above = sum(len(shown(differences(atlas), 1)) for atlas in ATLASES)
    return [
        state(
            "**Linear models have the highest means here too, but no method is shown above BRIO.** "
            + " ".join(sentences),
            all(find_method(best).family == "linear" for best in highest.values()) and not above,
        ),
        *map(_compare_paper_methods, ATLASES),
    ]


def _write_atlas(atlas: str) -> list[str]:
    figure = link_figure(f"{study(atlas)}/figure.svg", f"AUC and ACC in distribution, {atlas_label(atlas)}")
    return [f"## {atlas_label(atlas)}", _table(atlas), figure]


def page() -> str:
    """Return the page."""
    runs = read_runs(folder("aal116"))
    return write_page(
        TITLE,
        *_conclusion(),
        describe_fold_rule(*map(folder, ATLASES)),
        f"{runs['fold'].nunique()} folds stratified by site and class (7 parts train, 2 validate, 1 tests), "
        f"{runs['seed'].nunique()} seeds, every method with its own settings. SD is over the folds of all seeds. "
        "Intervals and p values allow for folds that share scans and for seeds that deal the same participants again. "
        f"{name_family('in distribution').replace('over sites', 'over folds')} {STATISTICS}",
        write_commands(
            "brio run abide-aal --with abide-cc --protocol kfold --method gcn --seeds 3 --device cuda-tf32 "
            "--records-only --out in-distribution/aal116/gcn",
        ),
        f"The paper: {read_paper_claim(study('aal116'))}",
        *(part for atlas in ATLASES for part in _write_atlas(atlas)),
        name_source(*map(folder, ATLASES)),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdict on the paper's in-distribution tables."""
    sentences, worst, above = [], 0, 0
    for atlas in ATLASES:
        auc, acc = ranks(atlas, "auc")["brio"], ranks(atlas, "acc")["brio"]
        shown_above = [name for name in baselines(atlas) if name in shown(differences(atlas), 1).index]
        worst, above = max(worst, auc, acc), max(above, len(shown_above))
        sentences.append(
            f"{atlas_label(atlas)}: rank {auc} in AUC and {acc} in ACC of {len(ranks(atlas, 'auc'))}; "
            f"{len(shown_above)} baselines shown above it"
        )
    note = describe_fold_rule(*map(folder, ATLASES)).removesuffix(".")
    found = ". ".join(filter(None, ["; ".join(sentences), note]))
    word = "agrees" if worst <= 2 else "contradicted" if above >= 2 else "not shown"
    return [Verdict("In distribution BRIO ranks first or second in AUC and ACC", found, word, FILE)]
