"""All debiased divergences of one training step, with their gradient."""

import pytest
import torch

from brio.transport import entropic_cost

PAIRS, POINTS, WIDTH, EPSILON = 272, 4, 64, 0.1  # 17 source sites in pairs, two classes; four scans of each cell
ERROR = 1e-6
ITERATIONS = 100  # of brio, which reach that error


def make_clouds(device):
    generator = torch.Generator().manual_seed(0)
    shape = (2, PAIRS, POINTS, WIDTH)
    return torch.nn.functional.normalize(torch.randn(shape, generator=generator, dtype=torch.float64), dim=-1).to(
        device
    )


def find_costs(x, y):
    return torch.cdist(x, y).square()


def differentiate(clouds, divergence):
    """Sum of the divergences, and its gradient with respect to the clouds."""
    clouds = clouds.clone().requires_grad_()
    total = divergence(*clouds).sum()
    total.backward()
    return total.detach(), clouds.grad


def diverge_brio(x, y, iterations=ITERATIONS):
    costs = torch.stack([find_costs(x, y), find_costs(x, x), find_costs(y, y)])
    cost, self_x, self_y = entropic_cost(costs, EPSILON, iterations)
    return cost - self_x / 2 - self_y / 2


def diverge_geomloss(x, y):
    from geomloss import SamplesLoss

    # it halves the squared distance: twice its loss at blur = sqrt(eps / 2) has this cost and this epsilon
    loss = SamplesLoss("sinkhorn", p=2, blur=(EPSILON / 2) ** 0.5, scaling=0.9985, debias=True, backend="tensorized")
    return 2 * loss(x, y)


def diverge_pot(x, y):
    import ot

    def cost(a, b):
        return ot.batch.solve_batch(find_costs(a, b), reg=EPSILON, reg_type="kl", max_iter=2000, tol=1e-9).value

    return cost(x, y) - cost(x, x) / 2 - cost(y, y) / 2


DIVERGENCES = {"brio": diverge_brio, "POT, batch": diverge_pot, "geomloss": diverge_geomloss}


@pytest.mark.benchmark(group="all divergences of a step, with gradient (float64)")
@pytest.mark.parametrize("contender", ["brio", "POT, batch", "geomloss"])
def bench_divergences(measure, benchmark, rates, device, contender):
    clouds = make_clouds(device)
    updates = 3 * PAIRS * POINTS**2 * 2 * ITERATIONS  # of three problems each, rows and columns in turn
    facts = {"floor": rates.bound(exp=updates)} if contender == "brio" else {"target": 5, "rounds": 2}
    exact, _ = differentiate(clouds, lambda x, y: diverge_brio(x, y, 3000))
    divergence, gradient = measure(lambda: differentiate(clouds, DIVERGENCES[contender]), **facts)
    benchmark.extra_info["largest error"] = error = float(abs(divergence - exact)) / PAIRS
    assert torch.isfinite(gradient).all()
    assert error < ERROR, "the comparison is at equal error"
