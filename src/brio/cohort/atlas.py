"""Define :class:`Atlas`: the names of the ROIs in column order and, where known, their coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

import numpy as np
import pandas as pd

from ..errors import BrioError
from .names import refuse_unsafe_cells, refuse_unsafe_names

MATCHING_COLUMNS = ("name", "code", "index")
"""Columns of a table of ROIs by which the columns of a scan are recognised, in this order."""

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
        refuse_unsafe_names([self.name], "name of an atlas")
        refuse_unsafe_cells(self.rois, f"atlas '{self.name}'")

    def __len__(self) -> int:
        return len(self.rois)

    @property
    def has_coordinates(self) -> bool:
        """Whether the table has columns ``x``, ``y`` and ``z``."""
        return {"x", "y", "z"} <= set(self.rois.columns)

    @property
    def is_unnamed(self) -> bool:
        """Whether the ROIs have no names but those of :meth:`unnamed`."""
        return self.rois["name"].tolist() == Atlas.unnamed(len(self)).rois["name"].tolist()

    def find_rows(self, columns: Iterable[str]) -> tuple[np.ndarray, str] | None:
        """Find the row of each column of a scan.

        Parameters
        ----------
        columns : iterable of str
            Names of the columns, no two alike.

        Returns
        -------
        tuple of ndarray of int64 and str, or None
            Rows in the order of the columns, and by which column of the table they were found. None where no column of
            the table holds all names.

        Examples
        --------
        >>> atlas = Atlas("mine", pd.DataFrame({"name": ["left", "right"], "code": [7, 8]}))
        >>> atlas.find_rows(["8", "7"])
        (array([1, 0]), 'code')
        """
        wanted = list(columns)
        for key in MATCHING_COLUMNS:
            if key not in self.rois:
                continue
            values = self.rois[key].astype(str).tolist()
            row = {value: u for u, value in enumerate(values)}
            if len(row) == len(values) and all(column in row for column in wanted):
                return np.array([row[column] for column in wanted], dtype=np.int64), key
        return None

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


def number_repeated_names(names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Number names that appear more than once: ``name``, ``name_2``, ``name_3``, in their order."""
    names = list(names)
    used = set(names)
    renamed: dict[str, list[str]] = {}
    numbered = []
    for name in names:
        chosen, number = name, 1
        while name in renamed and chosen in used:
            number += 1
            chosen = f"{name}_{number}"
        used.add(chosen)
        renamed.setdefault(name, []).append(chosen)
        numbered.append(chosen)
    return tuple(numbered), {name: new for name, new in renamed.items() if len(new) > 1}


def load_bundled_atlas(name: str) -> Atlas | None:
    """Load an ROI table that is shipped with brio.

    AAL116: names and codes of Tzourio-Mazoyer et al. 2002 as in Debian's ``mricron-data`` (BSD-3-Clause), centroids
    computed from its volume. CC200: centroids computed from the volume of Craddock et al. 2012. Its ROIs have no names
    of their own and are called by their index and the AAL region that holds most of their voxels.
    """
    bundled_name = _ALIASES.get(name.lower())
    if bundled_name is None:
        return None
    with resources.files("brio.cohort.tables").joinpath(f"{bundled_name}.csv").open(encoding="utf-8") as file:
        rois = pd.read_csv(file)
    if "name" not in rois.columns:
        rois.insert(0, "name", [f"{i:03d}_{r}" for i, r in zip(rois["index"], rois["aal_majority"], strict=True)])
    return Atlas(bundled_name, rois)
