"""Groups of ROIs, by which figures of an explanation are ordered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from ..cohort import Atlas
from ..cohort.atlas import load_bundled_atlas

COLUMNS = ("network", "group", "code_group", "lobe")
"""Columns of a table of ROIs that name groups; the first one that exists is used."""
CLUSTERS = 7


class RoiGroups(NamedTuple):
    """Groups of ROIs.

    Shapes: name [P], order [P].
    """

    name: np.ndarray  # group of each ROI
    order: np.ndarray
    origin: str  # where the groups come from, in words

    @property
    def in_order(self) -> list[str]:
        """Names of the groups in the order of a figure."""
        return list(dict.fromkeys(self.name[self.order].tolist()))


def group_rois(atlas: Atlas, mean: Tensor) -> RoiGroups:
    """Group the ROIs of an atlas by its columns, or by the mean connectome [P, P]."""
    rois = atlas.rois
    hemisphere = rois["hemi"].fillna("").astype(str).to_numpy() if "hemi" in rois else np.full(len(rois), "")
    for column in COLUMNS:
        if column in rois and rois[column].notna().all():
            name = rois[column].astype(str).to_numpy(dtype=str)
            return RoiGroups(name, _order(name, hemisphere), f"the {column} column of the atlas")
    if "aal_majority" in rois:
        aal = load_bundled_atlas("aal116")
        assert aal is not None
        lobes = dict(zip(aal.rois["name"], aal.rois["code_group"], strict=True))
        name = np.array([lobes.get(region, "no AAL region") for region in rois["aal_majority"]])
        side = np.where(rois["x"].to_numpy(dtype=float) < 0, "L", "R")
        return RoiGroups(name, _order(name, side), "lobe of the AAL region that contains most of an ROI")
    return _cluster(mean)


def _order(name: np.ndarray, hemisphere: np.ndarray) -> np.ndarray:
    """Order by the first appearance of a group, then by hemisphere, then by the atlas."""
    first = {group: k for k, group in enumerate(dict.fromkeys(name.tolist()))}
    rank = np.array([first[group] for group in name.tolist()])
    return np.lexsort((np.arange(len(name)), hemisphere, rank))


def _cluster(mean: Tensor) -> RoiGroups:
    """Average linkage of the mean connectome; distance is one minus the correlation of two ROIs."""
    distance = 1.0 - mean.double().tanh().numpy()
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform((distance + distance.T) / 2, checks=False), "average")
    cluster, leaves = fcluster(tree, CLUSTERS, "maxclust"), leaves_list(tree)
    number = {c: k + 1 for k, c in enumerate(dict.fromkeys(cluster[leaves].tolist()))}
    name = np.array([f"cluster {number[c]}" for c in cluster.tolist()])
    return RoiGroups(name, leaves.astype(np.int64), "clusters of the mean connectome of the source sites")
