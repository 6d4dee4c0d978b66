"""Scores of all methods at unseen sites, and the figures of the paper's main table."""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.report import paper_figures

from .comparisons import compare_sites, describe_scores, shown, site_scores
from .evidence import read_methods, read_runs
from .markdown import atlas_label

ATLASES = ("aal116", "cc200")
SITE_PENALTIES = ["coral", "irm", "vrex", "groupdro", "dann"]


def folder(atlas: str) -> str:
    """Return the folder of the comparison on one atlas."""
    return f"unseen-sites/{atlas}"


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of every method at every test site."""
    return site_scores(read_runs(folder(atlas)), metric)


@cache
def differences(atlas: str, reference: str) -> pd.DataFrame:
    """Return the differences in AUC of every method to ridge, or of the paper's baselines to BRIO."""
    if reference == "ridge":
        return compare_sites(scores(atlas), "ridge", "unseen sites", atlas_label(atlas))
    return compare_sites(scores(atlas)[["brio", *baselines(atlas)]], "brio", "baselines", atlas_label(atlas))


@cache
def paper(atlas: str) -> pd.DataFrame:
    """Return the figures of the paper's main table, by method."""
    table = paper_figures()
    return table[table["cohort"] == f"abide-{atlas}"].set_index("method")


def baselines(atlas: str) -> list[str]:
    """Return the methods of the paper's table without BRIO."""
    return [name for name in paper(atlas).index if name != "brio"]


def baselines_below_brio(atlas: str) -> list[str]:
    """Return the paper's baselines that BRIO is shown to be above."""
    below = shown(differences(atlas, "brio"), -1).index
    return [name for name in baselines(atlas) if name in below]


def family_of(name: str) -> str:
    """Return the family of a method."""
    return read_methods(folder("aal116"))[name].family


@cache
def networks(atlas: str) -> list[str]:
    """Return the trained networks, highest mean AUC first."""
    trained = {name for name, method in read_methods(folder(atlas)).items() if method.epochs}
    return [name for name in describe_scores(scores(atlas)).index if name in trained]


def graph_ood(atlas: str) -> list[str]:
    """Return the methods of the family graph OOD."""
    return [name for name in scores(atlas) if family_of(name) == "graph OOD"]


def best_brain_network(atlas: str) -> str:
    """Return the method of the family brain networks with the highest mean."""
    return next(name for name in networks(atlas) if family_of(name) == "brain networks")


@cache
def site_penalty_differences(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC of methods that penalise site differences to the GCN they are added to."""
    return compare_sites(scores(atlas)[["gcn", *SITE_PENALTIES]], "gcn", "site penalties", atlas_label(atlas))


def above_paper(atlas: str) -> list[str]:
    """Return the baselines whose mean AUC is higher here than in the paper."""
    return [name for name in baselines(atlas) if scores(atlas)[name].mean() > paper(atlas).loc[name, "auc"]]
