"""Studies of scores: comparison, in-distribution, ablation, sensitivity and labels, computed anew from other runs."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from study_contexts import PLAIN, SETTINGS, VARIANTS, bare, context_on, make_study, read, tree, watched

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import BlockRule
from brio.formatting import format_signed
from brio.protocol import make_folds
from brio.results import StoredStudy
from brio.studies import make_arm
from brio.studies.comparison import make_setting_arms
from brio.studies.study import choose_label, find_study
from commands import command, refuse
from made_cohorts import rebuild

SCORES = ["auc", "acc", "balanced_acc", "brier", "validation_auc"]


# ---------------------------------------------------------------- comparison


@pytest.mark.parametrize(("study", "methods"), [("comparison", PLAIN), ("ablation", VARIANTS)])
def test_rows_are_those_of_an_ordinary_run_bit_for_bit(study, methods, table, paper):
    rows, others = table(study), read(paper / "loso" / "results.csv")
    for name in methods:
        mine = rows[rows["arm"] == name].reset_index(drop=True)
        theirs = others[others["method"] == name].reset_index(drop=True)
        assert len(mine) == 10
        columns = ["method", "fold", "seed", *SCORES]
        pd.testing.assert_frame_equal(mine[columns], theirs[columns], check_exact=True)


def test_in_distribution_corrects_for_training_sets_that_overlap(found, paper):
    summary = found("in-distribution").summary.set_index("arm")

    def read_rows(name):
        return read(paper / "out" / "arms" / "kfold" / name / "results.csv")

    base = read_rows("brio").set_index(["seed", "fold"])["auc"]
    raw = {}
    for name in ("ridge", "gcn"):
        rows = read_rows(name)
        d = 100 * (rows.set_index(["seed", "fold"])["auc"] - base)
        n_test, n_source = rows[["n_test", "n_source"]].mean()
        share = n_test / max(n_source - 2 * n_test, n_test)
        t = d.mean() / np.sqrt((1 / 4 + share) * d.var())  # two seeds are no further folds
        raw[name] = 2 * stats.t.sf(abs(t), 3)
    (first, small), (second, large) = sorted(raw.items(), key=lambda item: item[1])
    corrected = {first: min(1.0, 2 * small), second: min(1.0, max(2 * small, large))}
    assert summary.loc[list(corrected), "p"].to_dict() == pytest.approx(corrected)


# ---------------------------------------------------------------- ablation


def test_ablation_has_nine_arms_each_its_own_variant(cohort, tmp_path, found):
    variants = {"brio": "full", "brio-wo-rs": "w/o RS", "brio-wo-tr": "w/o TR", "brio-wo-sm": "w/o SM"}
    variants |= {"brio-wo-sf": "w/o SF", "brio-wo-qg": "w/o QG", "backbone": "w/o QG"}
    variants |= {"brio-shuffled": "full", "backbone-shuffled": "w/o QG"}
    context = context_on(cohort, tmp_path)
    assert [a.name for a in find_study("ablation").list_arms(context)] == list(variants)
    for name, variant in variants.items():
        settings = context.settings_of(name)
        assert (settings.variant, settings.lambda_env) == (variant, 0.0 if "backbone" in name else 4.0)
        assert settings.sites == ("shuffled" if "shuffled" in name else "own")
        assert (settings.epochs, settings.d_t) == (2, 4), "the settings given for all"
    summary = found("ablation").summary.set_index("arm")
    assert summary.index[summary["reported by"] == "ours"].tolist() == list(variants)[5:]
    ahead = (summary.loc[["brio-wo-rs", "brio-wo-sm"], "AUC"] < summary.loc["brio", "AUC"]).sum()
    assert found("ablation").text[0] == f"BRIO has a higher mean AUC than {ahead} of the paper's four ablations."


# ---------------------------------------------------------------- sensitivity


def test_sensitivity_varies_one_setting_and_keeps_the_width(table, paper):
    def read_settings(name):
        plan = json.loads((paper / "out" / "arms" / "loso" / name / "plan.json").read_text())
        return plan["methods"]["brio"]["settings"]

    rows, base = table("sensitivity"), read_settings("brio")
    values = {name: sorted(set(part["value"])) for name, part in rows.groupby("setting")}
    assert values == {"K": [2, 4], "J": [2, 4], "block": [0.5, 1.0]}
    assert len(rows) == 6 * 10
    for _, row in rows.drop_duplicates(["setting", "arm"]).iterrows():
        settings, key = read_settings(row["arm"]), {"block": "block_scale"}.get(row["setting"], row["setting"])
        assert settings["J"] * settings["d_t"] == 16
        assert settings[key] == row["value"]
        changed = {name for name in settings if settings[name] != base[name]}
        assert changed == (set() if row["arm"] == "brio" else {key, "d_t"} if key == "J" else {key})


@pytest.mark.parametrize(
    ("given", "K", "J", "block"),
    [
        ({}, [2, 4, 8, 16], [1, 2, 4, 8, 16], [0.5, 1.0, 2.0]),
        # a default off the grid is on it all the same, and J that do not divide the width are left out
        ({"K": 3, "J": 6, "d_t": 4, "block_scale": 1.5}, [2, 3, 4, 8, 16], [1, 2, 4, 6, 8], [0.5, 1.0, 1.5, 2.0]),
    ],
)
def test_sensitivity_varies_what_the_paper_varies_around_the_default(given, K, J, block, cohort, tmp_path):
    context = context_on(cohort, tmp_path / "out", settings=SETTINGS | given)
    own, plain = context.settings_of("brio"), make_arm("brio")
    width = own.J * own.d_t
    assert make_setting_arms(context) == {
        "K": {k: plain if k == own.K else make_arm("brio", K=k) for k in K},
        "J": {j: plain if j == own.J else make_arm("brio", J=j, d_t=width // j) for j in J},
        "block": {s: plain if s == own.block_scale else make_arm("brio", block_scale=s) for s in block},
    }
    assert len(find_study("sensitivity").list_arms(context)) == 1 + sum(len(values) - 1 for values in (K, J, block))


def test_block_lengths_scale_the_unrounded_estimate(table, context):
    rows = table("sensitivity")
    block = rows[rows["setting"] == "block"].set_index(["fold", "seed"])
    rule = BlockRule(subjects=12, signals=4, products=4)
    settings, connectomes = context.job.spec.protocol_settings, context.connectomes
    seen = set()
    for seed in (0, 1):
        for fold in make_folds(context.cohort, "loso", seed, settings):
            site, label = connectomes.cohort.sites[fold.source], connectomes.cohort.labels[fold.source]
            estimate = connectomes.estimate_block_length(fold.source, site, label, rule, seed)
            seen.add(estimate)
            here = block.loc[(fold.name, seed)].set_index("value")["block_length"]
            assert here.to_dict() == {0.5: 0.5 * estimate, 1.0: estimate}
    assert any(estimate != round(estimate) for estimate in seen), "else rounding first would not be seen"


# ---------------------------------------------------------------- labels

METHODS = ["ridge", "log-ridge", "covariates-only"]
LABELS = ["own label", "age>site-median", "age>14.5", "sex"]
OPTIONS = {"seeds": 1, "device": "cpu", "settings": {"audit.min_class": 2}}


@pytest.fixture(scope="module")
def planted():
    """Age is carried by the coupling of the stable network, as the diagnosis is; sex is random."""
    cohort = simulate(Simulation(n_sites=5, per_class=9, n_rois=12, frames=60, stable=0.8))
    age = 10.0 + 9 * cohort.labels + np.random.default_rng(0).uniform(0, 3, len(cohort))
    return replace(cohort, participants=cohort.participants.assign(age=age))


def study_labels(cohort, out, methods=tuple(METHODS), **context):
    settings = OPTIONS["settings"] | {"protocol.validation_sites": "auto"}
    return make_study("labels", cohort, out, methods, seeds=1, settings=settings, context=context)


@pytest.fixture(scope="module")
def labelled(planted, tmp_path_factory):
    """The folder of the study, what it said, and what it fitted."""
    out = tmp_path_factory.mktemp("labels") / "out"
    said: list[str] = []
    with watched() as seen:
        study_labels(planted, out, say=said.append)
    return out, "\n".join(said), seen["fitted"]


@pytest.fixture(scope="module")
def rows(labelled):
    return read(labelled[0] / "studies" / "labels" / "table.csv")


@pytest.fixture(scope="module")
def text(labelled):
    return (labelled[0] / "studies" / "labels" / "finding.md").read_text()


def test_every_label_has_the_methods_that_may_be_asked(labelled, rows, text):
    assert list(dict.fromkeys(rows["question"])) == LABELS
    arms = rows.groupby("question")["arm"].unique()
    assert sorted(arms["own label"]) == sorted(METHODS)
    for label in LABELS[1:]:  # covariates-only is given age and sex
        assert sorted(arms[label]) == ["log-ridge", "ridge"]
        assert (
            f"Left out for the label '{label}', because its column is an input of these methods: covariates-only."
            in text
        )
    for told in (text, labelled[1]):
        assert (
            "the median of a site is computed from all participants of the site, because it defines the label" in told
        )
    assert "More than one label concerns age." in text
    assert "nan" not in text


def test_rows_are_those_of_a_job_with_that_label(rows, planted, tmp_path):
    label = "age>site-median"
    plain = brio.run(planted, ["log-ridge"], label=label, out=tmp_path, **OPTIONS)
    mine = rows[(rows["question"] == label) & (rows["arm"] == "log-ridge")]
    assert mine["auc"].tolist() == plain.rows["auc"].tolist()


def test_the_planted_age_is_found_and_the_random_sex_is_not(rows):
    auc = rows[rows["arm"] == "ridge"].groupby("question")["auc"].mean()
    assert auc["age>site-median"] > 0.8
    assert auc["age>14.5"] == pytest.approx(auc["own label"], abs=1e-12), "the same labels"
    assert 0.3 < auc["sex"] < 0.7


def test_labels_are_averaged_at_each_site_before_they_are_compared(rows, text):
    both = rows[rows["arm"].isin(["ridge", "log-ridge"])]
    by_seed = both.groupby(["arm", "fold", "seed"])["auc"].mean()
    by_site = 100 * by_seed.groupby(["arm", "fold"]).mean().unstack("arm")
    difference = (by_site["log-ridge"] - by_site["ridge"]).mean()
    assert f"log-ridge ({format_signed(difference)} points, p" in text.split("mean AUC over labels")[1]
    best = by_site.mean().idxmax()
    assert f"Over all 4 labels, {best} has the highest mean AUC: {by_site[best].mean():.1f}%" in text
    by_label = 100 * both.groupby(["question", "arm"])["auc"].mean().unstack("arm")
    everywhere = (by_label["log-ridge"] > by_label["ridge"]).all()
    assert ("Higher AUC than ridge for every label: log-ridge." in text) == everywhere


def test_a_study_goes_on_to_the_same_files(labelled, planted, tmp_path):
    out, _, fitted = labelled
    begun = tmp_path / "out"
    shutil.copytree(out, begun)
    shutil.rmtree(begun / "studies")
    shutil.rmtree(begun / "labels" / "sex" / "arms" / "loso" / "log-ridge")
    with watched() as seen:
        place = study_labels(planted, begun)
    assert [fit[0] for fit in seen["fitted"]] == ["log-ridge"], "all other runs were finished"
    assert len(fitted) == 3 + 3 * 2
    assert tree(place) == tree(out / "studies" / "labels")


def test_each_label_has_a_folder_that_can_be_reported(labelled):
    out = labelled[0]
    assert sorted(p.name for p in (out / "labels").iterdir()) == ["age-above-14.5", "age-above-site-median", "sex"]
    command("report", out / "labels" / "sex").succeed()
    record = StoredStudy.read(out / "studies" / "labels").record
    assert record.arms == ("ridge", "log-ridge", "covariates-only")
    assert record.options is not None
    assert record.options.labels is None


@pytest.mark.usefixtures("undrawn")
def test_questions_of_ones_own(planted, tmp_path):
    planted.save(tmp_path / "cohort")
    words = ["study", "labels", tmp_path / "cohort", "--method", "ridge", "--seeds", "1", "--device", "cpu", "--quiet"]
    sites = ["--fold", "site01", "--fold", "site03"]
    command(*words, "--label", "mean_fd>site-median", *sites, "--out", tmp_path / "o").succeed()
    rows = read(tmp_path / "o" / "studies" / "labels" / "table.csv")
    assert list(dict.fromkeys(rows["question"])) == ["own label", "mean_fd>site-median"]
    assert sorted(set(rows["fold"])) == ["site01", "site03"]
    command("report", tmp_path / "o").succeed()
    assert "--label &#39;mean_fd&gt;site-median&#39;" in (tmp_path / "o" / "report.html").read_text()
    assert "did you mean 'age'?" in command(*words, "--label", "agee", "--out", tmp_path / "p").refuse().err


@pytest.mark.parametrize(
    ("varying", "options", "message"),
    [
        ("site0[2-5]", ["--fold", "site01"], "with the label 'sex', no scans remain in these folds: site01"),
        ("site02", ["--set", "audit.min_class=0"], "with the label 'sex', 1 site has both classes, but 3 are needed"),
    ],
)
def test_a_question_with_one_answer_at_most_sites_is_refused(planted, tmp_path, varying, options, message):
    table = planted.participants
    sexes = table["sex"].where(table["site"].str.fullmatch(varying), "F")
    rebuild(planted, table=table.assign(sex=sexes)).save(tmp_path / "cohort")
    words = (
        "study",
        "labels",
        tmp_path / "cohort",
        "--method",
        "ridge",
        "--label",
        "sex",
        "--device",
        "cpu",
        "--quiet",
    )
    assert message in command(*words, *options, "--out", tmp_path / "out").refuse_in_a_line()


def test_what_cannot_be_compared_is_refused(planted, tmp_path):
    refuse("has no label besides the cohort's own", study_labels, bare(planted), tmp_path / "out")
    assert not (tmp_path / "out" / "studies").exists()
    refuse("no method can be trained for every label", study_labels, planted, tmp_path / "out", ["covariates-only"])


def test_other_studies_take_one_label(planted, tmp_path):
    assert choose_label("subgroups", ["sex"]) == "sex"
    assert choose_label("labels", ["sex", "age>14.5"]) is None
    refuse("uses one label; give only one", choose_label, "subgroups", ["sex", "age>14.5"])
    stored = brio.study("comparison", planted, out=tmp_path, labels="sex", methods=["ridge"], **OPTIONS)
    assert stored.record.options.labels == ("sex",)
    plain = brio.run(planted, ["ridge"], label="sex", **OPTIONS)
    assert stored.table["auc"].tolist() == plain.rows["auc"].tolist()
