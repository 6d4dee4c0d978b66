"""How do the methods compare at sites they were trained on?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pandas as pd

from brio.results import mean_correction

from .comparisons import Verdict, compare_kfold, describe_scores, fold_scores, judge_parts, shown
from .evidence import ATLASES, atlas_label, read_methods, read_runs
from .markdown import fixed, in_words
from .unseen_sites import baselines

FOLDERS = {atlas: f"in-distribution/{atlas}" for atlas in ATLASES}


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of every method in every fold of every seed."""
    return fold_scores(read_runs(FOLDERS[atlas]), metric)


@cache
def differences(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC to BRIO."""
    return compare_kfold(read_runs(FOLDERS[atlas]), "brio", atlas_label(atlas))


def describe(atlas: str) -> pd.DataFrame:
    """Return mean AUC, SD and interval of every method, highest mean first."""
    return describe_scores(scores(atlas), mean_correction(read_runs(FOLDERS[atlas]), "kfold"))


def ranks(atlas: str, metric: str = "auc") -> pd.Series:
    """Return the rank of BRIO and the paper's baselines by their mean score."""
    means = scores(atlas, metric)[["brio", *baselines(atlas)]].mean()
    return means.rank(ascending=False).astype(int)


def find_best(atlas: str) -> pd.Series:
    """Return the method with the highest mean AUC: its difference to BRIO, name and family."""
    name = str(scores(atlas).mean().idxmax())
    more = {"method": name, "family": read_methods(FOLDERS[atlas])[name].family}
    return pd.concat([differences(atlas).loc[name], pd.Series(more)])


def list_means(atlas: str, names: Iterable[str]) -> str:
    """List methods with their mean AUC in a sentence."""
    return in_words(f"`{name}` ({fixed(scores(atlas)[name].mean())})" for name in names)


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdict on the paper's in-distribution tables."""
    sentences, held = [], []
    for atlas in ATLASES:
        auc, acc = ranks(atlas)["brio"], ranks(atlas, "acc")["brio"]
        n_above = len(shown(differences(atlas).loc[baselines(atlas)], 1))
        held += [auc <= 2, acc <= 2]
        sentences.append(
            f"{atlas_label(atlas)}: rank {auc} in AUC and rank {acc} in ACC, of {len(ranks(atlas))} methods; "
            f"{n_above or 'no'} {'baseline has' if n_above < 2 else 'baselines have'} a significantly higher AUC "
            "than BRIO"
        )
    word = judge_parts(held)
    return [("At sites it was trained on, BRIO ranks first or second in AUC and ACC", "; ".join(sentences), word)]
