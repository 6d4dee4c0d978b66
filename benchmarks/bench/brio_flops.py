"""Floating-point operations that training BRIO cannot do without: products of the network and of re-estimates."""


def count_flops(settings, n_rois, n_graphs, n_refreshes, n_source, n_frames):
    """Count the operations of some steps and refreshes of one run.

    Parameters
    ----------
    settings : BrioSettings
    n_rois : int
    n_graphs : int
        Graphs of all steps. Each passes the network once forward and, twice as dear, once backward.
    n_refreshes : int
        Of the qualifications: every source scan passes forward, and so do its K re-estimates, which are computed.
    n_source, n_frames : int
        Source scans, and the frames of all of them.

    Returns
    -------
    float
    """
    width = settings.d_h
    forward = settings.layers * (4 * n_rois**2 * width + 6 * n_rois * width**2)  # two graphs, three maps
    passes = 3 * n_graphs + n_refreshes * n_source * (1 + settings.K)
    return float(passes * forward + n_refreshes * settings.K * n_frames * n_rois * (n_rois + 1))
