"""CORE: Huber regressions against scikit-learn, scaffold, descriptors and network against plain loops."""

from itertools import combinations

import numpy as np
import pytest
import torch
from contract_cohorts import replaced, small, split, tiny
from sklearn.linear_model import HuberRegressor, LogisticRegression
from sklearn.metrics import roc_auc_score
from steps import make_batch, make_step

from brio import draws
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.methods import make_method, scaffold
from brio.methods.brain import core
from brio.methods.scaffold import ScaffoldSettings, build_scaffold, draw_bootstrap_weights, fit_huber
from brio.training import Run, RunState, Scans, SourceScans
from fitted_runs import same_weights

f64 = torch.float64


def source_of(graphs, run):
    c, scans = graphs.cohort, run.fold.source
    return SourceScans(graphs, scans, c.sites[scans], c.labels[scans], run.seed)


def scans_of(graphs, where, name="core"):
    return small(name).gather_inputs(graphs).take(torch.from_numpy(where))


@pytest.fixture(scope="module")
def graphs():
    return Connectomes(tiny(), dtype=f64)


@pytest.fixture(scope="module")
def run():
    return Run(split(tiny(), [1, 2, 3, 4], [5], [6]), 3)


# --- Huber regression ------------------------------------------------------------------------------------------------


def regression(n=40, columns=12, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n), rng.integers(0, 2, n) - 0.5])
    y = X @ rng.normal(size=(3, columns)) + 0.3 * rng.normal(size=(n, columns))
    y[rng.uniform(size=y.shape) < 0.1] += 4  # some values are far off
    return X, y


def sklearn_huber(X, y):
    fitted = HuberRegressor(alpha=0.0, max_iter=10000, tol=1e-9).fit(X[:, 1:], y)
    return np.concatenate([[fitted.intercept_], fitted.coef_])


@pytest.mark.parametrize("what", ["all values", "missing values", "a site with one sex"])
def test_huber_regressions_are_those_of_scikit_learn(what):
    X, y = regression()
    live = np.random.default_rng(1).uniform(size=y.shape) > (0.2 if what == "missing values" else -1)
    if what == "a site with one sex":  # has no slope on it
        X[:, 2] = 0.0
    given = torch.from_numpy(np.where(live, y, 1e3)), torch.from_numpy(live).double(), torch.from_numpy(X)
    exact = np.stack([sklearn_huber(X[seen], y[seen, e]) for e, seen in enumerate(live.T)], 1)
    assert np.abs(exact - np.linalg.lstsq(X, y, rcond=None)[0]).max() > 0.1
    for options, error in (({}, 2e-3), ({"iterations": 500}, 2e-4)):
        b, r = fit_huber(*given, **options)
        np.testing.assert_allclose(b, exact, atol=error)
        np.testing.assert_allclose(r, np.where(live, y - X @ b.numpy(), 0.0), atol=1e-9)


# --- scaffold --------------------------------------------------------------------------------------------------------


def test_bootstrap_weights_belong_to_participants(graphs, run):
    source = source_of(graphs, run)
    weight = draw_bootstrap_weights(source, 50)
    who = graphs.cohort.ids[source.scans]
    assert weight[7, 3] == pytest.approx(-np.log1p(-float(draws.draw_uniform(3, "scaffold", 7, str(who[3])))))
    few = SourceScans(graphs, source.scans[5:9], source.site[5:9], source.label[5:9], 3)
    assert np.array_equal(draw_bootstrap_weights(few, 50), weight[:, 5:9])
    assert weight.min() >= 0
    assert weight.mean() == pytest.approx(1, abs=0.1)
    other = SourceScans(graphs, source.scans, source.site, source.label, 4)
    assert not np.allclose(draw_bootstrap_weights(other, 50), weight)


def loop_scaffold(graphs, source, s, weight):
    """Effects, agreement, stability and score of every edge: a regression and two means at a time."""
    c = graphs.cohort
    A, alive = graphs.full.numpy(), graphs.alive.numpy()
    age, male = c.participants["age"].to_numpy(float), (c.participants["sex"] == "M").to_numpy(float)
    pairs = list(combinations(range(graphs.n_rois), 2))
    sites = np.unique(source.site)
    position = {int(i): k for k, i in enumerate(source.scans)}
    t = np.zeros((1 + len(weight), len(sites), len(pairs)))
    for e, (u, v) in enumerate(pairs):
        left, squares, df = {}, 0.0, 0
        for site in sites:
            here = [i for i in source.scans[source.site == site] if alive[i, u] and alive[i, v]]
            X = np.column_stack([np.ones(len(here)), male[here] - male[here].mean(), age[here] - age[here].mean()])
            y = A[here, u, v]
            b, _ = fit_huber(torch.from_numpy(y[:, None]), torch.ones(len(here), 1, dtype=f64), torch.from_numpy(X))
            left[site] = (np.array(here), y - X @ b[:, 0].numpy())
            for label in (0, 1):
                cell = left[site][1][c.labels[here] == label]
                squares, df = squares + ((cell - cell.mean()) ** 2).sum(), df + len(cell) - 1
        for s_, site in enumerate(sites):
            here, r = left[site]
            patient = c.labels[here] == 1
            error = np.sqrt(squares / df) * np.sqrt(1 / patient.sum() + 1 / (~patient).sum())
            for k in range(1 + len(weight)):
                w = np.ones(len(here)) if k == 0 else weight[k - 1, [position[int(i)] for i in here]]
                gap = np.average(r[patient], weights=w[patient]) - np.average(r[~patient], weights=w[~patient])
                t[k, s_, e] = gap / error
    agreement = np.abs(np.where(np.abs(t) > 1e-6, np.sign(t), 0).mean(1))
    score = np.abs(t).mean(1) * agreement
    k = max(1, round(s.top_share * len(pairs)))
    stability = np.mean([np.isin(np.arange(len(pairs)), np.argsort(-row)[:k]) for row in score[1:]], axis=0)
    return pairs, t[0].mean(0), agreement[0], stability, score[0]


def test_the_scaffold_is_that_of_a_loop_over_edges_sites_and_bootstraps(graphs, run):
    source = source_of(graphs, run)
    where = np.flatnonzero(graphs.alive[source.scans].all(1).numpy())
    assert len(where) < len(source.scans)
    keep = source.scans[where]  # whole scans: with missing values the two ways agree only in the limit
    source = SourceScans(graphs, keep, source.site[where], source.label[where], 3)
    s = ScaffoldSettings(edges=12, bootstraps=15, top_share=0.3, stability=0.6)
    found = build_scaffold(source, scans_of(graphs, keep), s)
    pairs, effect, agreement, stability, score = loop_scaffold(graphs, source, s, draw_bootstrap_weights(source, 15))
    stable = np.flatnonzero(stability >= 0.6)
    others = np.flatnonzero(stability < 0.6)
    order = [*stable[np.argsort(-score[stable])], *others[np.argsort(-score[others])]]
    assert 0 < len(stable) < 12
    chosen = sorted(order[:12])
    assert set(chosen) != set(np.argsort(-score)[:12])  # stability has a say
    assert [(int(u), int(v)) for u, v in zip(found.u, found.v, strict=True)] == [pairs[e] for e in chosen]
    for name, expected in zip(scaffold.Scaffold._fields[2:], (effect, agreement, stability, score), strict=True):
        np.testing.assert_allclose(getattr(found, name), expected[chosen], atol=1e-6, err_msg=name)


def test_missing_edges_drop_out_of_effects():
    rng = np.random.default_rng(0)
    r, label = rng.normal(size=(10, 3)), np.array([0, 1] * 5)
    live = np.ones((10, 3))
    live[:4, 1] = 0
    live[label == 1, 2] = 0
    weight = rng.exponential(size=(2, 10))
    args = (torch.from_numpy(x.astype(float)) for x in (r, live, label, weight))
    t = scaffold.compute_site_effects(*args, torch.ones(3, dtype=f64)).numpy()
    patient, seen = label == 1, live[:, 1] == 1
    for k in range(2):
        one, zero = (np.average(r[m & seen, 1], weights=weight[k, m & seen]) for m in (patient, ~patient))
        error = np.sqrt(1 / (patient & seen).sum() + 1 / (~patient & seen).sum())
        assert t[k, 1] == pytest.approx((one - zero) / error)
    assert (t[:, 2] == 0).all()  # one class only: nothing to compare


def test_reproducible_edges_are_found_and_site_dependent_ones_are_not():
    truth = Simulation(n_sites=6, per_class=20, n_rois=16, stable=0.8, unstable=0, spurious=0.8, dead_share=0.1)
    graphs = Connectomes(simulate(truth))
    c = graphs.cohort
    where = np.arange(len(c))
    source = SourceScans(graphs, where, c.sites, c.labels, 0)
    # whole atlas of 120 edges, 6 of them in each network
    found = build_scaffold(source, scans_of(graphs, where, "core-scaffold"), ScaffoldSettings(edges=6, top_share=0.05))
    inside = {n: set(combinations(truth.network(n).tolist(), 2)) for n in ("stable", "spurious")}
    chosen = {(int(u), int(v)) for u, v in zip(found.u, found.v, strict=True)}
    assert chosen == inside["stable"]
    assert (found.effect > 0).all()
    assert found.stability.min() > 0.7
    every = build_scaffold(source, scans_of(graphs, where, "core-scaffold"), ScaffoldSettings(edges=120, bootstraps=1))
    at = {(int(u), int(v)): e for e, (u, v) in enumerate(zip(every.u, every.v, strict=True))}

    def gaps(u, v):
        """Difference of the classes at each site."""
        x = graphs.full[:, u, v].numpy()
        return [x[(c.sites == s) & (c.labels == 1)].mean() - x[(c.sites == s) & (c.labels == 0)].mean() for s in sites]

    sites = np.unique(c.sites)
    for u, v in inside["spurious"]:  # large at each site, with either sign
        assert np.abs(gaps(u, v)).mean() > 0.2
        assert every.agreement[at[u, v]] < 0.4
    assert min(every.agreement[at[e]] for e in inside["stable"]) == 1


def test_nothing_of_the_validation_sites_is_learned(run):
    method = small("core")
    real, noise = (
        method.learn(source_of(Connectomes(c), run)) for c in (tiny(), replaced(replaced(tiny(), "site05"), "site06"))
    )
    assert same_weights(real, noise)
    other = method.learn(source_of(Connectomes(replaced(tiny(), "site02")), run))
    assert not torch.equal(real["prior"], other["prior"])


# --- covariates ------------------------------------------------------------------------------------------------------


def test_what_covariates_explain_is_learned_at_source_sites_and_taken_out_anywhere(graphs, run):
    source = source_of(graphs, run)
    rng = np.random.default_rng(0)
    cov = scans_of(graphs, source.scans).covariates
    slope = torch.from_numpy(rng.normal(size=(2, 6)))
    level = {site: torch.from_numpy(rng.normal(size=6)) for site in np.unique(source.site)}
    y = torch.stack([level[site] for site in source.site]) + cov @ slope
    known = scaffold.fit_confounds(source, y, torch.ones_like(y), cov)
    torch.testing.assert_close(known.slope, slope, atol=1e-6, rtol=0)
    at_mean = torch.stack(list(level.values())).mean(0) + cov.mean(0) @ slope
    torch.testing.assert_close(known.level, at_mean, atol=1e-6, rtol=0)
    spread = (y - at_mean - (cov - cov.mean(0)) @ slope).square().mean(0).sqrt()
    torch.testing.assert_close(known.scale, spread, atol=1e-6, rtol=0)
    # an unseen site: other people, the same slopes
    there = scans_of(graphs, run.fold.test).covariates + torch.tensor([0.0, 30.0])
    unseen = at_mean + (there - cov.mean(0)) @ slope + 0.5 * spread
    left = scaffold.remove_confounds(unseen, torch.ones_like(unseen), there, known)
    torch.testing.assert_close(left, torch.full_like(left, 0.5), atol=1e-5, rtol=0)
    live = torch.ones_like(unseen)
    live[0, 2] = 0
    assert scaffold.remove_confounds(unseen, live, there, known)[0, 2] == 0
    assert scaffold.remove_confounds(unseen + 1e6, live, there, known).max() == 5


# --- descriptors -----------------------------------------------------------------------------------------------------


def test_windows_slide_and_there_are_at_least_three():
    like = torch.zeros(1, dtype=f64)
    rows = core.build_window_matrix(100, 30, 5, like)
    assert rows.shape == (15, 100)
    for k, row in enumerate(rows):
        assert np.flatnonzero(row).tolist() == list(range(5 * k, 5 * k + 30))
    torch.testing.assert_close(rows.sum(1), torch.ones(15, dtype=f64))
    for n in (8, 9, 13, 40, 60):
        assert len(core.build_window_matrix(n, 30, 5, like)) >= 3


def test_trajectories_are_correlations_in_windows():
    rng = np.random.default_rng(0)
    bold = rng.normal(size=(3, 50, 6)).cumsum(1)
    bold = (bold - bold.mean(1, keepdims=True)) / bold.std(1, keepdims=True)
    u, v = torch.tensor([0, 1, 4]), torch.tensor([2, 5, 5])
    z = core.compute_trajectories(torch.from_numpy(bold), u, v, 20, 6).numpy()
    assert z.shape == (3, 6, 3)
    for i in range(3):
        for k in range(6):
            r = np.corrcoef(bold[i, 6 * k : 6 * k + 20].T)
            for e in range(3):
                assert z[i, k, e] == pytest.approx(np.arctanh(np.clip(r[u[e], v[e]], -0.999, 0.999)), abs=1e-6)


@pytest.mark.parametrize("pieces", [1, 3])
def test_descriptors_say_what_their_names_say_without_steps_between_pieces(pieces):
    z = np.random.default_rng(1).normal(0.1, 0.4, size=(4, pieces, 5, 3))
    full = np.random.default_rng(2).normal(size=(4, 3))
    given = z[:, 0] if pieces == 1 else z
    found = core.describe_trajectories(torch.from_numpy(full), torch.from_numpy(given)).numpy()
    for i in range(4):
        for e in range(3):
            s = z[i, :, :, e]
            c = s - s.mean()
            lagged = sum((row[1:] * row[:-1]).sum() for row in c) / (c**2).sum()
            step = np.abs(np.diff(s)).mean()
            expected = [full[i, e], s.mean(), s.std(), np.ptp(s), lagged, step, (s > 0).mean()]
            np.testing.assert_allclose(found[i, e], expected, atol=1e-9)


# --- network ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(graphs, run):
    method = make_method("core", {"bold_frames": 40, "bold_windows": 1, "edges": 25, "width": 8, "dropout": 0.0})
    torch.manual_seed(0)
    net = core.CORENetwork(method.settings).double()
    state = RunState.from_learned(**method.learn(source_of(graphs, run)))
    inputs = method.gather_inputs(graphs)
    scans = inputs.take(torch.from_numpy(run.fold.source))._replace(state=state)
    for _ in range(20):
        net(scans, make_step(len(scans.A)))
    return net, inputs.take(torch.from_numpy(run.fold.test))._replace(state=state)


def apply_norm(norm, x):
    return (x - norm.running_mean) / (norm.running_var + 1e-5).sqrt() * norm.weight + norm.bias


def test_the_network_is_gated_message_passing_over_the_line_graph(fitted):
    net, scans = fitted
    assert not scans.alive.all()
    out = net(scans)
    learned = scans.state.learned
    u, v, prior = learned["u"], learned["v"], learned["prior"]
    edges = list(zip(u.tolist(), v.tolist(), strict=True))
    shared = torch.tensor([[len({*a, *b}) < 4 for b in edges] for a in edges])  # an ROI, or both
    degree = shared.sum(1)
    mean = learned["mean"]
    for i in range(len(scans.A)):
        live = [bool(scans.alive[i, u[e]] and scans.alive[i, v[e]]) for e in range(25)]
        full = torch.stack([scans.A[i, u[e], v[e]] if live[e] else mean[u[e], v[e]] for e in range(25)])[None]
        d = core.describe_trajectories(full, core.compute_trajectories(scans.bold[i : i + 1], u, v, 30, 5))[0]
        off = scans.covariates[i] - learned["covariate_mean"]
        expected = learned["level"] + torch.einsum("c,cmd->md", off, learned["slope"])
        x = ((d - expected) / learned["scale"]).clamp(-5, 5)
        x = torch.stack([x[e] if live[e] else torch.zeros(7, dtype=f64) for e in range(25)])
        toward = torch.stack([x[e] * torch.sign(prior[e, 0]) for e in range(25)])
        H = apply_norm(net.embed_norm, net.embed(torch.cat([x, toward, prior], 1))).relu()

        def gates(layer, H, live=live):
            g = torch.sigmoid(net.gates[layer](torch.cat([H, prior], 1)))[:, 0]
            return torch.stack([g[e] if live[e] else g[e] * 0 for e in range(25)])

        for layer in range(2):
            g, sent = gates(layer, H), net.message[layer](H)
            received = torch.stack(
                [
                    sum(g[b] * sent[b] / (degree[a] * degree[b]).sqrt() for b in range(25) if shared[a, b])
                    for a in range(25)
                ]
            )
            H = H + apply_norm(net.norms[layer], net.own[layer](H) + received).relu()
        g = gates(2, H)
        pooled = sum(g[e] * H[e] for e in range(25)) / sum(g)
        torch.testing.assert_close(out.gate[i], g)
        torch.testing.assert_close(out.representation[i], pooled)
        torch.testing.assert_close(out.logit[i], net.classify(pooled)[0])


def test_open_gates_cost():
    method = make_method("core", {"sparsity": 0.5})
    weight = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    none = torch.zeros(4, 0, 0)
    batch = make_batch(Scans(*[none] * 6), weight)
    logit, gate = torch.zeros(4), torch.tensor([[0.2, 0.4], [0.6, 0.8], [0.9, 0.9], [0.9, 0.9]])
    loss = method.loss(type("Out", (), {"logit": logit, "gate": gate}), batch)
    assert float(loss) == pytest.approx(np.log(2) + 0.5 * 0.5)


def test_the_scaffold_has_as_many_edges_as_the_atlas_allows(graphs, run):
    assert core.CORESettings().edges == 300
    learned = small("core").learn(source_of(graphs, run))
    assert len(learned["u"]) == 12 * 11 // 2
    assert len(small("core", edges=40).learn(source_of(graphs, run))["u"]) == 40


# --- the companion ---------------------------------------------------------------------------------------------------


def test_the_companion_is_a_logistic_regression_on_the_adjusted_scaffold(graphs, run):
    method = make_method("core-scaffold", {"edges": 30})
    (fitted,) = method.fit(graphs, [run])
    source, c = source_of(graphs, run), graphs.cohort
    edges = build_scaffold(source, scans_of(graphs, source.scans, "core-scaffold"), method.settings)
    assert torch.equal(fitted.state.learned["u"], edges.u)

    def entries(where):
        scans = scans_of(graphs, where, "core-scaffold")
        live = (scans.alive[:, edges.u] & scans.alive[:, edges.v]).double()
        return scans.A[:, edges.u, edges.v], live, scans.covariates

    known = scaffold.fit_confounds(source, *entries(source.scans))

    def features(where):
        return scaffold.remove_confounds(*entries(where), known).numpy()

    x, y = features(source.scans), source.label
    scale = ((x - x.mean(0)) ** 2).sum(1).mean()
    found = []
    for penalty in np.logspace(-1, 2, 7) * scale:
        model = LogisticRegression(C=4 / penalty, tol=1e-8, max_iter=5000).fit(x - x.mean(0), y)
        valid = model.decision_function(features(run.fold.validation) - x.mean(0))
        found.append((roc_auc_score(c.labels[run.fold.validation], valid), model))
    best = max(range(7), key=lambda k: (found[k][0], k))  # of equal ones the strongest penalty
    assert fitted.validation_auc == pytest.approx(found[best][0])
    expected = found[best][1].decision_function(features(run.fold.test) - x.mean(0))
    np.testing.assert_allclose(fitted.test_logit, expected, atol=1e-3)


def test_a_penalty_is_not_chosen_at_sites_that_chose_the_edges():
    with pytest.raises(BrioError, match="choose_by"):
        make_method("core-scaffold", {"choose_by": "source-sites"})
