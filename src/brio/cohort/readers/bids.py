"""Read BIDS derivatives."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import BrioError, escape_controls, nearest
from ..atlas import canonicalise_atlas_name
from ..scans import LONGEST, SHORTEST, convert_frames, is_repetition_time, require_repetition_time
from . import series
from .assembly import choose_atlas, join_scans
from .participants import ImportOptions, Layout, Row, find_rows, simplify_session
from .series import Series

# Entities that distinguish scans of a subject; all others say how a scan was processed.
SCAN_ENTITIES = ("ses", "task", "acq", "ce", "dir", "rec", "run", "echo")
Sidecar = tuple[Path, dict[str, str]]  # a json file and its entities
ListSidecars = Callable[[Path], list[Sidecar]]
# Starts of ``desc-`` under which C-PAC writes series of an atlas that are no means of its regions.
OTHER_SERIES = ("MeanSCA", "SpatReg", "Voxel")
SUFFIX_WORDS = frozenset({"bold", "timeseries"})  # last words of a name, which are not part of an atlas label


class SeriesFile(NamedTuple):
    """A time-series file, as described by its name."""

    path: Path
    subject: str  # with sub-
    atlas: str  # labels of these entities; empty where the name has none
    feature: str
    task: str
    scan: tuple[str, ...]  # entities that identify the scan of the subject: session, task, run and others

    @property
    def label(self) -> str:
        """The name for ``--atlas``: the atlas, the feature, or ``feature/atlas`` if the file has both."""
        return "/".join(filter(None, (self.feature, self.atlas)))

    @property
    def session(self) -> str:
        """The entity ``ses-``; empty if the name has none."""
        return next((entity for entity in self.scan if entity.startswith("ses-")), "")


def parse_entities(path: Path) -> dict[str, str]:
    """Parse the entities of a file name; text joined to an atlas by an underscore belongs to the atlas."""
    entities: dict[str, str] = {}
    previous = ""
    stem = series.get_series_stem(path) if series.get_series_suffix(path) else path.name.split(".")[0]
    for piece in stem.split("_"):
        key, dash, value = piece.partition("-")
        if dash:
            entities[key] = value
        elif previous in ("atlas", "seg") and piece not in SUFFIX_WORDS:
            entities[previous] += f"_{piece}"
            key = previous
        previous = key
    return entities


def parse_name(path: Path) -> SeriesFile | None:
    """Parse the name of a file of parcellated series.

    Confounds (``desc-confounds_timeseries.tsv``) have no atlas and are not parcellated series. C-PAC may join an entity
    to the next (``atlas-Yeo-17space-MNI152``) or split an atlas at an underscore; both are repaired.
    """
    suffix, stem = series.get_series_suffix(path), series.get_series_stem(path)
    if not stem.startswith("sub-") or not (stem.endswith("_timeseries") or suffix == ".ptseries.nii"):
        return None
    entities = parse_entities(path)
    atlas = re.sub(r"(space|res|desc|reg)-.*$", "", entities.pop("atlas", "") or entities.pop("seg", ""))
    feature = entities.pop("feature", "")
    if not (atlas or feature) or entities.pop("stat", "mean") != "mean":
        return None
    if entities.get("desc", "").startswith(OTHER_SERIES):
        return None
    return describe_file(path, entities, atlas, feature)


def describe_file(path: Path, entities: dict[str, str], atlas: str = "", feature: str = "") -> SeriesFile:
    """Describe a file by the entities in its name."""
    scan = tuple(f"{key}-{entities[key]}" for key in SCAN_ENTITIES if key in entities)
    return SeriesFile(path, f"sub-{entities['sub']}", atlas, feature, entities.get("task", ""), scan)


def choose_formats(files: Iterable[SeriesFile]) -> list[SeriesFile]:
    """Choose one file for each scan, in the order of sessions and runs.

    A scan that was processed in two ways (``space-``, ``desc-``, ``reg-``, ...) is not two scans: the user must say
    which version to read.
    """
    scans: dict[tuple[str, tuple[str, ...]], SeriesFile] = {}
    rank = {suffix: place for place, suffix in enumerate(series.SUFFIXES)}
    for file in sorted(files, key=lambda f: (rank.get(series.get_series_suffix(f.path) or "", 0), f.path)):
        path = scans.setdefault((file.subject, file.scan), file).path
        if not _are_copies(path, file.path):
            problem = f"is another version of the scan in {path}"
            raise BrioError(f"{file.path}: {problem}; choose one with --match and a part of its path")

    def split_name(file: SeriesFile) -> list[str | int]:  # run-2 comes before run-10
        return [int(p) if i % 2 else p for i, p in enumerate(re.split(r"([0-9]+)", file.path.name))]

    return sorted(scans.values(), key=split_name)


def _are_copies(*paths: Path) -> bool:
    """Return whether files hold one scan in several formats; XCP-D gives ``den-`` to CIFTI alone."""
    stems = {series.get_series_stem(path) for path in paths}
    if len({series.get_series_suffix(path) for path in paths}) > 1:
        stems = {re.sub("_den-[^_]+", "", stem) for stem in stems}
    return len(stems) == len({path.parent for path in paths}) == 1


def separate_joined_runs(files: list[SeriesFile]) -> tuple[list[SeriesFile], list[SeriesFile]]:
    """Separate the series that XCP-D joined, whose names have no run or direction, from the original series."""

    def drop_runs(file: SeriesFile) -> tuple[str, ...]:
        return tuple(entity for entity in file.scan if not entity.startswith(("run-", "dir-")))

    parts = {(file.subject, drop_runs(file)) for file in files if drop_runs(file) != file.scan}
    joined = [f for f in files if "_stat-mean_" in f.path.name and (f.subject, f.scan) in parts]
    return [file for file in files if file not in joined], joined


def group_by_session(files: list[SeriesFile]) -> dict[str, list[SeriesFile]]:
    """Group the files of one subject by session; without sessions in the names, each run is one."""
    has_sessions = any(file.session for file in files)
    groups: dict[str, list[SeriesFile]] = {}
    for file in files:
        entities = [e for e in file.scan if e.startswith("ses-") or not (has_sessions or e.startswith("task-"))]
        session = "_".join(entities).removeprefix("ses-") or "1"
        groups.setdefault(session, []).append(file)
    return groups


def find_datasets(src: Path) -> list[Path]:
    """List the series in the h5 files of older releases of giga_connectome, each as a path below its file."""
    paths = list[Path]()
    files = [src] if src.is_file() else series.list_files(src)
    for file in sorted(path for path in files if path.suffix == ".h5" and "atlas-" in path.name):  # others: transforms
        import h5py

        series.require_regular(file, "HDF5")
        with series.name_damaged_file(file, "HDF5"), h5py.File(file, "r") as archive:
            names = list[str]()
            archive.visit(names.append)
        paths += [file / name for name in names if name.endswith("_timeseries")]
    return paths


def _read_dataset(path: Path) -> Series:
    """Read a series of an h5 file; links to other files, and data kept in them, are not followed."""
    import h5py

    file = next(folder for folder in path.parents if folder.suffix == ".h5")
    with series.name_damaged_file(file, "HDF5"), h5py.File(file, "r") as archive:
        node = archive[path.relative_to(file).as_posix()]
        if not isinstance(node, h5py.Dataset) or node.ndim != 2 or node.external or node.is_virtual:
            raise BrioError(f"{path}: must be a matrix (frames, regions) stored in this file")
        series.require_bounded(node.size * node.dtype.itemsize, file)
        tr = node.attrs.get("RepetitionTime")
        tr = None if tr is None else require_repetition_time(float(tr), f"{path}: RepetitionTime")
        return Series(convert_frames(node[()], str(path)), tr=tr)


RUNS = ("first", "concatenate")
JOINED = "the pipeline joined this series from several runs"


def find_bids(src: Path, options: ImportOptions) -> Layout:
    """Find parcellated time series of BIDS derivatives, see :func:`parse_name`."""
    files = [file for path in (*series.find_series(src), *find_datasets(src)) if (file := parse_name(path))]
    if not files:
        raise BrioError(
            f"{src}: has no file sub-*_atlas-<atlas>_*timeseries.tsv, .txt, .1D or .ptseries.nii in or below it"
        )
    matching = set(series.select_matching(src, [file.path for file in files], options.match))
    files = [file for file in files if file.path in matching]
    names = {file.label: {file.label, file.atlas, file.feature} - {""} for file in files}
    label = choose_atlas(names, options.atlas, src)
    selected = [file for file in files if file.label == label]
    list_sidecars = cache(_list_sidecars)
    beside, what = options.compare_first_rows([file.path for file in selected]), f"time series of atlas '{label}'"
    read = partial(_read_scan, root=src, list_sidecars=list_sidecars, beside=beside)
    layout = lay_out_scans(src, options, selected, label, read, what)
    if layout.scans and (processing := _select_plain(read_metadata(layout.scans[0][1][0].path, src, list_sidecars))):
        layout.notes["sidecar_of_first"] = processing
    return replace(layout, atlas=canonicalise_atlas_name(selected[0].atlas or selected[0].feature))


def lay_out_scans(
    src: Path, options: ImportOptions, files: list[SeriesFile], label: str, read: Callable[[Path], Series], what: str
) -> Layout:
    """Assign the files of a folder to participants, sessions and runs; several runs of a scan are joined.

    ``what`` names a file in the reasons for skipping rows.
    """
    runs, sessions = RUNS[0] if options.runs is None else options.runs, options.sessions
    if runs not in RUNS:
        raise BrioError(f"--runs cannot be '{runs}'; {nearest(runs, RUNS)}")
    table, layout = find_rows(src, options, ("session",))
    tasks = sorted({file.task for file in files if file.task})
    if options.task is None and len(tasks) > 1:
        raise BrioError(f"{src}: has files of several tasks: {', '.join(tasks)}; choose one with --task")
    if options.task is not None and options.task not in tasks:
        raise BrioError(f"{src}: has no files of task '{options.task}'; {nearest(options.task, tasks)}")
    selected = [file for file in files if options.task in (None, file.task)]
    chosen = choose_formats(selected)
    scan_files, joined = separate_joined_runs(chosen)
    subjects: dict[str, list[SeriesFile]] = {}
    for file in scan_files:
        subjects.setdefault(file.subject, []).append(file)
    if table is None:
        layout.rows = layout.listed = [{"participant_id": subject} for subject in subjects]
    scans = []
    # rows that are left out too, whose scans are not taken for those of other rows
    spellings = {(row["participant_id"], row.get("session")): _identify_row(row) for row in layout.listed}
    listed, read_by_session = Counter(spellings.values()), set[str]()
    n_rows = Counter(subject for subject, _ in listed)
    for row in layout.rows:
        subject, wanted = _identify_row(row)
        if listed[subject, wanted] > 1:
            which = f"{subject}, session {wanted}," if wanted else subject
            spelt = "perhaps with and without 'sub-' or zeros"
            raise BrioError(f"{table}: {which} appears more than once, {spelt}; keep one row")
        if subject not in subjects:
            layout.skip(f"no {what}", row["participant_id"])
            continue
        by_session = {"": subjects[subject]}
        if n_rows[subject] > 1 and not wanted:
            by_session = {}
            layout.skip(
                "no session in this row, although other rows of the participant have one", row["participant_id"]
            )
        elif wanted and (n_rows[subject] > 1 or any(file.session for file in subjects[subject])):
            read_by_session.add(subject)
            groups = group_by_session(subjects[subject])
            by_session = {name: own for name, own in groups.items() if simplify_session(name) == wanted}
            if not by_session:
                layout.skip(f"no {what} for the session of this row", row["participant_id"], session=row["session"])
        elif sessions is not None:
            by_session = group_by_session(subjects[subject])
        for session, own in by_session.items():
            named = row | {"session": session} if session else row
            scans.append((named, own if runs == "concatenate" else own[:1]))
            for further in own[1:] if runs == "first" else []:
                reason = "another run; only the first was read (to join runs: --runs concatenate)"
                if own[0].session != further.session:
                    reason = "another session; only the first was read (to read more: --sessions join, average or all)"
                layout.skip(reason, row["participant_id"], file=further.path.name)
    if table is not None:
        layout.skip(f"no row in {table.name}", *(subject for subject in subjects if subject not in n_rows))
    for subject in sorted(read_by_session):
        for session, own in group_by_session(subjects[subject]).items():
            if (subject, simplify_session(session)) not in listed:
                layout.skip("no row for this session", subject, session=session, file=own[0].path.name)
    for file in joined:
        if file.subject in {_identify_row(row)[0] for row, _ in scans}:
            layout.skip(JOINED, file.subject, file=file.path.name)
    copies = len(selected) - len(chosen)

    def read_runs(files: list[SeriesFile]) -> tuple[Path, Series]:
        paths = [file.path for file in files]
        return paths[0], join_scans([read(path) for path in paths], paths)

    return replace(
        layout,
        scans=scans,
        read=read_runs,
        options={"atlas": label, "participants": table, "runs": runs},
        notes={"copies_in_other_formats": copies} if copies else {},
    )


def _identify_row(row: Row) -> tuple[str, str]:
    """Return subject, with ``sub-``, and session of a row of the participants table."""
    return f"sub-{row['participant_id'].removeprefix('sub-')}", simplify_session(row.get("session"))


def _read_scan(path: Path, root: Path, list_sidecars: ListSidecars, beside: series.FirstRows) -> Series:
    """Read a series with its repetition time and mean displacement, where the files beside it state these."""
    scan = series.read_series(path, beside=beside) if series.get_series_suffix(path) else _read_dataset(path)
    metadata = read_metadata(path, root, list_sidecars)
    tr = find_repetition_time(metadata, path)
    if tr is None and scan.tr is None:  # XCP-D states it for the images alone, C-PAC in their headers
        tr = find_repetition_time(read_metadata(path, root, list_sidecars, suffix="bold"), path)
        tr = _read_tr_of_images(path) if tr is None else tr
    return replace(scan, tr=scan.tr if tr is None else tr, mean_fd=_read_mean_fd(path, metadata))


def find_repetition_time(sidecar: dict[str, Any], path: Path) -> float | None:
    """Find the repetition time that the JSON sidecars of a file state."""
    tr, frequency = sidecar.get("RepetitionTime"), sidecar.get("SamplingFrequency")
    if tr is not None:
        return require_repetition_time(tr, f"{path}: RepetitionTime in its JSON sidecar")
    if not frequency or frequency == "TR":  # XCP-D writes the word
        return None
    if "feature" in parse_entities(path):  # HALFpipe writes seconds
        return require_repetition_time(frequency, f"{path}: SamplingFrequency in its JSON sidecar")
    is_number = isinstance(frequency, int | float) and not isinstance(frequency, bool)
    if not (is_number and 1.0 / LONGEST <= frequency <= 1.0 / SHORTEST):
        problem = f"SamplingFrequency in its JSON sidecar is {repr(frequency)[:40]}"
        needed = f"a number of frames per second is needed, from {1.0 / LONGEST:g} to {1.0 / SHORTEST:g}"
        raise BrioError(f"{path}: {problem}; {needed}")
    return 1.0 / frequency


def _read_tr_of_images(path: Path) -> float | None:
    """Read the repetition time of a scan from the header of an image beside its series; a damaged one states none."""
    import nibabel

    for file in _find_files_of_scan(path, "_bold.nii.gz"):
        with suppress(nibabel.filebasedimages.ImageFileError, OSError, EOFError, ValueError):
            if (tr := read_header_tr(nibabel.load(file).header)) is not None:
                return tr
    return None


def read_header_tr(header: Any) -> float | None:
    """Read the repetition time from the header of a NIfTI image, in seconds."""
    zooms, unit = header.get_zooms(), header.get_xyzt_units()[1]
    seconds = float(zooms[3]) * {"msec": 1e-3, "usec": 1e-6}.get(unit, 1.0) if len(zooms) == 4 else 0.0
    return round(seconds, 6) if is_repetition_time(seconds) else None


# Where pipelines state the framewise displacement: keys of a sidecar with its mean (giga_connectome, HALFpipe), endings
# of files with a value per frame (XCP-D, C-PAC), and their columns. As in fMRIPrep, that of Power comes first.
MEAN_FD_KEYS = ("MeanFramewiseDisplacement", "FDMean")
FD_FILES = ("motion.tsv", "FDPower_motion.1D", "nt-power.1D", "FDJenkinson_motion.1D", "nt-jenkinson.1D")
FD_COLUMNS = ("framewise_displacement", "framewise displacement power", "framewise displacement jenkinson")


def _read_mean_fd(path: Path, metadata: dict[str, Any]) -> float | None:
    """Read the mean framewise displacement of a scan from its sidecar, or the motion files beside its series."""
    stated = next((metadata[key] for key in MEAN_FD_KEYS if key in metadata), None)
    if isinstance(stated, int | float) and math.isfinite(stated):
        return float(stated)
    for ending in FD_FILES:
        for file in _find_files_of_scan(path, ending):
            motion = series.read_series(file)
            names = [name.lower() for name in motion.columns or FD_COLUMNS[:1]]
            known = next((motion.frames[:, names.index(name)] for name in FD_COLUMNS if name in names), np.empty(0))
            if np.isfinite(known).any():
                return float(known[np.isfinite(known)].mean(dtype=np.float64))
    return None


def _find_files_of_scan(path: Path, ending: str) -> list[Path]:
    """Find the files beside a series that belong to its scan; the one whose name says most about it comes first."""
    own, subject = _list_scan_entities(parse_entities(path)), path.name.split("_")[0]
    found = filter(series.is_regular, path.parent.glob(f"{subject}_*{ending}"))
    said = {file: _list_scan_entities(parse_entities(file)) for file in found}
    of_scan = [file for file, entities in said.items() if entities <= own]
    return sorted(of_scan, key=lambda file: (-len(said[file]), len(file.name)))


def _list_scan_entities(entities: dict[str, str]) -> set[tuple[str, str]]:
    """List the entities that identify the scan of a file."""
    return {item for item in entities.items() if item[0] in ("sub", *SCAN_ENTITIES)}


def read_metadata(
    path: Path, root: Path, list_sidecars: ListSidecars | None = None, suffix: str = ""
) -> dict[str, Any]:
    """Read the json metadata of a file by the inheritance principle of BIDS.

    A json file in the same folder, or in a folder above it up to ``root``, applies to a file if its entities are among
    those of the file and its suffix is the same. Nearer json files, and those with more entities, take precedence. With
    another suffix, the metadata of other files of the same scan are read, however they were processed.
    """
    own, metadata = set(parse_entities(path).items()), dict[str, Any]()
    for folder in reversed([folder for folder in path.parents if folder.is_relative_to(root)] or [path.parent]):
        speaking = []
        for file, said in (list_sidecars or _list_sidecars)(folder):
            entities = _list_scan_entities(said) if suffix else {*said.items()}
            is_statistic = suffix and "stat" in said  # of an image, which says nothing of the scan
            if _get_last_word(file) == (suffix or _get_last_word(path)) and entities <= own and not is_statistic:
                speaking.append((len(entities), file))
        for _, file in sorted(speaking):
            metadata |= series.read_json_object(file)
    return metadata


def _list_sidecars(folder: Path) -> list[Sidecar]:
    """List the json files of a folder with their entities."""
    return [(file, parse_entities(file)) for file in folder.glob("*.json") if series.is_regular(file)]


def _get_last_word(path: Path) -> str:
    return path.name.split(".")[0].rpartition("_")[2]


def _select_plain(sidecar: dict[str, Any]) -> dict[str, Any]:
    """Select what a sidecar says about the processing (censored frames, filters), without lists of files."""
    return {
        k: escape_controls(v) if isinstance(v, str) else v
        for k, v in sidecar.items()
        if (isinstance(v, bool | int | float) and abs(v) < 1e300) or (isinstance(v, str) and len(v) < 200)
    }
