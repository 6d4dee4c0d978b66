"""Training steps and batches of single runs, as the trainer hands them to networks and losses."""

import torch

from brio.training import Batch, StepContext


def make_step(n_graphs, key=0, real=None, site=None, **options):
    """A step over so many graphs, by default all of one source site and none of them padding."""
    real = torch.ones(n_graphs, dtype=torch.float64) if real is None else real
    site = torch.zeros(n_graphs, dtype=torch.long, device=real.device) if site is None else site
    return StepContext(torch.as_tensor(key, device=real.device), real, site, **options)


def make_batch(scans, cell_weight, key=0, epoch=1.0):
    """Scans as a batch, equally many of each site and class; sites of weight zero pad it."""
    n_sites, own = len(cell_weight), cell_weight.sum(1) > 0
    site = torch.arange(n_sites).repeat_interleave(len(scans.A) // n_sites)
    first, second = torch.triu_indices(n_sites, n_sites, 1)
    pair = (own[first] & own[second]).to(cell_weight.dtype)
    step = make_step(len(site), key, own[site].to(cell_weight.dtype), site)
    epoch = torch.tensor(epoch, dtype=cell_weight.dtype)
    return Batch(scans, cell_weight, pair / pair.sum().clamp_min(1), epoch, step)


def equal_cells(n_sites, padding=0):
    """Weights of the cells of so many sites, and of others that only pad."""
    return torch.tensor([[0.5 / n_sites] * 2] * n_sites + [[0.0] * 2] * padding, dtype=torch.float64)


def draw_connectomes(n_graphs, n_rois, dead=(), seed=1):
    """Symmetric matrices with zero diagonals, and which ROIs have signal; ``dead`` lists (graph, ROI) without."""
    A = torch.randn(n_graphs, n_rois, n_rois, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    alive = torch.ones(n_graphs, n_rois, dtype=torch.bool)
    for graph, roi in dead:
        alive[graph, roi] = False
    A = (A + A.mT) * (1 - torch.eye(n_rois, dtype=torch.float64))
    return A * (alive[:, :, None] & alive[:, None, :]), alive


def moved(network):
    """The network in double precision, its parameters and statistics away from their starting values."""
    g = torch.Generator().manual_seed(7)
    for name, t in [*network.named_parameters(), *network.named_buffers()]:
        noise = 0.2 * torch.randn(t.shape, generator=g, dtype=t.dtype)
        t.data.add_(noise.abs() if name.endswith("running_var") else noise)
    return network.double()
