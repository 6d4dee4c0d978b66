"""How much do BRIO's first layer and its divergence depend on choices that the paper leaves open?

    python benchmarks/brio_start.py COHORT [--scans 120]

Two measurements behind settings of BRIO. First, with fresh weights on some scans: the variance over scans of what the
descriptors add to the first layer, divided by the variance over ROIs of what the region embeddings add. Second, with
factors that are not learned: the largest error of the Sinkhorn divergence after the default number of iterations,
against forty times as many. Prints one Markdown table for each.
"""

import argparse

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes, fill_dead
from brio.connectome.support import source_strength, sym_top
from brio.methods.brio.encoder import SignedEncoder, descriptor, measure_descriptors, signed_graphs
from brio.methods.brio.qualification import cosines, weighted_cost
from brio.methods.brio.settings import BrioSettings
from brio.transport import entropic_cost

DRAWS = 200
CELL = 4  # scans of one class and site


def compare_inputs(connectomes: Connectomes, settings: BrioSettings) -> list[tuple[str, float]]:
    """Return how much variance raw and standardised descriptors bring, against that of region embeddings."""
    A, alive, mean = connectomes.full, connectomes.alive, connectomes.full.mean(0)
    medians = [connectomes.site_median(np.arange(len(A)))]  # as if they were of one site
    S = sym_top(source_strength(medians, connectomes.n_rois), settings.rho_g).to(A)
    G, G_plus, G_minus = signed_graphs(fill_dead(A, alive, mean), S)
    c = descriptor(G, G_plus.sum(-1), G_minus.sum(-1), S)  # [n, P, 3]
    c_mean, c_sd = measure_descriptors([(A, alive)], S, mean)
    torch.manual_seed(0)
    encoder = SignedEncoder(connectomes.n_rois, settings.d_e, settings.d_h, settings.layers, settings.roi_scale)
    of_roi, of_c = encoder.phi_in.weight.detach().split([settings.d_e, 3], dim=1)
    of_embeddings = F.linear(encoder.roi.detach(), of_roi).var(0).mean()
    shares = []
    for name, x in (("raw", c), ("standardised", (c - c_mean) / c_sd)):
        shares.append((name, float(F.linear(x, of_c).var(0).mean() / of_embeddings)))
    return shares


def measure_errors(settings: BrioSettings) -> list[tuple[str, float]]:
    """Return the largest error of the divergence for random factors and for those that lie on two opposite sides."""
    torch.manual_seed(0)
    shape = (2, 2, CELL, settings.J, settings.d_t)
    random = F.normalize(torch.randn(DRAWS, *shape, dtype=torch.float64), dim=-1)
    side = torch.tensor([[1.0, 1.0, 1.0, -1.0], [1.0, -1.0, -1.0, -1.0]], dtype=torch.float64)  # of each site's scans
    apart = random[:, :1, :, :1] * side[:, None, :, None, None]
    weights = torch.full((1, 2, settings.J), 1 / settings.J, dtype=torch.float64)
    errors = []
    for name, factors in (("random", random), ("on two opposite sides", apart)):
        gaps = [_divergence_error(x, weights, settings) for x in factors]
        errors.append((name, float(torch.stack(gaps).max())))
    return errors


def _divergence_error(factors: Tensor, weights: Tensor, settings: BrioSettings) -> Tensor:
    cosine = cosines(factors)
    costs = torch.stack([weighted_cost(cosine[i, j][None], weights) for i, j in ((0, 1), (0, 0), (1, 1))])
    cost, limit = (entropic_cost(costs, settings.epsilon, n * settings.sinkhorn_iterations) for n in (1, 40))
    error = cost - limit
    return (error[0] - error[1] / 2 - error[2] / 2).abs().max()


def main() -> None:
    """Measure both and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--scans", type=int, default=120)
    args = parser.parse_args()

    cohort, settings = Cohort.load(args.cohort), BrioSettings()
    kept = np.flatnonzero(audit(cohort).keep)
    chosen = np.sort(np.random.default_rng(0).choice(kept, args.scans, replace=False))
    print(f"{args.scans} scans of {cohort.name}, fresh weights\n")
    print("| descriptors | variance over scans / variance of region embeddings |\n| --- | --- |")
    for name, share in compare_inputs(Connectomes(cohort.select(chosen)), settings):
        print(f"| {name} | {share:.2g} |")
    print(f"\n{DRAWS} draws of factors, {CELL} scans of each site and class\n")
    print("| factors | largest error of the divergence |\n| --- | --- |")
    for name, error in measure_errors(settings):
        print(f"| {name} | {error:.1g} |")


if __name__ == "__main__":
    main()
