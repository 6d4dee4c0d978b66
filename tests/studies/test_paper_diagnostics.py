"""Studies that look into fitted models, from agreement of sites to the propositions."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from cohorts import People
from scipy import stats
from study_checks import CHECKS, check_study
from study_contexts import context_on, shorter

from brio.connectome import Connectomes
from brio.diagnostics import compute_contributions, gather_factor_evidence, rank_factors, retained_margin
from brio.protocol import auc
from brio.studies import factors, make_arm
from brio.studies.agreement import make_strength_arms
from brio.studies.factors import RANDOM_ORDERS
from brio.studies.study import find_study


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "scan-length"])  # see tests/ordinary
def test_a_study_says_what_its_runs_hold(name, paper, cohort):
    check_study(paper / "out", name, People.of(cohort))


# ---------------------------------------------------------------- agreement


def test_all_methods_are_asked_about_the_same_reestimates(cohort, tmp_path, monkeypatch):
    asked = {}
    again = Connectomes.iterate_reestimates

    def watched(self, resamples, max_bytes=None):
        for scan, block in zip(resamples.scans, resamples.block_length, strict=True):
            asked.setdefault(name, set()).add((resamples.seed, int(scan), int(block), resamples.refresh, resamples.K))
        return again(self, resamples, max_bytes)

    monkeypatch.setattr(Connectomes, "iterate_reestimates", watched)
    context = context_on(cohort, tmp_path, folds=["site01", "site02"])
    for name in ("ridge", "gcn"):
        context.train([make_arm(name)])
        asked[name] = set()  # without those of training
        context.measure_discrepancies(make_arm(name))
    assert asked["ridge"] == asked["gcn"]
    assert {(seed, n) for seed, _, _, _, n in asked["ridge"]} == {(0, 8), (1, 8)}
    folds = [planned.run.fold for planned in context.plan_arm(make_arm("ridge")).runs.values()]
    assert {scan for _, scan, *_ in asked["ridge"]} == {int(scan) for fold in folds for scan in fold.source}


# ---------------------------------------------------------------- alignment


def test_the_sweep_begins_with_the_backbone_and_shares_the_default(cohort, tmp_path):
    found = make_strength_arms(context_on(cohort, tmp_path))
    assert list(found) == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert found[0.0] == make_arm("backbone")
    assert found[4.0] == make_arm("brio-wo-qg")
    assert found[2.0] == make_arm("brio-wo-qg", lambda_env=2.0)


@pytest.mark.parametrize(("given", "plain"), [("2", [2.0]), ("0.3", []), ("0", [])])
def test_the_sweep_follows_a_strength_given_for_all(given, plain, cohort, tmp_path):
    context = context_on(cohort, tmp_path / "out", settings={"lambda_env": given})
    found = make_strength_arms(context)
    assert found[0.0] == make_arm("backbone")
    assert [v for v, a in found.items() if a == make_arm("brio-wo-qg")] == plain


def test_doctored_test_scores_change_no_choice_of_the_study(context, cohort, table):
    fresh, rng = context_on(cohort, context.out), np.random.default_rng(0)
    with shorter():
        for a in [*make_strength_arms(fresh).values(), make_arm("brio")]:
            rows = table("alignment").query("arm == @a.name")
            kept = ["arm", "fold", "seed", "validation_auc", "D_site", "D_re_pred"]
            fresh._discrepancies[a] = rows[kept].assign(auc=rng.uniform(size=len(rows)))
        doctored = find_study("alignment").find(fresh).table
    before, after = (t[t["arm"] == "matched w/o QG"].reset_index(drop=True) for t in (table("alignment"), doctored))
    for column in ("fold", "seed", "lambda_env", "validation_auc"):
        assert before[column].tolist() == after[column].tolist()
    np.testing.assert_allclose(before["D_site"], after["D_site"])
    assert before["auc"].tolist() != after["auc"].tolist()


# ---------------------------------------------------------------- mismatch


@pytest.mark.parametrize(
    ("study", "column", "scale", "told"),
    [
        ("agreement", "D_re_pred", 1, "variation minus BRIO"),
        ("alignment", "D_re_pred", 1, "variation minus BRIO"),
        ("mismatch", "mismatch", 100, "total minus BRIO"),
    ],
)
def test_differences_to_brio_are_paired_over_folds(table, found, study, column, scale, told):
    rows, summary = table(study), found(study).summary.set_index("arm")
    folds = rows.groupby(["arm", "fold"])[column].mean() * scale
    p = {}
    for name in (n for n in summary.index if n != "brio"):
        d = (folds[name] - folds["brio"]).round(12)
        assert summary.loc[name, told] == pytest.approx(d.mean())
        assert summary.loc[name, "lower at"] == f"{(d < 0).sum()} of 5"
        assert summary.loc[name, "higher at"] == f"{(d > 0).sum()} of 5"
        if d.nunique() > 1:
            t = d.mean() / (d.std(ddof=1) * (1 / 5 + 1 / 3) ** 0.5)
            p[name] = 2 * stats.t(4).sf(abs(t))
    running = 0.0
    for k, name in enumerate(sorted(p, key=lambda n: p[n])):
        running = max(running, min(1.0, (len(p) - k) * p[name]))
        assert summary.loc[name, "p"] == pytest.approx(running)
    assert any("not to other participants" in line for line in found(study).text)
    if study != "mismatch":
        assert sum(line.startswith("Predictive variation is compared fold by fold.") for line in found(study).text) == 1


# ---------------------------------------------------------------- retention


def test_retention_keeps_the_best_factors_and_averages_random_orders(table, context):
    frozen = context.freeze_runs(make_arm("brio"))
    method = frozen.method
    inputs = method.gather_inputs(context.connectomes)
    rows = table("retention").set_index(["fold", "seed", "ranking", "factors"])["auc"]
    moved = 0
    some = replace(frozen, fitted=frozen.fitted[:4], block_lengths=frozen.block_lengths[:4])
    for fitted, evidence in zip(some.fitted, gather_factor_evidence(some), strict=True):
        fold, seed = fitted.run.fold, fitted.run.seed
        a = compute_contributions(method, fitted, inputs.take(torch.from_numpy(fold.test)))
        label = context.cohort.labels[fold.test]

        def score(by, kept, seed=0, a=a, fitted=fitted, evidence=evidence, label=label):
            return auc(label, retained_margin(a, fitted, rank_factors(evidence, by, seed)[:kept]))

        for kept in (1, 2, 3):
            for by in ("qualification", "relevance", "support"):
                assert rows[fold.name, seed, by, kept] == pytest.approx(score(by, kept), abs=1e-12)
            random = [score("random", kept, k) for k in range(RANDOM_ORDERS)]
            assert rows[fold.name, seed, "random", kept] == pytest.approx(sum(random) / 20, abs=1e-12)
            moved += len(set(random)) > 1
    assert moved > 3, "one order instead of twenty would not be seen"


# ---------------------------------------------------------------- regions


def test_profiles_sum_to_one_and_are_averaged_over_runs(table, context):
    rows = table("regions")
    assert rows["roi"].tolist() == context.cohort.atlas.rois["name"].tolist()
    assert rows["S_hat"].sum() == pytest.approx(1)
    np.testing.assert_allclose(rows["times_1_over_P"], 12 * rows["S_hat"])
    profiles = []
    for e in gather_factor_evidence(context.freeze_runs(make_arm("brio"))):
        alpha, Pi = e.qualification.alpha_bar, e.Pi_bar
        score = [sum(float(alpha[:, :, j].mean()) * float(Pi[j, u]) for j in range(4)) for u in range(12)]
        profiles.append([s / sum(score) for s in score])
    np.testing.assert_allclose(rows["S_hat"], np.mean(profiles, axis=0), atol=1e-9)
    np.testing.assert_allclose(rows["SD"], np.std(profiles, axis=0, ddof=1), atol=1e-9)
    assert rows["S_hat"].std() > 1e-4, "else uniform weights would not be told apart"


def planted(rng, common: float, of_seed: float, P: int = 116, seeds: int = 3, folds: int = 20) -> tuple:
    """Profiles made of noise, of what all runs have in common and of what the runs of a seed have in common."""
    seed = np.repeat(np.arange(seeds), folds)
    noise = rng.normal(size=(seeds * folds, P))
    return noise + common * rng.normal(size=P) + of_seed * rng.normal(size=(seeds, P))[seed], seed


@pytest.mark.parametrize("of_seed", [0.0, 1.0, 100.0])
def test_regions_of_noise_are_shared_as_often_as_chance_has_it(of_seed):
    """Also where all runs of a seed agree, as they do from starting with the same weights."""
    rng = np.random.default_rng(0)
    shares = [factors.measure_shared_regions(*planted(rng, 0.0, of_seed)).mean() for _ in range(300)]
    assert np.mean(shares) == pytest.approx(5 / 116, abs=4 * np.std(shares) / np.sqrt(300))
    assert np.std(shares) / np.sqrt(300) < 0.005, "else anything would do"


def test_shared_regions_by_plain_loops():
    rng = np.random.default_rng(1)
    S_hat, seed = planted(rng, 1.0, 1.0, P=20, folds=4)
    order = rng.permutation(len(seed))
    S_hat, seed = S_hat[order], seed[order]
    expected = []
    for row, mine in zip(S_hat, seed, strict=True):
        others = [r for r, s in zip(S_hat, seed, strict=True) if s != mine]
        mean = [sum(column) / len(others) for column in zip(*others, strict=True)]
        top, own = (set(sorted(range(20), key=lambda u: -v[u])[:5]) for v in (mean, row))
        expected.append(len(top & own) / 5)
    assert factors.measure_shared_regions(S_hat, seed).tolist() == pytest.approx(expected)
    assert 0.25 < np.mean(expected) < 1
    by_seed = [100 * np.mean([e for e, s in zip(expected, seed, strict=True) if s == k]) for k in range(3)]
    assert factors._describe_repeatability(S_hat, seed) == (
        f"Of the 5 highest-scoring regions of a run, on average {100 * np.mean(expected):.0f}% are also among the 5 "
        f"highest in the mean over other seeds ({min(by_seed):.0f} to {max(by_seed):.0f}%, depending on the seed); "
        "25% are expected by chance."
    )


def test_one_seed_cannot_tell_whether_regions_come_back(context, found):
    S_hat, seed = planted(np.random.default_rng(0), 1.0, 1.0, seeds=1)
    assert np.isnan(factors.measure_shared_regions(S_hat, seed)).all()
    text = factors._describe_repeatability(S_hat, seed)
    assert text.startswith("One seed cannot show")
    assert "--seeds 3" in text
    assert "%" not in text
    assert found("regions").text[2].endswith(f"{100 * 5 / 12:.0f}% are expected by chance."), "of two seeds it can"


def test_a_figure_without_a_brain_says_why_and_what_to_do(context, found, table, monkeypatch):
    where = factors.read_coordinates(context)
    assert where is not None
    assert "No brain" not in " ".join(found("regions").text)
    assert len(factors._draw_regions(table("regions"), where).axes) > 2, "nilearn puts its views beside the panels"
    monkeypatch.setitem(sys.modules, "nilearn", None)  # as on a machine without it
    text = find_study("regions").find(context).text
    assert [line for line in text if line.startswith("No brain is drawn, because nilearn is not")] == text[3:]
    assert "pip install nilearn" in text[3]
    assert len(factors._draw_regions(table("regions"), where).axes) == 1
    monkeypatch.setattr(factors, "read_coordinates", lambda context: None)
    (line,) = find_study("regions").find(context).text[3:]
    assert line.startswith(f"No brain is drawn, because atlas '{context.cohort.atlas.name}' does not have coordinates")
    assert "--atlas" in line
    assert len(factors._draw_regions(table("regions"), None).axes) == 1


# ---------------------------------------------------------------- propositions


def test_six_digits_of_the_propositions_are_written(table, found, paper):
    whole, written = found("propositions").table, table("propositions")
    numbers = whole.select_dtypes("float").columns
    assert len(numbers) > 8
    np.testing.assert_allclose(written[numbers], whole[numbers], rtol=5.1e-6)
    assert not written[numbers].equals(whole[numbers])
    lines = (paper / "out" / "studies" / "propositions" / "table.csv").read_text().splitlines()[1:]
    digits = [cell.split("e")[0].replace(".", "").lstrip("-0") for line in lines for cell in line.split(",")]
    assert max(len(d) for d in digits if d.isdigit()) == 6
