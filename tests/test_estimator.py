"""BrioClassifier on simulated scans of unequal length with a planted class effect."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from brio import Atlas, BrioError, Cohort
from brio import run as evaluate
from brio.cohort.simulate import Simulation, simulate
from brio.estimator import MAIN_SETTINGS, BrioClassifier, convert_connectomes
from brio.jobs import JobSpec
from brio.jobs.spec import RECOMMENDED_METHODS
from brio.methods import BrioSettings
from brio.models import adapt_model, fit_model, write_model
from brio.protocol.splitters import LeaveOneSiteOut, SiteStratifiedKFold
from commands import command, refuse

SMALL = {"method": "brio", "J": 2, "K": 2, "M": 4, "epochs": 24, "T_w": 8, "learning_rate": 5e-3, "device": "cpu"}
SMALL["settings"] = {"cell_batch": 4}
NARROW = {"cell_batch": 4, "d_e": 4, "d_h": 8, "d_t": 4, "d_mlp": 8, "d_qk": 8}
NARROW |= {"block_subjects": 8, "block_signals": 4, "block_products": 4}
SHORT = SMALL | {"epochs": 3, "T_w": 1, "settings": NARROW}  # where it need not learn


def planted(n_sites, per_site=10, n_rois=12, seed=0):
    """Scans in which the first four ROIs go together in patients, at every site alike."""
    rng = np.random.default_rng(seed)
    X, y = [], np.arange(n_sites * per_site) % 2
    for _ in range(n_sites):
        mixing = np.eye(n_rois) + 0.1 * rng.normal(size=(n_rois, n_rois))
        for label in y[:per_site]:
            scan = rng.normal(size=(int(rng.integers(60, 100)), n_rois))
            for t in range(1, len(scan)):
                scan[t] += 0.4 * scan[t - 1]
            scan[:, :4] += label * rng.normal(size=(len(scan), 1))
            X.append(scan @ mixing)
    return X, y, np.repeat([f"site{e}" for e in range(n_sites)], per_site)


X, Y, SITES = planted(6)
X_NEW, Y_NEW, _ = planted(3, seed=1)
TEXT = np.array(["control", "patient"])[Y]


@pytest.fixture(scope="module")
def fitted():
    return BrioClassifier(**SMALL, random_state=0).fit(X, Y, sites=SITES)


@pytest.fixture(scope="module")
def default():
    return BrioClassifier(device="cpu", random_state=0).fit(X, Y, sites=SITES)


@pytest.fixture(scope="module")
def ridge():
    return BrioClassifier("ridge", device="cpu", random_state=0).fit(X, Y, sites=SITES)


def cohort_of(scans=X, y=Y, sites=SITES, atlas=None):
    ids = [f"X[{i}]" for i in range(len(scans))]
    return Cohort.from_scans(scans, site=sites, label=y, participant_id=ids, atlas=atlas)


# ---------------------------------------------------------------- learning


def test_sites_and_labels_are_read_without_blanks_and_forms():
    written = np.where(SITES == "site1", np.resize(["site1", "site1 ", " \uff53ite1"], len(SITES)), SITES)
    model = BrioClassifier(device="cpu", random_state=0).fit(X, Y, sites=written)
    assert set(model.source_sites_) == set(SITES)
    named = np.where(SITES == "site1", "nan", SITES)
    assert "nan" in BrioClassifier(device="cpu", random_state=0).fit(X, Y, sites=named).source_sites_
    for labels in (["asd", "ASD"], ["1", "1.0"], ["TC", "TC "], ["", "a"]):
        with pytest.raises(BrioError, match=labels[1]):
            BrioClassifier().fit(X, np.array(labels)[Y], sites=SITES)


def test_it_learns_what_holds_at_new_sites(fitted, ridge, default):
    for model in (fitted, ridge, default):
        assert roc_auc_score(Y_NEW, model.decision_function(X_NEW)) > 0.85
        assert model.score(X_NEW, Y_NEW) > 0.7


def test_the_default_is_the_method_that_is_recommended_first(default):
    assert default.method_.name == RECOMMENDED_METHODS[0]


def test_what_a_fit_leaves_behind(fitted, ridge):
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.n_features_in_ == 12
    assert len(fitted.validation_sites_) == 2
    assert set(fitted.source_sites_) == set(ridge.source_sites_) == set(SITES)  # validation sites, too
    assert ridge.validation_sites_ == fitted.one_class_sites_ == ()
    assert 0.5 < fitted.validation_auc_ <= 1.0
    assert 8 < fitted.selected_epoch_ <= 24
    assert 2 <= fitted.block_length_ <= 30
    assert (fitted.method_.settings.J, fitted.method_.settings.d_h) == (2, BrioSettings().d_h)
    assert ridge.selected_epoch_ is ridge.block_length_ is None
    assert not hasattr(ridge, "intercept_")


def test_margins_probabilities_and_labels_agree_and_a_scan_is_scored_alone(fitted):
    margin, probability = fitted.decision_function(X_NEW), fitted.predict_proba(X_NEW)
    assert margin.shape == (30,)
    np.testing.assert_allclose(probability, np.stack([1 - expit(margin), expit(margin)], 1), atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X_NEW), (margin > 0).astype(int))
    alone = np.concatenate([fitted.decision_function([scan]) for scan in X_NEW[:5]])
    np.testing.assert_allclose(alone, margin[:5], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["ridge", "log-ridge"])
def test_probabilities_are_those_of_a_job_on_the_same_scans(method, tmp_path):
    """Of a job whose test site is what the estimator has not seen; all choices are made by inner folds."""
    settings = {"choose_by": "source-sites"}
    options = {"device": "cpu", "exclude": False, "settings": settings | {"protocol.validation_sites": 0}}
    job = evaluate(cohort_of(), [method], out=tmp_path / "job", folds=["site5"], **options)
    test = SITES == "site5"
    model = BrioClassifier(method, device="cpu", random_state=0, settings=settings, validation_sites=0)
    model.fit([x for x, t in zip(X, test, strict=True) if not t], Y[~test], sites=SITES[~test])
    new = [x for x, t in zip(X, test, strict=True) if t]
    probability = model.predict_proba(new)
    expected = job.predictions["probability"].to_numpy(dtype=float)
    np.testing.assert_allclose(probability[:, 1], expected, atol=1e-6)
    np.testing.assert_allclose(probability.sum(1), 1.0)
    np.testing.assert_array_equal(model.predict(new), probability.argmax(1))
    margin = job.predictions["margin"].to_numpy(dtype=float)
    moved = np.abs(model.decision_function(new) - margin).max()
    assert (moved < 1e-4) if method == "log-ridge" else (moved > 0.1)  # its margins are calibrated themselves
    np.testing.assert_array_equal(np.argsort(model.decision_function(new)), np.argsort(margin))


def test_contributions_add_up_to_the_margin(fitted, ridge, tmp_path):
    settings = {"harmonise.kind": "combat", "harmonise.unseen": "pooled", "refit": False, **NARROW}
    settings |= {name: SHORT[name] for name in ("J", "K", "M", "epochs", "T_w")}
    spec = JobSpec(cohort_of(), ["brio"], settings=settings, device="cpu", exclude=False)
    write_model(fit_model(spec), tmp_path / "model")
    for model in (fitted, BrioClassifier.load(tmp_path / "model").set_params(device="cpu")):
        a = model.contributions(X_NEW)
        assert a.shape == (30, 2)
        assert a.std(0).min() > 0
        margin = a.sum(1) / np.sqrt(2) + model.intercept_
        np.testing.assert_allclose(margin, model.decision_function(X_NEW), atol=1e-5)
    refuse("'ridge' has no connectome factors", ridge.contributions, X_NEW)


def test_contributions_of_several_seeds_and_of_an_adapted_model_are_refused(ridge, tmp_path):
    (member,) = ridge.to_model().members
    second = replace(member, fitted=replace(member.fitted, run=replace(member.fitted.run, seed=1)))
    local = cohort_of(X_NEW, Y_NEW, ["new"] * len(X_NEW))
    both = replace(ridge.to_model(), members=(member, second), patterns=ridge.to_model().patterns * 2)
    write_model(both, tmp_path / "averages 2 seeds, each with its own factors")
    write_model(adapt_model(ridge.to_model(), local, device="cpu"), tmp_path / "adapted to a hospital")
    for folder in tmp_path.iterdir():
        refuse(folder.name, BrioClassifier.load(folder).set_params(device="cpu").contributions, X_NEW)


def test_validation_scans_choose_but_do_not_teach():
    """Other scans at the validation sites may change the penalty, but not the model under a given penalty."""
    one = {"settings": {"least_penalty": 100.0, "largest_penalty": 100.0, "penalties": 1, "choose_by": "validation"}}
    a = BrioClassifier("ridge", device="cpu", random_state=0, **one).fit(X, Y, sites=SITES)
    assert len(a.validation_sites_) == 2
    validates = np.isin(SITES, a.validation_sites_)
    noise = np.random.default_rng(5)
    changed = [noise.normal(size=scan.shape) if v else scan for scan, v in zip(X, validates, strict=True)]
    b = BrioClassifier("ridge", device="cpu", random_state=0, **one).fit(changed, Y, sites=SITES)
    np.testing.assert_array_equal(a.decision_function(X_NEW), b.decision_function(X_NEW))
    assert a.validation_auc_ > b.validation_auc_


# ---------------------------------------------------------------- random state


def test_random_state_decides_everything():
    one = BrioClassifier("mlp", settings={"epochs": 2, "width": 4}, device="cpu", random_state=0).fit(X, Y, sites=SITES)
    again = clone(one).fit(X, Y, sites=SITES)
    np.testing.assert_array_equal(again.decision_function(X_NEW), one.decision_function(X_NEW))
    other = clone(one).set_params(random_state=1).fit(X, Y, sites=SITES)
    assert not np.allclose(other.decision_function(X_NEW), one.decision_function(X_NEW))
    assert one.seed_ == 0
    drawn = clone(one).set_params(random_state=np.random.RandomState(0)).fit(X, Y, sites=SITES)
    same = clone(one).set_params(random_state=drawn.seed_).fit(X, Y, sites=SITES)
    np.testing.assert_array_equal(drawn.decision_function(X_NEW), same.decision_function(X_NEW))


# ---------------------------------------------------------------- inputs


def test_labels_and_sites_of_any_kind(ridge):
    model = BrioClassifier("ridge", device="cpu", random_state=0)
    margin = ridge.decision_function(X_NEW)
    for y in (TEXT, TEXT.tolist(), TEXT.astype(object), pd.Series(TEXT), Y.astype(bool), Y + 7):
        model.fit(X, y, sites=SITES)
        np.testing.assert_array_equal(model.classes_, np.unique(y))
        np.testing.assert_array_equal(model.decision_function(X_NEW), margin)
    said = model.fit(X, TEXT, sites=SITES).predict(X_NEW)
    np.testing.assert_array_equal(said, np.where(margin > 0, "patient", "control"))
    numbers = np.unique(SITES, return_inverse=True)[1]
    assert set(model.fit(X, Y, sites=numbers).source_sites_) == set("012345")


def test_scans_of_any_container(ridge):
    margin = ridge.decision_function(X_NEW)
    objects = np.empty(len(X_NEW), dtype=object)
    objects[:] = X_NEW
    for scans in (tuple(X_NEW), objects, pd.Series(list(X_NEW)), [pd.DataFrame(s) for s in X_NEW]):
        np.testing.assert_array_equal(ridge.decision_function(scans), margin)
    np.testing.assert_array_equal(ridge.decision_function([torch.from_numpy(s) for s in X_NEW]), margin)
    cut = [scan[:60] for scan in X_NEW]
    whole = ridge.decision_function(cut)
    for block in (np.stack(cut), np.stack(cut).astype(object), torch.from_numpy(np.stack(cut))):
        np.testing.assert_array_equal(ridge.decision_function(block), whole)


def test_a_cohort_brings_its_labels_and_sites(ridge):
    model = BrioClassifier("ridge", device="cpu", random_state=0).fit(cohort_of())
    np.testing.assert_array_equal(model.classes_, [0, 1])
    assert model.to_model().classes == cohort_of().classes
    assert model.validation_sites_ == ridge.validation_sites_
    margin = model.decision_function(X_NEW)
    np.testing.assert_array_equal(margin, ridge.decision_function(X_NEW))
    new = cohort_of(X_NEW, Y_NEW, ["a"] * 30)
    np.testing.assert_array_equal(model.decision_function(new), margin)
    assert model.score(new, new.labels) == ridge.score(X_NEW, Y_NEW)
    wrong = cohort_of(y=1 - Y, sites=np.roll(SITES, 5))  # labels and sites that are given replace its own
    np.testing.assert_array_equal(model.fit(wrong, TEXT, sites=SITES).decision_function(X_NEW), margin)
    assert tuple(model.classes_) == model.to_model().classes == ("control", "patient")
    np.testing.assert_array_equal(wrong.labels, 1 - Y)
    named = replace(wrong, classes=("HC", "MDD"))
    assert clone(model).fit(named, Y, sites=SITES).to_model().classes == ("HC", "MDD")


def test_a_cohort_is_scored_by_its_own_labels(ridge):
    y = np.where(np.arange(len(Y)) < 7, 1 - Y, Y)  # some labels are wrong, so that the score depends on them
    right = float((ridge.predict(X) == y).mean())
    assert 0.5 < right < 1
    assert ridge.score(X, y) == ridge.score(cohort_of(y=y)) == right
    named = BrioClassifier("ridge", device="cpu", random_state=0).fit(X, TEXT, sites=SITES)
    assert named.score(cohort_of(y=y)) == right, "its labels 0 and 1 are the classes in their order"
    refuse(r"y=None: .* score\(X, y\), or a Cohort", ridge.score, X)


def test_the_names_of_the_rois_are_kept_and_those_of_another_atlas_refused(tmp_path):
    names = [f"region {u}" for u in range(12)]
    cohort = cohort_of(atlas=Atlas("A", pd.DataFrame({"name": names})))
    model = BrioClassifier("ridge", device="cpu", random_state=np.random.RandomState(0)).fit(cohort)
    model.save(tmp_path / "model")
    again = BrioClassifier.load(tmp_path / "model")
    assert model.feature_names_in_.tolist() == again.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(again.predict(cohort), model.predict(cohort))
    assert again.random_state is None
    swapped = Atlas("A", pd.DataFrame({"name": [*names[:2], names[3], names[2], *names[4:]]}))
    with pytest.raises(BrioError, match="in another order: column 3 is region 3, but the model has region 2 there"):
        model.predict(cohort_of(atlas=swapped))
    model.predict(X_NEW)  # plain arrays have no names to compare
    assert not hasattr(model.fit(X, Y, sites=SITES), "feature_names_in_")


def test_missing_frames_and_dead_rois_are_no_obstacle(ridge):
    scan = X_NEW[0].copy()
    scan[5:8, 3] = np.nan
    margin = ridge.decision_function([scan, np.delete(X_NEW[0], [5, 6, 7], axis=0)])
    assert margin[0] == margin[1]
    scan[:, 9] = 0.0
    assert np.isfinite(ridge.decision_function([scan])).all()


def test_input_is_not_changed():
    scans = [scan.copy() for scan in X]
    for scan in scans:
        scan.setflags(write=False)
    BrioClassifier("ridge", device="cpu").fit(scans, Y, sites=SITES).predict(scans)
    assert all((a == b).all() for a, b in zip(scans, X, strict=True))


# ---------------------------------------------------------------- scikit-learn's machinery


def test_cross_validation_in_both_ways_of_passing_sites():
    model = BrioClassifier("ridge", device="cpu", random_state=0)
    common = {"scoring": ["roc_auc", "accuracy"], "error_score": "raise"}
    plain = cross_validate(
        model, X, TEXT, groups=SITES, cv=LeaveOneSiteOut(), params={"sites": SITES}, return_estimator=True, **common
    )
    assert plain["test_roc_auc"].mean() > 0.9
    for site, estimator in zip(np.unique(SITES), plain["estimator"], strict=True):
        assert site not in estimator.source_sites_ + estimator.validation_sites_
        assert len(estimator.source_sites_) == 5
    with sklearn.config_context(enable_metadata_routing=True):
        params = {"sites": SITES, "groups": SITES}
        asked = model.set_fit_request(sites=True)
        routed = cross_validate(asked, X, TEXT, cv=LeaveOneSiteOut(), params=params, **common)
        split = LeaveOneSiteOut().set_split_request(groups="sites")
        by_default = cross_validate(clone(model), X, TEXT, cv=split, params={"sites": SITES}, **common)
    for found in (routed, by_default):
        np.testing.assert_array_equal(found["test_roc_auc"], plain["test_roc_auc"])


def test_grid_search_over_the_number_of_factors():
    folds = SiteStratifiedKFold(2, random_state=0)
    model = BrioClassifier(**SHORT, random_state=0)
    search = GridSearchCV(model, {"J": [1, 3]}, scoring="roc_auc", cv=folds, error_score="raise")
    search.fit(X, Y, groups=SITES, sites=SITES)
    best = search.best_estimator_
    assert best.method_.settings.J == search.best_params_["J"] == best.contributions(X_NEW).shape[1]
    assert search.predict(X_NEW).shape == (30,)


def test_the_main_settings_are_settings_of_brio():
    given = {"J": 3, "K": 5, "M": 7, "T_w": 1, "epochs": 2, "epsilon": 0.2, "lambda_env": 0.25}
    given |= {"learning_rate": 1e-2, "patience": 3, "rho_g": 0.5, "weight_decay": 0.0}
    assert given.keys() == set(MAIN_SETTINGS)
    used = BrioClassifier("brio", **given, settings={"d_t": 4}, random_state=0).fit(X, Y, sites=SITES).method_.settings
    assert {name: getattr(used, name) for name in given} == given
    assert used.d_t == 4


def test_verbose_prints_each_epoch_and_a_second_fit_forgets_the_first(capsys):
    once = SHORT | {"settings": NARROW | {"refit": False}}
    model = BrioClassifier(**once, verbose=True).fit(X, Y, sites=SITES)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3
    assert "epoch 3 of 3" in said[-1]
    assert hasattr(model, "intercept_")
    model.set_params(method="ridge", settings=None, **dict.fromkeys(MAIN_SETTINGS)).fit(X, Y, sites=SITES)
    assert not hasattr(model, "intercept_")


# ---------------------------------------------------------------- keeping a model


@pytest.mark.parametrize("method", ["brio", "ridge"])
def test_save_and_load(method, tmp_path):
    settings = {} if method == "ridge" else SHORT | {"epochs": np.int64(3), "settings": NARROW | {"d_t": 8}}
    model = BrioClassifier(method, random_state=0).set_params(**settings).fit(X, TEXT, sites=SITES)
    model.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    again = BrioClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X_NEW), model.decision_function(X_NEW))
    np.testing.assert_array_equal(again.predict(X_NEW), model.predict(X_NEW))
    np.testing.assert_array_equal(again.predict_proba(X_NEW), model.predict_proba(X_NEW))
    assert again.get_params() == model.get_params()
    assert vars(again).keys() == vars(model).keys()
    for name in ("source_sites_", "validation_sites_", "one_class_sites_", "validation_auc_", "selected_epoch_"):
        assert getattr(again, name) == getattr(model, name)
    assert again.method_.settings == model.method_.settings
    assert again.classes_.dtype == model.classes_.dtype
    if method != "ridge":
        np.testing.assert_array_equal(again.contributions(X_NEW), model.contributions(X_NEW))


def test_intervals_are_those_of_the_command_line(ridge, tmp_path):
    table = ridge.predict_table(X_NEW, reestimates=4)
    np.testing.assert_array_equal(table["probability"], ridge.predict_proba(X_NEW)[:, 1])
    np.testing.assert_array_equal(ridge.predict_interval(X_NEW, reestimates=4), table[["low", "high"]])
    ridge.save(tmp_path / "model")
    scans = cohort_of(X_NEW, Y_NEW, ["new"] * len(X_NEW)).save(tmp_path / "scans").path
    words = (tmp_path / "model", scans, "--out", tmp_path / "out", "--reestimates", 4, "--device", "cpu")
    command("predict", *words).succeed()
    stored = pd.read_csv(tmp_path / "out" / "predictions.csv", keep_default_na=False).set_index("participant_id")
    for name in ("probability", "low", "high", "agreement"):
        np.testing.assert_allclose(stored.loc[table["participant_id"], name], table[name], rtol=1e-9)


def test_explanations_are_those_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr("brio.models.explain_output.save_figure", lambda figure, path: path.touch())
    cohort, own_folds = cohort_of().save(tmp_path / "cohort"), {"choose_by": "source-sites"}
    model = BrioClassifier("ridge", settings=own_folds, validation_sites=0, device="cpu", random_state=0).fit(cohort)
    model.save(tmp_path / "model")
    words = ("--cohort", tmp_path / "cohort", "--keep-all", "--sites", "--reestimates", 2, "--device", "cpu", "--quiet")
    command("explain", tmp_path / "model", *words, "--out", tmp_path / "out").succeed()
    loaded = BrioClassifier.load(tmp_path / "model").set_params(device="cpu")
    for explanation in (model.explain(sites=True, reestimates=2), loaded.explain(cohort, sites=True, reestimates=2)):
        for name in ("edges", "rois", "sites"):
            stored = pd.read_csv(tmp_path / "out" / f"{name}.csv", dtype={"roi": str, "roi_a": str, "roi_b": str})
            pd.testing.assert_frame_equal(stored, getattr(explanation, name), check_dtype=False)
    pd.testing.assert_frame_equal(loaded.explain().edges, model.explain().edges)
    refuse("requires the cohort that the model was fitted to", loaded.explain, sites=True)


@pytest.mark.parametrize(
    ("method", "n_sites"), [("ridge", 6), ("log-ridge", 2), ("brio-plus", 3), ("mlp", 6), ("mlp", 3)]
)
def test_the_model_of_the_command_line_is_the_same(method, n_sites, tmp_path):
    """One definition of the final model: the same sites, settings and margins, whoever fits it."""
    sites = np.array([f"site{k}" for k in range(n_sites)])[np.arange(60) // 2 % n_sites]
    settings = {"mlp": {"epochs": 3, "width": 4}, "brio-plus": {"K": 2}}.get(method, {})
    spec = JobSpec(cohort_of(sites=sites), [method], seeds=1, exclude=False, device="cpu", settings=settings)
    write_model(fit_model(spec, holds_scans=True), tmp_path / "model")
    loaded = BrioClassifier.load(tmp_path / "model").set_params(device="cpu")
    own = BrioClassifier(method, device="cpu", random_state=0, settings=settings).fit(X, Y, sites=sites)
    assert own.method_.settings == loaded.method_.settings
    for name in ("source_sites_", "validation_sites_", "one_class_sites_", "seed_", "selected_epoch_"):
        assert getattr(own, name) == getattr(loaded, name), name
    np.testing.assert_allclose(loaded.decision_function(X_NEW), own.decision_function(X_NEW), rtol=1e-9, atol=1e-9)


def test_a_model_that_holds_scans_is_saved_only_where_the_user_says_so(tmp_path):
    model = BrioClassifier("fc-hgnn", settings={"epochs": 1}, device="cpu", random_state=0)
    model.fit(simulate(Simulation(n_sites=4, per_class=4, n_rois=8, frames=60)))
    refuse("stores values from individual source scans", model.save, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    model.save(tmp_path / "model", holds_scans=True)
    assert "This model stores values from individual source scans" in (tmp_path / "model" / "MODEL_CARD.md").read_text()


def test_a_copy_for_another_process_carries_no_scans(ridge):
    copy = pickle.loads(pickle.dumps(BrioClassifier("ridge", device="cpu", random_state=0).fit(X, Y, sites=SITES)))
    np.testing.assert_array_equal(copy.predict(X_NEW), ridge.predict(X_NEW))
    refuse("lacks the scans", copy.save, "anywhere")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
@pytest.mark.parametrize("method", ["brio", "ridge"])
def test_a_model_of_the_gpu_scores_alike_on_the_cpu(method):
    settings = {} if method == "ridge" else SMALL
    model = BrioClassifier(method, random_state=0).set_params(**settings | {"device": "cuda"})
    margin = model.fit(X, Y, sites=SITES).decision_function(X_NEW)
    np.testing.assert_allclose(model.set_params(device="cpu").decision_function(X_NEW), margin, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- connectomes


def after_nilearn(method, **measure):
    from nilearn.connectome import ConnectivityMeasure

    fc = ConnectivityMeasure(EmpiricalCovariance(), kind="correlation", **measure)
    return make_pipeline(fc, BrioClassifier(method, kind="connectome", device="cpu", random_state=0))


@pytest.mark.parametrize("method", ["ridge", "log-ridge"])
@pytest.mark.parametrize("measure", [{}, {"vectorize": True}, {"vectorize": True, "discard_diagonal": True}])
def test_a_pipeline_after_nilearn_equals_the_fit_to_scans(method, measure):
    dead = [np.where(np.arange(12) == 5, 0.0, scan) if i in (0, 7) else scan for i, scan in enumerate(X)]
    from_scans = BrioClassifier(method, device="cpu", random_state=0).fit(dead, Y, sites=SITES)
    pipeline = after_nilearn(method, **measure).fit(dead, Y, brioclassifier__sites=SITES)
    margin = from_scans.decision_function(X_NEW)
    assert np.ptp(margin) > 1
    np.testing.assert_allclose(pipeline.decision_function(X_NEW), margin, rtol=1e-4, atol=1e-4)


def test_lower_triangles_are_unfolded_with_any_diagonal():
    i, j = np.tril_indices(12)
    for diagonal in (1.0, np.sqrt(0.5), 0.0, np.nan):
        edges = np.where(i == j, diagonal, FC[:, i, j])
        np.testing.assert_array_equal(convert_connectomes(edges), convert_connectomes(FC))
    np.testing.assert_array_equal(convert_connectomes(FC[:1, i[i != j], j[i != j]]), convert_connectomes(FC[:1]))


def test_a_pipeline_is_cross_validated_over_sites():
    options = {"groups": SITES, "cv": LeaveOneSiteOut(), "scoring": "roc_auc"}
    scans = cross_validate(BrioClassifier("ridge", random_state=0), X, Y, params={"sites": SITES}, **options)
    params = {"brioclassifier__sites": SITES}
    pipeline = cross_validate(after_nilearn("ridge", vectorize=True), X, Y, params=params, **options)
    np.testing.assert_array_equal(pipeline["test_score"], scans["test_score"])


FC = np.array([np.corrcoef(scan.T) for scan in X])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "brio"}, "'brio' needs the frames of scans for re-estimating connectomes"),
        ({"method": "brio-plus"}, "'brio-plus' needs the frames of scans"),
        ({"kind": "fc"}, "kind='fc': give 'scans' or 'connectome'"),
        ({"X": X}, "X is not one array of real numbers; kind='connectome' needs correlations"),
        ({"X": FC[:, :5]}, r"X has shape \(60, 5, 12\)"),
        ({"X": FC[:, 0]}, r"X has shape \(60, 12\)"),
        ({"X": FC + 0j}, "X is not one array of real numbers"),
        ({"X": FC[:0]}, "X contains no connectomes"),
        ({"X": FC * np.eye(FC.shape[1])}, r"X\[0\]: all correlations are 0 or missing"),
        ({"X": 3 * FC}, "X contains absolute values up to 3"),
        ({"X": np.triu(FC)}, r"X\[0\]: is not symmetric"),
        ({"X": np.ma.masked_less(FC, 0)}, "row 1, column . has no finite value"),
    ],
)
def test_connectomes_that_are_refused(changed, message):
    given = {"method": "ridge", "kind": "connectome", "X": FC} | changed
    scans = given.pop("X")
    refuse(message, BrioClassifier(**given, device="cpu").fit, scans, Y, sites=SITES)


@pytest.mark.parametrize("options", [{}, {"vectorize": True}, {"vectorize": True, "discard_diagonal": True}])
def test_partial_correlations_of_nilearn_are_refused(options):
    from nilearn.connectome import ConnectivityMeasure

    rng = np.random.default_rng(0)
    scans = [rng.normal(size=(50, 1)) + rng.normal(size=(50, 30)) for _ in Y]
    fit = BrioClassifier("ridge", kind="connectome", device="cpu").fit
    fit(ConnectivityMeasure(kind="correlation", **options).fit_transform(scans), Y, sites=SITES)
    partial = ConnectivityMeasure(kind="partial correlation", **options).fit_transform(scans)
    refuse(r"X\[0\]: contains partial correlations", fit, partial, Y, sites=SITES)


def test_connectomes_give_no_model_and_no_interval(tmp_path):
    model = BrioClassifier("ridge", kind="connectome", device="cpu").fit(FC, Y, sites=SITES)
    refuse("the scans have 5 ROIs", model.predict, FC[:, :5, :5])
    refuse("need frames, which connectomes lack", model.save, tmp_path / "model")
    refuse("need frames, which connectomes lack", model.predict_interval, FC)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("use", ["predict", "predict_proba", "decision_function", "contributions", "save"])
def test_not_fitted(use):
    with pytest.raises(NotFittedError):
        getattr(BrioClassifier(), use)(X_NEW)


@pytest.mark.parametrize(
    ("scans", "message"),
    [
        (np.ones((60, 12)), r"X has shape \(60, 12\), like one scan or a table; give a list of arrays"),
        (pd.DataFrame(np.ones((60, 12))), r"X has shape \(60, 12\), like one scan or a table; give a list of arrays"),
        (sparse.csr_array(np.ones((60, 12))), "X is sparse"),
        (np.ones((60, 12)).tolist(), r"X\[0\] has shape \(12,\); a scan must have"),
        (np.ones((1, 2, 60, 12)), r"X has shape \(1, 2, 60, 12\); give a list of time series or one array"),
        ([*X[:-1], X[-1][:, :11]], r"X\[59\] has 11 ROIs, but X\[0\] has 12"),
        ([*X[:-1], [["a", "b"]]], r"X\[59\] is not an array of numbers"),
        ([*X[:-1], np.corrcoef(X[-1].T)], r"X\[59\]: is a square symmetric matrix .*give time series"),
        ([*X[:-1], np.linalg.inv(np.cov(X[-1].T))], r"X\[59\]: is a square symmetric matrix"),
        ([x.T for x in X], r"X\[1\] has \d+ ROIs, but X\[0\] has \d+; .*transpose them if their rows are ROIs"),
        ([*X[:-1], X[-1] + 1j], r"X\[59\]: Complex data not supported"),
        ([np.full_like(X[0], np.nan), *X[1:]], r"X\[0\]: no ROI has signal"),
        ([], "X contains no scans"),
        (5, "X has type int; give a list of arrays"),
    ],
)
def test_scans_that_are_refused(scans, message, ridge):
    refuse(message, BrioClassifier("ridge", device="cpu").fit, scans, Y, sites=SITES)
    refuse(message, ridge.predict, scans)


def test_scans_with_rois_in_rows_are_refused_without_an_atlas(ridge):
    turned = [np.resize(x, (60, 12)).T for x in X]
    with pytest.raises(BrioError, match=r"the 12 rows of the scans seem to be ROIs, .*check_axes=False"):
        BrioClassifier("ridge", device="cpu").fit(turned, Y, sites=SITES)
    refuse(r"60 ROIs, but the model was fitted to 12 .*if the rows are the ROIs, transpose", ridge.predict, turned)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": None}, "requires y to be passed"),
        ({"y": np.arange(60) % 3}, "Only binary classification is supported. The type of the target is multiclass"),
        ({"y": np.zeros(60)}, "y has only one class"),
        ({"y": np.linspace(0, 1, 60)}, "continuous"),
        ({"y": np.where(Y == 1, np.nan, 0.0)}, "Input y contains NaN"),
        ({"y": Y[:-1]}, "inconsistent numbers of samples"),
        ({"y": np.ma.masked_equal(np.arange(60), 7) % 2}, r"y\[7\] is masked; leave out the scan"),
        ({"sites": np.ma.masked_where(np.arange(60) == 3, SITES)}, r"sites\[3\] is masked; leave out the scan"),
        ({"sites": None}, r"needs the site of every scan: .* params=\{'sites': sites\} to cross_validate"),
        (
            {"sites": ["A"] * 60},
            "sites with both classes: 1 of 1, but a model needs 2 validation sites and at least 2 source sites",
        ),
        ({"sites": np.array(["A", "B", "C"])[np.arange(60) // 20]}, "sites with both classes: 3 of 3, but"),
        ({"sites": SITES[:-1]}, "inconsistent numbers of samples"),
        ({"sites": [None, *SITES[1:]]}, "'site' is empty in row 1"),
    ],
)
def test_labels_and_sites_that_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        BrioClassifier("mlp", validation_sites=2, device="cpu").fit(X, **{"y": Y, "sites": SITES} | changed)


@pytest.mark.parametrize(("method", "n_sites"), [("ridge", 1), ("log-ridge", 1), ("mlp", 2)])
def test_few_sites_are_enough_without_validation_sites(method, n_sites):
    sites = np.array(list("ABC"))[np.arange(60) // 2 % n_sites]
    settings = {"epochs": 2, "width": 4} if method == "mlp" else {}
    model = BrioClassifier(method, device="cpu", random_state=0, settings=settings).fit(X, Y, sites=sites)
    assert model.validation_sites_ == ()
    assert set(model.source_sites_) == set(sites)
    assert 0 <= model.validation_auc_ <= 1
    assert np.isfinite(model.predict_proba(X[:3])).all()
    assert getattr(model.method_.settings, "choose_by", "source-sites") == "source-sites"


def test_what_few_sites_do_not_allow_names_a_way_out():
    with pytest.raises(BrioError, match="choose_by=source-sites needs none"):
        BrioClassifier("ridge", settings={"choose_by": "validation"}, device="cpu").fit(X, Y, sites=["A"] * 60)
    model = BrioClassifier("ridge", device="cpu").fit(X, Y, sites=["A"] * 60)
    refuse("at least 2 sites with both classes", model.to_model)


def test_sites_with_one_class_are_left_out_and_named():
    y = np.where(SITES == "site3", 1, Y)
    with pytest.warns(UserWarning, match="sites not used .only one class.: site3"):
        model = BrioClassifier("ridge", device="cpu").fit(X, y, sites=SITES)
    assert model.one_class_sites_ == ("site3",)
    assert "site3" not in model.source_sites_ + model.validation_sites_


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "ridgee"}, "method 'ridgee' is unknown; did you mean 'ridge'"),
        ({"method": "brio", "settings": {"epoch": 3}}, "setting 'epoch' is unknown; did you mean 'epochs'"),
        ({"method": "ridge", "J": 3}, "setting 'J' is unknown"),
        ({"J": 3, "settings": {"J": 4}}, "'J' is given twice"),
        ({"method": "brio", "J": "many"}, "setting 'J'=many: must be a whole number"),
        ({"settings": ["J=3"]}, "must be a dictionary"),
        ({"method": "backbone", "lambda_env": 1.0}, "fixes 'lambda_env'"),
        ({"validation_sites": "two"}, "setting 'validation_sites'=two: must be a whole number"),
        ({"device": "abacus"}, "device 'abacus' is unknown"),
        ({"device": "cuda"}, "has no usable GPU"),
    ],
)
def test_parameters_that_are_refused(params, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuse(message, BrioClassifier(**params).fit, X, Y, sites=SITES)
