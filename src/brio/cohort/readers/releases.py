"""Read published data sets: ABIDE of the Preprocessed Connectomes Project, REST-meta-MDD, and packed ABIDE.

========  =============================================================================================
pcp       a phenotypic csv and files ``<FILE_ID>_rois_<atlas>.1D``
dpabi     ``ROISignals_S<site>-<group>-<number>.mat`` as DPABI writes them, all atlases side by side
packed    ``participants.tsv`` and one ``<atlas>.npz`` per atlas, of z-scored series as 8-bit integers
========  =============================================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from ...errors import BrioError, nearest
from ...formatting import format_count
from ...storage import hash_file, refuse_existing, write_atomically
from ..atlas import canonicalise_atlas_name
from ..cohort import Cohort
from ..scans import find_live_rois
from . import participants, series
from .assembly import choose_atlas, import_scans
from .participants import ImportOptions, Layout, Row
from .series import Series

ABIDE_CLASSES = ("TD", "ASD")


def _read_label(
    layout: Layout, path: Path, participant: str, column: str, row: Row, control: str, required: bool
) -> int | None:
    """Read the label of a row that is 1 for patients and another digit for controls."""
    code = row.get(column)
    label = {"1": 1, control: 0}.get(code or "")
    if label is None and required:
        has = f"no {column}" if code is None else f"{column} '{code}'"
        raise BrioError(f"{path}: participant {participant} has {has}; it must be 1 (autism) or {control} (control)")
    if label is None and code is not None:
        layout.leave_unlabelled(participant, f"{column} '{code}' is neither 1 nor {control}")
    layout.label_texts[participant] = code or ""
    return label


PCP_NAME = re.compile(r"(?P<file_id>.+)_rois_(?P<atlas>[A-Za-z0-9]+)\.1D", re.IGNORECASE)
NO_SCAN = "no_filename"  # FILE_ID of participants without a scan in the release
# Column of the release for each covariate.
PCP_COVARIATES = {
    "age": "AGE_AT_SCAN",
    "sex": "SEX",
    "mean_fd": "func_mean_fd",
    "fiq": "FIQ",
    "viq": "VIQ",
    "piq": "PIQ",
    "handedness": "HANDEDNESS_CATEGORY",
    "eye_status": "EYE_STATUS_AT_SCAN",
}
CODES = {"sex": {"1": "M", "2": "F"}, "eye_status": {"1": "open", "2": "closed"}}


def find_pcp(src: Path, options: ImportOptions) -> Layout:
    """Find the scans of ABIDE of the Preprocessed Connectomes Project."""
    files = [(m, path) for path in series.find_series(src, options.match) if (m := PCP_NAME.fullmatch(path.name))]
    if not files:
        raise BrioError(f"{src}: has no file named <FILE_ID>_rois_<atlas>.1D in or below it")
    label = choose_atlas({m["atlas"]: {m["atlas"]} for m, _ in files}, options.atlas, src)
    by_id: dict[str, Path] = {}
    for match, path in files:
        if match["atlas"] == label:
            other = by_id.setdefault(match["file_id"], path)
            if other != path:
                raise BrioError(
                    f"{path}: there is a second file for this scan, {other}; import the folder of one "
                    "pipeline and give --participants"
                )
    phenotypic = _find_phenotypic(src, options)
    if phenotypic is None:
        layout = Layout([{"participant_id": file_id} for file_id in by_id])
    else:
        layout = _read_phenotypic(phenotypic, by_id, label, options)
    atlas_name = canonicalise_atlas_name(label)
    scans, options_found = [(row, by_id[row["participant_id"]]) for row in layout.rows], {"atlas": label}
    name = f"abide-{atlas_name}"
    return replace(layout, scans=scans, atlas=atlas_name, name=name, options=options_found, strictness="names")


def _find_phenotypic(src: Path, options: ImportOptions) -> Path | None:
    """Find the phenotypic table; None if there is none and none is required."""
    if options.participants is not None:
        return participants.find_table(src, options.participants)
    paths = sorted(src.glob("*henotypic*.csv")) or sorted(src.rglob("*henotypic*.csv"))
    if not (paths or options.labels_required or options.where or options.exclude or options.missing):
        return None
    if len(paths) != 1:
        problem = f"has both {paths[0].name} and {paths[1].name}" if paths else "has no *henotypic*.csv in or below it"
        raise BrioError(f"{src}: {problem}; give the participants table with --participants")
    return paths[0]


def _read_phenotypic(path: Path, by_id: dict[str, Path], atlas: str, options: ImportOptions) -> Layout:
    """Read the rows that have a file, in the order of the table, and list what has no counterpart."""
    table, labels_required = participants.read_participants(path), options.labels_required
    table, cleared = table.clear_codes(options.missing, "FILE_ID")
    for row in table.rows:  # -9999 is how the release writes a missing value
        row |= {column: None for column, value in row.items() if value in ("-9999", "-9999.0")}
    for column in ("FILE_ID", "SITE_ID", "DX_GROUP") if labels_required else ("FILE_ID",):
        table.require_column(column)
    layout = Layout([], ABIDE_CLASSES, warnings=cleared)
    table = participants.select_rows(table, options, layout, "FILE_ID", "session")
    seen = {entry["participant_id"] for entry in layout.skipped}
    for number, row in zip(table.numbers, table.rows, strict=True):
        file_id = row["FILE_ID"]
        if file_id is None or file_id == NO_SCAN:
            reason = f"the release has no scan (FILE_ID is {file_id or 'empty'})"
            layout.skip(reason, row.get("SUB_ID") or f"row {number}")
            continue
        if file_id in seen:
            raise BrioError(f"{path}: participant {file_id} appears more than once in FILE_ID; keep one row")
        seen.add(file_id)
        if file_id not in by_id:
            layout.skip(f"no file *_rois_{atlas}.1D", file_id)
            continue
        label = _read_label(layout, path, file_id, "DX_GROUP", row, "2", labels_required)
        values: dict[str, Any] = {"participant_id": file_id, "site": row.get("SITE_ID"), "label": label}
        values |= {ours: row.get(theirs) for ours, theirs in PCP_COVARIATES.items()}
        values |= {column: codes.get(values[column] or "") for column, codes in CODES.items()}
        layout.rows.append(values)
    layout.skip(f"no row in {path.name}", *sorted(set(by_id) - seen))
    return layout


PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
DERIVATIVES = {"aal116": "aal", "cc200": "cc200"}  # name of each atlas in the release


def fetch_abide(
    atlas: str,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    n_subjects: int | None = None,
    name: str | None = None,
    digests: str | Path | None = None,
) -> Cohort:
    """Download the ROI series of ABIDE I and import them.

    The series are those of the C-PAC pipeline, band-pass filtered and with global signal regression. Participants
    are imported whatever their quality ratings in the release; exclusions are left to the audit.

    The release publishes no digests, so the first download cannot be checked. With ``digests``, the digests of its
    files are recorded, and every later download is compared with this record before it is imported.
    """
    from nilearn import datasets

    atlas_name = canonicalise_atlas_name(atlas).lower()
    if atlas_name not in DERIVATIVES:
        raise BrioError(f"ABIDE is not available in atlas '{atlas}'; {nearest(atlas_name, DERIVATIVES)}")
    label = DERIVATIVES[atlas_name]
    refuse_existing(out)
    if data_dir is None:
        folders = datasets.get_data_dirs()
        data_dir = next((d for d in folders if (Path(d) / "ABIDE_pcp").is_dir()), folders[0])
    try:
        datasets.fetch_abide_pcp(
            data_dir=str(data_dir),
            n_subjects=n_subjects,
            pipeline="cpac",
            band_pass_filtering=True,
            global_signal_regression=True,
            derivatives=[f"rois_{label}"],
            quality_checked=False,
        )
    except Exception as error:  # the network fails in many ways
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"the download of ABIDE failed ({message}); run the command again (files in {data_dir} are kept)"
        ) from error
    folder = Path(data_dir) / "ABIDE_pcp"
    if digests is not None:
        scans = (folder / "cpac" / "filt_global").glob(f"*_rois_{label}.1D")
        compare_digests(folder, sorted([folder / PHENOTYPES, *scans]), Path(digests))
    options = ImportOptions(atlas=label, participants=folder / PHENOTYPES, name=name)
    return import_scans("pcp", find_pcp, folder / "cpac" / "filt_global", out, options)


def compare_digests(folder: Path, files: Sequence[Path], record: Path) -> None:
    """Compare files with a record of their digests; a record that does not exist is written."""
    found = {path.relative_to(folder).as_posix(): hash_file(path) for path in files}
    if not record.exists():
        return write_atomically(record, "".join(f"{digest}  {name}\n" for name, digest in found.items()))
    known = {}
    for number, line in enumerate(series.read_text_file(record, "a list of digests").splitlines(), 1):
        match = re.fullmatch("([0-9a-fA-F]{64})  (.*)", line)
        if match is None:
            raise BrioError(
                f"{record}: line {number} is not a digest and a name, as 'sha256sum' writes them; correct the line"
            )
        known[match[2]] = match[1].lower()
    for name, digest in found.items():
        if name not in known:
            raise BrioError(
                f"{record}: has no digest of {name}; remove {name} from {folder}, or give a new file to --digests"
            )
        if known[name] != digest:
            problem = f"does not match its digest in {record}"
            raise BrioError(f"{folder / name}: {problem}; remove the file and fetch it again")


# First and last column of each atlas, counted from 1; column 1569 is the global signal.
ATLAS_COLUMNS = {
    "aal116": (1, 116),
    "ho-cortical": (117, 212),
    "ho-subcortical": (213, 228),
    "cc200": (229, 428),
    "zalesky980": (429, 1408),
    "dosenbach160": (1409, 1568),
    "power264": (1570, 1833),
}
MIN_COLUMNS = 1833  # columns of a file since DPARSF 4.3; later versions append further atlases
# Columns of a file before the global signal was added, and before Power264 was added (DPARSF 4.2). Any other count
# below MIN_COLUMNS comes from a custom list of ROIs.
OLDER_COLUMNS = (1568, 1569)
PREFIX = "ROISignals_"
DPABI_NAME = re.compile(r"S(?P<site>\d+)-(?P<group>\d+)-\d+", re.IGNORECASE)
GROUPS = {"1": 1, "2": 0}  # 1 MDD, 2 HC
ID_COLUMNS = ("participant_id", "id", "subid", "subject_id", "subject")


def find_dpabi(src: Path, options: ImportOptions) -> Layout:
    """Find the ROI signals of REST-meta-MDD. A txt file next to a mat file with the same name is a copy."""
    if options.atlas is None:
        raise BrioError("kind 'dpabi' needs --atlas; give a name such as aal116")
    atlas_name = canonicalise_atlas_name(options.atlas).lower()
    if atlas_name not in ATLAS_COLUMNS:
        raise BrioError(f"the files of DPABI have no atlas '{options.atlas}'; {nearest(atlas_name, ATLAS_COLUMNS)}")
    about_table = ("id_column", "missing", "age_column", "sex_column", "ignore_columns", "where", "exclude")
    if options.participants is None and (given := [name for name in about_table if getattr(options, name)]):
        flag = f"--{given[0].replace('_', '-')}"
        raise BrioError(f"{flag} needs a participants table; give one with --participants")
    candidates = [path for path in series.find_series(src, options.match) if is_dpabi_file(path)]
    if not candidates:
        raise BrioError(f"{src}: has no file named ROISignals_*.mat or ROISignals_*.txt in or below it")
    originals = {p.with_suffix("") for p in candidates if p.suffix.lower() == ".mat"}
    layout, files = Layout([], ("HC", "MDD")), dict[str, Path]()
    for path in candidates:
        if path.suffix.lower() == ".txt" and path.with_suffix("") in originals:
            continue
        participant = path.stem.removeprefix(PREFIX)
        match = DPABI_NAME.fullmatch(participant)
        row: Row = {"site": f"S{match['site']}", "label": GROUPS.get(match["group"])} if match else {}
        layout.label_texts[participant] = match["group"] if match else ""
        reason = "the file name is not ROISignals_S<site>-<group>-<number>"
        reason = "the group in the file name is neither 1 (MDD) nor 2 (HC)" if match else reason
        is_unlabelled = row.get("label") is None
        if is_unlabelled and options.labels_required:
            layout.skip(reason, participant if match else path.stem)
            continue
        if participant in files:
            raise BrioError(
                f"{path}: participant {participant} has a second file, {files[participant]}; keep one of these files"
            )
        files[participant] = path
        layout.rows.append({"participant_id": participant} | row)
        if is_unlabelled:
            layout.leave_unlabelled(participant, reason)
    without_covariates = []
    if options.participants is not None:
        without_covariates = _add_covariates(layout, participants.find_table(src, options.participants), options)
    first, last = ATLAS_COLUMNS[atlas_name]

    def read(path: Path) -> tuple[Path, Series]:
        """Read the columns of the atlas."""
        frames = series.read_series(path, variable="ROISignals").frames
        n_columns = frames.shape[1]
        if n_columns < last or (n_columns < MIN_COLUMNS and n_columns not in OLDER_COLUMNS):
            place = f"columns {first:,} to {last:,} of the {MIN_COLUMNS:,}"
            problem = f"has {n_columns:,} columns, but {atlas_name} is in {place}"
            raise BrioError(
                f"{path}: {problem} that DPARSF 4.3 writes; extract the signals again with DPARSF 4.3 or later"
            )
        return path, Series(frames[:, first - 1 : last])

    return replace(
        layout,
        scans=[(row, files[row["participant_id"]]) for row in layout.rows],
        read=read,
        atlas=atlas_name,
        name=f"rest-meta-mdd-{atlas_name}",
        options={"atlas": atlas_name},
        notes={"without_covariates": without_covariates} if without_covariates else {},
    )


def is_dpabi_file(path: Path) -> bool:
    """Return whether a file is named as in this layout."""
    return path.name.startswith(PREFIX) and path.suffix.lower() in (".mat", ".txt")


def _add_covariates(layout: Layout, path: Path, options: ImportOptions) -> list[str]:
    """Add the covariates of a table to the rows of a layout, and list the participants without any."""
    table = participants.read_participants(path)
    column = options.id_column or next((c for c in table.columns if c.lower() in ID_COLUMNS), None)
    if column is None:
        problem = f"has no column of identifiers ({', '.join(ID_COLUMNS)}); its columns are {', '.join(table.columns)}"
        raise BrioError(f"{path}: {problem}; give the right column with --id-column")
    table, cleared = table.clear_codes(options.missing, column)
    layout.warnings += cleared
    everyone, table = (
        {row.get(column) for row in table.rows},
        participants.select_rows(table, options, layout, column, "session"),
    )
    listed = dict(zip(table.read_ids(column, option="--id-column"), table.rows, strict=True))
    left_out = everyone - listed.keys()
    if options.where is not None:  # which holds for no participant without a row
        absent = [row["participant_id"] for row in layout.rows if row["participant_id"] not in everyone]
        layout.skip(f"no row in {path.name}, whose columns --where compares", *absent)
        left_out |= {*absent}
    layout.rows = [row for row in layout.rows if row["participant_id"] not in left_out]
    ignored, names = participants.choose_covariates(table, options, layout, {column})
    known = {row["participant_id"]: row for row in layout.rows}
    layout.skip("no file ROISignals_<ID>", *(participant for participant in listed if participant not in known))
    for participant, row in known.items():
        row |= participants.extract_covariates(listed.get(participant, {}), {column, *ignored}, names)
    return [participant for participant in known if participant not in listed]


ARRAYS = ("frames", "scale", "n_frames", "participant_id")
# Column of the source for each covariate.
PACKED_COVARIATES = {name: name for name in ("age", "sex", "mean_fd", "fiq", "eye_status")} | {"tr": "tr_s"}


def find_packed(src: Path, options: ImportOptions) -> Layout:
    """Find packed scans, ``x = frames * scale``."""
    files = [src] if src.is_file() else sorted(src.glob("*.npz"))
    archives = {path.stem: path for path in series.select_matching(src, files, options.match)}
    if not archives:
        raise BrioError(f"{src}: has no file <atlas>.npz")
    atlas_name = choose_atlas({stem: {stem} for stem in archives}, options.atlas, src)
    path = archives[atlas_name]
    if options.labels_required or series.is_regular(src / "participants.tsv"):
        layout = _read_packed_table(src / "participants.tsv", options)
    else:
        ids = series.read_packed_ids(path, series.list_npz_arrays(path))
        if len(set(ids)) < len(ids):
            repeated = Counter(ids).most_common(1)[0][0]
            raise BrioError(f"{path}: participant {repeated} appears more than once in 'participant_id'")
        layout = Layout([{"participant_id": participant} for participant in ids])
    for label, archive in archives.items():
        unpack = _open_archive(archive, layout.rows)
        for i, row in enumerate(layout.rows):
            row[f"dead_fraction_{label}"] = round(1.0 - float(find_live_rois(unpack(i)).mean()), 6)
    unpack = _open_archive(path, layout.rows)
    rows = [{k: v for k, v in row.items() if k != "n_frames"} for row in layout.rows]
    return replace(
        layout,
        scans=list(zip(rows, range(len(rows)), strict=True)),
        read=lambda i: (path, Series(unpack(i))),
        atlas=atlas_name,
        name=f"abide-{atlas_name}",
        options={"atlas": atlas_name},
        strictness="count",
        n_files=1,
    )


def is_packed_file(path: Path) -> bool:
    """Return whether a file is an archive of packed scans, by the names of its arrays."""
    return series.is_regular(path) and is_zipfile(path) and set(ARRAYS) <= set(series.list_npz_arrays(path))


def _read_packed_table(path: Path, options: ImportOptions) -> Layout:
    """Read the rows of the participants table, with ``n_frames`` as text."""
    table, labels_required = participants.read_participants(path), options.labels_required
    table, cleared = table.clear_codes(options.missing, "participant_id", "session", "n_frames")
    for column in ("participant_id", "n_frames", *(("site", "diagnosis") if labels_required else ())):
        table.require_column(column)
    layout = Layout([], ABIDE_CLASSES, warnings=cleared)
    n_rows = Counter(row["participant_id"] for row in table.rows)
    for participant, row in zip(table.read_ids("participant_id", "session"), table.rows, strict=True):
        label = _read_label(layout, path, participant, "diagnosis", row, "0", labels_required)
        values: dict[str, Any] = {"participant_id": participant, "site": row.get("site"), "label": label}
        values |= {ours: row[theirs] for ours, theirs in PACKED_COVARIATES.items() if theirs in table.columns}
        if "session" in table.columns and n_rows[participant] > 1:
            values["session"] = row["session"]
        layout.rows.append(values | {"n_frames": row["n_frames"]})
    return layout


def _open_archive(path: Path, rows: list[dict[str, Any]]) -> Callable[[int], np.ndarray]:
    """Return a function that unpacks scan i, float32 [T, P]; scans must be in the order of the participants table."""
    declared = series.list_npz_arrays(path)
    series.require_arrays(path, declared, ARRAYS)
    # the names and lengths first: nothing larger is unpacked unless it is what the table lists
    (lengths,), ids = series.load_arrays(path, declared, ["n_frames"]), series.read_packed_ids(path, declared)
    if len(ids) != len(rows):
        raise BrioError(
            f"{path}: has {format_count(len(ids), 'scan')}, but participants.tsv has {format_count(len(rows), 'row')}"
        )
    frames, scale = declared["frames"], declared["scale"]
    if not set(frames.kind + scale.kind) <= set("fiu") or lengths.dtype.kind not in "iu":
        raise BrioError(f"{path}: frames and scale must be real numbers, and n_frames whole numbers")
    if lengths.shape != (len(ids),) or (lengths < 1).any():
        raise BrioError(f"{path}: 'n_frames' must contain a positive number for each of the {len(ids)} scans")
    for number, (own, length, row) in enumerate(zip(ids, lengths.tolist(), rows, strict=True), start=1):
        if own != row["participant_id"]:
            raise BrioError(
                f"{path}: scan {number} belongs to participant {own}, but row {number} of participants.tsv to "
                f"{row['participant_id']}"
            )
        if str(length) != row.get("n_frames", str(length)):
            raise BrioError(f"{path}: {own} has {length} frames, but participants.tsv says {row['n_frames']}")
    ends = np.cumsum(lengths, dtype=np.int64)
    n_rois = frames.shape[-1] if len(frames.shape) == 2 else 0
    if frames.shape != (lengths.sum(dtype=np.int64), n_rois) or scale.shape != (len(ids), n_rois) or n_rois == 0:
        raise BrioError(f"{path}: the shapes of frames {frames.shape}, scale {scale.shape} and n_frames do not match")
    packed, scales = series.load_arrays(path, declared, ("frames", "scale"))
    unusable = ~np.isfinite(scales).all(axis=1)
    if unusable.any():
        raise BrioError(f"{path}: the scale of participant {ids[int(np.flatnonzero(unusable)[0])]} is not finite")
    return lambda i: packed[ends[i] - lengths[i] : ends[i]] * scales[i].astype(np.float32)
