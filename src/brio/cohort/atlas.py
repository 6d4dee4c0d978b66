"""An atlas: the names of the ROIs in column order and, where known, their coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import pandas as pd

from ..errors import BrioError

__all__ = ["Atlas", "bundled_atlas"]

_ALIASES = {"aal": "aal116", "aal116": "aal116", "cc200": "cc200"}


@dataclass(frozen=True, eq=False)
class Atlas:
    """ROIs in the column order of the scans.

    Parameters
    ----------
    name : str
        For example ``"aal116"``.
    rois : DataFrame
        One row an ROI, column ``name`` and, where known, ``x``, ``y``, ``z`` (MNI, mm) and others.
    """

    name: str
    rois: pd.DataFrame

    def __post_init__(self) -> None:
        if "name" not in self.rois.columns:
            raise BrioError(f"atlas '{self.name}': its table has no column 'name'")

    def __len__(self) -> int:
        return len(self.rois)

    @property
    def has_coordinates(self) -> bool:
        return {"x", "y", "z"} <= set(self.rois.columns)

    @classmethod
    def unnamed(cls, n_rois: int, name: str = "unknown") -> Atlas:
        """An atlas of which only the number of ROIs is known."""
        return cls(name, pd.DataFrame({"name": [f"roi{u + 1:03d}" for u in range(n_rois)]}))


def bundled_atlas(name: str) -> Atlas | None:
    """The ROI table shipped with brio for ``aal116`` (also ``aal``) and ``cc200``, else None.

    AAL116: names and codes of Tzourio-Mazoyer et al. 2002 as in Debian's ``mricron-data`` (BSD-3-Clause),
    centroids computed from its volume. CC200: centroids computed from the volume of Craddock et al. 2012;
    an ROI there has no name of its own and is called after its index and the AAL region that holds most of it.
    """
    known = _ALIASES.get(name.lower())
    if known is None:
        return None
    with resources.files("brio.cohort.tables").joinpath(f"{known}.csv").open(encoding="utf-8") as file:
        rois = pd.read_csv(file)
    if "name" not in rois.columns:
        rois.insert(0, "name", [f"{i:03d}_{r}" for i, r in zip(rois["index"], rois["aal_majority"], strict=True)])
    return Atlas(known, rois)
