"""Computations of what commands answer that share no code with brio: numpy, scipy and scikit-learn alone."""

import contextlib
import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from cohorts import People
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score, roc_auc_score

from commands import command

TEXT = {"participant_id": str, "fold": str, "site": str, "test_sites": str, "validation_sites": str}


def mark_long(cases: Iterable[object], fast: Collection[object] = ()) -> list[object]:
    """Mark all but some cases of a parameter as long."""
    long = pytest.mark.soak
    return [
        case if case in fast else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=long)
        for case in cases
    ]


def new_folder() -> Path:
    """Return a path where nothing is yet."""
    return Path(tempfile.mkdtemp()) / "out"


def succeed(*words: object) -> str:
    """Run a command that must succeed and print nothing but answers; return what it printed."""
    said = command(*words).succeed()
    assert "Traceback" not in said.text
    assert not re.search(r"\bnan\b", said.text, re.IGNORECASE), said.text
    return said.text


def refuse(*words: object) -> str:
    """Run a command that must be refused; return why, on one line."""
    said = command(*words).refuse()
    assert said.err.startswith("brio: ")
    return " ".join(said.err.split())


def leave_undrawn() -> contextlib.AbstractContextManager:
    """Explanations without their pictures, which take longest."""
    save_empty = mock.Mock(side_effect=lambda figure, path: path.touch())
    return mock.patch.multiple(
        "brio.models.explain_output", save_figure=save_empty, draw_brain=mock.DEFAULT, import_brain_plots=mock.DEFAULT
    )


def read(path: Path) -> pd.DataFrame:
    """Read a table; names that look like numbers stay names."""
    return pd.read_csv(path, dtype=TEXT, keep_default_na=False, na_values=[""])


def close(found: object, expected: object, tolerance: float = 1e-9) -> None:
    """Compare numbers, among which NaN stands for None."""
    found, expected = (np.array([np.nan if v is None else v for v in np.ravel(x)], float) for x in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def check_job(folder: Path, people: People, n_methods: int, n_seeds: int, protocol: str = "loso") -> None:
    """Recompute everything that a job says of its predictions, and its counts from the participants table."""
    runs, predictions = read(folder / "results.csv"), read(folder / "predictions.csv")
    table = people.table.drop_duplicates("participant_id").set_index("participant_id")
    tested = predictions.groupby(["method", "seed"])["participant_id"]
    assert len(tested) == n_methods * n_seeds
    assert tested.apply(lambda ids: sorted(ids) == sorted(table.index)).all(), "each participant is tested once"
    for column in ("site", "label"):
        assert (predictions[column].to_numpy() == table[column].loc[predictions["participant_id"]].to_numpy()).all()
    for run in runs.to_dict("records"):
        _check_run(run, predictions, table, protocol)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["n_scans"], len(summary["seeds"])) == (len(people.table), n_seeds)
    for name, method in summary["methods"].items():
        _check_summary(method, runs[runs["method"] == name], predictions[predictions["method"] == name], protocol)


def _check_run(run: dict, predictions: pd.DataFrame, table: pd.DataFrame, protocol: str) -> None:
    """Scores of one run, and that no participant is on two sides."""
    key = (predictions[["method", "fold", "seed"]] == [run["method"], run["fold"], run["seed"]]).all(axis=1)
    label, logit, probability = (predictions.loc[key, c].to_numpy() for c in ("label", "margin", "probability"))
    predicted = (logit > 0).astype(int)
    expected = {
        "acc": accuracy_score(label, predicted),
        "sensitivity": recall_score(label, predicted, zero_division=np.nan),
        "specificity": recall_score(label, predicted, pos_label=0, zero_division=np.nan),
        "brier": ((probability - label) ** 2).mean(),
    }
    if len(set(label)) == 2:
        expected |= {"auc": roc_auc_score(label, logit), "balanced_acc": balanced_accuracy_score(label, predicted)}
        assert pd.isna(run["note"]) or "one class only" in run["note"]
    else:
        assert np.isnan(run["auc"])
        assert "the test scans hold one class only" in run["note"]
    close([run[name] for name in expected], list(expected.values()))
    assert run["n_test"] == key.sum()
    if protocol == "loso":
        test, validation = {run["fold"]}, set(str(run["validation_sites"]).split(";")) - {"nan"}
        both = table.groupby("site")["label"].nunique() == 2
        source = set(both.index[both]) - test - validation
        assert not test & validation
        assert run["n_test"] == (table["site"] == run["fold"]).sum()
        assert run["n_validation"] == table["site"].isin(validation).sum()
        assert run["n_source"] in (table["site"].isin(source).sum(), table["site"].isin(source | validation).sum())


def _check_summary(method: dict, runs: pd.DataFrame, predictions: pd.DataFrame, protocol: str) -> None:
    """Means, standard deviations and intervals over sites, or over folds, and over participants."""
    by = ["fold"] if protocol == "loso" else ["seed", "fold"]
    for name in ("auc", "acc", "balanced_acc", "sensitivity", "specificity", "brier"):
        values = runs.groupby(by)[name].mean().dropna().to_numpy()
        n = len(values)
        close([method[name]["mean"], method[name]["sd"]], [values.mean(), values.std(ddof=1) if n > 1 else np.nan])
        assert method[name]["n"] == n
        half = half_interval(values, runs, protocol)
        if name == "auc" or protocol == "loso":
            interval = method[name]["interval"] or [None, None]
            close(interval, np.clip([values.mean() - half, values.mean() + half], 0, 1))
    if protocol == "loso":
        areas, errors, weights = _over_participants(predictions)
        shared = 1 / max(len(areas) - 2, 1)
        for found, w in ((method["auc"] | {"interval": method["auc_interval_over_people"]}, np.full(len(areas), 1.0)),
                         (method["pair_weighted_auc"], weights)):  # fmt: skip
            w = w / w.sum()
            half = stats.norm.ppf(0.975) * np.sqrt((w**2 * errors).sum() * (1 + len(areas) * shared))
            close(found["mean"], w @ areas)
            if np.isfinite(half) and half > 0:  # an AUC of 1 at every site has no interval
                close(found["interval"], np.clip([w @ areas - half, w @ areas + half], 0, 1))
            assert 0 <= found["mean"] <= 1, "an area is no more than all pairs"


def half_interval(values: np.ndarray, runs: pd.DataFrame, protocol: str) -> float:
    """Half of the interval of a mean by Nadeau and Bengio's variance; folds of further seeds are no further units."""
    n, n_test, n_other = len(values), runs["n_test"].mean(), (runs["n_source"] + runs["n_validation"]).mean()
    if n < 2 or np.ptp(values) < 1e-9:
        return np.nan
    units = n if protocol == "loso" else min(n, runs["fold"].nunique())
    shared = 1 / max(n - 2, 1) if protocol == "loso" else n_test / max(n_other - 2 * n_test, n_test)
    return stats.t.ppf(0.975, units - 1) * np.sqrt((1 / units + shared) * np.var(values, ddof=1))


def _over_participants(predictions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Area, DeLong's variance and number of pairs of each test site, placements averaged over seeds."""
    rows = []
    for _, site in predictions.groupby("fold"):
        if site["label"].nunique() < 2:
            continue
        margins = site.pivot(index="participant_id", columns="seed", values="margin")
        label = site.drop_duplicates("participant_id").set_index("participant_id")["label"].loc[margins.index]
        patient, control = margins[label == 1].to_numpy(), margins[label == 0].to_numpy()
        order = ((patient[:, None] > control[None]) + 0.5 * (patient[:, None] == control[None])).mean(axis=2)
        variance = order.mean(1).var(ddof=1) / len(patient) + order.mean(0).var(ddof=1) / len(control)
        rows.append((order.mean(), variance, order.size))
    return tuple(np.array(rows).T)


def fisher_z(people: People) -> np.ndarray:
    """Edges of each scan; NaN where a region has no signal."""
    upper = np.triu_indices(people.scans[0].shape[1], 1)
    with np.errstate(invalid="ignore"):
        return np.array([np.arctanh(np.corrcoef(scan.T.astype(float))[upper]) for scan in people.scans])


def fill_dead(X: np.ndarray, full: np.ndarray, sites: np.ndarray, source_sites: list[str]) -> np.ndarray:
    """Edges without signal hold the mean of full scans at source sites, which have equal weight."""
    means = [pd.DataFrame(full[sites == site]).mean() for site in source_sites]
    return np.where(np.isnan(X), pd.concat(means, axis=1).mean(axis=1), X)


def fit_ridges(folder: Path, people: People, X: np.ndarray) -> Iterator[tuple[dict, np.ndarray, np.ndarray, Ridge]]:
    """Each run of ridge: its row, which scans are source and test, and scikit-learn's Ridge with its penalty."""
    y, sites = 2.0 * people.table["label"].to_numpy() - 1, people.table["site"].to_numpy()
    records = [json.loads(path.read_text()) for path in folder.glob("runs/*/run.json")]
    records = [record for record in records if record["row"]["method"] == "ridge"]
    assert records
    for record in records:
        source, test = np.isin(sites, record["source_sites"]), sites == record["row"]["fold"]
        filled = fill_dead(X, X, sites, record["source_sites"])
        yield record["row"], source, test, Ridge(alpha=record["details"]["penalty"]).fit(filled[source], y[source])


def check_ridge(folder: Path, people: People, X: np.ndarray | None = None) -> None:
    """Margins of every run of ridge are those of scikit-learn's Ridge with the penalty that was chosen."""
    X, sites, ids = fisher_z(people) if X is None else X, people.table["site"], people.table["participant_id"]
    found = read(folder / "predictions.csv").query("method == 'ridge'")
    for row, source, test, model in fit_ridges(folder, people, X):
        filled = fill_dead(X, X, sites.to_numpy(), sites[source].unique())
        own = found[(found["fold"] == row["fold"]) & (found["seed"] == row["seed"])]
        expected = pd.Series(model.predict(filled[test])).groupby(ids[test].to_numpy()).mean()
        close(own.set_index("participant_id")["margin"].loc[expected.index], expected, 2e-5)


def same_predictions(first: Path, second: Path, tolerance: float = 1e-6, renamed: dict | None = None) -> None:
    """The same margins, probabilities and scores of the same participants, perhaps under other names."""
    key = ["method", "fold", "seed", "participant_id"]
    names = {"participant_id": renamed or {}, "fold": renamed or {}}
    one, other = read(first / "predictions.csv").replace(names), read(second / "predictions.csv")
    one, other = (table.set_index(key).sort_index() for table in (one, other))
    assert list(one.index) == list(other.index)
    close(other["probability"], one["probability"], tolerance)
    scale = np.maximum(1, one["margin"].abs())
    close(other["margin"] / scale, one["margin"] / scale, 10 * tolerance)
    scores = ["auc", "acc", "validation_auc"]
    rows = [read(first / "results.csv").replace({"fold": renamed or {}}), read(second / "results.csv")]
    one, other = (table.set_index(key[:3]).sort_index()[scores] for table in rows)
    close(other, one)
