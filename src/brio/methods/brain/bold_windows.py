"""Several BOLD windows of a scan: each goes through the network, and what comes out is averaged.

A network that reads time courses has weights for a fixed number of frames, so the windows, and not the scan, have that
length. Windows are treated as further scans of a batch. Those of one scan lie side by side, so that scans that pad a
stack of runs stay last: random numbers go by position.
"""

from __future__ import annotations

from torch import Tensor

from ...training import NeuralMethod
from ..settings import BoldSettings


def split_windows(bold: Tensor, n_windows: int) -> Tensor:
    """Split the BOLD of scans into its windows; those of a scan lie side by side.

    Shapes: bold [B, n_windows * T, P]; returns [B * n_windows, T, P].
    """
    return bold.unflatten(1, (n_windows, -1)).flatten(0, 1)


def repeat_for_windows(x: Tensor, n_windows: int) -> Tensor:
    """Repeat what belongs to a scan for each of its windows. Shape [B, ...] -> [B * n_windows, ...]."""
    return x.unsqueeze(1).expand(-1, n_windows, *x.shape[1:]).flatten(0, 1)


def average_windows(x: Tensor, n_windows: int) -> Tensor:
    """Average over the windows of each scan. Shape [B * n_windows, ...] -> [B, ...]."""
    return x.unflatten(0, (-1, n_windows)).mean(1)


class BoldMethod(NeuralMethod):
    """A network that reads BOLD: every window of a scan takes the memory of a scan."""

    settings: BoldSettings

    def estimate_peak_matrices(self) -> float:
        return super().estimate_peak_matrices() * self.settings.bold_windows
