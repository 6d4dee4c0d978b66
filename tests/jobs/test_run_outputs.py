"""What ``brio run`` leaves: tables that agree with each other, with the cohort and with scikit-learn."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from brio import Cohort
from brio.results import COLUMNS
from doctored import change_json

SITES = [f"site{e:02d}" for e in range(1, 6)]
TEXT = {"fold": str, "participant_id": str, "note": str}


def strict(text: str):
    """JSON as other programs read it: NaN is no number."""
    return json.loads(text, parse_constant=pytest.fail)


BOTH = ["--method", "brio", "--method", "ridge"]


def run_job(brio, cohort, out, *words) -> SimpleNamespace:
    """Run a job; returns its files and what the command said."""
    return SimpleNamespace(
        said=brio("run", cohort, "--out", out, *words).succeed(),
        folder=out,
        rows=pd.read_csv(out / "results.csv", dtype=TEXT),
        predictions=pd.read_csv(out / "predictions.csv", dtype=TEXT),
        summary=strict((out / "summary.json").read_text()),
        plan=strict((out / "plan.json").read_text()),
    )


@pytest.fixture(scope="module")
def job(brio, folder, tiny, tmp_path_factory):
    found = run_job(brio, folder, tmp_path_factory.mktemp("runs") / "job", *BOTH, "--seeds", 2, *tiny)
    found.cohort = Cohort.load(folder)
    return found


# ---------------------------------------------------------------- tables


def test_files(job):
    names = {"audit.json", "exclusions.tsv", "facts.json", "plan.json", "runs", ".lock", "SHA256SUMS"}
    names |= {"predictions.csv", "results.csv", "summary.json", "sites.csv", "covariances.csv"}
    assert {p.name for p in job.folder.iterdir()} == names
    assert job.said.err == "", "--quiet"
    runs = list((job.folder / "runs").iterdir())
    assert len(runs) == 2 * 2 * 5
    for path in runs:
        assert sorted(p.name for p in path.iterdir()) == ["SHA256SUMS", "run.json", "weights.safetensors"]
        strict((path / "run.json").read_text())
    strict((job.folder / "audit.json").read_text())


def test_one_row_for_each_run_in_the_order_of_the_plan(job):
    assert job.rows.columns.tolist() == COLUMNS
    order = [(m, s, f) for m in ("brio", "ridge") for s in (0, 1) for f in SITES]
    assert list(zip(job.rows["method"], job.rows["seed"], job.rows["fold"], strict=True)) == order
    assert (job.rows["cohort"] == "small").all()
    assert (job.rows["protocol"] == "loso").all()
    assert (job.rows["device"] == "cpu").all()
    assert (job.rows["seconds"] >= 0).all()
    assert job.rows["note"].isna().all()


def test_validation_sites_follow_the_seed_and_not_the_method(job):
    assert (job.rows["test_sites"] == job.rows["fold"]).all()
    assert (job.rows["validation_sites"].str.split(";").str.len() == 2).all()
    rings = job.rows[job.rows["method"] == "ridge"].groupby("seed")["validation_sites"].agg(tuple)
    assert rings[0] != rings[1]
    both = job.rows.pivot(index=["seed", "fold"], columns="method", values="validation_sites")
    assert (both["brio"] == both["ridge"]).all()


def test_epochs_and_block_lengths(job):
    brio, ridge = (job.rows[job.rows["method"] == m] for m in ("brio", "ridge"))
    assert brio["selected_epoch"].between(3, 4).all()  # never during warm-up
    assert (brio["trained_epochs"] == 4).all()
    assert brio["block_length"].between(2, 30).all()
    assert ridge[["selected_epoch", "trained_epochs", "steps", "block_length"]].isna().all(axis=None)
    n_sites, cell_batch = 2, job.plan["methods"]["brio"]["settings"]["cell_batch"]  # of five, two validate
    per_epoch = np.maximum(1, brio["n_source"] // (2 * n_sites * cell_batch))
    assert (brio["steps"] == 4 * per_epoch).all()
    trained, fitted = (job.summary["methods"][name] for name in ("brio", "ridge"))
    assert (trained["trained_epochs"], trained["steps"]) == (4, brio["steps"].mean())
    assert (fitted["trained_epochs"], fitted["steps"]) == (None, None)
    assert job.rows["validation_auc"].between(0, 1).all()


def test_predictions_follow_the_order_of_the_cohort(job):
    columns = ["method", "fold", "seed", "participant_id", "site", "label", "margin", "logit", "probability"]
    assert job.predictions.columns.tolist() == columns
    people = job.cohort.participants.query("participant_id != 'twin'")
    for (_, _, fold), part in job.predictions.groupby(["method", "seed", "fold"]):
        assert part["participant_id"].tolist() == people.loc[people["site"] == fold, "participant_id"].tolist()


def test_probabilities_are_those_of_the_logits_after_the_calibration_of_the_run(job):
    records = [strict(path.read_text()) for path in (job.folder / "runs").glob("*/run.json")]
    details = {tuple(record["row"][k] for k in ("method", "fold", "seed")): record["details"] for record in records}
    for key, part in job.predictions.groupby(["method", "fold", "seed"]):
        slope, intercept = details[key]["calibration"] if key[0] == "ridge" else (1.0, 0.0)
        assert ("calibration" in details[key]) == (key[0] == "ridge")
        np.testing.assert_allclose(part["logit"], slope * part["margin"] + intercept, rtol=1e-12)
        np.testing.assert_allclose(part["probability"], expit(part["logit"]), rtol=1e-12)


def test_summary_counts_runs_folds_and_seeds(job):
    """Its means, spreads and intervals are recomputed in tests/ordinary, as are scores and counts of the rows."""
    for name, found in job.summary["methods"].items():
        mine = job.rows[job.rows["method"] == name]
        assert (found["runs"], found["folds"], found["seeds"]) == (10, 5, 2)
        assert found["validation_auc"] == pytest.approx(mine["validation_auc"].mean())
        assert found["without_auc"] == {}
    assert [job.summary["methods"][name]["epochs"] for name in ("brio", "ridge")] == [4, None]
    assert (job.summary["folds"], job.summary["seeds"]) == (SITES, [0, 1])


def test_summary_of_the_seeds_together(job):
    for name, found in job.summary["methods"].items():
        mine = job.predictions[job.predictions["method"] == name]
        aucs = []
        for _, part in mine.groupby("fold"):
            wide = part.pivot(index="participant_id", columns="seed", values="margin")
            y = part[part["seed"] == 0].set_index("participant_id")["label"]
            aucs.append(roc_auc_score(y, wide.mean(axis=1)[y.index]))
        assert found["auc_of_averaged_logits"]["mean"] == pytest.approx(np.mean(aucs))
        assert found["auc_of_averaged_logits"]["sd"] == pytest.approx(np.std(aucs, ddof=1))


# ---------------------------------------------------------------- exclusions, smoke runs


def test_exclusions_are_written_and_said(job):
    reason = "the same scan as sim0003, which is kept"
    assert (job.folder / "exclusions.tsv").read_text() == f"participant_id\treasons\ntwin\t{reason}\n"
    assert f"{len(job.cohort) - 1} of {len(job.cohort)} scans are used; the audit excludes:" in job.said.out
    assert f"  twin: {reason}" in job.said.out
    assert job.plan["excluded"] == {"twin": [{"code": "duplicate", "copies": ["sim0003"], "stays": True}]}
    assert job.plan["fingerprint_before_exclusions"] == job.cohort.fingerprint
    assert job.plan["fingerprint"] != job.cohort.fingerprint
    assert job.summary["n_excluded"] == 1


def test_a_job_with_other_reasons_for_its_exclusions_goes_on_and_shows_them(brio, folder, tiny, job, tmp_path):
    """Why a scan is excluded is no part of what a job is."""
    out = shutil.copytree(job.folder, tmp_path / "job")
    shutil.rmtree(next((out / "runs").iterdir()))
    change_json(out / "plan.json", lambda plan: plan["excluded"].update(twin=[{"code": "empty", "atlas": "another"}]))
    said = brio("run", folder, "--out", out, "--method", "brio", "--method", "ridge", "--seeds", 2, *tiny).succeed()
    assert "resuming: 19 of 20 runs are finished" in said.out
    assert brio("report", out).status == 0
    assert "no finite value in another" in (out / "report.html").read_text(encoding="utf-8")
    assert job.summary["n_scans"] == len(job.cohort) - 1


def test_all_scans_are_kept_on_request_and_progress_goes_to_standard_error(brio, folder, tmp_path):
    found, n = run_job(brio, folder, tmp_path / "all", "--method", "ridge", "--keep-all"), len(Cohort.load(folder))
    reported = [line for line in found.said.err.splitlines() if "%  ridge, " in line]
    assert reported[-1] == "100%  ridge, folds site01 to site05, stack 1 of 1: done"
    assert "%  ridge" not in found.said.out
    assert f"{n} scans; no exclusions were applied" in found.said.out
    assert "twin" in set(found.predictions["participant_id"])
    assert found.summary["n_scans"] == len(found.predictions) == n
    assert not (tmp_path / "all" / "exclusions.tsv").exists()


@pytest.mark.parametrize(
    ("words", "smoke"),
    [
        (["--seeds", 3], False),
        (["--seeds", 3, "--fold", "site02"], True),
        (["--seeds", 1, "--set", "protocol.validation_sites=0", "--set", "choose_by=source-sites"], False),  # all alike
    ],
)
def test_smoke_runs_are_marked(brio, folder, tmp_path, words, smoke):
    found = run_job(brio, folder, tmp_path / "r", "--method", "ridge", "--quiet", *words)
    assert found.summary["smoke_run"] is smoke
    assert ("smoke run" in found.said.out) is smoke
    assert ("smoke run" in brio("table", tmp_path / "r").out) is smoke


# ---------------------------------------------------------------- sites with one class


@pytest.fixture(scope="module")
def lopsided(brio, one_class, tiny, tmp_path_factory):
    return run_job(brio, one_class, tmp_path_factory.mktemp("runs") / "lopsided", *BOTH, *tiny)


def test_a_site_with_one_class_has_no_auc(lopsided):
    why = "the test scans hold one class only"
    here = lopsided.rows[lopsided.rows["fold"] == "site03"]
    assert len(here) == 2
    assert here[["auc", "balanced_acc", "specificity"]].isna().all(axis=None)
    assert here[["acc", "sensitivity", "brier"]].notna().all(axis=None)
    assert (here["acc"] == here["sensitivity"]).all()
    assert (here["note"] == why).all()
    assert lopsided.rows.loc[lopsided.rows["fold"] != "site03", "auc"].notna().all()
    lines = (lopsided.folder / "results.csv").read_text().splitlines()
    empty = [line.split(",")[COLUMNS.index("auc")] for line in lines if ",site03,site03," in line]
    assert empty == ["", ""]
    for found in lopsided.summary["methods"].values():
        assert found["without_auc"] == {"site03": why}
        assert found["auc"]["n"] == found["auc_of_averaged_logits"]["n"] == 5
    assert f"no AUC for site03: {why}" in lopsided.said.out


def test_a_site_with_one_class_is_no_source(lopsided):
    others = lopsided.rows[lopsided.rows["fold"] != "site03"]
    assert (others["note"] == "not used as source sites, because they have one class only: site03").all()
    assert not others["validation_sites"].str.contains("site03").any()
    for path in (lopsided.folder / "runs").iterdir():
        record = json.loads((path / "run.json").read_text())
        assert "site03" not in record["source_sites"]
        assert len(record["source_sites"]) == (3 if record["row"]["fold"] == "site03" else 2)


def test_nothing_but_a_site_with_one_class(brio, one_class, tmp_path):
    found = run_job(brio, one_class, tmp_path / "r", "--method", "ridge", "--fold", "site03", "--quiet")
    assert found.summary["methods"]["ridge"]["auc"] == {"mean": None, "sd": None, "interval": None, "n": 0}
    drawn = brio("table", tmp_path / "r", "--figure", tmp_path / "sites.png").succeed()
    assert drawn.err == ""


# ---------------------------------------------------------------- k-fold


@pytest.fixture(scope="module")
def kfold(brio, folder, tmp_path_factory):
    words = ["--protocol", "kfold", "--set", "protocol.n_folds=4", "--set", "protocol.validation_folds=1"]
    out = tmp_path_factory.mktemp("runs") / "kfold"
    return run_job(brio, folder, out, "--method", "ridge", "--seeds", 3, "--quiet", *words)


def test_kfold_numbers_its_folds(kfold):
    assert kfold.rows["fold"].tolist() == list("1234") * 3
    assert "4 test folds, 3 seeds" in kfold.said.out


def test_kfold_averages_the_margins_of_one_scan_over_all_seeds(kfold):
    """Folds of one number hold other scans under another seed: seeds are averaged scan by scan, or not at all."""
    by_scan = kfold.predictions.groupby("participant_id").agg(y=("label", "first"), margin=("margin", "mean"))
    found = kfold.summary["methods"]["ridge"]["auc_of_averaged_logits"]["mean"]
    assert found is None or found == pytest.approx(roc_auc_score(by_scan["y"], by_scan["margin"]))


# ---------------------------------------------------------------- a run alone and among others


def test_a_run_alone_is_the_run_among_others(brio, folder, tiny, tmp_path, job):
    fold, words = "site02", ["--seeds", 2, "--runs-per-stack", 1, *tiny]
    alone = run_job(brio, folder, tmp_path / "r", *BOTH, "--fold", fold, *words)
    assert alone.rows["fold"].tolist() == [fold] * 4
    assert len(alone.plan["stacks"]) == 4
    assert max(map(len, job.plan["stacks"])) > 4  # else nothing is compared
    among = job.rows[job.rows["fold"] == fold].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        alone.rows.drop(columns=["seconds"]), among.drop(columns=["seconds"]), rtol=1e-4, atol=1e-5
    )
    predictions = job.predictions[job.predictions["fold"] == fold].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone.predictions, predictions, rtol=1e-3, atol=1e-5)
    assert {p.name for p in (tmp_path / "r" / "runs").iterdir()} < {p.name for p in (job.folder / "runs").iterdir()}


def test_seeds_do_not_depend_on_how_many_there_are(brio, folder, tiny, tmp_path, job):
    found = run_job(brio, folder, tmp_path / "r", "--method", "ridge", *tiny[-3:])
    first = job.rows[(job.rows["method"] == "ridge") & (job.rows["seed"] == 0)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found.rows.drop(columns="seconds"), first.drop(columns="seconds"))
