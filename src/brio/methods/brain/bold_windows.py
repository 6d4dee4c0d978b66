"""Several BOLD windows of a scan: each goes through the network, and what comes out is averaged.

A network that reads time courses has weights for a fixed number of frames, so the windows, and not the scan, have that
length. Windows are treated as further scans of a batch, one pass over all scans after the other.
"""

from __future__ import annotations

from torch import Tensor

from ...training import NeuralMethod
from ..settings import BoldSettings

__all__ = ["BoldMethod", "average_windows", "split_windows"]


def split_windows(bold: Tensor, n_windows: int) -> Tensor:
    """Split the BOLD of scans into its windows, the first window of every scan first.

    Parameters
    ----------
    bold : Tensor, shape [B, n_windows * T, P]
    n_windows : int

    Returns
    -------
    Tensor, shape [n_windows * B, T, P]
    """
    return bold.unflatten(1, (n_windows, -1)).transpose(0, 1).flatten(0, 1)


def average_windows(x: Tensor, n_windows: int) -> Tensor:
    """Average over the windows of each scan. Shape [n_windows * B, ...] -> [B, ...]."""
    return x.unflatten(0, (n_windows, -1)).mean(0)


class BoldMethod(NeuralMethod):
    """A network that reads BOLD: every window of a scan takes the memory of a scan."""

    settings: BoldSettings

    def estimate_peak_matrices(self) -> float:
        return super().estimate_peak_matrices() * self.settings.bold_windows
