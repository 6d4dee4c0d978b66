"""Floating-point operations of the products in BRIO's training: those of the network, and those of re-estimates."""

import math

from brio.training.stack import SourceCells

DISTINCT = 1 - math.exp(-1)
"""Share of the frames that a resample holds, however often."""


def count_flops(settings, n_rois, n_graphs, n_refreshes, n_source, n_frames):
    """Count the operations of some steps and refreshes of one run, with graphs as dense matrices.

    Parameters
    ----------
    settings : BrioSettings
    n_rois : int
    n_graphs : int
        Graphs of all steps. A map is applied forward and twice backward (its input and its weights have a gradient), a
        graph forward and once backward (it has none itself).
    n_refreshes : int
        Refreshes of the qualifications. Each computes K re-estimates of every source scan, and passes the scan and its
        re-estimates forward.
    n_source, n_frames : int
        Source scans, and the frames of all of them.

    Returns
    -------
    float
    """
    graphs = settings.layers * 2 * 2 * n_rois**2 * settings.d_h  # two graphs in a layer
    maps = settings.layers * 3 * 2 * n_rois * settings.d_h**2  # three maps in a layer
    steps = n_graphs * (2 * graphs + 3 * maps)
    forward = n_refreshes * n_source * (1 + settings.K) * (graphs + maps)
    reestimates = n_refreshes * settings.K * DISTINCT * n_frames * n_rois * (n_rois + 1)
    return float(steps + forward + reestimates)


def count_training_flops(settings, graphs, run, n_epochs):
    """Count the operations of the products in the training of one run of BRIO.

    Parameters
    ----------
    settings : BrioSettings
    graphs : Connectomes
    run : Run
    n_epochs : int
        Epochs that it was trained for.

    Returns
    -------
    float
    """
    source = run.fold.source
    cells = SourceCells(graphs.cohort, [run])
    n_steps, n_sites = int(cells.steps(settings.cell_batch)[0]), int(cells.n_sites[0])
    n_graphs = n_epochs * n_steps * 2 * n_sites * settings.cell_batch
    n_refreshes = max(0, -(-(n_epochs - settings.T_w) // settings.M))
    n_frames = int(graphs.n_frames[source].sum())
    return count_flops(settings, graphs.n_rois, n_graphs, n_refreshes, len(source), n_frames)
