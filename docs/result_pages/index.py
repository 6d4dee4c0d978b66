"""The first page: which of the paper's claims hold, and what to use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

import pandas as pd

from brio.protocol import compare_family

from . import ablation, brio_plus, factors, labels, stability, unseen_sites  # noqa: F401 (some are for the template)
from .comparisons import count_shown, describe_scores, pair_weighted, site_scores  # noqa: F401 (for the template)
from .evidence import ATLASES, OWN_STUDIES, atlas_label, read_record, read_runs
from .markdown import in_words
from .unseen_sites import FOLDERS, networks

WORDS = {
    "agrees": "agree",
    "in part": "agree in part",
    "not significant": "are not confirmed (most of their comparisons are not significant)",
    "does not hold": "do not hold",
    "contradicted": "are contradicted",
}
ONE = {
    "agrees": "agrees",
    "in part": "agrees in part",
    "not significant": "is not confirmed (most of its comparisons are not significant)",
    "does not hold": "does not hold",
    "contradicted": "is contradicted",
}
LABELS = {
    "brio": "BRIO (`brio`)",
    "network": "best neural network by these scores",
    "ridge": "ridge regression (`ridge`)",
    "fc-tangent-ridge": "ridge with tangent space (`fc-tangent-ridge`)",
    "log-ridge": "ridge on the matrix logarithm of connectomes (`log-ridge`)",
    "brio-plus": "BRIO plus, our own linear method (`brio-plus`)",
    "covariates-only": "age, sex and motion, no connectome (`covariates-only`)",
}
"""Rows of the small table."""
SOURCES = 17
"""Source sites in each fold of the small table."""


@cache
def headline_sites(atlas: str) -> pd.DataFrame:
    """Return the AUC of the methods of the small table at each test site, all with the same folds and seeds."""
    plus = read_runs(f"brio-plus/{atlas}-{SOURCES}-source-sites")
    plus = plus[plus["seed"].isin(read_runs(FOLDERS[atlas])["seed"].unique())]
    every = unseen_sites.scores(atlas)
    scores = every.assign(**{"brio-plus": site_scores(plus)["brio-plus"], "network": every[networks(atlas)[0]]})
    return scores[list(LABELS)]


def headline_scores(atlas: str) -> pd.DataFrame:
    """Return the mean AUC, with its interval, of the methods of the small table."""
    return describe_scores(headline_sites(atlas))


def find_better_than_ridge() -> list[str]:
    """List the methods that are significantly better than ridge: of all methods, and of the small table."""
    tables = [unseen_sites.differences(atlas, "ridge") for atlas in ATLASES]
    tables += [compare_family(headline_sites(atlas), "ridge").set_index("method") for atlas in ATLASES]
    tables = [table.rename(columns={"mean_difference": "mean"}) for table in tables]
    return sorted({name for table in tables for name in table.index[(table["mean"] > 0) & (table["p_holm"] < 0.05)]})


def list_headline(atlas: str) -> pd.DataFrame:
    """Return the scores of the small table by the names of their methods, for the figure."""
    return headline_scores(atlas).rename(index={"network": networks(atlas)[0]})


def best_networks() -> list[str]:
    """Return the best network of each atlas, once where it is the same."""
    return list(dict.fromkeys(networks(atlas)[0] for atlas in ATLASES))


def network_minus_ridge(atlas: str) -> pd.Series:
    """Return the difference in AUC of the best network to ridge."""
    return unseen_sites.differences(atlas, "ridge").loc[networks(atlas)[0]]


def count_below(atlas: str) -> str:
    """Say how many of the paper's baselines BRIO significantly outperforms."""
    below, _, n = count_shown([unseen_sites.differences(atlas, "brio")])
    return f"{below} of {n} on {atlas_label(atlas)}"


def count_published(atlas: str) -> str:
    """Say how many of the paper's baselines BRIO significantly outperforms, our readings and redesigns left out."""
    below, _, n = count_shown([unseen_sites.compare_published(atlas)])
    return f"{below} of {n}"


def count_words(verdicts: Iterable[tuple[str, ...]]) -> str:
    """Say how many claims of the paper have which verdict."""
    counts = Counter(word for *_, word in verdicts)
    return in_words(
        f"{counts[word]} {text if counts[word] > 1 else ONE[word]}" for word, text in WORDS.items() if counts[word]
    )


def list_versions() -> str:
    """List the versions with which our own studies were made."""
    return in_words(sorted({read_record(name, atlas).brio for name in OWN_STUDIES for atlas in ATLASES}))
