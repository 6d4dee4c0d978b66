"""Paired comparisons of methods over sites or folds, as a data frame and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ..errors import BrioError, nearest
from ..methods import list_methods
from ..protocol import EQUIVALENCE_MARGIN, compare_over_folds, compare_over_sites
from ..results import Summary, average_seeds, describe_smoke_run, name_units, unit_columns
from ..results.format import format_interval, format_p, format_points, format_table, join_names

METRIC_NAMES = {
    "auc": "AUC",
    "acc": "ACC",
    "balanced_acc": "balanced ACC",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "brier": "Brier score",
}
LOSSES = ("brier",)
PROTOCOL_NAMES = {"loso": "leave one site out", "kfold": "k-fold"}
MOST_NAMED = 12
DETECTABLE = "Detectable: the smallest true difference that the test finds with 80 % power"
LEVEL = f"{100 * EQUIVALENCE_MARGIN:g} points"


def label_folders(folders: Sequence[Path]) -> list[str]:
    """Label the folders of jobs by their name, with as much of the path as tells different folders apart."""
    paths = [folder.resolve() for folder in folders]
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def mark_smoke_runs(summaries: Mapping[str, Summary]) -> str:
    """Say which of the compared jobs are smoke runs, and that they are not tested, as a report does."""
    smoke = [name for name, summary in summaries.items() if summary.smoke_run]
    if not smoke:
        return ""
    left_out = "Smoke runs are not tested: p values are left out."
    if len(smoke) == len(summaries):
        return f"{describe_smoke_run()} {left_out}"
    marked = " ".join(map(describe_smoke_run, smoke))
    return f"{marked} {left_out} Leave out {join_names(smoke)} to test the others."


def check_same_folds(summaries: Mapping[str, Summary]) -> None:
    """Raise an error if k-fold jobs of one cohort have folds that share nothing but their numbers."""
    first: dict[str, tuple[str, Summary]] = {}
    for name, summary in summaries.items():
        if summary.protocol == "kfold":
            other, known = first.setdefault(summary.cohort, (name, summary))
            if known.fold_rule != summary.fold_rule or known.fingerprint != summary.fingerprint:
                why = "are of other scans" if known.fingerprint != summary.fingerprint else "were made by another rule"
                raise BrioError(f"{name}: its folds {why} than those of {other}, so scores cannot be paired; run again")


def join_jobs(jobs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Join the rows of several jobs.

    Runs that two jobs share are kept once. A method whose scores differ between jobs counts as several methods, each
    with the name of its job added.

    Returns ``registered`` is the name that ``brio methods`` has for the method.
    """
    rows = _concatenate(jobs)
    names = name_methods(jobs)
    method = [names[job, name] for job, name in zip(rows["job"], rows["method"], strict=True)]
    return rows.assign(registered=rows["method"], method=method).drop(columns="job")


_RUN_COLUMNS = ["cohort", "method", "protocol", "fold", "seed"]


def _concatenate(jobs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Join the rows of jobs, those of runs with the same scores once; a column names their job."""
    rows = pd.concat([frame.assign(job=name) for name, frame in jobs.items()], ignore_index=True)
    scores = [name for name in ("n_test", *METRIC_NAMES) if name in rows]
    return rows.drop_duplicates([*_RUN_COLUMNS, *scores])


def name_methods(jobs: Mapping[str, pd.DataFrame]) -> dict[tuple[str, str], str]:
    """Name the methods of several jobs as :func:`join_jobs` does."""
    rows = _concatenate(jobs)
    group = ["cohort", "protocol", "method"]
    clashing = set(rows.loc[rows.duplicated(_RUN_COLUMNS, keep=False), group].itertuples(index=False, name=None))
    return {
        (job, method): f"{method} ({job})" if (cohort, protocol, method) in clashing else method
        for job, frame in jobs.items()
        for cohort, protocol, method in frame[group].drop_duplicates().itertuples(index=False, name=None)
    }


def compare_methods(rows: pd.DataFrame, reference: str, metric: str = "auc", alpha: float = 0.05) -> pd.DataFrame:
    """Compare all methods with a reference, separately for each cohort and protocol.

    P values are corrected within each cohort and protocol (Holm).

    Leave-one-site-out scores are compared over sites (:func:`brio.protocol.compare_over_sites`), k-fold scores over the
    folds of all seeds (:func:`brio.protocol.compare_over_folds`).

    Returns cohort and protocol, then the columns of :func:`brio.protocol.compare_over_sites`; ``n`` counts the pairs.
    """
    _require(rows, reference, metric)
    parts = []
    for cohort, protocol, group in _iterate_groups(rows):
        if reference not in set(group["method"]) or group["method"].nunique() < 2:
            continue
        scores, lower_is_better = paired_scores(group, metric), metric in LOSSES
        if protocol == "kfold":
            sizes = group[["n_test", "n_source"]].mean()
            differences = compare_over_folds(
                scores,
                sizes["n_test"],
                sizes["n_source"],
                reference,
                alpha=alpha,
                lower_is_better=lower_is_better,
            ).rename(columns={"n_folds": "n"})
        else:
            differences = compare_over_sites(scores, reference, alpha=alpha, lower_is_better=lower_is_better)
            differences = differences.rename(columns={"n_sites": "n"})
        differences.insert(0, "protocol", protocol)
        differences.insert(0, "cohort", cohort)
        parts.append(differences)
    if not parts:
        raise BrioError(f"nothing to compare with '{reference}': no cohort and protocol has it and another method")
    return pd.concat(parts, ignore_index=True)


def comparison_table(
    rows: pd.DataFrame, reference: str, metric: str = "auc", alpha: float = 0.05, tested: bool = True
) -> str:
    """Write the comparisons of all methods with a reference in Markdown, in percentage points.

    Only sites (or folds of a seed) for which both methods have a score are paired; lines below the table name the
    test and the other sites.
    """
    differences = compare_methods(rows, reference, metric, alpha)
    texts = []
    for cohort, protocol, group in _iterate_groups(rows):
        selected = differences[(differences["cohort"] == cohort) & (differences["protocol"] == protocol)]
        name = f"{cohort}, {PROTOCOL_NAMES[protocol]}"
        if not len(selected):
            methods = ", ".join(dict.fromkeys(group["method"]))
            texts.append(f"{name}: nothing to compare with {reference}; only {methods} ran there\n")
            continue
        title = f"Difference in {METRIC_NAMES[metric]} to {reference}, in points: {name}"
        notes = [_describe_test(group, protocol, len(selected), tested), *_name_missing(group, protocol, metric)]
        family = f"; Bonferroni: at a level for {len(selected)} comparisons." if len(selected) > 1 else "."
        notes += [*_list_level(selected, metric), DETECTABLE + family, *_list_warnings(selected)] if tested else []
        texts.append("\n".join([title, "", _format_differences(selected, protocol, alpha, tested), "", *notes]) + "\n")
    return "\n".join(texts)


def _require(rows: pd.DataFrame, reference: str, metric: str) -> None:
    known = [name for name in METRIC_NAMES if name in rows]
    if metric not in known:
        raise BrioError(f"metric '{metric}' is not in the results; {nearest(metric, known)}")
    methods = dict.fromkeys(rows["method"])
    if reference not in methods:
        raise BrioError(f"the reference method '{reference}' is not in the results; {nearest(reference, methods)}")


def _iterate_groups(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    for (cohort, protocol), group in rows.groupby(["cohort", "protocol"], sort=False):
        yield str(cohort), str(protocol), group


def paired_scores(rows: pd.DataFrame, metric: str = "auc") -> pd.DataFrame:
    """Return the scores of methods on the same test scans of one cohort under one protocol.

    Returns averaged over seeds; under k-fold the rows are the folds of each seed. Methods in the order of ``brio
    methods``.
    """
    if rows[["cohort", "protocol"]].drop_duplicates().shape[0] != 1:
        raise BrioError("scores of several cohorts or protocols cannot be paired; select one at a time")
    cohort, units = rows["cohort"].iloc[0], unit_columns(rows["protocol"].iloc[0])
    n_test = rows.groupby(units)["n_test"].agg(["min", "max"])
    unequal = n_test[n_test["min"] != n_test["max"]]
    for unit, (least, most) in zip(name_units(unequal.index), unequal.to_numpy().tolist(), strict=True):
        raise BrioError(
            f"{cohort}, {unit}: some methods were tested on {least} participants, others on {most}; "
            "run them with the same exclusions and folds"
        )
    scores = average_seeds(rows, metric, units=units)
    position = {entry.name: k for k, entry in enumerate(list_methods())}
    registered = dict(zip(rows["method"], rows.get("registered", rows["method"]), strict=True))
    return scores[sorted(scores.columns, key=lambda name: position.get(registered[name], len(position)))]


def _format_differences(differences: pd.DataFrame, protocol: str, alpha: float, tested: bool) -> str:
    units = "folds" if protocol == "kfold" else "sites"
    header = ["method", units, "difference", f"{100 * (1 - alpha):g} % interval", "better", "worse"]
    several = len(differences) > 1
    header += ["p", "p, Holm", "detectable", "detectable, Bonferroni"][: 3 + several] if tested else []
    rows = []
    for row in differences.itertuples():
        counts = [str(row.better), str(row.worse)]
        interval = format_interval([row.low, row.high], format_points)
        cells = [str(row.method), str(row.n), format_points(row.mean_difference), interval, *counts]
        detectable = [format_points(d).removeprefix("+") for d in (row.detectable, row.detectable_in_family)]
        tests = [format_p(row.p), format_p(row.p_holm), *detectable[: 1 + several]] if tested else []
        rows.append([*cells, *tests])
    return format_table(header, rows)


def _describe_test(group: pd.DataFrame, protocol: str, comparisons: int, tested: bool) -> str:
    """Describe what was tested and how, for the caption."""
    family = f"; p, Holm: corrected for the family of these {comparisons} comparisons." if comparisons > 1 else "."
    family = family if tested else "."
    test = f"{'Two-sided corrected t test' if tested else 'Interval: corrected t'} over"
    if protocol == "kfold":
        return f"{test} the folds of all seeds (Nadeau & Bengio 2003){family}"
    seeds = group.groupby("method")["seed"].nunique()
    if seeds.nunique() == 1:
        mean = "one seed" if seeds.iloc[0] == 1 else f"scores averaged over {seeds.iloc[0]} seeds"
    else:
        mean = f"scores averaged over different numbers of seeds ({', '.join(f'{m} {n}' for m, n in seeds.items())})"
    return f"{test} left-out sites (Nadeau & Bengio 2003), {mean}{family}"


def _name_missing(group: pd.DataFrame, protocol: str, metric: str) -> list[str]:
    """Name the sites that are not paired, and what they lack."""
    scores, by = paired_scores(group, metric), unit_columns(protocol)
    ran = group.assign(ran=True).groupby([*by, "method"])["ran"].any().unstack("method")[scores.columns].notna()
    parts = []
    missing = scores.index[scores.isna().any(axis=1)]
    for name, index in zip(name_units(missing), missing, strict=True):
        absent = [m for m in scores if not ran.loc[index, m]]
        silent = [m for m in scores if ran.loc[index, m] and pd.isna(scores.loc[index, m])]
        why = [f"no run of {', '.join(absent)}"] if absent else []
        if silent:
            everywhere = len(silent) + len(absent) == len(scores.columns)
            why.append(f"no {METRIC_NAMES[metric]}" + ("" if everywhere else f" of {', '.join(silent)}"))
        parts.append(f"{name} ({'; '.join(why)})")
    if not parts:
        return []
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    units = "folds" if protocol == "kfold" else "sites"
    return [f"Only {units} with scores of both methods are paired. Missing: {'; '.join(parts[:MOST_NAMED])}{more}."]


def _list_level(differences: pd.DataFrame, metric: str) -> list[str]:
    """Name the methods that are level with the reference, by two one-sided tests."""
    level = differences[differences["p_level"] <= 0.05]
    if metric != "auc" or level.empty:
        return []
    return [f"No difference within {LEVEL} (two one-sided tests, 5 %): {', '.join(level['method'])}."]


def _list_warnings(differences: pd.DataFrame) -> list[str]:
    warned = differences[differences["warning"] != ""].groupby("warning", sort=False)["method"].agg(", ".join)
    return [f"{methods}: {warning}." for warning, methods in warned.items()]
