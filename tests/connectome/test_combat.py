"""ComBat against neuroCombat on source sites, and what each policy does at a site it was not fitted to."""

import numpy as np
import pandas as pd
import pytest
import torch

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import (
    Connectomes,
    HarmonisationRule,
    ReestimateRequest,
    fill_dead,
    harmonise_connectomes,
    read_edges,
)
from brio.connectome.harmonisation import fit_combat
from cohort.file_layouts import refuse


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    site = np.repeat(["ant", "bee", "cat", "dog"], [15, 22, 9, 30])
    age, sex = rng.uniform(8, 40, len(site)), rng.integers(0, 2, len(site)).astype(float)
    X = rng.normal(size=(len(site), 60)) + 0.05 * age[:, None] * rng.normal(size=60) + sex[:, None]
    for k, name in enumerate(np.unique(site)):
        here = site == name
        X[here] = X[here] * rng.uniform(0.5, 1.8, 60) + rng.normal(0.3 * k, 1, 60)
    return X, site, age, sex


def test_it_is_neurocombat_on_the_sites_it_was_fitted_to(data, capsys):
    from neuroCombat import neuroCombat

    X, site, age, sex = data
    covars = pd.DataFrame({"site": site, "age": age, "sex": sex})
    plain = neuroCombat(dat=X.T, covars=covars[["site"]], batch_col="site")["data"].T
    found = fit_combat(X, site).apply(X, site)
    np.testing.assert_allclose(found, plain, atol=1e-6)
    columns = {"continuous_cols": ["age"], "categorical_cols": ["sex"]}
    kept = neuroCombat(dat=X.T, covars=covars, batch_col="site", **columns)["data"].T
    known = np.stack([age, sex], 1)
    np.testing.assert_allclose(fit_combat(X, site, known).apply(X, site, known), kept, atol=1e-6)
    assert np.abs(found - X).max() > 0.5


def test_policies_at_a_site_it_was_not_fitted_to(data):
    X, site, _, _ = data
    inside, left = site != "dog", site == "dog"
    fitted = fit_combat(X[inside], site[inside])
    same = fitted.extend_to_unseen_sites(X, site, "identity")
    np.testing.assert_allclose(same.apply(X, site)[left], X[left], atol=1e-12)
    pooled = fitted.extend_to_unseen_sites(X, site, "pooled").apply(X, site)[left]
    z = (X[left] - fitted.alpha) / fitted.sigma
    expected = (z - fitted.gamma.mean(0)) / np.sqrt(fitted.delta.mean(0)) * fitted.sigma + fitted.alpha
    np.testing.assert_allclose(pooled, expected, atol=1e-12)
    free = fitted.extend_to_unseen_sites(X, site, "unlabelled").apply(X, site)[left]
    gap = lambda y: np.abs(y.mean(0) - fitted.alpha).mean()  # noqa: E731
    assert gap(free) < 0.3 * gap(X[left])
    stretch = lambda y: np.abs(np.log(y.std(0) / fitted.sigma)).mean()  # noqa: E731
    assert stretch(free) < 0.5 * stretch(X[left])
    refuse(r"site dog.*unseen=raise", fitted.extend_to_unseen_sites, X, site, "raise")
    for policy in ("identity", "pooled", "unlabelled"):  # whatever happens there, source sites stay as they were
        again = fitted.extend_to_unseen_sites(X, site, policy).apply(X, site)[inside]
        np.testing.assert_allclose(again, fitted.apply(X[inside], site[inside]), atol=1e-12)


def test_a_site_with_one_scan_is_refused(data):
    X, site, _, _ = data
    refuse("at least two scans per site, but site eel", fit_combat, X, np.where(np.arange(len(site)) == 3, "eel", site))


@pytest.fixture(scope="module")
def graphs():
    return Connectomes(simulate(Simulation(n_sites=5, per_class=6, n_rois=12, frames=60, site_shift=0.6)))


def spread(graphs, scans):
    """Variance between the mean connectomes of sites."""
    sites = graphs.cohort.sites
    members = [torch.from_numpy(scans[sites[scans] == e]) for e in np.unique(sites[scans])]
    return float(torch.stack([graphs.full[own].mean(0) for own in members]).var(0).sum())


def test_connectomes_lose_site_effects_and_stay_connectomes(graphs):
    source = np.flatnonzero(graphs.cohort.sites <= "site03")
    flat = harmonise_connectomes(graphs, source, HarmonisationRule("combat"))
    assert spread(flat, source) < 0.5 * spread(graphs, source)
    assert torch.equal(flat.full, flat.full.mT)
    dead = ~graphs.alive
    assert dead.any()
    assert flat.full[dead].abs().max() == 0
    left = np.flatnonzero(graphs.cohort.sites > "site03")
    torch.testing.assert_close(flat.full[left], graphs.full[left], atol=1e-5, rtol=0)
    assert harmonise_connectomes(graphs, source, HarmonisationRule()) is graphs


def test_re_estimates_go_through_the_same_map(graphs):
    source = np.flatnonzero(graphs.cohort.sites <= "site03")
    flat = harmonise_connectomes(graphs, source, HarmonisationRule("combat", covariates=True))
    scans = source[:5]
    asked = ReestimateRequest(scans, np.full(5, 4), 0, 0, 2)
    (_, plain), (_, mapped) = (next(g.iterate_reestimates(asked)) for g in (graphs, flat))
    c, sites = flat.effects, graphs.cohort.sites
    u, v = torch.triu_indices(12, 12, 1)
    for i, scan in enumerate(scans):
        if not graphs.alive[scan].all():
            continue
        e = c.sites.index(sites[scan])
        x = plain[i, 1, u, v].double().numpy()
        stand = c.alpha + flat._covariates[scan] @ c.beta
        expected = ((x - stand) / c.sigma - c.gamma[e]) / np.sqrt(c.delta[e]) * c.sigma + stand
        np.testing.assert_allclose(mapped[i, 1, u, v].numpy(), expected, atol=1e-5)


def test_changes_of_blocks_go_through_the_same_map(graphs):
    harmonised = harmonise_connectomes(graphs, np.arange(len(graphs) - 3), HarmonisationRule("combat"))
    for i in (0, len(graphs) - 1):
        step, change = 1e-3, graphs.find_block_changes(i, 4)
        alive, scans = graphs.alive[i].expand(4, -1), np.full(4, i)
        moved = graphs.full[i] + step * torch.from_numpy(change).to(graphs.full)
        edges = read_edges(fill_dead(moved, alive, harmonised._dead_roi_fill)).double().numpy()
        expected = (harmonised._harmonise(moved, alive, scans, edges) - harmonised.full[i]) / step
        np.testing.assert_allclose(harmonised.find_block_changes(i, 4), expected, atol=2e-3)
        assert np.abs(harmonised.find_block_changes(i, 4) - change).max() > 1e-3
