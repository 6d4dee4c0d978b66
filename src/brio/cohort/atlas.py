"""Atlases: names, coordinates and networks of ROIs, and the atlases that are known by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError, take_first_line
from ..settings import Rois, check_arguments, check_types
from .values import refuse_unsafe_cells, refuse_unsafe_names

# Columns of a table of ROIs by which the columns of a scan are recognised, in this order.
MATCHING_COLUMNS = ("name", "code", "index")
COORDINATES = {"x", "y", "z"}

_ALIASES = {"aal": "aal116", "aal116": "aal116", "cc200": "cc200"}


@dataclass(frozen=True, eq=False)
class Atlas:
    """ROIs in the column order of the scans.

    Parameters
    ----------
    name : str
        For example ``"aal116"``.
    rois : DataFrame, P rows
        One row per ROI, with the column ``name`` and, if known, ``x``, ``y``, ``z`` (MNI coordinates in mm), ``hemi``
        (L or R) and others.

    Examples
    --------
    >>> atlas = Atlas("mine", pd.DataFrame({"name": ["left", "right"], "hemi": ["L", "R"]}))
    >>> len(atlas), atlas.has_coordinates
    (2, False)
    """

    name: str
    rois: pd.DataFrame

    def __post_init__(self) -> None:
        check_types(Atlas, vars(self))
        if "name" not in self.rois.columns:
            raise BrioError(f"atlas '{self.name}': the table of ROIs has no column 'name'; add one")
        refuse_unsafe_names([self.name], "the name of an atlas")
        refuse_unsafe_cells(self.rois, f"atlas '{self.name}'")
        for column in sorted(COORDINATES & set(self.rois.columns)):
            odd = self.rois[column].notna() & pd.to_numeric(self.rois[column], errors="coerce").isna()
            if odd.any():
                problem = f"column '{column}' contains '{self.rois.loc[odd, column].iloc[0]}'"
                raise BrioError(f"atlas '{self.name}': {problem}; write a number in mm, or leave the cell empty")

    def __len__(self) -> int:
        return len(self.rois)

    @property
    def has_coordinates(self) -> bool:
        """Whether the table has columns ``x``, ``y`` and ``z``."""
        return set(self.rois.columns) >= COORDINATES

    @property
    def is_unnamed(self) -> bool:
        """Whether the ROIs have only the names that :meth:`unnamed` gives."""
        return self.rois["name"].tolist() == number_rois(len(self))

    def find_rows(self, columns: Iterable[str]) -> tuple[np.ndarray, str] | None:
        """Find the row of each column of a scan.

        Parameters
        ----------
        columns : iterable of str
            Unique names of the columns.

        Returns
        -------
        tuple of ndarray of int64 and str, or None
            Rows in the order of the columns, and the column of the table that contains their names. None if ``name``,
            ``code`` and ``index`` each lack a name or repeat a value.

        Examples
        --------
        >>> atlas = Atlas("mine", pd.DataFrame({"name": ["left", "right"], "code": [7, 8]}))
        >>> atlas.find_rows(["8", "7"])
        (array([1, 0]), 'code')
        """
        wanted = list(columns)
        for key, values in self.list_unique_names().items():
            rows = values.get_indexer(wanted)
            if (rows >= 0).all():
                return rows.astype(np.int64), key
        return None

    def list_unique_names(self) -> dict[str, pd.Index]:
        """List the names of the ROIs in each of ``name``, ``code`` and ``index`` whose values are unique."""
        columns = {key: pd.Index(self.rois[key].astype(str)) for key in MATCHING_COLUMNS if key in self.rois}
        return {key: values for key, values in columns.items() if values.is_unique}

    @classmethod
    @check_arguments
    def unnamed(cls, n_rois: Rois, name: str = "unknown") -> Atlas:
        """Make an atlas for which only the number of ROIs is known.

        Parameters
        ----------
        n_rois : int
        name : str

        Returns
        -------
        Atlas
            ROIs named ``roi001``, ``roi002``, ...
        """
        return cls(name, pd.DataFrame({"name": number_rois(n_rois)}))


def number_rois(n_rois: int) -> list[str]:
    """Name ROIs by their numbers: ``roi001``, ``roi002``, ..."""
    return [f"roi{u + 1:03d}" for u in range(n_rois)]


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


def canonicalise_atlas_name(name: str) -> str:
    """Return the bundled name of an atlas (``aal116`` for ``aal``), or the name as it is."""
    return _ALIASES.get(name.lower(), name)


def load_bundled_atlas(name: str) -> Atlas | None:
    """Load an ROI table that is included in brio.

    AAL116: names and codes of Tzourio-Mazoyer et al. 2002 as in Debian's ``mricron-data`` (BSD-3-Clause), centroids
    computed from its volume. CC200: centroids computed from the volume of Craddock et al. 2012. Its ROIs have no names
    and are named by their index and the AAL region that contains most of their voxels.
    """
    bundled_name = _ALIASES.get(name.lower())
    if bundled_name is None:
        return None
    with resources.files("brio.cohort.tables").joinpath(f"{bundled_name}.csv").open(encoding="utf-8") as file:
        rois = pd.read_csv(file)
    if "name" not in rois.columns:
        rois.insert(0, "name", [f"{i:03d}_{r}" for i, r in zip(rois["index"], rois["aal_majority"], strict=True)])
    return Atlas(bundled_name, rois)


_SCHAEFER = "schaefer([1-9]00|1000)(?:-(7|17))?"
_HARVARD_OXFORD = "harvard-oxford-(cort|cortl|sub)"
_BASC = "basc0*(7|12|20|36|64|122|197|325|444)"
# Names that `load_known_atlas` takes, for messages; docs/data.md says what they are.
KNOWN_ATLASES = (
    "aal116, cc200, power264, dosenbach160, dosenbach160-by-network, seitzman300, seitzman300-by-network, schaefer100 "
    "to schaefer1000, difumo64 to difumo1024, harvard-oxford-cort, harvard-oxford-cortl, harvard-oxford-sub, basc7 to "
    "basc444"
)


def load_known_atlas(name: str) -> Atlas | None:
    """Load the table of ROIs of a well-known atlas.

    The ROIs of Power, Seitzman and BASC have no names and are named by their numbers. The coordinates of a downloaded
    atlas are the centres of its regions in the image. Regions without voxels are left out, as nilearn's maskers leave
    them out of time series. The centre of a region with parts in both hemispheres lies between them.
    """
    bundled = load_bundled_atlas(name)
    if bundled is not None:
        return bundled
    loaders: dict[str, Callable[..., pd.DataFrame]] = {
        "power264": _load_power,
        "(dosenbach160|seitzman300)(-by-network)?": _load_spheres,
        f"{_SCHAEFER}|{_HARVARD_OXFORD}|{_BASC}": _load_labels,
        "difumo(64|128|256|512|1024)": _load_difumo,
    }
    for pattern, load in loaders.items():
        match = re.fullmatch(pattern, name.lower())
        if match is not None:
            return Atlas(name.lower(), load(match[0]))
    return None


LABEL_ATLASES = ("aal116", "schaefer400", "harvard-oxford-cort", "basc122")  # one of each family, for messages


def load_label_image(name: str) -> tuple[Path, Atlas] | None:
    """Load the label image of a well-known atlas, as nilearn fetches it, and its table; None for other names."""
    fetched = _fetch_labels(canonicalise_atlas_name(name).lower())
    atlas = load_known_atlas(name)
    if fetched is None or atlas is None:
        return None
    return Path(fetched.get("filename") or fetched["maps"]), atlas


def _fetch_labels(name: str) -> Any:
    """Fetch the image and the table of labels of a well-known atlas; None for other names."""
    if name == "aal116":
        return _download("fetch_atlas_aal", "AAL.nii", version="SPM12")
    if match := re.fullmatch(_SCHAEFER, name):
        n_rois, networks = int(match[1]), int(match[2] or 7)
        file = f"Schaefer2018_{n_rois}Parcels_{networks}Networks_order_FSLMNI152_2mm.nii.gz"
        return _download("fetch_atlas_schaefer_2018", file, n_rois=n_rois, yeo_networks=networks, resolution_mm=2)
    if match := re.fullmatch(_HARVARD_OXFORD, name):
        name = f"{match[1]}-maxprob-thr25-2mm"
        return _download("fetch_atlas_harvard_oxford", f"HarvardOxford-{name}.nii.gz", atlas_name=name)
    if match := re.fullmatch(_BASC, name):
        file = f"template_cambridge_basc_multiscale_sym_scale{match[1].zfill(3)}.nii.gz"
        return _download("fetch_atlas_basc_multiscale_2015", file, resolution=int(match[1]), version="sym")
    return None


def _load_power(name: str) -> pd.DataFrame:
    from nilearn.datasets import fetch_coords_power_2011

    rois = fetch_coords_power_2011()["rois"]
    return _make_table([f"power_{k:03d}" for k in rois["roi"]], rois, index=rois["roi"])


def _load_spheres(name: str) -> pd.DataFrame:
    from nilearn import datasets

    is_dosenbach = name.startswith("dosenbach160")
    fetch = datasets.fetch_coords_dosenbach_2010 if is_dosenbach else datasets.fetch_coords_seitzman_2018
    data = fetch(ordered_regions=name.endswith("-by-network"))
    index = data["rois"].index + 1
    names = data["labels"] if is_dosenbach else [f"seitzman_{k:03d}" for k in index]
    return _make_table(names, data["rois"], index=index, network=data["networks"])


def _load_labels(name: str) -> pd.DataFrame:
    table = _locate_labels(_fetch_labels(name))
    if re.fullmatch(_SCHAEFER, name):
        parts = table["name"].str.split("_")  # 7Networks_LH_Vis_1
        table["network"], table["hemi"] = [part[2] for part in parts], [part[1][0] for part in parts]
    if match := re.fullmatch(_BASC, name):
        table["name"] = [f"basc{match[1]}_{k:03d}" for k in table["index"]]
    return table


def _load_difumo(name: str) -> pd.DataFrame:
    data = _download("fetch_atlas_difumo", dimension=int(name.removeprefix("difumo")), resolution_mm=3)
    labels = data["labels"]
    names, _ = number_repeated_names(labels["difumo_names"].astype(str).str.strip())
    xyz = pd.DataFrame(_find_map_centres(data["maps"]), columns=list("xyz"))
    return _make_table(names, xyz, index=labels["component"], network=labels["yeo_networks7"])


def _make_table(names: Any, xyz: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """Make a table of ROIs: name, coordinates in mm, and further columns."""
    coordinates = {axis: xyz[axis].to_numpy(dtype=float).round(2) for axis in "xyz"}
    return pd.DataFrame({"name": list(names), **coordinates, **{k: np.asarray(v) for k, v in columns.items()}})


def _download(fetcher: str, file: str = "", **options: Any) -> Any:
    """Call a fetcher of nilearn; an error names the file of the label image, if there is one."""
    from nilearn import datasets

    try:
        return getattr(datasets, fetcher)(**options, verbose=0)
    except Exception as error:  # the network fails in many ways
        cause: BaseException = error
        while cause.__context__ is not None:  # "name not known", below a page of addresses
            cause = cause.__context__
        reason = take_first_line(str(cause))[:100] or type(cause).__name__
        folder = next(iter(datasets.get_data_dirs()))
        raise BrioError(
            f"nilearn could not download the atlas with {fetcher} ({reason}); run again with an internet connection, "
            f"copy the folder {folder} from a computer that has the atlas, or give a file instead of a name"
            + (f" (the label image is {file})" if file else "")
        ) from error


def _open_image(maps: Any) -> Any:
    """Open an image that a fetcher returned: a path, or the image itself."""
    import nibabel

    return maps if hasattr(maps, "affine") else nibabel.load(maps)


def _locate_labels(data: Any) -> pd.DataFrame:
    """List the regions of an image of labels with their centres; the background and empty regions are left out."""
    from nibabel.affines import apply_affine
    from scipy.ndimage import center_of_mass

    image = _open_image(data["maps"])
    volume = np.asarray(image.dataobj).astype(np.int64)
    lut = data["lut"][data["lut"]["index"].astype(int).isin(np.unique(volume[volume > 0]))]
    index = lut["index"].to_numpy(dtype=np.int64)
    xyz = apply_affine(image.affine, center_of_mass(volume > 0, volume, index))
    names, _ = number_repeated_names(lut["name"].astype(str).str.strip())
    return _make_table(names, pd.DataFrame(xyz, columns=list("xyz")), index=index)


def _find_map_centres(maps: Any) -> np.ndarray:
    """Centre of mass of each map of an image, its negative values set to zero. Shape [P, 3], mm."""
    from nibabel.affines import apply_affine
    from scipy.ndimage import center_of_mass

    image = _open_image(maps)
    # one map at a time: 1,024 maps do not fit into memory
    weights = (np.asarray(image.dataobj[..., u], dtype=np.float64).clip(min=0) for u in range(image.shape[3]))
    return apply_affine(image.affine, [center_of_mass(weight) for weight in weights])
