"""The suite that every method passes: it learns, alone and in a stack, without leakage, from its seed, and predicts."""

import dataclasses
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import contract_cohorts as cohorts
import numpy as np
import pytest
import torch
from contract_cohorts import CONTROLS, METHODS, narrow, small, soak_variants, tiny, uneven
from torch import nn

from brio.cohort.simulate import simulate
from brio.connectome import Connectomes, ReestimateRequest
from brio.errors import BrioError
from brio.methods import find_method, make_method
from brio.methods.gnn import GCN, GCNNetwork
from brio.protocol import auc, leave_one_site_out
from brio.settings import draw_configurations
from brio.training import FittedRun, Output, Run, name_tensors
from brio.training.contract import NEEDS, check_needs
from brio.training.stack import Stack, is_training_only
from fitted_runs import StoredCheckpoints, assert_close_run, assert_same_runs, assert_same_training, same_weights
from made_cohorts import make_small

LEARNING = {"patience": None, "cell_batch": 4, "learning_rate": 3e-3, "bold_frames": 80, "K": 2, "T_w": 8}
LONG = ("BRIO", "GNN", "OOD", "graph OOD", "brain networks")
NEURAL = [name for name in METHODS if cohorts.neural(name)]


@pytest.mark.parametrize(("sites", "epochs"), [(["site04"], 12), pytest.param([], 40, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", soak_variants(METHODS, also=LONG, but=("dann", "gcn", "brio", "brio-plus")))
def test_it_learns_an_easy_cohort_at_unseen_sites(name, sites, epochs):
    graphs, method = cohorts.easy(), make_small(name, {**LEARNING, "epochs": epochs})
    labels, fits = graphs.cohort.labels, method.fit(graphs, cohorts.loso(graphs, *sites))
    assert np.mean([auc(labels[o.run.fold.test], o.test_logit) for o in fits]) >= 0.8


TWO_EPOCHS = {"epochs": 2, "T_w": 1}


@cache
def fit_first_run(name: str) -> FittedRun:
    """The first of the uneven runs, fitted alone; several tests look at it and none may change it."""
    (fitted,) = narrow(name, **TWO_EPOCHS).fit(Connectomes(tiny()), uneven(tiny())[:1])
    return fitted


@pytest.mark.parametrize("name", soak_variants(NEURAL, also=("OOD", "graph OOD")))
def test_a_run_in_a_stack_equals_the_run_alone(name, last_epoch):
    graphs = Connectomes(tiny(), dtype=torch.float64)
    method, runs = narrow(name), uneven(tiny())[1:]
    other, fitted = method.fit(graphs, runs)  # of four and of two source sites: the stack pads the latter
    (alone,) = method.fit(graphs, runs[1:])
    assert_close_run(fitted, alone)
    assert alone.selected_epoch == cohorts.SMALL["epochs"]
    assert not np.allclose(fitted.test_logit[:4], other.test_logit[:4])


@pytest.mark.parametrize("name", soak_variants(METHODS + CONTROLS, but=("brio-shuffled",)))
def test_nothing_of_the_test_site_reaches_a_weight(name):
    cohort = tiny()
    real, run = fit_first_run(name), uneven(cohort)[0]
    assert run.fold.test_sites == ("site06",)
    (noise,) = narrow(name, **TWO_EPOCHS).fit(Connectomes(cohorts.replaced(cohort, "site06")), [run])
    assert_same_training(real, noise)
    if name in METHODS:
        assert not np.array_equal(real.test_logit, noise.test_logit)


@pytest.mark.soak  # the first is also compared where the test site is noise, the second follows from initial weights
@pytest.mark.parametrize("name", METHODS + CONTROLS)
def test_a_seed_gives_the_same_bits_again_and_another_seed_others(name):
    run = uneven(tiny())[0]
    (again,) = narrow(name, **TWO_EPOCHS).fit(Connectomes(tiny()), [run])
    assert_same_runs([fit_first_run(name)], [again])
    if name in NEURAL:
        (other,) = narrow(name, **TWO_EPOCHS).fit(Connectomes(tiny()), [Run(run.fold, 7)])
        assert not same_weights(fit_first_run(name).tensors, other.tensors)


def assert_resumed_to_the_same_bits(name: str, graphs: Callable[[], Connectomes], folder: Path) -> None:
    """Train three epochs, and again from the start and each checkpoint, with other objects in other memory."""
    runs, stores, method = uneven(graphs().cohort), StoredCheckpoints(folder), small(name, epochs=3, T_w=1, M=2)
    whole = method.fit(graphs(), runs, checkpoints=stores)
    assert {fitted.selected_epoch for fitted in whole} == {3}
    for epoch, checkpoint in enumerate([None, *stores.stored]):
        again, trained = small(name, epochs=3, T_w=1, M=2), []
        resumed = again.fit(
            graphs(),
            runs,
            lambda message, share, to=trained: to.append(message.rpartition(", ")[2]),
            StoredCheckpoints(folder, checkpoint),
        )
        assert trained == ["epoch 1 of 3", "epoch 2 of 3", "epoch 3 of 3"][epoch:]
        assert_same_runs(whole, resumed)


@pytest.mark.parametrize("name", soak_variants(NEURAL, also=LONG, but=("irm", "groupdro", "brio")))
def test_a_training_goes_on_from_its_checkpoint_to_the_same_bits(name, tmp_path, last_epoch):
    assert_resumed_to_the_same_bits(name, lambda: Connectomes(tiny()), tmp_path)


@pytest.mark.parametrize("n_sites", [3, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", soak_variants(NEURAL, also=(*LONG, "network on edges"), but=("irm",)))
def test_a_training_without_validation_sites_goes_on_to_the_same_bits(name, n_sites, tmp_path, last_epoch):
    """Inner folds have no test scans, so what the checkpoint of the second training holds of the first is empty."""
    cohort = simulate(dataclasses.replace(cohorts.TINY, n_sites=n_sites, per_class=3))
    runs = [Run(fold, 0) for fold in leave_one_site_out(cohort, 0, validation_sites=0)]
    stores = StoredCheckpoints(tmp_path)
    whole = small(name, epochs=3, T_w=1).fit(Connectomes(cohort), runs, checkpoints=stores)
    for number, n_epochs in ((1, 4), (3, 1)):  # of the inner folds, and of the runs; a last epoch asks for none
        trained, rest = [], StoredCheckpoints(tmp_path, stores.stored[number])
        resumed = small(name, epochs=3, T_w=1).fit(
            Connectomes(cohort), runs, lambda message, share, to=trained: to.append(message), rest
        )
        assert len(trained) == n_epochs, "no epoch is trained again"
        assert_same_runs(whole, resumed)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
@pytest.mark.parametrize("name", NEURAL)
def test_a_training_on_a_gpu_gives_the_same_bits_again_and_from_its_checkpoints(name, tmp_path, last_epoch):
    """Steps are recorded again after a checkpoint is loaded; on large graphs sums whose order is open show."""
    cohort = simulate(dataclasses.replace(cohorts.TINY, n_rois=96))
    graphs = partial(Connectomes, cohort, "cuda", torch.float32)
    assert_resumed_to_the_same_bits(name, graphs, tmp_path)


@pytest.mark.parametrize("name", soak_variants(METHODS + CONTROLS))
def test_it_declares_the_tensors_of_a_fitted_run(name):
    """What reading a stored model is checked by: nothing more, nothing less."""
    method, fitted = narrow(name), fit_first_run(name)
    declared = method.declare_tensors(tiny().n_rois)
    tensors = name_tensors(fitted.parameters, fitted.state._replace(training={}))
    needed = {key: spec for key, spec in declared.items() if spec.shape is not None}
    assert needed.keys() <= tensors.keys()
    sizes = {}
    for key, t in tensors.items():
        if key not in needed:
            assert is_training_only(key.removeprefix("parameters."), method), key
            continue
        spec = needed[key]
        axes = zip(spec.shape, t.shape, strict=True)
        assert list(t.shape) == [sizes.setdefault(a, n) if isinstance(a, str) else a for a, n in axes], key
        assert spec.whole != t.is_floating_point(), key
        assert spec.low <= t.min(), key
        assert t.max() <= spec.high, key


@pytest.mark.parametrize("name", soak_variants(METHODS + CONTROLS))
def test_a_fitted_run_predicts_for_scans_and_for_re_estimates(name):
    graphs, method = Connectomes(tiny()), narrow(name)
    run, fitted = uneven(tiny())[0], fit_first_run(name)
    inputs = method.gather_inputs(graphs)
    test = torch.from_numpy(run.fold.test)
    prediction = method.predict(fitted, inputs.take(test))
    np.testing.assert_allclose(prediction.margin, fitted.test_logit, atol=1e-5)
    assert prediction.representation.ndim == 2
    assert len(prediction.representation) == len(test)
    assert np.isfinite(prediction.representation).all()
    # each scan is scored by itself
    alone = method.predict(fitted, inputs.take(test[2:3]))
    np.testing.assert_allclose(alone.margin, prediction.margin[2:3], atol=1e-5)
    np.testing.assert_allclose(alone.representation, prediction.representation[2:3], atol=1e-5)
    again = method.predict(fitted, inputs.take(test))
    assert np.array_equal(again.margin, prediction.margin)
    blocks = np.full(len(test), 5)
    for _, resampled in inputs.iterate_reestimates(ReestimateRequest(run.fold.test, blocks, 0, 0, 3)):
        moved = method.predict(fitted, resampled)
        assert len(moved.margin) == 3 * len(test)
        assert np.isfinite(moved.margin).all()
        if name in METHODS:
            assert not np.allclose(moved.margin[::3], prediction.margin)


class GatedNetwork(GCNNetwork):
    """A GCN with a gate that inference reads, and a part g that it does not, whose name begins the gate's."""

    def __init__(self, shape, settings):
        super().__init__(shape, settings)
        self.gate = nn.Linear(settings.width, settings.width)
        self.g = nn.Linear(settings.width, 1)

    def forward(self, scans, step=None):
        h = super().forward(scans, step).representation
        h = h * self.gate(h).sigmoid()
        logit = self.classify(h) if step is None else self.classify(h) + self.g(h)
        return Output(logit.squeeze(-1), h)


class GatedMethod(GCN):
    training_only = ("g",)

    def network(self, shape):
        return GatedNetwork(shape, self.settings)


@pytest.fixture(scope="module")
def gated():
    """A method with a gate, a fitted run of it and its test scans."""
    method = GatedMethod(small("gcn").settings)
    (fitted,) = method.fit(Connectomes(tiny()), [uneven(tiny())[0]])
    scans = method.gather_inputs(Connectomes(tiny())).take(torch.from_numpy(fitted.run.fold.test))
    return method, fitted, scans


def test_what_only_training_reads_is_named_whole_not_by_how_it_begins(gated):
    method, fitted, scans = gated
    restored = Stack.restore(method, scans, [fitted])
    assert {name for name in restored.params if name.startswith("g")} == {"gate.weight", "gate.bias"}
    assert torch.equal(restored.params["gate.weight"][0], fitted.parameters["gate.weight"])
    np.testing.assert_allclose(method.predict(fitted, scans).margin, fitted.test_logit, atol=1e-6)
    trained = {n: t for n, t in fitted.parameters.items() if n not in ("g.weight", "g.bias")}
    assert len(trained) == len(fitted.parameters) - 2
    without_g = dataclasses.replace(fitted, parameters=trained)
    assert np.array_equal(method.predict(without_g, scans).margin, method.predict(fitted, scans).margin)


@pytest.mark.parametrize("missing", ["gate.weight", "gate.bias", "classify.weight", "norms.0.running_mean"])
def test_a_fitted_run_without_a_tensor_that_inference_reads_is_refused(gated, missing):
    method, fitted, scans = gated
    rest = {name: t for name, t in fitted.parameters.items() if name != missing}
    with pytest.raises(BrioError, match=f"lack '{missing}'"):
        method.predict(dataclasses.replace(fitted, parameters=rest), scans)


@pytest.mark.parametrize("name", METHODS + CONTROLS)
def test_what_is_missing_is_named(name):
    column = {"sex": "sex", "age": "age", "motion": "mean_fd", "bold": "tr"}
    e, method = find_method(name), narrow(name)
    check_needs(tiny(), method, name)
    if not e.needs_all:
        known = [column[need] for need in e.needs]
        for col in known:
            check_needs(cohorts.without(tiny(), *(other for other in known if other != col)), method, name)
        with pytest.raises(BrioError, match=f"'{known[0]}'"):
            check_needs(cohorts.without(tiny(), *known), method, name)
        return
    for need, col in column.items():
        if need in e.needs:
            with pytest.raises(BrioError, match=f"'{col}'"):
                check_needs(cohorts.without(tiny(), col), method, name)
            with pytest.raises(BrioError, match=f"'{col}'"):
                narrow(name).fit(Connectomes(cohorts.without(tiny(), col)), uneven(tiny())[:1])
    if "hemisphere" in e.needs:
        with pytest.raises(BrioError, match="hemi"):
            check_needs(cohorts.without(tiny(), "hemi", "x"), method, name)


@pytest.mark.parametrize("name", METHODS + CONTROLS)
def test_it_says_what_it_is_and_is_tuned_over_at_least_four_configurations(name):
    e, settings = find_method(name), make_method(name).settings
    assert e.summary
    assert e.reference
    assert str(e.provenance)
    assert set(e.needs) <= set(NEEDS)
    json.dumps(dataclasses.asdict(settings))
    if name in NEURAL and not e.fixed:
        drawn = draw_configurations(settings, 4)
        assert len(drawn) == 4
        assert drawn[0] == {k: getattr(settings, k) for k in drawn[0]}
        assert draw_configurations(settings, 8)[:4] == drawn
