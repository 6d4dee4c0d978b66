"""Qualifications and factors as runs kept them, against loops."""

import json
import re
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from pages import read_section
from safetensors import safe_open
from safetensors.numpy import save_file

import brio
from brio.report.evidence import read_evidence
from brio.report.html import figures, make_environment
from brio.report.html.figures import (
    RunFactors,
    describe_brain,
    read_factors,
    summarise_assignment,
    summarise_qualification,
)
from brio.report.write import write_report
from stored import rehash

RNG = np.random.default_rng(3)


def factors(fold, seed, sites, J=3, P=6, auc=0.6, groups=None):
    pairs = len(sites) * (len(sites) - 1) // 2
    Pi = RNG.uniform(size=(J, P)) if groups is None else np.eye(J)[groups].T
    row = SimpleNamespace(fold=fold, seed=seed, validation_auc=auc)
    return RunFactors(
        SimpleNamespace(row=row, source_sites=sites),
        pi_task=np.sort(RNG.dirichlet(np.ones(J)))[::-1],
        alpha_bar=RNG.uniform(size=(pairs, 2, J)),
        g=RNG.uniform(size=(pairs, 2)),
        q_re=RNG.uniform(size=(len(sites), 2, J)),
        Pi_bar=Pi,
    )


def test_pairs_are_averaged_over_the_seeds_that_have_them():
    runs = [factors("X", 0, ["A", "B", "C"]), factors("X", 1, ["A", "C", "D"]), factors("Y", 0, ["A", "B"])]
    folds = summarise_qualification(runs, "loso")
    assert list(folds) == ["X", "Y"]
    fold = folds["X"]
    assert fold["sites"] == ["A", "B", "C", "D"]
    assert fold["seeds"] == 2
    values = {}
    for run in runs[:2]:
        for pair, g, alpha in zip(combinations(run.record.source_sites, 2), run.g, run.alpha_bar, strict=True):
            values.setdefault(pair, []).append(np.column_stack([g, alpha]))
    for pair, shown in zip(combinations("ABCD", 2), fold["pairs"], strict=True):
        assert (shown is None) == (pair not in values) == (pair == ("B", "D")), pair
        assert shown is None or np.allclose(shown, np.mean(values[pair], axis=0), atol=6e-4), pair
    both = np.mean([runs[0].q_re[0], runs[1].q_re[0]], axis=0)
    assert np.allclose(fold["support"][0], both, atol=6e-4)
    assert np.allclose(fold["support"][3], runs[1].q_re[2], atol=6e-4)
    assert np.allclose(fold["pi"], (runs[0].pi_task + runs[1].pi_task) / 2, atol=6e-4)


def test_folds_of_different_seeds_are_different_folds():
    runs = [factors("1", seed, ["A", "B"]) for seed in (0, 1)]
    folds = summarise_qualification(runs, "kfold")
    assert list(folds) == ["1 of seed 0", "1 of seed 1"]
    assert [fold["seeds"] for fold in folds.values()] == [1, 1]
    assert np.allclose(folds["1 of seed 1"]["pi"], runs[1].pi_task, atol=6e-4)


@pytest.fixture(scope="module")
def arm(finished):
    return next(a for a in read_evidence(finished).arms if a.name == "brio")


def test_factors_are_numbered_by_relevance(arm):
    runs = read_factors(arm)
    assert len(runs) == 15
    for run, stored in zip(runs, arm.runs, strict=True):
        assert (np.diff(run.pi_task) <= 0).all()
        with safe_open(str(arm.job.store.folder / stored.key / "weights.safetensors"), "numpy") as file:
            pi, alpha, assigned = (
                file.get_tensor(n) for n in ("training.pi_task", "training.alpha_bar", "inference.Pi_bar")
            )
        most = int(np.argmax(pi))
        assert run.pi_task[0] == pytest.approx(pi[most])
        assert np.allclose(run.alpha_bar[..., 0], alpha[..., most])
        assert np.allclose(run.Pi_bar[0], assigned[most])
        assert list(run.record.source_sites) == sorted(stored.record.source_sites)
        assert len(run.alpha_bar) == len(run.record.source_sites) * (len(run.record.source_sites) - 1) // 2


def test_the_page_holds_the_qualifications(page, arm):
    start = page.index('id="q-data">') + len('id="q-data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["arms"]["brio"] == json.loads(json.dumps(summarise_qualification(read_factors(arm), "loso")))
    assert data["classes"] == ["control", "patient"]


def test_a_run_without_support_still_has_factors(copy):
    for path in copy.glob("runs/*/weights.safetensors"):
        with safe_open(str(path), "numpy") as file:
            kept = {k: file.get_tensor(k) for k in file.keys() if k != "training.q_re"}  # noqa: SIM118
        save_file(kept, path)
    arm = next(a for a in read_evidence(rehash(copy)).arms if a.name == "brio")
    assert all(run.q_re is None for run in read_factors(arm))


def test_the_brain_shows_the_run_with_the_best_validation_auc():
    same, other = [0, 0, 1, 1, 2, 2], [2, 1, 0, 2, 1, 0]
    runs = [
        factors("X", 0, ["A", "B"], auc=0.6, groups=other),
        factors("X", 1, ["A", "B"], auc=0.8, groups=same),
        factors("Y", 0, ["A", "B"], auc=0.7, groups=[1, 1, 0, 0, 2, 2]),
    ]
    best = summarise_assignment(runs)
    assert (best["fold"], best["seed"], best["factor"]) == ("X", 1, same)
    renamed = factors("X", 2, ["A", "B"], auc=0.7, groups=[1, 1, 0, 0, 2, 2])
    assert summarise_assignment([runs[1], renamed])["agreement"] == pytest.approx(1.0), (
        "the same groups under other numbers"
    )
    assert summarise_assignment([runs[1], runs[2]])["agreement"] is None, "of another test site"
    assert summarise_assignment([runs[0], runs[1]])["agreement"] < 0.1
    assert summarise_assignment([runs[1]])["agreement"] is None


def draw_views(*xyz):
    """Flat views of regions, one factor each: title -> outline, factors in the order of drawing, their places."""
    runs = [factors("X", k, ["A", "B"], J=len(xyz), P=len(xyz), groups=range(len(xyz))) for k in range(2)]
    facts = {"rois": {"name": list(map(str, range(len(xyz)))), "xyz": xyz}}
    brain = describe_brain("brio", runs, facts)
    draw = make_environment(True).get_template("charts.html.j2").module.brain_views(brain["regions"], brain["shrunk"])
    views = {}
    for title, outline, dots in re.findall(r'seen ([^"]+)".*?points="([^"]+)"(.*?)</svg>', draw, flags=re.DOTALL):
        places = re.findall(r'#mk(\d)".*? x="([^"]+)" y="([^"]+)"', dots)
        edge = np.array([point.split(",") for point in outline.split()], dtype=float)
        views[title] = edge, [int(j) for j, *_ in places], {int(j): (float(x), float(y)) for j, x, y in places}
    return views


def test_flat_views_look_the_way_they_say(monkeypatch):
    monkeypatch.setattr(figures, "render_brain_viewer", lambda *_: None)
    views = draw_views([-30.0, 40.0, 20.0], [30.0, -60.0, -20.0])  # left, front, top; right, back, low
    side, behind, above = (views[f"from {where}"][2] for where in ("the left", "behind", "above"))
    assert side[0][0] < side[1][0], "the forehead is on the left"
    assert behind[0][0] < behind[1][0], "left is left"
    assert above[0][1] < above[1][1], "the forehead is up"
    assert side[0][1] < side[1][1]
    for edge, _, places in views.values():
        assert np.allclose((edge.max(0) + edge.min(0)) / 2, 100, atol=2), "the brain is in the middle of its square"
        inside = np.array(list(places.values()))
        assert edge.min() >= 0
        assert edge.max() <= 200
        assert ((edge.min(0) < inside) & (inside < edge.max(0))).all()
    assert 0 <= draw_views([0.0, 0.0, 200.0])["from the left"][2][0][1] <= 200, "far regions are still in the square"
    assert [views[f"from {where}"][1][-1] for where in ("the left", "behind")] == [0, 1], "the nearest is drawn last"


def test_factors_that_differ_between_seeds_are_one_sentence(rewrite, monkeypatch):
    monkeypatch.setattr(figures, "LEAST_AGREEMENT", 1.1)
    section = read_section(rewrite(), "factors")
    assert "are not shown, because they differ between seeds" in section
    assert "<svg" not in section
    assert "q-data" not in section


def test_pairs_are_those_of_the_sites_that_were_learned_from(cohort, tmp_path, monkeypatch):
    """Where networks are trained again, validation sites are among them."""
    tiny = {"epochs": 4, "T_w": 2, "M": 2, "K": 2, "cell_batch": 4, "refit": True}
    folds = ["O'Hara & Söhne", "plain"]
    brio.run(cohort, ["brio"], out=tmp_path / "run", settings=tiny, folds=folds, device="cpu")
    (arm,) = read_evidence(tmp_path / "run").arms
    runs = read_factors(arm)
    assert [run.record.row.fold for run in runs] == folds
    for run, stored in zip(runs, arm.runs, strict=True):
        row = stored.record.row
        assert len(run.record.source_sites) == run.q_re.shape[0] == 4
        assert len(run.g) == len(list(combinations(run.record.source_sites, 2)))
        assert row.fold not in run.record.source_sites
        assert row.n_source + row.n_test == arm.job.summary.n_scans
    assert summarise_qualification(runs, "loso").keys() == set(folds)
    monkeypatch.setattr(figures, "render_brain_viewer", lambda *_: None)
    assert write_report(tmp_path / "run").is_file()
