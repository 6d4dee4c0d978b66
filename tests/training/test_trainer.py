"""A training: stages, refreshes, which epoch is kept, refits, inner folds, and going on after an interruption."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from small_cohorts import SOURCES, call_run, losses, small, split

from brio import draws
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes, clip_block_length
from brio.console import silent
from brio.errors import BrioError
from brio.methods import make_method
from brio.methods.brio import Brio
from brio.methods.brio.qualification import alignment_loss
from brio.methods.mlp import MLP
from brio.protocol import Fold, make_inner_folds, make_training_fold
from brio.training import NeuralSettings, Run, group_tensors, trainer
from brio.training.stack import Stack
from brio.training.trainer import BestValidationEpoch
from fitted_runs import StoredCheckpoints, assert_close_run, assert_same_runs, same_weights


def test_the_assignment_is_frozen_after_warm_up_and_embeddings_go_on(graphs, uneven, every_epoch, monkeypatch):
    warm = {}
    enter = Brio.begin_stage

    def recorded(self, stack, stage):
        warm[stage.name] = {n: p.detach().clone() for n, p in stack.params.items()}
        enter(self, stack, stage)

    monkeypatch.setattr(Brio, "begin_stage", recorded)
    small(epochs=9, T_w=3).fit(graphs, uneven)
    start, anchored, states = warm["warm-up"], warm["guided"], every_epoch
    assert len(states) == 6  # no checkpoint of the warm-up is offered
    for name in ("assignment.queries", "assignment.keys.weight"):
        assert not torch.equal(start[name], anchored[name])
        assert all(torch.equal(s[f"parameters.{name}"], anchored[name]) for s in states)
    roi = [anchored["encoder.roi"], *(s["parameters.encoder.roi"] for s in states)]
    assert all(not torch.equal(a, b) for a, b in pairwise(roi))
    assert all(torch.equal(s["inference.Pi_bar"], states[0]["inference.Pi_bar"]) for s in states)
    assert all(torch.equal(s["learned.S"], states[0]["learned.S"]) for s in states)


def test_pi_bar_is_the_assignment_at_the_end_of_the_warm_up(graphs, uneven):
    method = small()
    stack, scans = Stack.build(method, graphs, uneven), slice(0, 4)
    before = [call_run(stack, r, graphs.full[scans], graphs.alive[scans]).factors for r in range(3)]
    for stage, cached in zip(method.stages(), (False, True), strict=True):
        method.begin_stage(stack, stage)
        assert ("Pi_bar" in stack.state.inference) is cached
    for r in range(3):
        factors = call_run(stack, r, graphs.full[scans], graphs.alive[scans]).factors
        torch.testing.assert_close(factors, before[r], atol=1e-13, rtol=0)


def loss_by_hand(graphs, stack, batch, r):
    """Eq. (26) over the scans of a batch, from the logits of the run's own network."""
    E = int(stack.sources.n_sites[r])
    total = 0.0
    for e in range(E):
        for c in (0, 1):
            scans = batch[r, e, c]
            out = call_run(stack, r, graphs.full[scans], graphs.alive[scans])
            assert (graphs.cohort.labels[scans] == c).all()
            total += np.log1p(np.exp(out.logit.detach().numpy() * (1 - 2 * c))).mean()
    return total / (2 * E)


def test_guided_loss_adds_the_weighted_alignment_of_the_same_batch(graphs, uneven):
    method = small(lambda_env=3.0)
    s = method.settings
    stack = Stack.build(method, graphs, uneven)
    guided = method.stages()[1]
    method.begin_stage(stack, guided)
    batch = stack.sources.batches(1, 2)[0][0]
    before = losses(stack, batch, guided)  # no qualification yet: its cache is empty and nothing is aligned
    method.refresh(stack, np.ones(3, dtype=bool), 0)
    after = losses(stack, batch, guided)
    for r, E in enumerate((3, 4, 2)):
        expected = loss_by_hand(graphs, stack, batch, r)
        assert before[r].item() == pytest.approx(expected, abs=1e-12)
        scans, training = batch[r, :E], stack.state.training
        flat = scans.reshape(-1)
        factors = call_run(stack, r, graphs.full[flat], graphs.alive[flat]).factors.unflatten(0, scans.shape)
        first, second = torch.triu_indices(4, 4, 1)
        real = (first < E) & (second < E)
        weight = torch.full((int(real.sum()),), 2 / (E * (E - 1)), dtype=torch.float64)
        qualified = training["alpha_bar"][r][real], training["g"][r][real]
        aligned = alignment_loss(factors, *qualified, weight, s.epsilon, s.sinkhorn_iterations)
        assert aligned.item() > 1e-4
        assert after[r].item() == pytest.approx(expected + 3.0 * aligned.item(), abs=1e-12)


def test_lambda_zero_trains_the_backbone(graphs, uneven):
    methods = small("backbone"), small("brio", lambda_env=0.0), small("brio", lambda_env=0.5)
    for a, b, c in zip(*(method.fit(graphs, uneven[1:]) for method in methods), strict=True):
        assert same_weights(a.tensors, b.tensors)
        assert not torch.equal(a.parameters["w"], c.parameters["w"])
        assert a.block_length is None
        assert c.block_length is not None


@pytest.fixture
def taken(monkeypatch):
    """Epoch of every step that is taken, and the runs that take it."""
    steps, take = [], trainer.Step.__call__

    def count(self, scans, active, key, epoch):
        steps.append((epoch, active.copy()))
        take(self, scans, active, key, epoch)

    monkeypatch.setattr(trainer.Step, "__call__", count)
    return steps


def test_all_runs_are_refreshed_together_every_m_epochs(graphs, uneven, taken, monkeypatch):
    seen = []

    def refresh(self, stack, due, number):
        seen.append((taken[-1][0], number, due.tolist()))

    monkeypatch.setattr(Brio, "refresh", refresh)
    fitted_runs = small(epochs=9, T_w=2, M=3).fit(graphs, uneven)
    assert seen == [(2, 0, [True] * 3), (5, 1, [True] * 3), (8, 2, [True] * 3)], "after epochs 2, 5 and 8"
    assert [o.steps for o in fitted_runs] == np.sum([active for _, active in taken], axis=0).tolist()
    assert {o.trained_epochs for o in fitted_runs} == {9}


@pytest.fixture(scope="module")
def five(cohort) -> list[Run]:
    """Runs that stop in unlike epochs, so that the stack shrinks."""
    folds = ["abc/de/f", "bcde/f/a", "ef/ab/c", "acd/ef/b", "abf/cd/e"]
    return [Run(split(cohort, *f.split("/")), seed) for seed, f in enumerate(folds)]


@pytest.fixture(scope="module")
def stopping(graphs, five):
    """A method and five fitted runs that leave the stack at different epochs: the first to stop sit out for a while."""
    method = small(epochs=20, T_w=3, M=12, patience=3)
    fits = method.fit(graphs, five)
    assert len({fitted.trained_epochs for fitted in fits}) >= 3
    return method, fits


def test_runs_of_a_stack_stop_on_their_own_and_equal_the_run_alone(graphs, stopping):
    method, fits = stopping
    for fitted in fits[:2]:
        (alone,) = method.fit(graphs, [fitted.run])
        assert (fitted.trained_epochs, fitted.steps) == (alone.trained_epochs, alone.steps)
        assert fitted.validation_auc == alone.validation_auc
        assert fitted.trained_epochs in (fitted.selected_epoch + 3, 20)
        assert_close_run(fitted, alone, logit=1e-8)


def test_the_validation_curve_tells_which_epoch_was_chosen(graphs, cohort, stopping, every_epoch):
    method, fits = stopping
    for fitted in fits:
        curve = fitted.details["validation_curve"]
        assert [epoch for epoch, _ in curve] == list(range(4, fitted.trained_epochs + 1)), "none of the warm-up"
        scores = [score for _, score in curve]
        assert max(scores) == pytest.approx(fitted.validation_auc, abs=1e-5)
        assert curve[scores.index(max(scores))][0] == fitted.selected_epoch
        scans = fitted.run.fold.validation
        kept = roc_auc_score(cohort.labels[scans], method.predict_margins(fitted, graphs, scans))
        assert kept == pytest.approx(fitted.validation_auc), "weights are those of the chosen epoch"
    (alone,) = method.fit(graphs, [fits[3].run])
    assert alone.details["validation_curve"] == fits[3].details["validation_curve"]
    state = every_epoch[-1]  # the last state of that run alone, scored by hand
    parameters, state = group_tensors({name: t[0] for name, t in state.items()})
    last = dataclasses.replace(alone, parameters=parameters, state=state)
    scans = alone.run.fold.validation
    expected = roc_auc_score(cohort.labels[scans], method.predict_margins(last, graphs, scans))
    assert alone.details["validation_curve"][-1] == [alone.trained_epochs, round(expected, 5)]


def test_without_a_selectable_epoch_the_settings_are_refused(graphs, uneven):
    with pytest.raises(BrioError):
        small(epochs=2, T_w=2).fit(graphs, uneven)


def test_tensors_of_a_fitted_run_do_not_hold_the_whole_stack_in_memory(stopping):
    for fitted in stopping[1]:
        for name, t in fitted.tensors.items():
            assert t.untyped_storage().nbytes() == t.nbytes, name


def fc(x):
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.nan_to_num(np.corrcoef(x.T))
    np.fill_diagonal(r, 0)
    return np.arctanh(r)


def resampled(scan, who, seed, refresh, k, block):
    T = len(scan)
    starts = [
        int(float(draws.draw_uniform(seed, "re-estimates", refresh, who, k, b)) * T)
        for b in range(math.ceil(T / block))
    ]
    return scan[np.array([(s + t) % T for s in starts for t in range(block)])[:T]]


def by_loops(graphs, stack, r, refresh):
    """pi_task, q_re, g and alpha_bar of one run by the paper's sums; its network sees one scan at a time."""
    s, run, cohort = stack.method.settings, stack.runs[r], graphs.cohort
    block_length = float(stack.state.learned["block_length"][r])
    sites = sorted(set(cohort.sites[run.fold.source]))
    shape = (len(sites), 2, s.J)
    mu, V, D = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for e, site in enumerate(sites):
        for c in (0, 1):
            a, change = [], []
            for i in run.fold.source:
                if cohort.sites[i] != site or cohort.labels[i] != c:
                    continue
                scan = np.where(graphs.alive[i].numpy(), cohort.scan(int(i)), 0.0).astype(float)
                block = int(clip_block_length(block_length, len(scan), s.block_rule))
                again = [resampled(scan, str(cohort.ids[i]), run.seed, refresh, k, block) for k in range(s.K)]
                A = torch.from_numpy(np.stack([fc(x) for x in (scan, *again)]))
                out = call_run(stack, r, A, graphs.alive[i].expand(len(A), -1)).contributions.detach().numpy()
                a.append(out[0])
                change += [(one - out[0]) ** 2 for one in out[1:]]
            mu[e, c], V[e, c], D[e, c] = np.mean(a, 0), np.var(a, 0), np.mean(change, 0)
    Delta = mu[:, 1] - mu[:, 0]
    w = stack.params["w"][r].detach().numpy()
    beta = (w**2).sum(1) / ((w**2).sum() + s.eps_w)
    R = beta * Delta.mean(0) ** 2 / (V.mean(0).sum(0) + s.eps_s)
    T = V + Delta[:, None] ** 2 / 4
    q = (T + s.eps_q) / (T + D + s.eps_q)
    pi = R / R.sum()
    alpha = np.array([pi * np.sqrt(q[e] * q[f]) for e in range(len(sites)) for f in range(e + 1, len(sites))])
    return pi, q, alpha.sum(-1), alpha / alpha.sum(-1, keepdims=True)


def test_refresh_equals_the_sums_of_the_paper(graphs, uneven):
    # stabilisers are large enough to be seen where one is forgotten or swapped
    method = small(K=3, eps_w=0.1, eps_s=1e-3, eps_q=3e-3)
    stack = Stack.build(method, graphs, uneven)
    method.begin_stage(stack, method.stages()[1])
    method.refresh(stack, np.ones(3, dtype=bool), 3)
    first, second = torch.triu_indices(4, 4, 1)
    for r, E in enumerate((3, 4, 2)):
        pi, q, g, alpha_bar = by_loops(graphs, stack, r, refresh=3)
        real = (first < E) & (second < E)
        tolerance = {"rtol": 1e-7, "atol": 1e-10}
        np.testing.assert_allclose(stack.state.training["pi_task"][r], pi, **tolerance)
        np.testing.assert_allclose(stack.state.training["q_re"][r, :E], q, **tolerance)
        np.testing.assert_allclose(stack.state.training["g"][r][real], g, **tolerance)
        np.testing.assert_allclose(stack.state.training["alpha_bar"][r][real], alpha_bar, **tolerance)
        assert 0 < q.min() < 0.999
    before = {n: stack.state.training[n].clone() for n in ("pi_task", "q_re", "alpha_bar", "g")}
    method.refresh(stack, np.array([False, True, False]), 1)
    for n, old in before.items():
        assert torch.equal(stack.state.training[n][[0, 2]], old[[0, 2]])  # only the runs that are due are renewed
    q = by_loops(graphs, stack, 1, refresh=1)[1]
    np.testing.assert_allclose(stack.state.training["q_re"][1], q, **tolerance)
    assert not torch.equal(stack.state.training["q_re"][1], before["q_re"][1])


def test_variants_without_support_draw_no_reestimates(graphs, uneven, monkeypatch):
    def refuse(*_):
        raise AssertionError("re-estimates were drawn")

    monkeypatch.setattr(type(graphs), "iterate_reestimates", refuse)
    monkeypatch.setattr(type(graphs), "estimate_block_length", refuse)
    for name in ("brio-wo-rs", "brio-wo-qg", "backbone"):
        small(name, epochs=3).fit(graphs, uneven[:1])
    with pytest.raises(AssertionError):
        small("brio", epochs=3).fit(graphs, uneven[:1])


def runs_of(cohort):
    return [Run(split(cohort, "abc", "de", "f"), 0), Run(split(cohort, "bcd", "f", "a"), 0)]


@pytest.mark.parametrize("rule", ["pooled", "site-mean"])
def test_rules_pool_the_scans_or_average_the_sites(cohort, rule):
    runs, rng = runs_of(cohort), np.random.default_rng(1)
    validation = BestValidationEpoch(cohort, runs, NeuralSettings(validation_auc=rule))
    for _ in range(10):
        logit = rng.normal(size=validation.scans.shape).round(1)  # with ties
        found = validation.score(logit)
        for r, run in enumerate(runs):
            scans = run.fold.validation
            assert validation.scans[r, : len(scans)].tolist() == scans.tolist()
            z, y, site = logit[r, : len(scans)], cohort.labels[scans], cohort.sites[scans]
            pooled = roc_auc_score(y, z)
            by_site = np.mean([roc_auc_score(y[site == s], z[site == s]) for s in np.unique(site)])
            assert found[r] == pytest.approx(pooled if rule == "pooled" else by_site, abs=1e-12)
    # a network that has diverged must not look like one that guesses, let alone like a good one
    logit[0, -1] = np.nan
    assert np.isnan(validation.score(logit)).tolist() == [rule == "pooled", False]
    logit[0] = np.nan
    assert np.isnan(validation.score(logit)).tolist() == [True, False]
    if rule == "site-mean":  # sites of one class do not count
        lone = np.flatnonzero((cohort.sites == "fox") & (cohort.labels == 1))[:2]
        fold = dataclasses.replace(runs[0].fold, validation=np.concatenate([runs[0].fold.validation, lone]))
        more = BestValidationEpoch(cohort, [Run(fold, 0)], NeuralSettings(validation_auc=rule))
        z = rng.normal(size=more.scans.shape)
        assert more.score(z)[0] == pytest.approx(validation.score(np.tile(z[:, :-2], (2, 1)))[0])


def test_validation_scans_of_one_class_are_refused(cohort):
    fold = split(cohort, "abc", "de", "f")
    ones = fold.validation[cohort.labels[fold.validation] == 1]
    with pytest.raises(BrioError, match="one class"):
        BestValidationEpoch(cohort, [Run(dataclasses.replace(fold, validation=ones), 0)], NeuralSettings())


def test_it_is_a_training_on_all_scans_that_ends_at_the_chosen_epoch(graphs, cohort, uneven, monkeypatch):
    words = {"epochs": 9, "patience": None, "cell_batch": 2, "width": 8}
    first, again = (make_method("mlp", words | {"refit": refit}).fit(graphs, uneven) for refit in (False, True))
    assert len({o.selected_epoch for o in first}) > 1  # else the runs' own ends are not seen
    for run, one, two in zip(uneven[1:], first[1:], again[1:], strict=True):
        assert (two.run, two.validation_auc, two.selected_epoch) == (run, one.validation_auc, one.selected_epoch)
        assert (two.details, two.trained_epochs, two.steps) == (one.details, one.trained_epochs, one.steps)
        assert not np.allclose(two.test_logit, one.test_logit)
        # by hand: all scans are source, other scans stand in for validation and the last epoch is taken
        monkeypatch.setattr(BestValidationEpoch, "score", lambda self, logit: np.nextafter(self.best.clip(0), 2))
        merged = np.sort(np.concatenate([run.fold.source, run.fold.validation]))
        fold = Fold("by hand", merged, run.fold.test, run.fold.test, (), ())
        (hand,) = make_method("mlp", words | {"epochs": one.selected_epoch}).fit(graphs, [Run(fold, run.seed)])
        monkeypatch.undo()
        assert_close_run(two, hand)


def test_a_second_training_that_diverges_is_told(graphs, uneven, monkeypatch):
    consider = trainer.GivenEpoch.consider

    def broken(self, margins, state, epoch):
        consider(self, margins, {n: t * np.nan if t.is_floating_point() else t for n, t in state.items()}, epoch)

    monkeypatch.setattr(trainer.GivenEpoch, "consider", broken)
    (fitted,) = small("gcn", refit=True).fit(graphs, uneven[:1])
    assert np.isnan(fitted.validation_auc)
    with pytest.raises(BrioError, match="diverged"):
        fitted.require_finite("gcn")


def test_what_was_learned_from_is_told(graphs, cohort, uneven):
    fold = uneven[0].fold
    plain, again = small(), small(refit=True)
    assert plain.training_scans(cohort, fold) is fold.source
    both = np.sort(np.concatenate([fold.source, fold.validation]))
    assert again.training_scans(cohort, fold).tolist() == both.tolist()
    assert again.bytes_per_run(graphs, uneven[0]) > plain.bytes_per_run(graphs, uneven[0])


def test_the_merged_fold_leaves_out_what_could_not_be_source(cohort):
    fold = split(cohort, "abc", "de", "f")
    merged = dataclasses.replace(fold, one_class_sites=("elk",)).move_validation_to_source(cohort)
    assert set(cohort.sites[merged.source]) == {"ant", "bee", "cat", "dog"}
    assert (np.diff(merged.source) > 0).all()
    assert len(merged.validation) == 0
    assert merged.test is fold.test


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.soak)])
def test_from_any_epoch_of_a_stack_that_shrinks_and_is_refitted(which, cohort, five, tmp_path):
    graphs = Connectomes(cohort)
    epochs = {"epochs": 10, "patience": 2} if which == "some" else {"epochs": 16, "patience": 3}
    method = make_method("mlp", {**epochs, "cell_batch": 4, "width": 8, "refit": True})
    whole, stores = method.fit(graphs, five), StoredCheckpoints(tmp_path)
    assert_same_runs(whole, method.fit(graphs, five, checkpoints=stores))  # storing changes nothing
    sizes = [len(one.tensors["/now/order"]) for one in stores.stored]
    done = [one.to_tree()["now"]["done"].keys() for one in stores.stored]
    finished = [one.facts["number"] - 1 for one in stores.stored]
    shrunk, refit = next(k for k, size in enumerate(sizes) if size < 5), finished.index(1)
    assert shrunk < refit - 1, "the stack shrinks in the fit, and trains on"
    assert done[shrunk] < done[refit - 1]
    for number in (shrunk, refit) if which == "some" else range(len(sizes)):
        trained, rest = [], StoredCheckpoints(tmp_path, stores.stored[number])
        fitted = method.fit(graphs, five, lambda message, share, to=trained: to.append(message), rest)
        assert_same_runs(whole, fitted)
        # a training asks for no checkpoint after its last epoch
        assert len(trained) == len(rest.stored) + (1 if finished[number] else 2), "no epoch is trained again"
        assert [later.facts for later in rest.stored] == [later.facts for later in stores.stored[number + 1 :]]


def test_a_run_that_has_diverged_stays_so_and_is_not_trained_again(graphs, uneven, monkeypatch, tmp_path):
    score = BestValidationEpoch.score
    first = uneven[0].fold.validation[0]

    def broken(self, logit):
        return np.where(self.scans[:, 0] == first, np.nan, score(self, logit))

    monkeypatch.setattr(BestValidationEpoch, "score", broken)
    method = small("mlp", patience=2, width=8, refit=True)
    stores = StoredCheckpoints(tmp_path)
    whole = method.fit(graphs, uneven, checkpoints=stores)
    assert [fitted.selected_epoch is None for fitted in whole] == [True, False, False]
    assert np.isnan([whole[0].validation_auc, *whole[0].test_logit]).all()
    assert np.isfinite(whole[2].test_logit).all()
    for one in stores.stored:
        assert_same_runs(whole, method.fit(graphs, uneven, checkpoints=StoredCheckpoints(tmp_path, one)))


class OddMemory(MLP):
    """A method whose state lies in memory in another order than its axes, with a name that looks like a path."""

    def begin_stage(self, stack: Stack, stage) -> None:
        n = len(stack)
        stack.state.training["odd/name"] = torch.arange(6.0 * n).reshape(3, 2, n).permute(2, 1, 0)
        stack.state.training["shared"] = torch.ones(n, 1).expand(n, 4)
        stack.state.training["count"] = torch.arange(n)

    def update_inference_state(self, stack: Stack) -> None:
        self.training = stack.state.training  # after the last epoch


def test_tensors_come_back_as_they_lay_in_memory(graphs, uneven, tmp_path):
    method, again = (OddMemory(MLP.Settings(epochs=2, cell_batch=4, width=8)) for _ in range(2))
    stores = StoredCheckpoints(tmp_path)
    whole = method.fit(graphs, uneven, checkpoints=stores)
    resumed = again.fit(graphs, uneven, checkpoints=StoredCheckpoints(tmp_path, *stores.stored))
    assert_same_runs(whole, resumed)
    assert same_weights(again.training, method.training)
    assert again.training["count"].dtype == torch.int64
    odd = again.training["odd/name"]
    assert (tuple(odd.shape), odd.stride()) == ((3, 2, 3), (1, 3, 6))


def test_a_checkpoint_says_where_it_was_stored():
    assert trainer.StackCheckpoint({"epoch": 7, "number": 1}, {}).describe() == "epoch 7"
    assert trainer.StackCheckpoint({"epoch": 7, "number": 3}, {}).describe() == "epoch 7 of training 3"


@pytest.fixture(scope="module")
def unvalidated(cohort):
    return [Run(split(cohort, source, "", "f"), 3) for source in SOURCES]


@pytest.mark.parametrize("name", ["gcn", pytest.param("brio", marks=pytest.mark.soak)])
def test_the_epoch_has_the_best_mean_auc_of_trainings_by_hand(graphs, cohort, unvalidated, name):
    for run, fitted in zip(unvalidated, small(name).fit(graphs, unvalidated), strict=True):
        inner = [Run(fold, run.seed) for fold in make_inner_folds(cohort, run.fold, run.seed)]
        curves = [one.details["validation_curve"] for one in small(name).fit(graphs, inner)]
        mean = np.mean([[score for _, score in curve] for curve in curves], axis=0)
        epochs = [epoch for epoch, _ in curves[0]]
        np.testing.assert_allclose([score for _, score in fitted.details["validation_curve"]], mean, atol=2e-5)
        assert fitted.selected_epoch == epochs[int(np.argmax(mean))]
        assert fitted.validation_auc == pytest.approx(mean.max(), abs=2e-5)
        by_hand = trainer.GivenEpoch(np.array([fitted.selected_epoch]))
        (hand,) = trainer.Trainer(small(name), graphs).train([run], by_hand, silent)
        assert_close_run(fitted, hand)


@pytest.mark.parametrize("name", ["gcn", pytest.param("brio", marks=pytest.mark.soak)])
def test_a_run_in_a_stack_is_the_run_alone(graphs, unvalidated, name):
    patient, shares = small(name, patience=2), []
    fits = patient.fit(graphs, unvalidated, lambda message, share: shares.append(share))
    assert shares == sorted(shares)
    assert 0.5 < max(shares) <= 1
    (alone,) = patient.fit(graphs, unvalidated[1:])
    assert fits[1].run is unvalidated[1]
    assert (alone.selected_epoch, alone.trained_epochs) == (fits[1].selected_epoch, fits[1].trained_epochs)
    assert alone.steps == fits[1].steps
    np.testing.assert_allclose(fits[1].test_logit, alone.test_logit, atol=1e-7)


def test_a_run_whose_inner_folds_diverge_says_so(graphs, unvalidated, monkeypatch):
    monkeypatch.setattr(trainer.BestMeanEpoch, "score", lambda self, logit: np.full(len(logit), np.nan))
    (fitted,) = small("gcn").fit(graphs, unvalidated[:1])
    assert np.isnan(fitted.validation_auc)
    assert np.isnan(fitted.test_logit).all()
    assert len(fitted.test_logit) == len(unvalidated[0].fold.test)


def test_a_network_that_cannot_be_called_without_scans_is_fitted_without_test_scans():
    cohort = simulate(Simulation(n_sites=2, per_class=4, n_rois=8, frames=50))
    run = Run(make_training_fold(cohort, 0, 0), 0)
    (fitted,) = make_method("gsat", {"epochs": 1, "cell_batch": 2}).fit(Connectomes(cohort), [run])
    assert len(fitted.test_logit) == 0
