"""Extract the series of regions from images that fMRIPrep preprocessed; nilearn averages, filters and denoises.

Each scan is extracted separately, several at once, into a folder next to the cohort, so that an interrupted import can
be resumed. Frames that a strategy removes are kept as frames without values.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...errors import BrioError, nearest
from ...formatting import format_count
from ...storage import hash_file, make_folders, write_atomically
from ..atlas import LABEL_ATLASES, Atlas, canonicalise_atlas_name, load_label_image
from ..scans import find_live_rois
from ..values import shorten_list
from . import bids
from .assembly import LEAST_AGREEMENT
from .bids import SeriesFile
from .participants import ImportOptions, Layout
from .rois import read_atlas_table
from .series import Series, is_regular, list_files, name_damaged_file, name_failure, select_matching

STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")  # of nilearn's load_confounds_strategy
DESCRIPTIONS = ("preproc", "smoothAROMAnonaggr")  # ``desc-`` of images, and of those for the last strategy
GLOBAL_SIGNAL = "+gsr"  # ending of a strategy that also removes the global signal
FORMAT = 1  # increase it whenever an extracted file holds something else
BLOCK_BYTES = 64 * 2**20  # of an image that are in memory at once, as float64
IMAGE = ".nii.gz"


@dataclass(frozen=True)
class Denoising:
    """What is removed from the series of regions, in addition to linear trends."""

    strategy: str | None = None  # one of ``STRATEGIES``; None where columns are named, or nothing is removed
    columns: tuple[str, ...] = ()
    global_signal: bool = False
    high_pass: float | None = None  # Hz
    low_pass: float | None = None

    @classmethod
    def parse(cls, text: str, high_pass: float | None, low_pass: float | None) -> Denoising:
        """Parse the value of ``--denoise``: a strategy of nilearn, columns of the confounds table, or none."""
        strategy = text.removesuffix(GLOBAL_SIGNAL)
        if high_pass is not None and low_pass is not None and not high_pass < low_pass:
            raise BrioError(f"--high-pass {high_pass:g} must be below --low-pass {low_pass:g}")
        if strategy in STRATEGIES:
            if high_pass is not None:
                raise BrioError(
                    f"denoising strategy '{strategy}' already includes a high-pass filter; leave out --high-pass, or "
                    "list columns in --denoise"
                )
            return cls(strategy, (), text != strategy, None, low_pass)
        if text == "none":
            return cls(None, (), False, high_pass, low_pass)
        columns = tuple(dict.fromkeys(column.strip() for column in text.split(",") if column.strip()))
        if len(columns) < 2 and not re.search(r"[_\d]|csf|white", text):
            raise BrioError(
                "--denoise takes a strategy, none, or columns of the confounds table (for example trans_x,csf), "
                f"not '{text}'; {nearest(text, [*STRATEGIES, 'none'])}"
            )
        return cls(None, columns, False, high_pass, low_pass)

    def describe(self) -> dict[str, Any]:
        """Describe the denoising for the provenance: parameters of nilearn's strategy, filters and versions."""
        import nilearn
        from nilearn.interfaces.fmriprep import load_confounds_strategy

        stated: dict[str, Any] = {"detrend": True, "standardize_confounds": True, "nilearn": nilearn.__version__}
        if self.strategy is not None:
            presets = load_confounds_strategy.__globals__["preset_strategies"][self.strategy]
            signal = {"global_signal": "basic"} if self.global_signal else {}
            stated |= {"strategy": self.strategy, "parameters": {**presets, **signal}}
        stated |= {"columns": list(self.columns)} if self.columns else {}
        return stated | {"high_pass": self.high_pass, "low_pass": self.low_pass}


# ---------------------------------------------------------------- the atlas


@dataclass(frozen=True, eq=False)
class LabelAtlas:
    """An image of labels, and the regions that these represent."""

    path: Path  # of the image
    labels: tuple[int, ...]  # label of each region, ascending
    rois: Atlas
    space: str  # template of the image; empty where its name does not say
    digest: str


def open_label_atlas(options: ImportOptions) -> LabelAtlas:
    """Open the atlas of an import: a file of labels with its table, or one that nilearn fetches by its name."""
    text = str(options.atlas)
    path = Path(text)
    if not path.name.endswith((IMAGE, ".nii")):
        found = load_label_image(text)
        if found is None:
            raise BrioError(
                f"--atlas takes a label image or the name of an atlas that has one, not '{text}'; "
                f"{nearest(text, LABEL_ATLASES)}"
            )
        path, table = found
        return _match_labels(path, table, "MNI152NLin6Asym", canonicalise_atlas_name(text))
    if not path.is_file():
        raise BrioError(f"{path}: no such label image")
    entities, stem = bids.parse_entities(path), path.name.removesuffix(".gz").removesuffix(".nii")
    named, beside = options.atlas_table, path.with_name(f"{stem}.tsv")
    if named is None and beside.is_file():
        named, _ = read_atlas_table(beside)
    return _match_labels(path, named, entities.get("space", entities.get("tpl", "")), entities.get("atlas", stem))


def _match_labels(path: Path, table: Atlas | None, space: str, name: str) -> LabelAtlas:
    """Find the regions that the labels of an image stand for, by the column ``index`` or ``code`` of their table."""
    image = _open_image(path)
    if len(image.shape) != 3:
        raise BrioError(f"{path}: has {len(image.shape)} axes, but a label image needs three")
    values = np.unique(np.asarray(image.dataobj))
    values = values[np.isfinite(values) & (values != 0)]
    if not len(values) or (values != np.round(values)).any() or (values < 0).any():
        raise BrioError(f"{path}: is not a label image; labels must be positive whole numbers")
    labels = values.astype(int).tolist()
    if table is None:
        table = Atlas(name, pd.DataFrame({"name": [f"label_{label}" for label in labels], "index": labels}))
    columns = [pd.to_numeric(table.rois[key], errors="coerce") for key in ("code", "index") if key in table.rois]
    rows = [{int(label): row for row, label in column.dropna().items()} for column in columns]
    row_of = max(rows, key=lambda known: len(known.keys() & set(labels)), default={})
    if missing := [str(label) for label in labels if label not in row_of]:
        raise BrioError(
            f"{path}: labels that are missing from the table of ROIs: {shorten_list(missing)}; give the label of each "
            "region in column 'index' of the table"
        )
    rois = table.rois.iloc[[row_of[label] for label in labels]].reset_index(drop=True)
    return LabelAtlas(path, tuple(labels), Atlas(name, rois), space, hash_file(path))


def _open_image(path: Path) -> Any:
    """Open an image without reading its voxels; frames of a compressed one are read one after the other."""
    import nibabel

    with name_damaged_file(path, "NIfTI"):
        return nibabel.load(path, keep_file_open=True)


# ---------------------------------------------------------------- one scan


@dataclass(frozen=True)
class Confounds:
    """What is removed from a scan, and how much the participant moved."""

    table: pd.DataFrame | None  # one column for each confound
    kept: np.ndarray | None  # frames that are used; None for all
    mean_fd: float | None  # mean framewise displacement over all frames, mm


def read_confounds(image: Path, denoising: Denoising) -> Confounds:
    """Read the confounds of an image that the strategy selects."""
    from nilearn.interfaces.fmriprep import load_confounds_strategy

    path = _find_confounds(image)
    if path is None and (denoising.strategy or denoising.columns):
        raise BrioError(
            f"{image}: --denoise needs the file desc-confounds_timeseries.tsv of this image in the same folder"
        )
    everything = pd.DataFrame()
    if path is not None:
        with name_damaged_file(path, "a table"):
            everything = pd.read_csv(path, sep="\t", na_values=["n/a"])
    fd = pd.to_numeric(everything.get("framewise_displacement", pd.Series(dtype=float)), errors="coerce")
    mean_fd = None if fd.isna().all() else float(fd.mean())
    if denoising.columns:
        missing = [column for column in denoising.columns if column not in everything]
        if missing:
            raise BrioError(f"{path}: has no column '{missing[0]}'; {nearest(missing[0], everything.columns)}")
        with name_damaged_file(path or image, "a table of numbers"):
            chosen = everything[list(denoising.columns)].astype(float)
        return Confounds(chosen.fillna(chosen.iloc[1:2].squeeze(axis=0)), None, mean_fd)  # derivatives begin with n/a
    if denoising.strategy is None:
        return Confounds(None, None, mean_fd)
    more = {"global_signal": "basic"} if denoising.global_signal else {}
    with name_failure(image, f"denoising strategy '{denoising.strategy}' cannot be used"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table, kept = load_confounds_strategy(str(image), denoise_strategy=denoising.strategy, **more)
    return Confounds(table, kept, mean_fd)


def _find_confounds(image: Path) -> Path | None:
    """Find the confounds of an image: those of the same scan in its folder, whatever its space."""
    own = {k: v for k, v in bids.parse_entities(image).items() if k not in ("space", "res", "desc", "den", "cohort")}
    for path in sorted(image.parent.glob(f"sub-{own.get('sub', '')}_*desc-confounds_*.tsv")):
        others = {k: v for k, v in bids.parse_entities(path).items() if k != "desc"}
        if others == own and path.name.endswith(("_timeseries.tsv", "_regressors.tsv")):
            return path
    return None


def average_regions(image: Any, labels: Any, numbers: Sequence[int]) -> np.ndarray:
    """Average an image over the regions of a label image on the grid of the image, some frames at a time.

    A region without voxels on this grid is NaN.

    Shapes: returns [T, P].
    """
    from nilearn.regions import img_to_signals_labels

    n_frames = image.shape[3]
    at_once = max(1, BLOCK_BYTES // (8 * math.prod(image.shape[:3])))
    blocks = list[pd.DataFrame]()
    for start in range(0, n_frames, at_once):
        signals, found, _ = img_to_signals_labels(image.slicer[..., start : start + at_once], labels)
        blocks.append(pd.DataFrame(signals, columns=[int(label) for label in found]).reindex(columns=numbers))
    return pd.concat(blocks).to_numpy()


def denoise(series: np.ndarray, confounds: Confounds, denoising: Denoising, tr: float | None) -> np.ndarray:
    """Remove trends, confounds and frequencies from series; removed frames and regions without signal are NaN.

    Shapes: series [T, P]; returns [T, P].
    """
    from nilearn import signal

    kept = np.arange(len(series)) if confounds.kept is None else np.asarray(confounds.kept)
    alive = find_live_rois(series[kept])
    cleaned = np.full(series.shape, np.nan)
    if alive.any():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cleaned[np.ix_(kept, alive)] = signal.clean(
                series[:, alive],
                detrend=True,
                standardize=None,
                confounds=confounds.table,
                sample_mask=confounds.kept,
                high_pass=denoising.high_pass,
                low_pass=denoising.low_pass,
                t_r=tr,
            )
    return cleaned


@cache
def _resample_labels(path: Path, shape: tuple[int, ...], affine: bytes) -> Any:
    """Open an image of labels on a grid, by the nearest voxel where it has another one."""
    from nilearn.image import resample_img

    labels, target = _open_image(path), np.frombuffer(affine).reshape(4, 4)
    if labels.shape == shape and np.allclose(labels.affine, target, atol=1e-4):
        return labels
    return resample_img(labels, target, shape, interpolation="nearest", copy_header=True, force_resample=True)


def extract_scan(path: Path, atlas: LabelAtlas, denoising: Denoising, root: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Extract the series of a scan: its frames and, if known, its repetition time and mean displacement.

    Shapes: returns [T, P].
    """
    image = _open_image(path)
    if len(image.shape) != 4 or image.shape[3] < 2:
        raise BrioError(f"{path}: has the shape {image.shape}; it needs four axes, with several frames along the last")
    with name_damaged_file(path, "NIfTI"):
        labels = _resample_labels(
            atlas.path, image.shape[:3], np.ascontiguousarray(image.affine, dtype=float).tobytes()
        )
        series = average_regions(image, labels, atlas.labels)
    confounds, tr = read_confounds(path, denoising), bids.find_repetition_time(bids.read_metadata(path, root), path)
    tr = bids.read_header_tr(image.header) if tr is None else tr
    if confounds.table is not None and len(confounds.table) != len(series):
        raise BrioError(f"{path}: has {len(series)} frames, but its confounds table has {len(confounds.table)} rows")
    if tr is None and (denoising.high_pass, denoising.low_pass) != (None, None):
        raise BrioError(f"{path}: has no repetition time, but filters need one; add RepetitionTime to its JSON sidecar")
    with name_failure(path, "cannot be denoised"):
        frames = denoise(series, confounds, denoising, tr).astype(np.float32)
    return frames, {"tr": tr, "mean_fd": confounds.mean_fd}


# ---------------------------------------------------------------- all scans


Extracted = dict[Path, Path | BrioError]  # file of the series of each scan, or why it cannot be extracted


def extract_scans(
    paths: Sequence[Path], src: Path, atlas: LabelAtlas, denoising: Denoising, options: ImportOptions
) -> Extracted:
    """Extract scans that have no file yet, several at once. A file's name depends on all that affects its content."""
    assert options.workspace is not None
    known = [FORMAT, atlas.digest, atlas.labels, denoising.describe()]
    list_metadata, files = cache(lambda folder: sorted(folder.glob("*.json"))), dict[Path, Path]()
    for path in paths:
        folders = [folder for folder in path.parents if folder.is_relative_to(src)]
        read = [path, _find_confounds(path) or path, *filter(is_regular, chain(*map(list_metadata, folders)))]
        stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in read]
        digest = hashlib.sha256(json.dumps([*known, stamps]).encode()).hexdigest()
        files[path] = options.workspace / f"{digest[:24]}.npz"
    missing = [path for path, file in files.items() if not file.exists()]
    done, errors = len(paths) - len(missing), dict[Path, BrioError]()
    if done:
        options.progress(f"{format_count(done, 'scan')} already extracted", done / len(paths))
    write, targets = partial(_write_scan, src, atlas, denoising), [files[path] for path in missing]
    with closing(_run_all(write, missing, targets, options.jobs or 1)) as written:
        for path, error in zip(missing, written, strict=True):
            done += 1
            errors |= {} if error is None else {path: error}
            if error is not None and len(errors) > (1 - LEAST_AGREEMENT) * len(paths):
                raise error
            options.progress(path.name, done / len(paths))
    return files | errors


def _write_scan(src: Path, atlas: LabelAtlas, denoising: Denoising, path: Path, file: Path) -> BrioError | None:
    """Extract a scan and write its file; an error about the scan is returned."""
    try:
        frames, stated = extract_scan(path, atlas, denoising, src)
    except BrioError as error:
        return error
    make_folders(file.parent)
    stream = io.BytesIO()
    np.savez(stream, frames=frames, stated=json.dumps(stated))
    write_atomically(file, stream.getvalue())
    return None


def _run_all(
    write: Callable[[Path, Path], BrioError | None], paths: list[Path], files: list[Path], jobs: int
) -> Generator[BrioError | None]:
    """Write files in their order, several at once in processes of their own."""
    if jobs == 1:
        yield from map(write, paths, files)
        return
    pool = ProcessPoolExecutor(min(jobs, len(paths) or 1), get_context("spawn"))
    try:
        yield from pool.map(write, paths, files)
    finally:  # an error ends the import; scans that are being extracted are finished
        pool.shutdown(cancel_futures=True)


def holds_images(src: Path) -> bool:
    """Return whether a folder holds images that fMRIPrep preprocessed."""
    endings = tuple(f"_desc-{description}_bold{IMAGE}" for description in DESCRIPTIONS)
    return src.is_dir() and any(path.name.endswith(endings) for path in list_files(src))


def find_images(src: Path, options: ImportOptions, description: str) -> list[SeriesFile]:
    """Find the preprocessed images below a folder, in the requested space and resolution."""
    images, others = list[tuple[Path, dict[str, str]]](), list[Path]()
    for path in list_files(src):
        entities = bids.parse_entities(path)
        if path.name.endswith(f"_bold{IMAGE}") and "sub" in entities and entities.get("desc") == description:
            images.append((path, entities))
        elif path.name.endswith("_bold.dtseries.nii"):
            others.append(path)
    if not images and others:
        raise BrioError(
            f"{others[0]}: is a dense CIFTI series, which brio does not parcellate; use a volume space ('fmriprep "
            "... --output-spaces MNI152NLin6Asym'), or run XCP-D and import its output as 'bids'"
        )
    if not images:
        raise BrioError(f"{src}: has no file sub-*_desc-{description}_bold{IMAGE} in or below it")
    for name, asked in (("space", options.space), ("res", options.res)):
        known = sorted({entities.get(name, "") for _, entities in images})
        shown = [value or f"(no {name}-)" for value in known]
        if asked is not None and asked not in known:
            raise BrioError(f"{src}: no image has {name}-{asked}; {nearest(asked, shown)}")
        if asked is None and len(known) > 1:
            raise BrioError(f"{src}: has images with {name} {', '.join(shown)}; choose one with --{name}")
        images = [(path, entities) for path, entities in images if asked in (None, entities.get(name, ""))]
    selected = set(select_matching(src, [path for path, _ in images], options.match))
    return [bids.describe_file(path, entities) for path, entities in images if path in selected]


def check_space(atlas: LabelAtlas, space: str, src: Path) -> tuple[str, ...]:
    """Refuse images that are not in the space of the atlas; returns a warning if the two templates are similar."""
    if not space:
        raise BrioError(
            f"{src}: the images are in the native space of each scan, so no atlas fits them; use a template space "
            "('fmriprep ... --output-spaces MNI152NLin6Asym')"
        )
    if atlas.space in ("", space):
        return ()
    if not (atlas.space.startswith("MNI152") and space.startswith("MNI152")):
        raise BrioError(
            f"{atlas.path}: is in the space {atlas.space}, but the images are in {space}; "
            f"give images in {atlas.space}, or an atlas in {space}"
        )
    alike = "between these two versions of one template, the cortex is shifted by up to a few millimetres"
    return (f"the atlas is in {atlas.space}, but the images are in {space}; {alike}",)


def find_fmriprep(src: Path, options: ImportOptions) -> Layout:
    """Find the scans of fMRIPrep, and extract the series of their regions."""
    if options.denoise is None:
        raise BrioError(
            f"kind 'fmriprep' needs --denoise; give {', '.join(STRATEGIES)}, columns of the confounds table, or none"
        )
    if options.atlas is None:
        raise BrioError("kind 'fmriprep' needs --atlas; give a name such as schaefer400, or a label image")
    denoising = Denoising.parse(options.denoise, options.high_pass, options.low_pass)
    images = find_images(src, options, DESCRIPTIONS[denoising.strategy == "ica_aroma"])
    atlas = open_label_atlas(options)  # may be downloaded, so after all that needs no network
    space = bids.parse_entities(images[0].path).get("space", "")
    notes = check_space(atlas, space, src)
    files, names = Extracted(), tuple(atlas.rois.rois["name"].astype(str))

    def read(path: Path) -> Series:
        if isinstance(file := files[path], BrioError):
            raise file
        with np.load(file) as archive:
            return Series(archive["frames"], names, **json.loads(str(archive["stated"])))

    layout = bids.lay_out_scans(src, options, images, atlas.rois.name, read, "preprocessed image")
    chosen = [image.path for _, sources in layout.scans for image in sources]
    files |= extract_scans(chosen, src, atlas, denoising, options)
    stated = {
        "image": atlas.path.name,
        "sha256": atlas.digest,
        "space": atlas.space or None,
        "images": space,
        "resampled": "labels, resampled to the nearest voxel of each image",
    }
    return replace(
        layout,
        notes=layout.notes | {"denoising": denoising.describe(), "atlas_image": stated},
        warnings=notes,
        table=atlas.rois,
    )
