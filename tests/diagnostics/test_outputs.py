"""Outputs of fitted runs: the same re-estimates for every method, the same outputs in a group and alone."""

import math

import numpy as np
import pytest
import torch
from diagnostic_cohorts import collect_outputs, small, uneven

from brio import diagnostics, draws
from brio.connectome import BlockRule, Connectomes, clip_block_length
from brio.connectome import connectomes as connectomes_module
from brio.diagnostics import estimate_source_block_length
from brio.errors import BrioError
from brio.training import FittedRun, Method, Prediction, Scans
from brio.training import stack as stack_module

K = 3
LENGTHS = [4.0, 4.0, 4.4, 6.0]  # the first and the third run share their re-estimates, the fourth has its own


class Listener(Method):
    """A method that remembers what it is shown; its margin is one edge."""

    name = "listener"

    def __init__(self):
        super().__init__(object())
        self.seen = []

    Settings = object

    def fit(self, connectomes, runs, progress=None):
        return [FittedRun(run, np.empty(0), 0.5, parameters={"none": torch.zeros(1)}) for run in runs]

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        self.seen.append(scans)
        return Prediction(scans.A[:, 0, 1].double().numpy(), scans.A[:, 0].double().numpy())


def heard(graphs, runs, lengths):
    """The scans that a listener is shown, and its margins of the re-estimates of each run."""
    method = Listener()
    outputs = collect_outputs(method, method.fit(graphs, runs), graphs, lengths, K)
    return method.seen, [reestimated["logit"] for _, reestimated in outputs]


@pytest.mark.parametrize("name", ["brio", "ridge", pytest.param("deci", marks=pytest.mark.soak), "fc-hgnn"])
def test_a_run_in_a_group_has_the_outputs_it_has_alone(name, graphs, runs, fitted):
    method, fitted_runs = fitted if name == "brio" else (small(name), None)
    fitted_runs = fitted_runs or method.fit(graphs, runs)
    together = collect_outputs(method, fitted_runs, graphs, LENGTHS, K)
    for fitted, length, (full, reestimated) in zip(fitted_runs, LENGTHS, together, strict=True):
        n = len(fitted.run.fold.source)
        assert full["logit"].shape == (n,)
        assert reestimated["logit"].shape == (n, K)
        assert len(full["representation"]) == n
        (alone,) = collect_outputs(method, [fitted], graphs, [length], K)
        same_outputs((full, reestimated), alone)
        expected = method.predict(fitted, method.gather_inputs(graphs).take(torch.from_numpy(fitted.run.fold.source)))
        np.testing.assert_allclose(full["logit"], expected.margin, atol=1e-9)
        np.testing.assert_allclose(full["representation"], expected.representation, atol=1e-9)
        assert np.abs(reestimated["logit"] - full["logit"][:, None]).max() > 1e-3


def same_outputs(one, other):
    for fields, others in zip(one, other, strict=True):
        assert fields.keys() == others.keys()
        for name, values in fields.items():
            np.testing.assert_allclose(values, others[name], atol=1e-9)


def test_re_estimates_are_those_of_the_paper_by_plain_loops(graphs, runs):
    _, margins = heard(graphs, runs, LENGTHS)
    cohort = graphs.cohort
    for run, length, again in zip(runs, LENGTHS, margins, strict=True):
        for n, i in list(enumerate(run.fold.source))[::7]:
            scan, T = cohort.scan(int(i)).astype(float), len(cohort.scan(int(i)))
            block = int(clip_block_length(length, T, BlockRule()))
            for k in range(K):
                at = ("re-estimates", draws.address("diagnostics"), str(cohort.ids[i]), k)
                starts = [int(float(draws.draw_uniform(run.seed, *at, b)) * T) for b in range(math.ceil(T / block))]
                frames = scan[np.array([(s + t) % T for s in starts for t in range(block)])[:T]]
                expected = np.arctanh(np.corrcoef(frames[:, 0], frames[:, 1])[0, 1])
                assert again[n, k] == pytest.approx(expected, abs=1e-6)


def test_every_method_sees_the_same_re_estimates(graphs, runs, fitted):
    brio, fitted_runs = fitted
    deci = small("deci", bold_windows=1)
    (of_deci,) = deci.fit(graphs, runs[:1])
    (again, *_), _ = heard(graphs, runs[:1], LENGTHS[:1])
    n = len(runs[0].fold.source)
    assert len(again.A) == n * K
    ((_, reestimated),) = collect_outputs(brio, fitted_runs[:1], graphs, LENGTHS[:1], K)
    expected = brio.predict(fitted_runs[0], again).margin.reshape(n, K)
    np.testing.assert_allclose(reestimated["logit"], expected, atol=1e-9)
    # a method that reads BOLD is shown the frames that these connectomes are estimated from
    shown = []
    predict = type(deci).predict

    class Watched(type(deci)):
        def predict(self, fitted, scans):  # with a predict of its own it is not stacked
            shown.append(scans)
            return predict(self, fitted, scans)

    collect_outputs(Watched(deci.settings), [of_deci], graphs, LENGTHS[:1], K)
    assert torch.equal(shown[0].A, again.A)
    assert shown[0].bold.shape == (n * K, 40, graphs.n_rois)


def test_re_estimates_are_made_once_for_runs_that_share_them(graphs, runs, fitted, monkeypatch):
    method, fitted_runs = fitted
    made = []
    reestimates = Connectomes.iterate_reestimates

    def counted(self, asked, *rest):
        made.append((asked.seed, len(asked.scans)))
        return reestimates(self, asked, *rest)

    monkeypatch.setattr(Connectomes, "iterate_reestimates", counted)
    collect_outputs(method, fitted_runs, graphs, LENGTHS, K)
    union = len(np.union1d(runs[0].fold.source, runs[2].fold.source))
    assert made == [(0, union), (1, len(runs[1].fold.source)), (0, len(runs[3].fold.source))]


@pytest.mark.parametrize("name", ["brio", "ridge"])
def test_small_portions_give_the_same_outputs(name, graphs, runs, fitted, monkeypatch):
    method, fitted_runs = fitted if name == "brio" else (small(name), None)
    fitted_runs = fitted_runs or method.fit(graphs, runs)
    whole = collect_outputs(method, fitted_runs, graphs, LENGTHS, K)
    monkeypatch.setattr(diagnostics, "SCANS_AT_A_TIME", 4)
    monkeypatch.setattr(diagnostics, "_PASS_BYTES", 5 * 8 * graphs.n_rois**2)
    monkeypatch.setattr(stack_module, "pass_budget", lambda device: 5 << 16)
    monkeypatch.setattr(connectomes_module, "chunk_budget", lambda device: 7 * K * 8 * graphs.n_rois**2)
    for one, other in zip(whole, collect_outputs(method, fitted_runs, graphs, LENGTHS, K), strict=True):
        same_outputs(one, other)


def test_the_shared_block_length_is_that_of_the_default_rule(graphs, cohort):
    run = uneven(cohort)[1]
    brio = small("brio", block_signals=24, block_products=48)
    (fitted,) = brio.fit(graphs, [run])
    assert estimate_source_block_length(graphs, run) == fitted.block_length


def test_a_run_without_weights_is_named(graphs, runs):
    with pytest.raises(BrioError, match=r"fold site06, seed 0.*weights"):
        collect_outputs(small("ridge"), [FittedRun(runs[0], np.empty(0), 0.5)], graphs, [4.0], K)
