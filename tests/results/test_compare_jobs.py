"""``brio compare``: methods of several jobs over sites and participants, with predictions and without them."""

import re

import pandas as pd
import pytest
from planted_predictions import make_predictions

from brio.errors import BrioError
from brio.protocol import score_predictions
from brio.report.comparisons import JoinedJobs, compare_jobs, gather_jobs, label_folders, write_joined_tables
from brio.results import StoredJob, compare_over_people, describe_smoke_run, write_tables
from brio.results.job import COLUMNS
from commands import command, refuse
from doctored import make_method, make_summary
from stored import rehash


def write_job(folder, predictions, protocol="loso", cohort="small", smoke_run=False):
    """Write a job with these predictions and the scores that follow from them."""
    folder.mkdir(parents=True)
    rows = [
        {"method": method, "fold": fold, "seed": seed, "n_test": len(part)}
        | score_predictions(part["label"].to_numpy(), part["margin"].to_numpy())
        for (method, fold, seed), part in predictions.groupby(["method", "fold", "seed"], sort=False)
    ]
    run = {"cohort": cohort, "protocol": protocol, "test_sites": "a", "validation_sites": "b", "device": "cpu"}
    run |= {"n_source": 70, "n_validation": 20, "validation_auc": 0.6, "selected_epoch": 1, "seconds": 1.0}
    rows = pd.DataFrame(rows).assign(**run, block_length=4.0).reindex(columns=COLUMNS)
    methods = dict.fromkeys(predictions["method"].unique(), make_method())
    facts = {"protocol": protocol, "cohort": cohort, "smoke_run": smoke_run}
    summary = make_summary(methods, predictions["fold"].unique(), **facts)
    write_tables(folder, rows, predictions, summary)
    return folder


@pytest.fixture(scope="module")
def predictions():
    return make_predictions({"ridge": 1.0, "gcn": 0.4, "svm": 1.0})


@pytest.fixture
def folders(tmp_path, predictions):
    return [write_job(tmp_path / "jobs" / name, part) for name, part in predictions.groupby("method", sort=False)]


def gather(folders):
    return gather_jobs([StoredJob.read(folder) for folder in folders])


def test_jobs_are_compared_as_if_they_were_one(folders, predictions, tmp_path):
    joined = gather(folders)
    together = gather([write_job(tmp_path / "one", predictions)])
    first, second = (compare_over_people(j.sites, j.covariances, "ridge") for j in (joined, together))
    pd.testing.assert_frame_equal(first, second)
    assert compare_jobs(joined, "ridge") == compare_jobs(together, "ridge")


def test_without_predictions_the_kept_tables_say_the_same(folders):
    before = compare_jobs(gather(folders))
    write_joined_tables(gather(folders), folders[0].parent)
    for folder in folders:
        (folder / "predictions.csv").unlink()
        rehash(folder)
    assert compare_jobs(gather(folders)) == before


def test_without_predictions_and_covariances_the_text_says_what_to_do(folders):
    for folder in folders:
        (folder / "predictions.csv").unlink()
        rehash(folder)
    text = compare_jobs(gather(folders))
    assert "Not compared over participants: gcn, svm. Give folders that contain the predictions.csv of these" in text
    assert "pair-weighted" in text  # one method alone needs no covariance


def test_the_text_names_both_estimands_one_test_and_what_was_detectable(folders):
    text = compare_jobs(gather(folders))
    assert "| method | AUC, mean over sites | 95% interval, corrected t over sites | at a new site |" in text
    assert "| gcn | mean over sites | 3 |" in text
    assert "| gcn | pair-weighted | 3 |" in text
    assert text.count("| p | p, Holm | detectable | detectable, Bonferroni |") == 1, "a pair has one p value"
    assert "p against chance: two-sided corrected t test over sites" in text
    assert "adjusted for these 2 comparisons" in text


def test_under_kfold_people_are_not_compared(tmp_path, predictions):
    folders = [write_job(tmp_path / m, p, "kfold") for m, p in predictions.groupby("method", sort=False)]
    joined = gather(folders)
    assert joined.covariances.empty
    text = compare_jobs(joined)
    assert "corrected t over folds" in text
    assert "Not compared over participants" in text
    write_joined_tables(joined, tmp_path)
    assert not (tmp_path / "covariances.csv").exists()


@pytest.mark.parametrize("protocol", ["loso", "kfold"])
def test_smoke_runs_are_marked_and_not_tested(tmp_path, predictions, protocol):
    job = write_job(tmp_path / "quick", predictions, protocol, smoke_run=True)
    whole = write_job(tmp_path / "whole", predictions, protocol)
    for words in (("compare", job), ("table", job, "--compare", "ridge")):
        marked, tested = (command(*(folder if word is job else word for word in words)).out for folder in (job, whole))
        assert marked.startswith(f"{describe_smoke_run()} Smoke runs are not tested, so there are no p values.\n\n")
        assert not re.search(r"\| p\b|Holm|corrected t test|detectable|two one-sided", marked, re.IGNORECASE)
        assert "| p | p, Holm | detectable |" in tested
        assert "smoke" not in tested
        table, others = (
            [line.strip("| ").split(" | ")[:3] for line in text.splitlines() if line.startswith("| gcn")]
            for text in (marked, tested)
        )
        assert table == others, "all but the tests stays"


def test_one_smoke_run_among_whole_jobs_is_named(tmp_path, predictions):
    parts = dict(list(predictions.groupby("method", sort=False)))
    folders = [write_job(tmp_path / name, part, smoke_run=name == "gcn") for name, part in parts.items()]
    text = compare_jobs(gather(folders))
    assert text.startswith(describe_smoke_run("gcn"))
    assert "To test the other jobs, leave out gcn." in text.splitlines()[0]
    assert "Holm" not in text


def test_a_method_of_two_jobs_has_the_name_of_its_job(tmp_path, predictions):
    ridge = predictions[predictions["method"] == "ridge"]
    other = ridge.assign(margin=ridge["margin"] + ridge["label"])
    folders = [write_job(tmp_path / "plain", ridge), write_job(tmp_path / "other", other)]
    table = compare_over_people(gather(folders).sites, gather(folders).covariances, "ridge (plain)")
    assert set(table["method"]) == {"ridge (other)"}
    assert (table["mean_difference"] > 0).all()


def test_folders_of_one_name_are_told_apart_by_the_folder_above(tmp_path):
    folders = [tmp_path / "a" / "x" / "ridge", tmp_path / "b" / "x" / "ridge", tmp_path / "a" / "x" / "gcn"]
    assert label_folders(folders) == ["a/x/ridge", "b/x/ridge", "a/x/gcn"]
    assert label_folders([folders[0], folders[0]]) == ["ridge", "ridge"]  # one folder, given twice


def test_other_cohorts_and_empty_folders_are_refused(tmp_path, predictions, folders):
    other = write_job(tmp_path / "elsewhere", predictions[predictions["method"] == "svm"], cohort="large")
    refuse("different cohorts or protocols", gather, [folders[0], other])
    with pytest.raises(BrioError, match="nothing to write"):
        write_joined_tables(JoinedJobs(pd.DataFrame(), pd.DataFrame(), pd.DataFrame()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_comparison_and_writes_the_tables(folders, tmp_path):
    said = command("compare", *folders, "--reference", "svm", "--out", tmp_path / "kept").succeed()
    assert said.out == compare_jobs(gather(folders), "svm")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["SHA256SUMS", "covariances.csv", "sites.csv"]
