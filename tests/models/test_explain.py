"""``explain_model`` and ``brio explain``: what a model uses, and how stable it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import logm
from sklearn.linear_model import Ridge

from brio.cohort.atlas import load_bundled_atlas
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.models import Member, complete_model, explain_model, explain_output, read_model, write_model
from brio.models.explain_output import describe_explanation, write_explanation
from brio.models.roi_groups import group_rois
from brio.report.explanation import render_explanation_page
from commands import command, refuse
from stored import list_hashed

PLANTED = [f"region {u}" for u in range(4)]  # the stable network of the simulation


def read_features(cohort):
    """Fisher z of the upper triangle by numpy; NaN at ROIs without signal."""
    u, v = np.triu_indices(cohort.n_rois, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([np.arctanh(np.corrcoef(cohort.scan(i).T.astype(float))[u, v]) for i in range(len(cohort))])


@pytest.fixture(scope="module")
def whole(cohort):
    """The cohort without scans that miss an ROI, so that features need no filling."""
    return cohort.select(np.isfinite(read_features(cohort)).all(1))


@pytest.fixture(scope="module")
def whole_ridge(fit, whole):
    return fit("ridge", whole)


@pytest.fixture(scope="module")
def explained_ridge(whole_ridge, whole):
    return explain_model(whole_ridge, whole, reestimates=3, sites=True, device="cpu")


def test_coefficients_of_ridge_are_those_of_scikit_learn(whole_ridge, whole, explained_ridge):
    x, y = read_features(whole), 2.0 * whole.labels - 1
    oracle = Ridge(alpha=whole_ridge.members[0].fitted.details["penalty"], solver="cholesky").fit(x, y)
    np.testing.assert_allclose(explained_ridge.edges["coefficient"], oracle.coef_, atol=1e-5)
    margin = oracle.predict(x)
    pattern = [np.cov(column, margin)[0, 1] / margin.var(ddof=1) for column in x.T]
    np.testing.assert_allclose(explained_ridge.edges["pattern"], pattern, atol=1e-5)
    np.testing.assert_allclose(explained_ridge.edges["pattern_cohort"], pattern, atol=1e-5)
    names = whole.atlas.rois["name"].to_numpy()
    u, v = np.triu_indices(16, 1)
    assert explained_ridge.edges["roi_a"].tolist() == names[u].tolist()
    assert explained_ridge.edges["roi_b"].tolist() == names[v].tolist()


@pytest.mark.parametrize(
    "name",
    ["ridge", "log-ridge", "brio-plus"]
    + [pytest.param(n, marks=pytest.mark.soak) for n in ("svm", "logistic", "tangent-ridge", "fc-tangent-ridge")],
)
def test_linear_models_read_the_planted_regions(fit, name):
    model = fit(name)
    explanation = explain_model(model)
    rank = explanation.rois.set_index("roi")["rank"]
    assert sorted(rank[PLANTED]) == [1, 2, 3, 4]
    assert sorted(rank) == list(range(1, 17))
    share = model.patterns[0].pattern @ explanation.members[0].coefficients
    if explanation.members[0].beyond_edges:
        assert 0.2 < share < 1 - 1e-3
        assert f"Edges account for {share:.0%} of the variance" in describe_explanation(explanation)
    else:
        assert share == pytest.approx(1, abs=1e-9)  # nothing but edges moves the margin


def test_a_network_with_factors_has_regions_but_no_edges(fit, cohort, tmp_path, monkeypatch):
    model = fit("brio")
    explanation = explain_model(model, cohort, reestimates=2, device="cpu")
    assert explanation.edges is None
    assert explanation.sites is None
    np.testing.assert_allclose(explanation.factors.groupby("seed")["share"].sum(), [1, 1])
    assert explanation.rois["emphasis"].mean() == pytest.approx(1)
    assert explanation.rois.sort_values("rank")["emphasis"].is_monotonic_decreasing
    monkeypatch.setattr(explain_output, "import_brain_plots", lambda: None)
    monkeypatch.setattr(explain_output, "save_figure", lambda figure, path: path.touch())  # drawn, but not rendered
    lines = write_explanation(explanation, tmp_path / "brio", render_explanation_page)
    files = set(list_hashed(tmp_path / "brio" / "SHA256SUMS"))
    assert {file.name for file in (tmp_path / "brio").iterdir()} == files | {"SHA256SUMS"}
    assert files == {"explanation.html", "explanation.md", "factors.csv", "matrix.png", "profiles.csv", "rois.csv"}
    assert any("factors of two fits cannot be matched" in line for line in lines)
    refuse("cannot leave out sites: 'brio' has no coefficients", explain_model, model, cohort, sites=True, device="cpu")


@pytest.mark.soak
def test_regions_of_factors_are_drawn_in_a_brain(fit, tmp_path):
    write_explanation(explain_model(fit("brio")), tmp_path / "brio", render_explanation_page)
    assert (tmp_path / "brio" / "brain.png").stat().st_size > 10_000
    assert "brain.png" in (tmp_path / "brio" / "explanation.md").read_text()


def read_first_scans(model, scans, n=3):
    member = model.members[0]
    taken = model.gather_inputs(Connectomes(scans), member).take(np.arange(n))
    return taken, model.method.read_explained(member.fitted, taken).edges, member.fitted.state.learned


def assert_equal_but_for_a_constant(edges, expected):
    np.testing.assert_allclose(edges - edges[0], expected - expected[0], atol=1e-5)


@pytest.mark.soak
def test_the_edges_of_fc_and_tangent_space_together_are_those_of_fc(fit, whole):
    _, edges, learned = read_first_scans(fit("fc-tangent-ridge"), whole)
    assert_equal_but_for_a_constant(edges, read_features(whole)[:3] / float(learned["scale"][0]))


@pytest.mark.soak
def test_edges_in_tangent_space_are_those_of_the_matrix_logarithm(fit, whole):
    model = fit("tangent-ridge")
    scans, edges, learned = read_first_scans(model, whole)
    W, S = learned["whitening"].numpy(), model.method._shrink_scans(scans, learned).numpy()
    u, v = np.triu_indices(16, 1)
    assert_equal_but_for_a_constant(edges, np.stack([np.sqrt(2) * logm(W @ s @ W).real[u, v] for s in S]))


def test_a_scaffold_has_coefficients_on_its_edges_alone(fit):
    model = fit("core-scaffold", edges=12, bootstraps=3)
    learned = model.members[0].fitted.state.learned
    edges = explain_model(model).edges
    names = model.atlas.rois["name"].to_numpy()
    chosen = set(zip(names[learned["u"]], names[learned["v"]], strict=True))
    there = [pair in chosen for pair in zip(edges["roi_a"], edges["roi_b"], strict=True)]
    assert sum(there) == 12
    assert (edges["coefficient"][there] != 0).all()
    assert (edges["coefficient"][~np.array(there)] == 0).all()


def test_a_site_is_left_out_as_if_it_had_never_been_there(fit, whole, explained_ridge, whole_ridge):
    site = "site03"
    inside = whole.select(whole.sites != site)
    alone = explain_model(fit("ridge", inside)).edges
    row = explained_ridge.sites.set_index("site").loc[site]
    for name in ("coefficient", "pattern"):
        expected = np.corrcoef(alone[name], explained_ridge.edges[name])[0, 1]
        assert row[f"{name}_correlation"] == pytest.approx(expected, abs=1e-6)
    there = whole.select(whole.sites == site)
    x = read_features(there)
    difference = x[there.labels == 1].mean(0) - x[there.labels == 0].mean(0)
    assert row["difference_correlation"] == pytest.approx(np.corrcoef(alone["pattern"], difference)[0, 1], abs=1e-5)
    top = alone["pattern"].abs().nlargest(15).index
    same = np.sign(alone["pattern"][top]) == np.sign(difference[top])
    assert row["strongest_same_sign"] == pytest.approx(same.mean())
    assert set(explained_ridge.sites["site"]) == set(whole.sites)
    planted = explained_ridge.edges["roi_a"].isin(PLANTED) & explained_ridge.edges["roi_b"].isin(PLANTED)
    same = explained_ridge.edges["same_sign_sites"]
    assert same[planted].mean() > same[~planted].mean()


def test_fits_without_a_site_are_harmonised_on_their_own_sites(fit, whole):
    """So the scans of the site that is left out change nothing in them."""
    words = {"harmonise.kind": "combat", "harmonise.unseen": "pooled"}
    model = fit("ridge", whole, **words)
    found = explain_model(model, whole, sites=True, device="cpu").sites.set_index("site")
    assert set(found.index) == set(whole.sites)
    site = found.index[0]
    alone = explain_model(fit("ridge", whole.select(whole.sites != site), **words)).edges
    expected = np.corrcoef(alone["coefficient"], explain_model(model).edges["coefficient"])[0, 1]
    assert found.loc[site, "coefficient_correlation"] == pytest.approx(expected, abs=1e-5)


def test_patterns_of_reestimates_are_computed_from_the_same_draws(whole_ridge, whole, explained_ridge):
    connectomes = Connectomes(whole)
    request = whole_ridge.request_reestimates(connectomes, 3)
    u, v = np.triu_indices(16, 1)
    x = np.empty((len(whole), 3, len(u)))
    for chunk, A in connectomes.iterate_reestimates(request):
        x[chunk] = A.numpy()[..., u, v]
    margin = x @ explained_ridge.edges["coefficient"].to_numpy()
    patterns = np.stack(
        [[np.cov(x[:, k, e], margin[:, k])[0, 1] for e in range(len(u))] / margin[:, k].var(ddof=1) for k in range(3)]
    )
    edges = explained_ridge.edges
    np.testing.assert_allclose(edges["pattern_sd_reestimates"], patterns.std(0, ddof=1), atol=1e-5)
    same = (np.sign(patterns) == np.sign(edges["pattern"].to_numpy())).mean(0)
    clear = np.abs(patterns).min(0) > 1e-4
    np.testing.assert_allclose(edges["same_sign_reestimates"][clear], same[clear])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["ridge", "brio-plus"])
def test_margins_that_do_not_vary_are_said_and_not_divided_by(fit, cohort, name, tmp_path):
    model = fit(name)
    fitted = model.members[0].fitted
    constant = {key: torch.zeros_like(t) for key, t in fitted.parameters.items()}
    fitted = replace(fitted, parameters=fitted.parameters | constant)
    flat = complete_model(model.method, [Member(fitted, None)], Connectomes(cohort), cohort)
    assert not flat.compute_margins(Connectomes(cohort)).full.any()
    write_model(flat, tmp_path / "model")
    with pytest.raises(BrioError, match="predicts the same margin for every scan, so there is nothing to explain"):
        explain_model(read_model(tmp_path / "model"))
    with pytest.raises(BrioError, match="has the same margin for every scan"):
        explain_model(replace(flat, patterns=model.patterns[:1]), cohort, reestimates=0, device="cpu")


def test_a_method_that_explains_nothing_is_refused_with_those_that_do(fit):
    models = [fit("gcn"), fit("length-only")]
    for model in models:
        with pytest.raises(BrioError, match="nothing to explain") as refusal:
            explain_model(model)
        able = str(refusal.value).split("these methods can be explained: ")[1].split(", ")
        assert {"ridge", "log-ridge", "brio", "brio-wo-rs", "brio-plus"} <= set(able)
        assert not {"gcn", "length-only", "mlp"} & set(able)
    for model in (*models, fit("ridge"), fit("brio"), fit("brio-plus")):
        explains = model.method.explain(model.members[0].fitted) is not None
        assert explains == bool(model.method.facts.explains)


def test_errors_say_what_is_wrong(fit, ridge, cohort):
    two, few = cohort.select(np.isin(cohort.sites, ["site01", "site02"])), cohort.select(np.arange(5))
    another = rf"is not the cohort that the model was fitted to \(in memory, {len(cohort)} scans\)"
    for model, scans, options, words in (
        (ridge, few, {}, "at least 10"),
        (ridge, None, {"sites": True}, "--cohort"),
        (ridge, cohort, {"reestimates": 1}, "reestimates"),
        (ridge, two, {"reestimates": 0, "sites": True}, another),
        (fit("ridge", two), two, {"reestimates": 0, "sites": True}, "leaving one out needs at least 3"),
    ):
        refuse(words, explain_model, model, scans, device="cpu", **options)


def test_scans_without_labels_are_read(ridge, cohort):
    table = cohort.participants.drop(columns=["label", "site"])
    bare = replace(cohort, participants=table)
    explanation = explain_model(ridge, bare, reestimates=0, device="cpu")
    np.testing.assert_allclose(explanation.edges["pattern_cohort"], explanation.edges["pattern"])
    assert explanation.cohort_patterns.reestimated == ()


def test_groups_come_from_the_atlas_or_from_clusters(ridge):
    groups = group_rois(load_bundled_atlas("aal116"), ridge.mean)
    assert "cerebellum" in groups.in_order
    assert sorted(groups.order) == list(range(116))
    assert (np.diff([groups.in_order.index(name) for name in groups.name[groups.order]]) >= 0).all()
    cc200 = group_rois(load_bundled_atlas("cc200"), ridge.mean)
    assert {"occipital", "temporal"} <= set(cc200.in_order)
    assert group_rois(ridge.atlas, ridge.mean).in_order == ["stable", "unstable", "spurious", "site"]
    midline = ridge.atlas.rois.assign(hemi=[None, *ridge.atlas.rois["hemi"][1:]])
    assert group_rois(replace(ridge.atlas, rois=midline), ridge.mean).order[0] == 0, "before those with a side"
    own = group_rois(replace(ridge.atlas, rois=ridge.atlas.rois.drop(columns="network")), ridge.mean)
    assert "clusters" in own.origin
    stable = own.name[:4]
    assert (stable == stable[0]).all()  # a strongly coupled network is one cluster


def test_labels_are_moved_apart_and_stay_in_order_before_the_last_place():
    spread = explain_output._spread(np.array([0.0, 0.1, 5.0, 9.8, 10.0]), 1.0, 10.0)
    np.testing.assert_allclose(spread, [0, 1, 5, 9, 10])


def test_the_command_writes_tables_figures_and_what_they_mean(ridge, cohort, tmp_path, monkeypatch):
    monkeypatch.setattr(explain_output, "save_figure", lambda figure, path: path.touch())  # drawn, but not rendered
    write_model(ridge, tmp_path / "model")
    cohort.save(tmp_path / "cohort")
    words = ("explain", tmp_path / "model", "--quiet", "--device", "cpu")
    said = command(
        *words, "--cohort", tmp_path / "cohort", "--keep-all", "--sites", "--reestimates", 2, "--out", tmp_path / "out"
    ).succeed()
    files = set(list_hashed(tmp_path / "out" / "SHA256SUMS"))
    assert {file.name for file in (tmp_path / "out").iterdir()} == files | {"SHA256SUMS"}
    tables = {"edges.csv", "rois.csv", "sites.csv", "new_sites.csv"}
    assert files == tables | {"matrix.png", "brain.png", "chord.png", "explanation.md", "explanation.html"}
    assert (tmp_path / "out" / "explanation.html").read_text().count('src="data:image/png') == 3
    text = (tmp_path / "out" / "explanation.md").read_text()
    assert "A coefficient is not a pattern" in text
    assert "are not causes" in text
    assert "| rank | region | group | sum of absolute patterns | sum of patterns | worst rank in re-estimates |" in text
    assert "Not computed" not in text
    scans = f"the scans that the model was fitted to were given ({len(cohort)} scans of cohort 'in memory')"
    assert scans in said.text
    assert scans in text
    other = describe_explanation(explain_model(ridge, cohort.select(np.arange(20)), reestimates=0, device="cpu"))
    others = f"the model was fitted to 20 of them and to {len(cohort) - 20} others"
    assert f"20 scans of cohort 'in memory' were given; {others}" in other

    monkeypatch.setattr(explain_output, "import_brain_plots", lambda: None)
    text = describe_explanation(explain_model(ridge))
    assert "nilearn is not installed" in text
    assert "no scans were given" in text
    assert "brain.png" not in text
    for wrong, reason in (
        ((*words, "--out", tmp_path / "out"), "already exists"),
        ((*words, "--sites", "--out", tmp_path / "x"), "--cohort"),
        (("explain", tmp_path / "cohort", "--out", tmp_path / "x"), "is not a model"),
    ):
        assert reason in command(*wrong).refuse().err
        assert not (tmp_path / "x").exists()
