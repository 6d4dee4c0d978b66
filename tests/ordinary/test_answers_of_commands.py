"""Files and studies on ordinary cohorts: what is read is what was written, and what is printed is what was found."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checks import close, fisher_z, numbers, read, same_predictions
from cohorts import BUILDERS, build, run_job, shuffle
from scipy.io import savemat
from sklearn.metrics import roc_auc_score

import brio
from brio import Cohort
from brio.cohort import load_bundled_atlas
from brio.methods import list_methods
from commands import command

soak = pytest.mark.soak


# each writes the scans of some people as one kind of folder, and returns it with the options of its import


def write_table(people, folder, suffix="csv"):
    for i, scan in enumerate(people.scans):
        if suffix == "npy":
            np.save(folder / f"scan-{i}.npy", scan)
        else:
            pd.DataFrame(scan, columns=people.atlas.rois["name"]).to_csv(folder / f"scan-{i}.{suffix}", index=False)
    words = {0: "healthy", 1: "ASD"}
    table = people.table.assign(file=[f"scan-{i}.{suffix}" for i in range(len(people.scans))])
    table["label"] = table["label"].map(words)
    table = table.rename(columns={"participant_id": "Subject", "site": "Centre", "label": "dx"})
    table.to_csv(folder / "people.csv", index=False, sep=";")
    columns = ["--id-column", "Subject", "--site-column", "Centre", "--label-column", "dx"]
    return [*columns, "--patient", "ASD", "--control", "healthy", "--participants", folder / "people.csv"]


def write_npy(people, folder):
    return write_table(people, folder, "npy")


def write_bids(people, folder):
    for i, scan in enumerate(people.scans):
        path = folder / f"sub-{i:03d}" / "func" / f"sub-{i:03d}_task-rest_atlas-Own_timeseries.tsv"
        path.parent.mkdir(parents=True)
        pd.DataFrame(scan, columns=people.atlas.rois["name"]).to_csv(path, sep="\t", index=False)
    table = people.table.assign(participant_id=[f"sub-{i:03d}" for i in range(len(people.scans))])
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    return ["--atlas", "Own"]


def widen(scan, n_rois):
    """The regions of a scan, and noise in further ones that an atlas has."""
    noise = np.random.default_rng(len(scan)).normal(size=(len(scan), n_rois - scan.shape[1]))
    return np.hstack([scan, noise]).astype(np.float32)


def write_pcp(people, folder):
    codes = load_bundled_atlas("aal116").rois["code"].astype(str)
    for i, scan in enumerate(people.scans):
        frame = pd.DataFrame(widen(scan, 116), columns=[f"#{code}" for code in codes])
        frame.to_csv(folder / f"Site_{i:07d}_rois_aal.1D", sep="\t", index=False)
    table = pd.DataFrame({"FILE_ID": [f"Site_{i:07d}" for i in range(len(people.scans))]})
    table["SITE_ID"], table["DX_GROUP"] = people.table["site"], 2 - people.table["label"]
    table.to_csv(folder / "Phenotypic.csv", index=False)
    return ["--atlas", "aal"]


def write_dpabi(people, folder):
    sites = {site: k for k, site in enumerate(sorted(people.table["site"].unique()), 1)}
    for i, (scan, row) in enumerate(zip(people.scans, people.table.to_dict("records"), strict=True)):
        name = f"ROISignals_S{sites[row['site']]}-{2 - row['label']}-{i:04d}.mat"
        savemat(folder / name, {"ROISignals": widen(scan, 1833)})
    return ["--atlas", "aal116"]


def write_packed(people, folder):
    wide = [widen(scan, 116) for scan in people.scans]
    scales = [np.abs(scan).max(axis=0) / 127 for scan in wide]
    packed = [np.round(scan / scale).astype(np.int8) for scan, scale in zip(wide, scales, strict=True)]
    people.scans[:] = [frames * scale for frames, scale in zip(packed, scales, strict=True)]
    ids = people.table["participant_id"].to_numpy(dtype=str)
    np.savez(
        folder / "aal116.npz",
        frames=np.concatenate(packed),
        scale=np.array(scales, dtype=np.float32),
        n_frames=np.array([len(scan) for scan in packed]),
        participant_id=ids,
    )
    table = people.table.rename(columns={"label": "diagnosis"}).assign(n_frames=[len(scan) for scan in packed])
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    return ["--atlas", "aal116"]


READERS = {
    "table": ("table", write_table),
    "npy": ("table", write_npy),
    "bids": ("bids", write_bids),
    "pcp": ("pcp", write_pcp),
    "dpabi": ("dpabi", write_dpabi),
    "packed": ("packed", write_packed),
}


@pytest.mark.parametrize("reader", ["table", *(pytest.param(name, marks=soak) for name in READERS if name != "table")])
@pytest.mark.parametrize("name", ["numbered", *(pytest.param(n, marks=soak) for n in ("named", "unequal scans"))])
def test_an_imported_cohort_is_what_was_written(name, reader, tmp_path):
    people, (kind, write) = BUILDERS[name](), READERS[reader]
    options = write(people, tmp_path)
    out = new_folder()
    said = succeed("import", kind, tmp_path, *options, "--out", out)
    cohort = Cohort.load(out)
    n = people.scans[0].shape[1]
    order = {tuple(np.round(scan[:3, 0], 4)): i for i, scan in enumerate(people.scans)}
    match = [order[tuple(np.round(cohort.scan(i)[:3, 0], 4))] for i in range(len(cohort))]
    assert sorted(match) == list(range(len(people.scans))), "each scan is there once"
    for i, k in enumerate(match):
        np.testing.assert_allclose(cohort.scan(i)[:, :n], people.scans[k], rtol=1e-4, atol=1e-5)
    expected = people.table.iloc[match]
    assert cohort.labels.tolist() == expected["label"].tolist()
    assert pd.crosstab(cohort.sites, expected["site"].to_numpy()).gt(0).sum(axis=1).eq(1).all(), "sites stay apart"
    if kind == "table":
        assert cohort.ids.tolist() == expected["participant_id"].tolist()
        assert cohort.sites.tolist() == expected["site"].tolist()
    assert f"{len(people.scans)} scans" in said
    assert f"{people.table['site'].nunique()} sites" in said


@pytest.mark.parametrize("name", ["5 sites", *(pytest.param(n, marks=soak) for n in ("3 sites", "numbered", "named"))])
def test_connectomes_alone_give_the_answers_of_their_scans(name, tmp_path):
    people = BUILDERS[name]()
    size = people.scans[0].shape[1]
    for i, z in enumerate(fisher_z(people)):
        matrix = np.zeros((size, size))
        matrix[np.triu_indices(size, 1)] = np.tanh(z)
        np.save(tmp_path / f"scan-{i}.npy", matrix + matrix.T + np.eye(size))
    table = people.table.assign(file=[f"scan-{i}.npy" for i in range(len(people.scans))])
    table.to_csv(tmp_path / "participants.tsv", sep="\t", index=False)
    cohort, job = new_folder(), new_folder()
    succeed("import", "fc", tmp_path, "--out", cohort)
    words = ("--method", "ridge", "--method", "logistic", "--keep-all", "--quiet", "--device", "cpu")
    assert f"{len(people.scans)} scans, no exclusions applied" in succeed("run", cohort, *words, "--out", job)
    same_predictions(run_job(name, "ridge", "logistic"), job, 1e-4)


@pytest.mark.parametrize("sites", [3, pytest.param(20, marks=soak)])
def test_simulate_writes_what_it_says(sites):
    out = new_folder()
    said = succeed("simulate", "--sites", sites, "--per-class", 3, "--rois", 8, "--frames", 40, "--out", out)
    cohort = Cohort.load(out)
    assert len(np.unique(cohort.sites)) == sites
    assert f"{len(cohort)} scans at {sites} sites" in said
    assert cohort.n_rois == 8
    assert cohort.provenance["truth"]["stable"] == [0, 1]


def test_lists_name_every_method_with_its_settings():
    listed, settings = succeed("methods"), json.loads(succeed("settings", "--json"))
    with_settings = {name for row in settings for name in row.get("methods", [])}
    for entry in list_methods():
        assert f"  {entry.name} " in listed
        assert entry.name in with_settings or entry.fixed, "variants have the settings of their method"
    studies = succeed("studies")
    assert all(f"  {name} " in studies for name in ("comparison", "permutation", "retest"))


STUDY = ("--method", "ridge", "--seeds", "3", "--quiet", "--device", "cpu", "--keep-all")


def read_study(name: str, cohort: str, *words: object) -> tuple[pd.DataFrame, str, Path]:
    """Make a study; return its table, its text and its folder."""
    out = new_folder()
    succeed("study", name, build(cohort), *STUDY, *words, "--out", out)
    folder = out / "studies" / name
    return read(next(folder.glob("*.csv"))), next(folder.glob("*.md")).read_text(), out


@soak
def test_a_comparison_finds_the_planted_difference():
    table, text, out = read_study("comparison", "9 sites", "--method", "covariates-only")
    auc = table.groupby(["arm", "fold"])["auc"].mean().groupby("arm").mean()
    assert f"highest mean AUC: {100 * auc.max():.1f} %" in text
    assert auc.idxmax() == "ridge"
    assert "covariates-only" in text
    succeed("report", out)
    assert f"{100 * auc.max():.1f}" in (out / "report.html").read_text()


@soak
def test_the_permutation_test_tells_truth_from_chance():
    for cohort, lowest in (("9 sites", 0.0), ("chance", 0.02)):
        _, text, _ = read_study("permutation", cohort, "--seeds", "1")
        p = [line.split("(p ")[1] for line in text.splitlines() if "(p " in line]
        values = [numbers(line)[0] for line in p]
        assert len(values) == 2
        assert all(value <= 0.001 for value in values) if lowest == 0 else all(value > lowest for value in values)


@soak
def test_a_learning_curve_has_each_point_once_and_no_area_beyond_all_pairs():
    _, text, _ = read_study("learning-curve", "9 sites")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ridge")]
    points = [(row[1], row[3] if "participants" in row[1] else row[2]) for row in rows]
    assert len(points) == len(set(points)) >= 5
    for row in rows:
        low, high = (float(word) for word in row[5].split(" to "))
        assert 0 <= low <= float(row[4]) <= high <= 100


@soak
def test_calibration_says_where_a_slope_cannot_be_estimated():
    table, text, _ = read_study("calibration", "9 sites")
    known = table.groupby("fold")["slope"].mean().notna().sum()
    assert known < 9
    assert f"mean over {known} site{'s' if known > 1 else ''} " in text
    assert f"It cannot be estimated at {9 - known} of 9 sites" in text


@soak
def test_retest_counts_participants_and_scans():
    _, text, _ = read_study("retest", "two sessions")
    assert f"{46} participants with {92} scans" in text


@soak
def test_subgroups_count_the_participants_of_the_table():
    table, _, _ = read_study("subgroups", "confounded")
    people = BUILDERS["confounded"]().table
    sex = table[table["variable"] == "sex"].set_index("subgroup")
    for word, letter in (("female", "F"), ("male", "M")):
        own = people[people["sex"] == letter]
        assert sex.loc[word, "patients"].max() == own["label"].sum()
        assert sex.loc[word, "controls"].max() == (1 - own["label"]).sum()


@pytest.mark.parametrize("method", [pytest.param("gcn", marks=soak), pytest.param("svm", marks=soak)])
def test_tuning_chooses_the_best_validation_score_of_each_fold(method):
    out = new_folder()
    words = ["--method", method, "--budget", "3", "--seeds", "1", "--oracle", "--quiet", "--device", "cpu"]
    words += ["--set", "epochs=2"] if method == "gcn" else []
    said = succeed("tune", build("5 sites"), *words, "--out", out)
    if method == "svm":
        assert "'svm' has nothing to tune and is run with the settings it has" in said
        same_predictions(run_job("5 sites", "svm"), out, 1e-12)
        return
    tried = read(out / "configurations.csv")
    chosen = read(out / "results.csv").set_index("fold")["validation_auc"]
    best = tried.groupby("fold")["validation_auc"].max()
    assert len(tried) == 3 * 5
    close(chosen.loc[best.index], best)


@soak
def test_the_python_api_gives_the_answers_of_the_command_line():
    out = new_folder()
    succeed("run", build("5 sites"), "--method", "ridge", "--keep-all", "--quiet", "--device", "cpu", "--out", out)
    result = brio.run(build("5 sites"), "ridge", exclude=False, device="cpu")
    same_predictions(out, result.folder, 1e-12)
    auc = result.predictions.groupby("fold").apply(lambda f: roc_auc_score(f["label"], f["logit"]))
    close(result.table().loc["ridge", "AUC"], 100 * auc.mean())


@soak
@pytest.mark.parametrize("name", ["4 sites", "named"])
def test_dask_gives_the_answers_of_this_process(name):
    out = new_folder()
    words = ("--method", "ridge", "--method", "gcn", "--set", "epochs=2", "--keep-all", "--quiet", "--device", "cpu")
    succeed("run", build(name), *words, "--engine", "dask", "--workers", "2", "--out", out)
    same_predictions(run_job(name, "ridge", "gcn"), out)


@soak
def test_a_job_in_another_order_prints_the_same_table_and_comparison():
    said = [run_job("9 sites", "ridge", "svm", "log-ridge", seeds=3, change=change) for change in (None, shuffle)]
    for name in ("table", "compare"):
        first, second = (succeed(name, folder) for folder in said)
        assert first == second


@soak
def test_the_demonstration_finds_what_is_planted(tmp_path):
    said = succeed("demo", "--out", tmp_path / "demo", "--quiet")
    predictions = read(tmp_path / "demo" / "results" / "predictions.csv")
    for method, own in predictions.groupby("method"):
        auc = np.mean([roc_auc_score(f["label"], f["logit"]) for _, f in own.groupby(["fold", "seed"])])
        assert f"{100 * auc:.1f}" in said, method
