"""Tables of ROIs of well-known atlases, read with nilearn: coordinates that it holds, and images that it downloads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError
from .atlas import Atlas, load_bundled_atlas, number_repeated_names

KNOWN_ATLASES = {
    "aal116": "Tzourio-Mazoyer et al. 2002, bundled with brio",
    "cc200": "Craddock et al. 2012, bundled with brio",
    "power264": "Power et al. 2011",
    "dosenbach160": "Dosenbach et al. 2010, in the order of its numbers",
    "dosenbach160-by-network": "the same, network by network as nilearn orders it",
    "seitzman300": "Seitzman et al. 2018, in the order of its numbers",
    "seitzman300-by-network": "the same, network by network as nilearn orders it",
    "schaefer100 to schaefer1000": "Schaefer et al. 2018 in 7 networks, downloaded; schaefer400-17 in 17 networks",
    "difumo64 to difumo1024": "Dadi et al. 2020, downloaded",
    "harvard-oxford-cort, -cortl, -sub": "FSL's maximum-probability regions at 25 %, downloaded; cortl has both sides",
    "basc7 to basc444": "Bellec et al. 2010, symmetric version, downloaded",
}
"""Names that :func:`load_known_atlas` takes, and what they are."""

SCHAEFER = re.compile(r"schaefer(?P<n>[1-9]00|1000)(-(?P<networks>7|17))?")
DIFUMO = re.compile(r"difumo(?P<n>64|128|256|512|1024)")
HARVARD_OXFORD = re.compile(r"harvard-oxford-(?P<part>cort|cortl|sub)")
BASC = re.compile(r"basc0*(?P<n>7|12|20|36|64|122|197|325|444)")


def describe_known_atlases() -> str:
    """List the names of the known atlases for a message."""
    return ", ".join(KNOWN_ATLASES)


def load_known_atlas(name: str) -> Atlas | None:
    """Load the table of ROIs of a well-known atlas.

    ROIs of Power and Seitzman have no names of their own and are called by their numbers. Coordinates of a downloaded
    atlas are the centres of its regions in the image; a region without voxels is left out, as nilearn's maskers leave
    it out of time series. The centre of a region with parts in both hemispheres lies between them.
    """
    bundled = load_bundled_atlas(name)
    if bundled is not None:
        return bundled
    name = name.lower()
    by_network = name.endswith("-by-network")
    loaders: list[tuple[str, Callable[[re.Match[str]], pd.DataFrame]]] = [
        (r"power264", lambda m: _load_power()),
        (r"dosenbach160(-by-network)?", lambda m: _load_dosenbach(by_network)),
        (r"seitzman300(-by-network)?", lambda m: _load_seitzman(by_network)),
        (SCHAEFER.pattern, lambda m: _load_schaefer(int(m["n"]), int(m["networks"] or 7))),
        (DIFUMO.pattern, lambda m: _load_difumo(int(m["n"]))),
        (HARVARD_OXFORD.pattern, lambda m: _load_harvard_oxford(m["part"])),
        (BASC.pattern, lambda m: _load_basc(int(m["n"]))),
    ]
    for pattern, load in loaders:
        match = re.fullmatch(pattern, name)
        if match is not None:
            return Atlas(name, load(match))
    return None


def _load_power() -> pd.DataFrame:
    from nilearn.datasets import fetch_coords_power_2011

    rois = fetch_coords_power_2011()["rois"]
    return _make_table([f"power_{k:03d}" for k in rois["roi"]], rois, index=rois["roi"])


def _load_dosenbach(by_network: bool) -> pd.DataFrame:
    from nilearn.datasets import fetch_coords_dosenbach_2010

    data = fetch_coords_dosenbach_2010(ordered_regions=by_network)
    return _make_table(data["labels"], data["rois"], index=data["rois"].index + 1, network=data["networks"])


def _load_seitzman(by_network: bool) -> pd.DataFrame:
    from nilearn.datasets import fetch_coords_seitzman_2018

    data = fetch_coords_seitzman_2018(ordered_regions=by_network)
    index = data["rois"].index + 1
    return _make_table([f"seitzman_{k:03d}" for k in index], data["rois"], index=index, network=data["networks"])


def _load_schaefer(n_rois: int, networks: int) -> pd.DataFrame:
    data = _download("fetch_atlas_schaefer_2018", n_rois=n_rois, yeo_networks=networks, resolution_mm=2)
    table = _locate_labels(data)
    parts = table["name"].str.split("_")  # 7Networks_LH_Vis_1
    table["network"] = [part[2] for part in parts]
    table["hemi"] = [part[1][0] for part in parts]
    return table


def _load_difumo(dimension: int) -> pd.DataFrame:
    data = _download("fetch_atlas_difumo", dimension=dimension, resolution_mm=3)
    labels = data["labels"]
    names, _ = number_repeated_names(labels["difumo_names"].astype(str).str.strip())
    xyz = pd.DataFrame(_find_map_centres(data["maps"]), columns=list("xyz"))
    return _make_table(names, xyz, index=labels["component"], network=labels["yeo_networks7"])


def _load_harvard_oxford(part: str) -> pd.DataFrame:
    return _locate_labels(_download("fetch_atlas_harvard_oxford", atlas_name=f"{part}-maxprob-thr25-2mm"))


def _load_basc(resolution: int) -> pd.DataFrame:
    table = _locate_labels(_download("fetch_atlas_basc_multiscale_2015", resolution=resolution, version="sym"))
    table["name"] = [f"basc{resolution}_{k:03d}" for k in table["index"]]
    return table


def _make_table(names: Any, xyz: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """Make a table of ROIs: name, coordinates in mm, and further columns."""
    coordinates = {axis: xyz[axis].to_numpy(dtype=float).round(2) for axis in "xyz"}
    return pd.DataFrame({"name": list(names), **coordinates, **{k: np.asarray(v) for k, v in columns.items()}})


def _download(fetcher: str, **options: Any) -> Any:
    """Call a fetcher of nilearn."""
    from nilearn import datasets

    try:
        return getattr(datasets, fetcher)(**options, verbose=0)
    except Exception as error:  # the network fails in many ways
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"the atlas could not be downloaded by nilearn's {fetcher} ({message}); run again with a network, or give "
            "a table of its ROIs as a file (columns name, x, y, z, network)"
        ) from error


def _open_image(maps: Any) -> Any:
    """Open an image that a fetcher returned: a path, or the image itself."""
    import nibabel

    return maps if hasattr(maps, "affine") else nibabel.load(maps)


def _locate_labels(data: Any) -> pd.DataFrame:
    """List the regions of an image of labels with their centres; the background and empty regions are left out."""
    image = _open_image(data["maps"])
    volume = np.asarray(image.dataobj).astype(np.int64)
    voxels = np.argwhere(volume > 0)
    label = volume[tuple(voxels.T)]
    count = np.bincount(label)
    sums = np.stack([np.bincount(label, weights=axis) for axis in voxels.T], axis=1)
    lut = data["lut"]
    lut = lut[[0 < k < len(count) and count[k] > 0 for k in lut["index"].astype(int)]]
    index = lut["index"].to_numpy(dtype=np.int64)
    centres = sums[index] / count[index, None]
    xyz = centres @ image.affine[:3, :3].T + image.affine[:3, 3]
    names, _ = number_repeated_names(lut["name"].astype(str).str.strip())
    return _make_table(names, pd.DataFrame(xyz, columns=list("xyz")), index=index)


def _find_map_centres(maps: Any) -> np.ndarray:
    """Centre of mass of each map of an image, its negative values set to zero. Shape [P, 3], mm."""
    image = _open_image(maps)
    grid = np.indices(image.shape[:3]).reshape(3, -1).astype(float)
    centres = []
    for u in range(image.shape[3]):  # one map at a time: 1,024 maps do not fit into memory
        weight = np.asarray(image.dataobj[..., u], dtype=np.float64).clip(min=0).ravel()
        centres.append(grid @ weight / weight.sum())
    return np.array(centres) @ image.affine[:3, :3].T + image.affine[:3, 3]
