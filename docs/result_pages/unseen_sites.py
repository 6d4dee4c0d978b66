"""How do the methods compare at unseen sites?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_count, state_p
from brio.methods.registry import find_method
from brio.protocol import PeopleEstimate, adjust_holm
from brio.report.comparisons import gather_jobs, paper_figures
from brio.results import PAIR_WEIGHTED, assess_auc

from .comparisons import (
    Verdict,
    compare_pair,
    compare_sites,
    count_shown,
    describe_scores,
    judge,
    record_verdicts,
    reverse,
    site_scores,
)
from .evidence import (
    ATLASES,
    atlas_label,
    read_jobs,
    read_measured_table,
    read_measurement,
    read_methods,
    read_runs,
    read_titled_tables,
)

FOLDERS = {atlas: f"unseen-sites/{atlas}" for atlas in ATLASES}
LINEAR_ON_ENTRIES = ["ridge", "logistic", "svm"]
SITE_PENALTIES = ["coral", "irm", "vrex", "groupdro", "dann"]
VERSIONS = {f"version-{number}": f"version {number}" for number in (1, 2, 3)}
DISPLACEMENT = "displacement alone"
PUBLISHED = "published code or equations"


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of every method at every test site."""
    return site_scores(read_runs(FOLDERS[atlas]), metric)


@cache
def differences(atlas: str, reference: str) -> pd.DataFrame:
    """Return the differences in AUC of every method to ridge, or of the paper's baselines to BRIO."""
    if reference == "ridge":
        return compare_sites(scores(atlas), "ridge", "unseen sites", atlas_label(atlas))
    return compare_sites(scores(atlas)[["brio", *baselines(atlas)]], "brio", "baselines", atlas_label(atlas))


@cache
def averaged_seeds(atlas: str) -> pd.DataFrame:
    """Return the AUC of margins averaged over seeds, of ridge and every network at every test site."""
    sites = pd.concat([job.sites for job in read_jobs(FOLDERS[atlas])])
    table = 100 * sites.pivot(index="fold", columns="method", values="ensemble_auc")
    return table[["ridge", *networks(atlas)]]


@cache
def compare_averaged(atlas: str) -> pd.DataFrame:
    """Return the difference in AUC of every network with averaged seeds from ridge."""
    return compare_sites(averaged_seeds(atlas), "ridge", "averaged seeds", atlas_label(atlas))


def gain_of_averaging(atlas: str) -> pd.Series:
    """Return what averaging seeds adds to the AUC of networks: mean, lowest and highest over networks."""
    gain = (averaged_seeds(atlas) - scores(atlas)).mean()[networks(atlas)]
    return pd.Series({"mean": gain.mean(), "lowest": gain.min(), "highest": gain.max()})


@cache
def paper(atlas: str) -> pd.DataFrame:
    """Return the figures of the paper's main table, by method."""
    table = paper_figures()
    return table[table["cohort"] == f"abide-{atlas}"].set_index("method")


def baselines(atlas: str) -> list[str]:
    """Return the methods of the paper's table without BRIO."""
    return [name for name in paper(atlas).index if name != "brio"]


def count_above_paper(atlas: str) -> int:
    """Count the baselines whose mean AUC is higher here than in the paper."""
    names = baselines(atlas)
    return int((scores(atlas)[names].mean() > paper(atlas).loc[names, "auc"]).sum())


def family_of(name: str) -> str:
    """Return the family of a method."""
    return read_methods(FOLDERS["aal116"])[name].family


def describe_provenance(name: str) -> str:
    """Return where a method comes from, in the words of today's catalogue: stored runs have the words of their day."""
    return str(find_method(name).provenance)


@cache
def networks(atlas: str) -> list[str]:
    """Return the trained networks, highest mean AUC first."""
    trained = {name for name, method in read_methods(FOLDERS[atlas]).items() if method.epochs}
    return [name for name in describe_scores(scores(atlas)).index if name in trained]


def described_scores(atlas: str) -> pd.DataFrame:
    """Return mean AUC, SD and interval of every method, highest mean first."""
    return describe_scores(scores(atlas))


def linear_lead(n: int) -> bool:
    """Return whether the n methods with the highest mean AUC are linear and use all edges, on both atlases."""
    leading = [name for atlas in ATLASES for name in described_scores(atlas).index[:n]]
    return all(family_of(name) == "linear" and name != "core-scaffold" for name in leading)


def mean_scores(atlas: str) -> pd.Series:
    """Return the mean AUC of every method."""
    return scores(atlas).mean()


def ridge_minus_brio(atlas: str) -> pd.Series:
    """Return the difference in AUC of ridge to BRIO."""
    return reverse(differences(atlas, "ridge")).loc["brio"]


@cache
def compare_penalties(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC of methods that penalise site differences to the GCN they are added to."""
    return compare_sites(scores(atlas)[["gcn", *SITE_PENALTIES]], "gcn", "site penalties", atlas_label(atlas))


def compare_atlases() -> pd.Series:
    """Compare ridge on the two atlases at the same sites: CC200 minus AAL116."""
    pair = pd.DataFrame({atlas: scores(atlas)["ridge"] for atlas in ATLASES})
    return compare_pair(pair, "cc200", "aal116", "single pairs", "ridge")


@cache
def compare_sisters() -> pd.DataFrame:
    """Return the AUC at sites of one institution with and without the other as source site, by atlas and method.

    Mean AUCs, the difference of the first two with its interval, ``p``, and ``p_holm`` corrected for all rows.
    """
    columns = ["with_sister", "without_sister", "without_others"]
    measured = read_measured_table("sister-sites.txt", columns)
    rows = []
    for atlas in ATLASES:
        for method in measured["method"].unique():
            own = measured[(measured["cohort"] == atlas) & (measured["method"] == method)].set_index("site")[columns]
            where = f"{atlas_label(atlas)}, {method}"
            gain = compare_pair(own, "with_sister", "without_sister", "sister sites", where)
            rows.append({"atlas": atlas, "method": method} | own.mean().to_dict() | gain.to_dict())
    table = pd.DataFrame(rows)
    table = table.assign(**{name: adjust_holm(table[p]) for name, p in (("p_holm", "p"), ("p_before", "p_before"))})
    for where, row in table.set_index(table["atlas"].map(atlas_label) + ", " + table["method"]).iterrows():
        record_verdicts(row.to_frame("with_sister").T, "without_sister", "sister sites", str(where))
    return table


def list_sisters() -> list[str]:
    """List the sites that are samples of one institution."""
    return sorted(read_measured_table("sister-sites.txt")["site"].unique())


def compare_single_sites(atlas: str) -> pd.Series:
    """Compare ridge with BRIO where a site is the only sample of its institution: their difference, and both means."""
    single = scores(atlas).drop(index=list_sisters())
    pair = compare_pair(single, "ridge", "brio", "single pairs", f"{atlas_label(atlas)}, sites without another sample")
    return pd.concat([pair, single[["ridge", "brio"]].mean()])


def describe_brio(atlas: str, version: str) -> pd.Series:
    """Return the AUC of a version of BRIO with its interval, its ACC, and the name of its folder."""
    folder = f"brio-versions/{atlas}/{version}"
    row = describe_scores(site_scores(read_runs(folder))[["brio"]]).loc["brio"]
    return pd.concat([row, pd.Series({"acc": site_scores(read_runs(folder), "acc")["brio"].mean(), "folder": folder})])


def compare_versions(atlas: str) -> pd.Series:
    """Compare the last version of BRIO with the first."""
    runs = {
        name: f"brio-versions/{atlas}/{version}" for name, version in (("today", "version-3"), ("before", "version-1"))
    }
    pair = pd.DataFrame({name: site_scores(read_runs(folder))["brio"] for name, folder in runs.items()})
    return compare_pair(pair, "today", "before", "single pairs", atlas_label(atlas))


def assess_people(atlas: str, method: str) -> PeopleEstimate:
    """Return the pair-weighted AUC of a method over the participants of these sites."""
    joined = gather_jobs(read_jobs(FOLDERS[atlas]))
    return assess_auc(joined.sites, joined.covariances, method)[PAIR_WEIGHTED]


def join_families(atlas: str) -> float:
    """Return p of BRIO against ridge in one family of all comparisons with ridge and with BRIO."""
    p = pd.concat([differences(atlas, "ridge")["p"], differences(atlas, "brio")["p"].rename("against {}".format)])
    return float(pd.Series(adjust_holm(p), index=p.index)["brio"])


def compare_published(atlas: str) -> pd.DataFrame:
    """Return the differences to BRIO of the paper's baselines but for our readings and redesigns."""
    methods, table = read_methods(FOLDERS[atlas]), differences(atlas, "brio")
    return table[[methods[name].block == PUBLISHED for name in table.index]]


@cache
def compare_steps() -> pd.DataFrame:
    """Return what networks gain from BRIO's number of steps on development sites: one row per atlas and network."""
    rows = []
    for title, table in read_titled_tables("steps-of-networks.txt"):
        atlas, _, network = title.partition("-")
        own, more = (row for _, row in table[table["rule"] == "best AUC"].iterrows())
        gain, _, error = more["difference"].partition(" ± ")
        rows.append((atlas, network, own["steps"], own["AUC"], more["steps"], more["AUC"], float(gain), float(error)))
    return pd.DataFrame(rows, columns=["atlas", "network", "steps", "auc", "more_steps", "more_auc", "gain", "error"])


def read_site_spread() -> str:
    """Read the spread over sites that sampling alone makes, without its comments."""
    return "\n".join(line for line in read_measurement("site-spread.txt").splitlines() if not line.startswith("#"))


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdicts on the paper's comparison."""
    verdicts = []
    for atlas in ATLASES:
        table = differences(atlas, "brio")
        below, above, n = count_shown([table])
        higher = int((table["mean"] > 0).sum())
        higher_ones = format_count(higher, "baseline has", "baselines have")
        higher_too = f"{higher_ones} a higher mean AUC, {above or 'none'} of them significantly"
        measured = f"significantly above {below} of {n} baselines; {higher_too}"
        verdicts.append(
            (f"BRIO has a higher AUC than all baselines ({atlas_label(atlas)})", measured, judge(below, above, n))
        )
    _, better, n = count_shown(map(compare_penalties, ATLASES))
    verdicts.append(
        (
            "General OOD methods are not consistently better than GNNs",
            f"significantly above the GCN to which they are added in {better} of {n} comparisons",
            "agrees" if better < n else "contradicted",
        )
    )
    for atlas in ATLASES:
        best = next(name for name in networks(atlas) if family_of(name) == "brain networks")
        graph_ood = [name for name in scores(atlas) if family_of(name) == "graph OOD"]
        table = compare_sites(scores(atlas)[[best, *graph_ood]], best, "graph OOD", atlas_label(atlas))
        below, above, n = count_shown([table])
        verdicts.append(
            (
                f"The best brain-network methods are better than graph OOD methods ({atlas_label(atlas)})",
                f"`{best}` is significantly above {below} of {n} graph OOD methods "
                f"(largest {state_p(table['p_holm'].max())})",
                judge(below, above, n),
            )
        )
    return verdicts
