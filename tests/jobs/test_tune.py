"""Tuning: equal budgets, choices by validation scans alone, carried to another cohort, resumable."""

import json

import numpy as np
import pandas as pd
import pytest

from brio import run, tune
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.jobs import run as runs
from brio.methods.gnn import GCN
from brio.report.comparisons import markdown_table
from brio.results import Summary
from brio.settings import choice, log_uniform, uniform
from commands import refuse
from made_cohorts import rebuild

SMALL = {"epochs": 3, "patience": "none", "cell_batch": 2}


def read_records(folder):
    return [json.loads(path.read_text()) for path in (folder / "runs").glob("*/run.json")]


def read_choices(folder):
    return json.loads((folder / "tuning.json").read_text())["choices"]["gcn"]


@pytest.fixture(scope="module")
def cohort():
    return simulate(Simulation(n_sites=5, per_class=5, n_rois=12, frames=60))


@pytest.fixture(scope="module")
def tuned(cohort, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune") / "out"
    tune(cohort, ["gcn", "ridge"], out=folder, budget=3, seeds=2, settings=SMALL, device="cpu", oracle=True)
    return folder


def test_every_configuration_is_tried_on_every_fold_and_the_best_on_validation_scans_is_chosen(tuned, cohort):
    table = pd.read_csv(tuned / "configurations.csv")
    gcn = table[table["method"] == "gcn"]
    assert len(gcn) == 3 * 5
    chosen = read_choices(tuned)
    assert set(chosen) == set(cohort.sites)
    for fold, rows in gcn.groupby("fold"):
        best = rows.loc[rows["validation_auc"] == rows["validation_auc"].max()].iloc[0]
        assert chosen[fold] == json.loads(best["values"])
        assert rows["chosen"].sum() == 1
    assert len({json.dumps(c, sort_keys=True) for c in chosen.values()}) > 1


def test_all_seeds_are_run_with_the_settings_of_their_fold(tuned):
    rows = pd.read_csv(tuned / "results.csv")
    assert (rows.groupby(["method", "fold"]).size() == 2).all()
    chosen, records = read_choices(tuned), [r for r in read_records(tuned) if r["row"]["method"] == "gcn"]
    assert len(records) == 10
    assert all(chosen[r["row"]["fold"]].items() <= r["settings"].items() for r in records)
    summary = json.loads((tuned / "summary.json").read_text())
    assert summary["methods"]["gcn"]["tuning"] == {"budget": 3, "cohort": "simulated", "atlas": "simulated"}


def test_the_run_of_the_search_is_the_run_of_the_result(tuned):
    table = pd.read_csv(tuned / "configurations.csv")
    rows = pd.read_csv(tuned / "results.csv")
    first = rows[(rows["method"] == "gcn") & (rows["seed"] == 0)].set_index("fold")["validation_auc"]
    best = table[(table["method"] == "gcn") & table["chosen"]].set_index("fold")["validation_auc"]
    pd.testing.assert_series_equal(first.sort_index(), best.sort_index())


def test_scores_of_test_scans_are_written_behind_a_flag_only(tuned, cohort, tmp_path):
    told = json.loads((tuned / "tuning.json").read_text())
    table = pd.read_csv(tuned / "configurations.csv")
    best = table.groupby(["method", "fold"])["test_auc"].max().groupby("method").mean()
    assert told["oracle"] == pytest.approx(best.to_dict())
    tune(cohort, "ridge", out=tmp_path / "plain", budget=2, seeds=1, device="cpu", records_only=True)
    assert len(list((tmp_path / "plain" / "runs").rglob("run.json"))) == 5
    assert not list((tmp_path / "plain").rglob("*.safetensors")), "records alone hold no weights"
    assert "test_auc" not in pd.read_csv(tmp_path / "plain" / "configurations.csv")
    assert "oracle" not in json.loads((tmp_path / "plain" / "tuning.json").read_text())


def test_labels_of_a_test_site_choose_nothing(cohort, tuned, tmp_path):
    table = cohort.participants.copy()
    here = table["site"] == "site03"
    table.loc[here, "label"] = 1 - table.loc[here, "label"]
    other = rebuild(cohort, table=table)
    tune(other, "gcn", out=tmp_path / "o", budget=3, seeds=1, settings=SMALL, device="cpu", folds=["site03"])
    assert read_choices(tuned)["site03"] == read_choices(tmp_path / "o")["site03"]
    a, b = (pd.read_csv(f / "configurations.csv") for f in (tuned, tmp_path / "o"))
    a = a[(a["method"] == "gcn") & (a["fold"] == "site03")]
    np.testing.assert_array_equal(a["validation_auc"], b["validation_auc"])


def test_choices_are_carried_to_another_cohort_fold_by_fold(tuned, tmp_path):
    other = simulate(Simulation(n_sites=5, per_class=5, n_rois=16, frames=60))
    said, words = [], {"settings": SMALL, "device": "cpu"}
    result = run(other, ["gcn", "ridge"], tuned=tuned, out=tmp_path / "o", say=said.append, **words)
    assert said[0].startswith("warning: the settings were tuned on")
    chosen = read_choices(tuned)
    for record in read_records(tmp_path / "o"):
        if record["row"]["method"] == "gcn":
            assert record["settings"]["learning_rate"] == chosen[record["row"]["fold"]]["learning_rate"]
    assert result.summary.methods["gcn"].tuning.budget == 3
    more = simulate(Simulation(n_sites=6, per_class=5, n_rois=12, frames=60))
    with pytest.raises(BrioError, match=r"not tuned for fold site06"):
        run(more, ["gcn"], tuned=tuned, out=tmp_path / "p", settings=SMALL, device="cpu")


def test_a_finished_search_is_not_computed_again(tuned, cohort):
    before = {p: p.stat().st_mtime_ns for p in tuned.rglob("run.json")}
    tune(cohort, ["gcn", "ridge"], out=tuned, budget=3, seeds=2, settings=SMALL, device="cpu", oracle=True)
    assert {p: p.stat().st_mtime_ns for p in tuned.rglob("run.json")} == before


def test_settings_given_by_hand_are_not_tuned(cohort, tmp_path):
    given = {**SMALL, "learning_rate": "0.002"}
    tune(cohort, "gcn", out=tmp_path / "o", budget=2, seeds=1, settings=given, device="cpu", folds=["site01"])
    table = pd.read_csv(tmp_path / "o" / "configurations.csv")
    assert all("learning_rate" not in json.loads(v) for v in table["values"])
    (record,) = read_records(tmp_path / "o")
    assert record["settings"]["learning_rate"] == 0.002


def test_spaces_hold_what_they_say():
    assert [choice(1, 2, 3).at(u) for u in (0.0, 0.4, 0.999)] == [1, 2, 3]
    assert [log_uniform(0.01, 100).at(u) for u in (0.0, 0.5)] == [0.01, 1.0]
    assert uniform(2, 4).at(0.25) == 2.5
    assert str(log_uniform(0.1, 10)) == "0.1 to 10 (log)"


def test_harmonised_runs_are_named_and_differ(cohort, tmp_path):
    combat = {"harmonise.kind": "combat"}
    plain, flat, seen = (
        run(cohort, ["ridge"], out=tmp_path / str(len(own)), device="cpu", folds="site01", settings=own)
        for own in ({}, combat, combat | {"harmonise.unseen": "unlabelled"})
    )
    assert plain.summary.harmonise is None
    assert flat.summary.harmonise == "ComBat, unseen sites: identity"
    assert [r.summary.methods["ridge"].transductive for r in (plain, flat, seen)] == [False, False, True]
    margins = [r.predictions["margin"].to_numpy() for r in (plain, flat, seen)]
    assert not np.allclose(margins[0], margins[1])
    assert not np.allclose(margins[1], margins[2])


def test_under_k_fold_no_test_scan_may_have_chosen(cohort, tuned, tmp_path):
    words = {"settings": SMALL, "device": "cpu", "protocol": "kfold"}
    refuse(
        "settings would be chosen on test scans", tune, cohort, "gcn", out=tmp_path / "a", budget=2, seeds=2, **words
    )
    assert not (tmp_path / "a").exists()
    few = {**SMALL, "protocol.n_folds": "4"}
    tune(cohort, "gcn", out=tmp_path / "b", budget=2, seeds=1, **{**words, "settings": few})
    for other in ({"seeds": 2, "settings": few}, {"settings": {**SMALL, "protocol.n_folds": "5"}}):
        refuse("may have been", run, cohort, "gcn", tuned=tmp_path / "b", out=tmp_path / "c", **{**words, **other})
    refuse(
        "were tuned with .*loso'?, but this job has",
        run,
        cohort,
        "gcn",
        tuned=tuned,
        out=tmp_path / "c",
        **words,
    )
    assert not (tmp_path / "c").exists()


def test_what_was_given_by_hand_is_carried_and_who_was_not_tuned_is_said(cohort, tuned, tmp_path):
    said = []
    words = {"device": "cpu", "folds": ["site01"], "say": said.append}
    run(cohort, ["gcn", "ridge", "svm"], tuned=tuned, out=tmp_path / "o", **words)
    epochs = {r["row"]["method"]: r["settings"].get("epochs") for r in read_records(tmp_path / "o")}
    assert epochs["gcn"] == 3
    assert any("were not tuned" in line and line.endswith("svm") for line in said)
    refuse("no tuned settings for gat, only for", run, cohort, ["gat"], tuned=tuned, out=tmp_path / "p", device="cpu")


def test_a_configuration_that_diverges_is_not_chosen_and_ends_nothing(cohort, tmp_path, monkeypatch):
    plain = GCN.loss

    def loss(self, out, batch):
        found = plain(self, out, batch)
        return found if self.settings.learning_rate == 1e-3 else found * float("nan")

    monkeypatch.setattr(GCN, "loss", loss)
    words = {"budget": 4, "seeds": 1, "settings": SMALL, "device": "cpu", "folds": ["site01", "site02"]}
    tune(cohort, "gcn", out=tmp_path / "o", **words)
    table = pd.read_csv(tmp_path / "o" / "configurations.csv")
    assert 0 < table["validation_auc"].isna().sum() < len(table)
    chosen = read_choices(tmp_path / "o")
    assert {c["learning_rate"] for c in chosen.values()} == {1e-3}
    with pytest.raises(BrioError, match="training diverged"):
        run(cohort, "gcn", out=tmp_path / "p", device="cpu", settings={**SMALL, "learning_rate": "0.01"})


def test_tables_say_what_was_given_to_the_tuning(tuned):
    lines = markdown_table([Summary.read(tuned)]).splitlines()
    rows = {row.split(" | ")[2]: row for row in lines if row.startswith("| ")}  # notes follow the table
    assert (
        "| best of 3 configurations, chosen without test scans; epochs=3, patience=None, cell_batch=2 |" in rows["gcn"]
    )
    assert "| default |" in rows["ridge"], "nothing to tune, none of the settings its own"


def test_a_setting_that_a_variant_fixes_may_be_given_for_the_others(cohort, tmp_path):
    given = {**SMALL, "T_w": "1", "lambda_env": "0.3", "K": "1"}
    words = {"budget": 2, "seeds": 1, "settings": given, "device": "cpu", "folds": ["site01"]}
    result = tune(cohort, ["brio", "backbone"], out=tmp_path / "o", **words)
    assert set(result.summary.methods) == {"brio", "backbone"}
    assert "best of" not in markdown_table([result.summary])  # nothing was left to tune


def test_the_result_has_the_chosen_settings_and_the_facts_of_its_folder(cohort, tmp_path):
    result = tune(cohort, "ridge", out=tmp_path / "o", budget=2, device="cpu")
    stored = type(result).read(tmp_path / "o")
    assert result.tuning.choices == stored.tuning.choices
    assert result.cohort_facts == stored.cohort_facts is not None
    assert result.groups.equals(stored.groups)


def test_a_method_with_nothing_to_tune_is_run_and_named(cohort, tmp_path):
    said = []
    words = {"budget": 2, "folds": ["site01"], "settings": SMALL, "say": said.append}
    result = tune(cohort, ["ridge", "gcn"], out=tmp_path / "o", **words)
    assert said.count("method 'ridge' has no settings to tune and is run with its current settings") == 1
    assert sum("no settings to tune" in line for line in said) == 1
    assert result.summary.methods["ridge"].tuning.budget == 1


def test_harmonisation_is_refused_before_anything_is_written(cohort, tmp_path):
    combat = {"harmonise.kind": "combat"}
    for method, settings, said in (
        ("deci", combat, "cannot be harmonised; leave out the method"),
        ("length-only", combat, "cannot be harmonised; leave out the method"),
        ("ridge", {"harmonise.unseen": "pooled"}, "needs harmonise.kind=combat"),
        ("ridge", combat | {"harmonise.unseen": "raise"}, "unseen=raise"),
        ("gcn", {**SMALL, **combat, "refit": True}, "refit=true trains on validation scans"),
    ):
        refuse(said, run, cohort, method, out=tmp_path / "o", device="cpu", settings=settings)
        assert not (tmp_path / "o").exists()
    nothing_to_refit_on = {**SMALL, **combat, "refit": True, "protocol.validation_sites": 0}
    run(cohort, "gcn", out=tmp_path / "o", device="cpu", settings=nothing_to_refit_on, folds=[cohort.sites[0]])


def test_all_are_those_that_the_cohort_can_feed_and_the_others_are_named(tmp_path, monkeypatch):
    few = [e for e in runs.list_methods() if e.name in ("ridge", "covariates-only", "brio-plus", "brio-wo-qg")]
    monkeypatch.setattr(runs, "list_methods", lambda: few)
    bare = simulate(Simulation(n_sites=5, per_class=5, n_rois=12, frames=60))
    for name in ("age", "sex", "mean_fd"):
        del bare.participants[name]
    said = []
    words = {"seeds": 1, "device": "cpu", "folds": ["site01"], "say": said.append}
    for asked in ("all", ["all"]):
        result = run(bare, asked, out=tmp_path / str(len(asked)), **words)
        assert list(result.summary.methods) == ["ridge", "brio-plus"], "no variant, nothing that lacks a column"
    assert sum(line.startswith("left out: method 'covariates-only'") for line in said) == 2
    assert list(tune(bare, "all", out=tmp_path / "t", budget=2, **words).summary.methods) == ["ridge", "brio-plus"]
    refuse("no column 'sex'", run, bare, ["covariates-only"], out=tmp_path / "n", **words)
