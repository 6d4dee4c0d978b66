"""Define :class:`Atlas`: the names of the ROIs in column order and, where known, their coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import pandas as pd

from ..errors import BrioError

__all__ = ["Atlas", "load_bundled_atlas"]

_ALIASES = {"aal": "aal116", "aal116": "aal116", "cc200": "cc200"}


@dataclass(frozen=True, eq=False)
class Atlas:
    """ROIs in the column order of the scans.

    Parameters
    ----------
    name : str
        For example ``"aal116"``.
    rois : DataFrame, P rows
        One row per ROI: column ``name`` and, where known, ``x``, ``y``, ``z`` (MNI coordinates in mm), ``hemi`` (L or
        R) and others.

    Examples
    --------
    >>> atlas = Atlas("mine", pd.DataFrame({"name": ["left", "right"], "hemi": ["L", "R"]}))
    >>> len(atlas), atlas.has_coordinates
    (2, False)
    """

    name: str
    rois: pd.DataFrame

    def __post_init__(self) -> None:
        if "name" not in self.rois.columns:
            raise BrioError(f"atlas '{self.name}': the table of ROIs has no column 'name'")

    def __len__(self) -> int:
        return len(self.rois)

    @property
    def has_coordinates(self) -> bool:
        """Whether the table has columns ``x``, ``y`` and ``z``."""
        return {"x", "y", "z"} <= set(self.rois.columns)

    @classmethod
    def unnamed(cls, n_rois: int, name: str = "unknown") -> Atlas:
        """Make an atlas of which only the number of ROIs is known.

        Parameters
        ----------
        n_rois : int
        name : str

        Returns
        -------
        Atlas
            ROIs named ``roi001``, ``roi002``, ...
        """
        return cls(name, pd.DataFrame({"name": [f"roi{u + 1:03d}" for u in range(n_rois)]}))


def load_bundled_atlas(name: str) -> Atlas | None:
    """Load an ROI table that is shipped with brio.

    AAL116: names and codes of Tzourio-Mazoyer et al. 2002 as in Debian's ``mricron-data`` (BSD-3-Clause), centroids
    computed from its volume. CC200: centroids computed from the volume of Craddock et al. 2012. Its ROIs have no names
    of their own and are called by their index and the AAL region that holds most of their voxels.

    Parameters
    ----------
    name : str
        ``aal116`` (also ``aal``) or ``cc200``, in upper or lower case.

    Returns
    -------
    Atlas or None
        None for any other name.

    Examples
    --------
    >>> atlas = load_bundled_atlas("aal")
    >>> atlas.name, len(atlas)
    ('aal116', 116)
    """
    bundled_name = _ALIASES.get(name.lower())
    if bundled_name is None:
        return None
    with resources.files("brio.cohort.tables").joinpath(f"{bundled_name}.csv").open(encoding="utf-8") as file:
        rois = pd.read_csv(file)
    if "name" not in rois.columns:
        rois.insert(0, "name", [f"{i:03d}_{r}" for i, r in zip(rois["index"], rois["aal_majority"], strict=True)])
    return Atlas(bundled_name, rois)
