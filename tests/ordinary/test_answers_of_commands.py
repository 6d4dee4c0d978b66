"""Files and studies on ordinary cohorts: what is read is what was written, and what is printed is what was found."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from checks import check_ridge, close, fisher_z, mark_long, new_folder, read, refuse, same_predictions, succeed
from cohorts import BUILDERS, People, build, run_job
from sklearn.metrics import roc_auc_score

from brio import Cohort

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
    number = pd.factorize(people.table["participant_id"])[0]
    people.table["participant_id"] = [f"sub-{i:03d}" for i in number]
    sessions = people.table.get("session", pd.Series([""] * len(number)))
    for subject, session, scan in zip(people.table["participant_id"], sessions, people.scans, strict=True):
        name = f"{subject}_ses-{session}" if session else subject
        path = folder / subject / "func" / f"{name}_task-rest_atlas-Own_timeseries.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(scan, columns=people.atlas.rois["name"]).to_csv(path, sep="\t", index=False)
    table = people.table.drop_duplicates("participant_id").drop(columns="session", errors="ignore")
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    return ["--atlas", "Own"]


def write_fc(people, folder):
    size = people.scans[0].shape[1]
    for i, z in enumerate(fisher_z(people)):
        matrix = np.zeros((size, size))
        matrix[np.triu_indices(size, 1)] = np.tanh(z)
        np.save(folder / f"scan-{i}.npy", matrix + matrix.T + np.eye(size))
    table = people.table.assign(file=[f"scan-{i}.npy" for i in range(len(people.scans))])
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    return []


READERS = {"table": write_table, "npy": write_npy, "bids": write_bids, "fc": write_fc}
KINDS = {"npy": "table"}
"""Layouts of other names than their readers."""


@pytest.mark.parametrize("reader", mark_long(["table", "npy", "bids"], ["table"]))
@pytest.mark.parametrize("name", mark_long(["numbered", "named", "unequal scans"], ["numbered"]))
def test_an_imported_cohort_is_what_was_written(name, reader, tmp_path):
    people, kind, out = BUILDERS[name](), KINDS.get(reader, reader), new_folder()
    options = READERS[reader](people, tmp_path)
    said = succeed("import", kind, tmp_path, *options, "--out", out)
    cohort = Cohort.load(out)
    order = {tuple(np.round(scan[:3, 0], 4)): i for i, scan in enumerate(people.scans)}
    match = [order[tuple(np.round(cohort.scan(i)[:3, 0], 4))] for i in range(len(cohort))]
    assert sorted(match) == list(range(len(people.scans))), "each scan is there once"
    for i, k in enumerate(match):
        np.testing.assert_allclose(cohort.scan(i), people.scans[k], rtol=1e-4, atol=1e-5)
    expected = people.table.iloc[match]
    assert cohort.labels.tolist() == expected["label"].tolist()
    assert pd.crosstab(cohort.sites, expected["site"].to_numpy()).gt(0).sum(axis=1).eq(1).all(), "sites stay apart"
    if kind == "table":
        assert cohort.ids.tolist() == expected["participant_id"].tolist()
        assert cohort.sites.tolist() == expected["site"].tolist()
    assert f"{len(people.scans)} scans" in said
    assert f"{people.table['site'].nunique()} sites" in said


RUN_RIDGE = ("--method", "ridge", "--keep-all", "--quiet", "--device", "cpu")
SESSIONS = [
    (reader, sessions)
    for reader in READERS
    for sessions in ("first", "join", "average", "all")
    if reader != "fc" or sessions in ("first", "all")
]


def expect_sessions(people, sessions):
    """The people that remain, and the edges of each of their scans."""
    first = np.flatnonzero(~people.table["participant_id"].duplicated())
    z = fisher_z(people)
    if sessions == "all":
        return people, z
    kept = people.select(first)
    if sessions == "first":
        return kept, z[first]
    owner = people.table["participant_id"].to_numpy()
    groups = [np.flatnonzero(owner == name) for name in kept.table["participant_id"]]
    if sessions == "average":
        return kept, np.array([z[group].mean(axis=0) for group in groups])
    scaled = [(scan - scan.mean(axis=0)) / scan.std(axis=0) for scan in (s.astype(float) for s in people.scans)]
    joined = [np.concatenate([scaled[i] for i in group]) for group in groups]
    return kept, fisher_z(People(joined, kept.table, people.atlas))


@pytest.mark.parametrize(("reader", "sessions"), mark_long(SESSIONS, [("table", "average")]))
def test_each_way_to_read_sessions_gives_its_own_connectomes(reader, sessions, tmp_path):
    people = BUILDERS["two sessions"]()
    second = people.table["participant_id"].duplicated()  # shorter, so that a mean is not a joined scan
    people.scans = [scan[:35] if late else scan for scan, late in zip(people.scans, second, strict=True)]
    options, kind = READERS[reader](people, tmp_path), KINDS.get(reader, reader)
    out, job = new_folder(), new_folder()
    if reader != "bids":  # where the first session is meant, unless one is asked for
        why = refuse("import", kind, tmp_path, *options, "--out", out)
        assert "46 of 46 participants have several scans" in why
        assert "choose what to read with --sessions: first" in why
        assert ("join (" in why) == ("average (" in why) == (reader != "fc")
    said = succeed("import", kind, tmp_path, *options, "--sessions", sessions, "--out", out)
    kept, X = expect_sessions(people, sessions)
    assert f"{len(kept.table)} scans" in said
    frames = [len(scan) for scan in kept.scans]
    if reader != "fc":
        frames = frames if sessions in ("first", "all") else [n + 35 for n in frames]
        assert sorted(Cohort.load(out).n_frames) == sorted(frames)
    succeed("run", out, *RUN_RIDGE, "--out", job)
    check_ridge(job, kept, X)


def test_connectomes_of_sessions_cannot_be_joined(tmp_path):
    write_fc(BUILDERS["two sessions"](), tmp_path)
    out = new_folder()
    assert "connectomes" in refuse("import", "fc", tmp_path, "--sessions", "join", "--out", out)
    assert not out.exists()


def make_patients_older(people):
    """Patients are 20 years older than they were."""
    return replace(people, table=people.table.assign(age=people.table["age"] + 20 * people.table["label"]))


@pytest.mark.parametrize("change", [None, make_patients_older])
def test_the_audit_warns_where_covariates_differ_between_classes(change):
    said = succeed("audit", build("9 sites", change))
    people = BUILDERS["9 sites"]() if change is None else change(BUILDERS["9 sites"]())
    warned = [line.split()[0] for line in said.splitlines() if line.endswith("WARNING: differs between classes")]
    assert warned == (["age"] if change else [])
    auc = roc_auc_score(people.table["label"], people.table["age"])
    assert f"{max(auc, 1 - auc):.3f}" in next(line for line in said.splitlines() if line.split()[:1] == ["age"])


@pytest.mark.parametrize("name", mark_long(["5 sites", "3 sites", "numbered", "named"], ["5 sites"]))
def test_connectomes_alone_give_the_answers_of_their_scans(name, tmp_path):
    people = BUILDERS[name]()
    write_fc(people, tmp_path)
    cohort, job = new_folder(), new_folder()
    succeed("import", "fc", tmp_path, "--out", cohort)
    words = ("--method", "ridge", "--method", "logistic", "--keep-all", "--quiet", "--device", "cpu")
    assert f"{len(people.scans)} scans; no exclusions were applied" in succeed("run", cohort, *words, "--out", job)
    same_predictions(run_job(name, "ridge", "logistic"), job, 1e-4)


@pytest.mark.parametrize("method", mark_long(["gcn", "svm"]))
def test_tuning_chooses_the_best_validation_score_of_each_fold(method):
    out = new_folder()
    words = ["--method", method, "--budget", "3", "--seeds", "1", "--oracle", "--quiet", "--device", "cpu"]
    words += ["--set", "epochs=2"] if method == "gcn" else []
    said = succeed("tune", build("5 sites"), *words, "--out", out)
    if method == "svm":
        assert "'svm' has no settings to tune and is run with its current settings" in said
        same_predictions(run_job("5 sites", "svm"), out, 1e-12)
        return
    tried = read(out / "configurations.csv")
    chosen = read(out / "results.csv").set_index("fold")["validation_auc"]
    best = tried.groupby("fold")["validation_auc"].max()
    assert len(tried) == 3 * 5
    close(chosen.loc[best.index], best)
