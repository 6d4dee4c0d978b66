"""Paired comparisons of methods from the results of their runs, as a tidy table and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ..errors import BrioError, nearest
from ..methods import list_methods
from ..protocol import compare_over_folds, compare_over_sites, run_scores

__all__ = ["comparison_table", "comparisons", "paired_scores", "together"]

METRIC_NAMES = {
    "auc": "AUC",
    "acc": "ACC",
    "balanced_acc": "balanced ACC",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "brier": "Brier score",
}
LOSSES = ("brier",)
UNITS = {"loso": ("fold",), "kfold": ("seed", "fold")}  # what is paired; a seed of k-fold deals other folds
PROTOCOL_NAMES = {"loso": "leave one site out", "kfold": "k-fold"}
MOST_NAMED = 12


def together(jobs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Rows of several jobs under each other.

    Runs that two jobs have alike are kept once. A method with other numbers in another job is another method: each of
    them gets the name of its job beside its own.

    Parameters
    ----------
    jobs : dict of DataFrame
        ``results.csv`` of each job, by the name of its folder.

    Examples
    --------
    >>> run = {"cohort": "c", "method": "ridge", "protocol": "loso", "fold": "NYU", "seed": 0, "auc": 0.7}
    >>> rows = together({"plain": pd.DataFrame([run]), "combat": pd.DataFrame([run | {"auc": 0.6}])})
    >>> rows["method"].tolist()
    ['ridge (plain)', 'ridge (combat)']
    """
    run = ["cohort", "method", "protocol", "fold", "seed"]
    rows = pd.concat([frame.assign(job=name) for name, frame in jobs.items()], ignore_index=True)
    scores = [name for name in ("n_test", *METRIC_NAMES) if name in rows]
    rows = rows.drop_duplicates([*run, *scores])
    clashing = rows.loc[rows.duplicated(run, keep=False), ["cohort", "protocol", "method"]].drop_duplicates()
    clash = pd.MultiIndex.from_frame(rows[["cohort", "protocol", "method"]]).isin(pd.MultiIndex.from_frame(clashing))
    method = rows["method"].where(~clash, rows["method"] + " (" + rows["job"] + ")")
    return rows.assign(method=method).drop(columns="job")


def comparisons(rows: pd.DataFrame, reference: str, metric: str = "auc", alpha: float = 0.05) -> pd.DataFrame:
    """Differences of all methods to a reference, for each cohort and protocol; each of these is a family of its own.

    Over sites (:func:`brio.protocol.compare`) where one site is left out; by the corrected resampled t-test over the
    folds of all seeds (:func:`brio.protocol.compare_over_folds`) under k-fold, the source scans being those that train.

    Parameters
    ----------
    rows : DataFrame
        ``results.csv`` of jobs, methods with a name each (:func:`together`).

    Returns
    -------
    DataFrame
        The table of :func:`brio.protocol.compare` with cohort and protocol before it; ``n`` counts the pairs.
    """
    _require(rows, reference, metric)
    parts = []
    for cohort, protocol, group in _groups(rows):
        if reference not in set(group["method"]) or group["method"].nunique() < 2:
            continue
        scores, lower_is_better = paired_scores(group, metric), metric in LOSSES
        if protocol == "kfold":
            sizes = group[["n_test", "n_source"]].mean()
            found = compare_over_folds(
                scores,
                sizes["n_test"],
                sizes["n_source"],
                reference,
                alpha=alpha,
                lower_is_better=lower_is_better,
            ).rename(columns={"n_folds": "n"})
        else:
            found = compare_over_sites(scores, reference, alpha=alpha, lower_is_better=lower_is_better)
            found = found.rename(columns={"n_sites": "n"})
        found.insert(0, "protocol", protocol)
        found.insert(0, "cohort", cohort)
        parts.append(found)
    if not parts:
        raise BrioError(f"nothing to compare with '{reference}': no cohort and protocol has it beside another method")
    return pd.concat(parts, ignore_index=True)


def comparison_table(rows: pd.DataFrame, reference: str, metric: str = "auc", alpha: float = 0.05) -> str:
    """Differences of all methods to a reference in Markdown, in points (hundredths), with what was tested and how.

    Only sites (or folds of a seed) that both methods have are paired; those left out are named below the table.

    Examples
    --------
    >>> auc = {"ridge": [0.60, 0.71, 0.65, 0.80, 0.72, 0.68], "brio": [0.64, 0.73, 0.66, 0.85, 0.75, 0.71]}
    >>> run = {"cohort": "abide", "protocol": "loso", "seed": 0, "n_source": 90, "n_test": 10}
    >>> rows = [run | {"method": m, "fold": f"s{k}", "auc": v} for m in auc for k, v in enumerate(auc[m])]
    >>> print(comparison_table(pd.DataFrame(rows), "ridge").splitlines()[4])
    | brio | 6 | +3.0 | +2.0 to +4.0 | 6 | 0 | 0.031 | 0.031 |
    """
    found = comparisons(rows, reference, metric, alpha)
    texts = []
    for cohort, protocol, group in _groups(rows):
        mine = found[(found["cohort"] == cohort) & (found["protocol"] == protocol)]
        name = f"{cohort}, {PROTOCOL_NAMES[protocol]}"
        if not len(mine):
            there = ", ".join(dict.fromkeys(group["method"]))
            texts.append(f"{name}: nothing to compare with {reference}, only {there} ran there\n")
            continue
        title = f"Difference in {METRIC_NAMES[metric]} to {reference}, in points: {name}"
        notes = [_how(group, protocol, len(mine)), *_left_out(group, protocol, metric), *_warnings(mine)]
        texts.append("\n".join([title, "", _markdown(mine, protocol, alpha), "", *notes]) + "\n")
    return "\n".join(texts)


def _require(rows: pd.DataFrame, reference: str, metric: str) -> None:
    known = [name for name in METRIC_NAMES if name in rows]
    if metric not in known:
        raise BrioError(f"metric '{metric}' is not in the results; {nearest(metric, known)}")
    methods = dict.fromkeys(rows["method"])
    if reference not in methods:
        raise BrioError(f"method '{reference}', to compare with, is not in the results; {nearest(reference, methods)}")


def _groups(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    for (cohort, protocol), group in rows.groupby(["cohort", "protocol"], sort=False):
        yield str(cohort), str(protocol), group


def paired_scores(rows: pd.DataFrame, metric: str = "auc") -> pd.DataFrame:
    """Scores of the methods on the same test scans of one cohort under one protocol, [site x method].

    Sites are averaged over seeds; under k-fold the rows are the folds of each seed. Methods come in the order of
    ``brio methods``.
    """
    if rows[["cohort", "protocol"]].drop_duplicates().shape[0] != 1:
        raise BrioError("scores of several cohorts or protocols are not paired; take one at a time")
    cohort, by = rows["cohort"].iloc[0], UNITS[rows["protocol"].iloc[0]]
    n_test = rows.groupby(list(by))["n_test"].agg(["min", "max"])
    for unit, least, most in n_test[n_test["min"] != n_test["max"]].itertuples():
        raise BrioError(
            f"{cohort}, {_unit(unit)}: some methods were tested on {least} scans, others on {most}; "
            "run them with the same exclusions and folds"
        )
    scores = run_scores(rows, metric, by)
    place = {entry.name: k for k, entry in enumerate(list_methods())}
    return scores[sorted(scores.columns, key=lambda name: place.get(name.split(" (")[0], len(place)))]


def _unit(index: object) -> str:
    return f"fold {index[1]} of seed {index[0]}" if isinstance(index, tuple) else str(index)


def p_value(value: float) -> str:
    """A p value as it is printed."""
    return "-" if pd.isna(value) else "< 0.001" if value < 0.0005 else f"{value:.3f}"


def signed(difference: float) -> str:
    """A difference as it is printed, in points."""
    return "-" if pd.isna(difference) else f"{100 * difference:+.1f}"


def _markdown(found: pd.DataFrame, protocol: str, alpha: float) -> str:
    units = "folds" if protocol == "kfold" else "sites"
    lines = [["method", units, "difference", f"{100 * (1 - alpha):g} % interval", "better", "worse", "p", "p, Holm"]]
    lines.append(["---"] * len(lines[0]))
    for row in found.itertuples():
        interval = "-" if pd.isna(row.low) else f"{signed(row.low)} to {signed(row.high)}"
        counts = [str(row.n), signed(row.mean_difference), interval, str(row.better), str(row.worse)]
        lines.append([str(row.method), *counts, p_value(row.p), p_value(row.p_holm)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _how(group: pd.DataFrame, protocol: str, comparisons: int) -> str:
    """What the numbers are, in a sentence for the caption."""
    corrected = f"; p, Holm: corrected for {comparisons} comparisons." if comparisons > 1 else "."
    if protocol == "kfold":
        return f"Two-sided corrected resampled t-test over the folds of all seeds (Nadeau & Bengio 2003){corrected}"
    seeds = group.groupby("method")["seed"].nunique()
    if seeds.nunique() == 1:
        mean = "one seed" if seeds.iloc[0] == 1 else f"scores averaged over {seeds.iloc[0]} seeds"
    else:
        mean = f"scores averaged over seeds, not equally many ({', '.join(f'{m} {n}' for m, n in seeds.items())})"
    return (
        f"Wilcoxon's signed-rank test over sites (exact, two-sided), {mean}; "
        f"interval: sites drawn with replacement{corrected}"
    )


def _left_out(group: pd.DataFrame, protocol: str, metric: str) -> list[str]:
    """Which sites are not paired, and for want of what."""
    scores, by = paired_scores(group, metric), list(UNITS[protocol])
    ran = group.assign(ran=True).groupby([*by, "method"])["ran"].any().unstack("method")[scores.columns].notna()
    parts = []
    for index in scores.index[scores.isna().any(axis=1)]:
        absent = [m for m in scores if not ran.loc[index, m]]
        silent = [m for m in scores if ran.loc[index, m] and pd.isna(scores.loc[index, m])]
        why = [f"no run of {', '.join(absent)}"] if absent else []
        if silent:
            everywhere = len(silent) + len(absent) == len(scores.columns)
            why.append(f"no {METRIC_NAMES[metric]}" + ("" if everywhere else f" of {', '.join(silent)}"))
        parts.append(f"{_unit(index)} ({'; '.join(why)})")
    if not parts:
        return []
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    units = "folds" if protocol == "kfold" else "sites"
    return [f"Only {units} that both methods have are paired. Missing: {'; '.join(parts[:MOST_NAMED])}{more}."]


def _warnings(found: pd.DataFrame) -> list[str]:
    told = found[found["warning"] != ""].groupby("warning", sort=False)["method"].agg(", ".join)
    return [f"{methods}: {warning}." for warning, methods in told.items()]
