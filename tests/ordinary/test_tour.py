"""Every command in the order in which a newcomer meets it: each ends well and gives the right answer."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checks import check_job, close, leave_undrawn, mark_long, read, succeed
from cohorts import STABLE, simulated
from sklearn.metrics import accuracy_score, roc_auc_score

from brio import Cohort
from brio.methods import list_methods

METHODS = ("log-ridge", "covariates-only")


@pytest.mark.parametrize("n_sites", mark_long([3, 4, 5, 9], [3]))
def test_a_tour_of_all_commands_gives_right_answers(n_sites, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = succeed("simulate", "--sites", n_sites, "--rois", 8, "--frames", 50, "--out", "simulated")
    made = Cohort.load("simulated")
    assert f"{len(made)} scans at {n_sites} sites" in said
    assert (made.n_rois, len(np.unique(made.sites)), made.provenance["truth"]["stable"]) == (8, n_sites, [0, 1])
    assert f" at {n_sites} sites: " in succeed("audit", "simulated")
    everybody = simulated(n_sites=n_sites + 1, per_class=8, stable=1.0, unstable=0.0, spurious=0.0)
    is_new = (everybody.table["site"] == f"site{n_sites + 1:02d}").to_numpy()
    people, new = everybody.select(np.flatnonzero(~is_new)), everybody.select(np.flatnonzero(is_new))
    n, label = len(people.scans), new.table.set_index("participant_id")["label"]

    said = succeed("import", "table", people.write(Path("study")), "--out", "cohort")
    assert f"{n} scans" in said
    said = succeed("audit", "cohort")
    counts = [f"{(people.table['label'] == k).sum()} with label {k}" for k in (0, 1)]
    assert f"{n} scans at {n_sites} sites: {', '.join(counts)}" in said
    assert "WARNING" not in said

    words = [word for method in METHODS for word in ("--method", method)]
    said = succeed("run", "cohort", *words, "--seeds", 3, "--device", "cpu", "--quiet", "--out", "results")
    check_job(Path("results"), people, n_methods=2, n_seeds=3)
    auc = 100 * read(Path("results/results.csv")).groupby(["method", "fold"])["auc"].mean().groupby("method").mean()
    assert auc["log-ridge"] > 80 > auc["covariates-only"]
    table = succeed("table", "results")
    for method in METHODS:
        assert f"| {auc[method]:.1f} ±" in next(line for line in table.splitlines() if f"| {method} |" in line)
        assert f"{auc[method]:.1f}" in next(line for line in said.splitlines() if method in line.split())
    assert all(f"{auc[method]:.1f}" in succeed("compare", "results") for method in METHODS)
    assert re.search(r"done|finished", succeed("status", "results"))
    succeed("report", "results")
    best = auc.idxmax()
    assert f"{auc[best]:.1f}" in Path("results/report.html").read_text()

    said = succeed("fit", "cohort", "--evidence", "results", "--device", "cpu", "--quiet", "--out", "model")
    assert f"AUC, mean over sites, {auc['log-ridge']:.1f}%" in said
    succeed("predict", "model", new.write(Path("scans"), labelled=False), "--tr", 2, "--out", "unlabelled")
    said = succeed("predict", "model", new.write(Path("there")), "--out", "labelled")
    tables = [read(Path(name) / "predictions.csv").set_index("participant_id") for name in ("unlabelled", "labelled")]
    close(tables[0]["probability"], tables[1]["probability"].loc[tables[0].index], 1e-9)
    probability = tables[1]["probability"].loc[label.index]
    found, accuracy = 100 * roc_auc_score(label, probability), 100 * accuracy_score(label, probability > 0.5)
    assert found > 80
    assert re.search(rf"AUC, % +{found:.1f}" + (r"\b" if found == 100 else r" \("), said)
    assert re.search(rf"accuracy, % +{accuracy:.1f} \(", said)

    with leave_undrawn():
        succeed("explain", "model", "--cohort", "cohort", "--sites", "--quiet", "--device", "cpu", "--out", "why")
    assert sorted(read(Path("why/rois.csv")).sort_values("rank")["roi"][:3]) == STABLE
    assert read(Path("why/new_sites.csv"))["same_sign_new_sites"].iloc[0] > 0.9
    said = succeed("adapt", "model", "there", "--device", "cpu", "--out", "adapted")
    adaptation = json.loads(Path("adapted/model.json").read_text())["adaptation"]
    assert f"Slope {adaptation['slope']:.2f}" in said
    assert not re.search(r"-0\.0+\b", said), "nothing is less than nothing"
    used = label.loc[tables[1].index[tables[1]["flag"] != "foreign"]]  # others look like another atlas, or noise
    assert (adaptation["n_patients"], adaptation["n_controls"]) == (used.sum(), (1 - used).sum())
    succeed("predict", "adapted", "there", "--out", "here")
    here = read(Path("here/predictions.csv")).set_index("participant_id")["probability"]
    close(roc_auc_score(label.loc[here.index], here), found / 100)

    listed, settings, studies = succeed("methods"), json.loads(succeed("settings", "--json")), succeed("studies")
    with_settings = {name for row in settings for name in row.get("methods", [])}
    for entry in list_methods():
        assert f"  {entry.name} " in listed
        assert entry.name in with_settings or entry.fixed, "variants have the settings of their method"
    assert all(f"  {name} " in studies for name in ("comparison", "permutation", "retest"))
    assert "choose_by" in succeed("settings", "log-ridge")
    Path("study.toml").write_text(succeed("config", "results"))
    succeed("run", "cohort", "--config", "study.toml", "--device", "cpu", "--quiet", "--out", "again")
    pd.testing.assert_frame_equal(read(Path("again/predictions.csv")), read(Path("results/predictions.csv")))
