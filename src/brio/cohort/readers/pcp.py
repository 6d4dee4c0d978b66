"""Read ABIDE of the Preprocessed Connectomes Project: a phenotypic csv and files ``<FILE_ID>_rois_<atlas>.1D``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest
from ...storage import refuse_existing
from ..cohort import Cohort
from .assembly import (
    ImportOptions,
    canonicalise_atlas_name,
    check_source,
    choose_atlas_label,
    describe_import,
    write_scans,
)
from .input_files import compare_digests
from .participants import Roster, TextTable, describe_skipped, read_participants
from .series import Series, find_series, read_series

NAME = re.compile(r"(?P<file_id>.+)_rois_(?P<atlas>[A-Za-z0-9]+)\.1D", re.IGNORECASE)
NO_SCAN = "no_filename"
"""FILE_ID of participants without a scan in the release."""
LABELS = {"1": 1, "2": 0}  # DX_GROUP: 1 autism, 2 control
CLASSES = ("TD", "ASD")
COVARIATES = {
    "age": "AGE_AT_SCAN",
    "sex": "SEX",
    "mean_fd": "func_mean_fd",
    "fiq": "FIQ",
    "viq": "VIQ",
    "piq": "PIQ",
    "handedness": "HANDEDNESS_CATEGORY",
    "eye_status": "EYE_STATUS_AT_SCAN",
}
"""Column of the release for each covariate."""
CODES = {"sex": {"1": "M", "2": "F"}, "eye_status": {"1": "open", "2": "closed"}}


def read_pcp(src: str | Path, out: str | Path, options: ImportOptions) -> Cohort:
    """Import ABIDE of the Preprocessed Connectomes Project."""
    src = check_source(src, options)
    files = [(m, path) for path in find_series(src) if (m := NAME.fullmatch(path.name))]
    if not files:
        raise BrioError(f"{src}: no file named <FILE_ID>_rois_<atlas>.1D below it")
    label = choose_atlas_label((m["atlas"] for m, _ in files), options.atlas, src)
    by_id: dict[str, Path] = {}
    for match, path in files:
        if match["atlas"] == label:
            other = by_id.setdefault(match["file_id"], path)
            if other != path:
                raise BrioError(f"{path}: also at {other}; import the folder of one pipeline and give --participants")
    phenotypic = _find_phenotypic(src, options.participants, options.labels_required)
    if phenotypic is None:
        roster = Roster([{"participant_id": file_id} for file_id in by_id])
    else:
        no_file = f"no file *_rois_{label}.1D"
        roster = _read_phenotypic(read_participants(phenotypic), by_id, no_file, options.labels_required)
    scans = [(row, by_id[row["participant_id"]]) for row in roster.rows]
    atlas_name = canonicalise_atlas_name(label)
    stated = {"atlas": label, "participants": options.participants and Path(options.participants)}
    return write_scans(
        out,
        _read_scans(scans),
        options,
        atlas=atlas_name,
        name=f"abide-{atlas_name}",
        classes=roster.classes,
        provenance=describe_import("pcp", src, stated, len(scans), roster.skipped, roster.unlabelled),
        strictness="names",
    )


def is_pcp_file(path: Path) -> bool:
    """Return whether a file is named as in this layout."""
    return NAME.fullmatch(path.name) is not None


def _find_phenotypic(src: Path, requested: str | Path | None, required: bool) -> Path | None:
    """Find the phenotypic table; None if there is none and none is required."""
    if requested is not None:
        if not Path(requested).is_file():
            raise BrioError(f"{requested}: no such phenotypic table")
        return Path(requested)
    paths = sorted(src.glob("*henotypic*.csv")) or sorted(src.rglob("*henotypic*.csv"))
    if not paths and not required:
        return None
    if len(paths) != 1:
        problem = f"{paths[0].name} and {paths[1].name} are both there" if paths else "no *henotypic*.csv below it"
        raise BrioError(f"{src}: {problem}; name the table with --participants")
    return paths[0]


def _read_phenotypic(table: TextTable, by_id: dict[str, Path], no_file: str, labels_required: bool) -> Roster:
    """Read the rows that have a file, in the order of the table, and list what has no counterpart."""
    for column in ("FILE_ID", "SITE_ID", "DX_GROUP") if labels_required else ("FILE_ID",):
        table.require_column(column)
    roster = Roster([], CLASSES)
    seen: set[str] = set()
    for number, row in enumerate(table.rows, start=1):
        file_id = row["FILE_ID"]
        if file_id is None or file_id == NO_SCAN:
            roster.skipped.append(
                describe_skipped(
                    row.get("SUB_ID") or f"row {number}", f"the release has no scan (FILE_ID is {NO_SCAN})"
                )
            )
            continue
        if file_id in seen:
            raise BrioError(f"{table.path}: participant {file_id} appears more than once in FILE_ID; keep one row")
        seen.add(file_id)
        if file_id not in by_id:
            roster.skipped.append(describe_skipped(file_id, no_file))
            continue
        group = row.get("DX_GROUP")
        label = LABELS.get(group or "")
        if label is None and labels_required:
            raise BrioError(
                f"{table.path}: participant {file_id} has DX_GROUP '{group}'; 1 (autism) or 2 (control) is needed"
            )
        if label is None and group is not None:
            roster.unlabelled.append(describe_skipped(file_id, f"DX_GROUP '{group}' is neither 1 nor 2"))
        required = {"participant_id": file_id, "site": row.get("SITE_ID"), "label": label}
        roster.rows.append(required | _convert_covariates(row))
    roster.skipped += [
        describe_skipped(file_id, f"no row in {table.path.name}") for file_id in sorted(set(by_id) - seen)
    ]
    return roster


def _convert_covariates(row: dict[str, str | None]) -> dict[str, str | None]:
    """Convert the covariates of a row of the phenotypic table."""
    values = {}
    for ours, theirs in COVARIATES.items():
        value = row.get(theirs)
        if value is not None and value.removesuffix(".0") == "-9999":  # how the release writes a missing value
            value = None
        if ours in CODES:
            value = CODES[ours].get(value or "")
        values[ours] = value
    return values


def _read_scans(scans: list[tuple[dict[str, Any], Path]]) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    for row, path in scans:
        yield row, path, read_series(path)


PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
DERIVATIVES = {"aal116": "rois_aal", "cc200": "rois_cc200"}
"""Name of each atlas in the release."""


def fetch_abide(
    atlas: str,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    n_subjects: int | None = None,
    name: str | None = None,
    digests: str | Path | None = None,
    fetcher: Callable[..., Any] | None = None,
) -> Cohort:
    """Download the ROI series of ABIDE I and import them.

    The series are those of the C-PAC pipeline, band-pass filtered and with global signal regression. All participants
    are imported, whatever the quality ratings of the release; exclusions are left to the audit.

    The release publishes no digests, so a first download can only be trusted. With ``digests`` its files are recorded,
    and every later download is compared with the record before it is imported.
    """
    atlas_name = canonicalise_atlas_name(atlas).lower()
    if atlas_name not in DERIVATIVES:
        raise BrioError(f"ABIDE is not offered for atlas '{atlas}', {nearest(atlas_name, DERIVATIVES)}")
    refuse_existing(out)
    if fetcher is None or data_dir is None:
        from nilearn import datasets

        fetcher = fetcher or datasets.fetch_abide_pcp
        folders = datasets.get_data_dirs()
        data_dir = data_dir or next((d for d in folders if (Path(d) / "ABIDE_pcp").is_dir()), folders[0])
    try:
        fetcher(
            data_dir=str(data_dir),
            n_subjects=n_subjects,
            pipeline="cpac",
            band_pass_filtering=True,
            global_signal_regression=True,
            derivatives=[DERIVATIVES[atlas_name]],
            quality_checked=False,
        )
    except Exception as error:  # the network fails in many ways
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"the download of ABIDE failed ({message}); run again, files already in {data_dir} are kept"
        ) from error
    folder = Path(data_dir) / "ABIDE_pcp"
    if digests is not None:
        series = (folder / "cpac" / "filt_global").glob(f"*_{DERIVATIVES[atlas_name]}.1D")
        compare_digests(folder, sorted([folder / PHENOTYPES, *series]), Path(digests))
    return read_pcp(
        folder / "cpac" / "filt_global",
        out,
        ImportOptions(atlas=DERIVATIVES[atlas_name].removeprefix("rois_"), participants=folder / PHENOTYPES, name=name),
    )
