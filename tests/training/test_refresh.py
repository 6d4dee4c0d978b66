"""A refresh of the qualifications from scans to alpha_bar, against loops over sites, classes and subjects."""

import math

import numpy as np
import pytest
import torch
from small_cohorts import small

from brio import draws
from brio.connectome import clip_block_length
from brio.training import InputShape, Scans
from brio.training.stack import Stack


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
    """pi_task, q_re, g and alpha_bar of one run by the paper's sums; its network sees one graph at a time."""
    s, run, cohort = stack.method.settings, stack.runs[r], graphs.cohort
    network = stack.method.network(InputShape(graphs.n_rois, 1, 0)).double()
    network.load_state_dict({n: p[r].detach() for n, p in stack.params.items()})
    state = stack.state.select(torch.tensor(r))

    def contributions(A, i):
        with torch.no_grad():
            return (
                network(Scans.of(torch.from_numpy(A)[None], graphs.alive[i : i + 1])._replace(state=state))
                .contributions[0]
                .numpy()
            )

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
                block = int(clip_block_length(float(state.learned["block_length"]), len(scan), s.block_rule))
                full = contributions(fc(scan), int(i))
                a.append(full)
                for k in range(s.K):
                    again = fc(resampled(scan, str(cohort.ids[i]), run.seed, refresh, k, block))
                    change.append((contributions(again, int(i)) - full) ** 2)
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
    method = small(epochs=4, K=3)
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


def test_only_the_runs_that_are_due_are_renewed(graphs, uneven):
    method = small(epochs=4)
    stack = Stack.build(method, graphs, uneven)
    method.begin_stage(stack, method.stages()[1])
    method.refresh(stack, np.ones(3, dtype=bool), 0)
    before = {n: stack.state.training[n].clone() for n in ("pi_task", "q_re", "alpha_bar", "g")}
    method.refresh(stack, np.array([False, True, False]), 1)
    for n, old in before.items():
        assert torch.equal(stack.state.training[n][[0, 2]], old[[0, 2]])
    assert not torch.equal(stack.state.training["q_re"][1], before["q_re"][1])
    alone = Stack.build(method, graphs, uneven[1:2])
    method.begin_stage(alone, method.stages()[1])
    method.refresh(alone, np.ones(1, dtype=bool), 1)
    torch.testing.assert_close(stack.state.training["q_re"][1], alone.state.training["q_re"][0], atol=1e-12, rtol=0)


def test_variants_without_support_draw_no_reestimates(graphs, uneven, monkeypatch):
    def refuse(*_):
        raise AssertionError("re-estimates were drawn")

    monkeypatch.setattr(type(graphs), "iterate_reestimates", refuse)
    monkeypatch.setattr(type(graphs), "estimate_block_length", refuse)
    for name in ("brio-wo-rs", "brio-wo-qg", "backbone"):
        small(name, epochs=3).fit(graphs, uneven[:1])
    with pytest.raises(AssertionError):
        small("brio", epochs=3).fit(graphs, uneven[:1])
