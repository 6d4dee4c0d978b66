"""Read BIDS derivatives: participants.tsv and parcellated series of XCP-D, HALFpipe, C-PAC or CIFTI pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BrioError, nearest
from ..cohort import Cohort
from ..signal import find_live_rois
from .assembly import canonicalise_atlas_name, check_source, describe_import, write_scans
from .bids_names import SeriesFile, find_series_files, group_by_subject, select_atlas, select_task
from .labels import ClassValues
from .participants import Roster, describe_skipped, find_roster
from .rois import RoiChoice, RoiOrder
from .series import Series, get_series_stem, read_series
from .to_predict import ScansToPredict

__all__ = ["join_runs", "read_bids"]

RUNS = ("first", "concatenate")


def read_bids(
    src: str | Path,
    out: str | Path,
    to_predict: ScansToPredict | None = None,
    rois: RoiChoice | None = None,
    *,
    atlas: str | None = None,
    participants: str | Path | None = None,
    site_column: str | None = None,
    label_column: str | None = None,
    patient: ClassValues = None,
    control: ClassValues = None,
    task: str | None = None,
    match: str | None = None,
    runs: str = "first",
    name: str | None = None,
) -> Cohort:
    """Import parcellated time series of BIDS derivatives.

    The reader takes ``*_timeseries.tsv``, ``.txt``, ``.1D`` and ``*.ptseries.nii`` files whose name has an ``atlas-``,
    ``seg-`` or ``feature-`` entity. Parcels that are missing in a scan (NaN, n/a) are kept as ROIs without signal.
    Columns are brought into one order by the names in the header.

    Parameters
    ----------
    src : str or Path
        The dataset or its derivatives; files may be in any subfolder.
    out : str or Path
        Cohort folder to write.
    to_predict : ScansToPredict, optional
        Read scans to be predicted: ``src`` may be one file, and no table is needed; participants are then the subjects
        in the names of the files.
    rois : RoiChoice, optional
        Table of the ROIs, and ROIs to drop.
    atlas : str, optional
        Label of the ``atlas-``/``seg-`` or ``feature-`` entity, or ``feature/atlas``; required if there are several.
    participants : str or Path, optional
        The table (tsv or csv, column ``participant_id``); by default participants.tsv in ``src``.
    site_column, label_column : str, optional
        Columns of the site and the label, ``site`` and ``label`` by default.
    patient, control : str or sequence of str, optional
        Values of the label column for 1 and 0; required unless the column holds 0 and 1. Several values make one
        class, and the column is then kept.
    task : str, optional
        Label of the ``task-`` entity; required if there are several.
    match : str, optional
        Only files whose path below ``src`` holds this text (``*`` and ``?`` are wildcards), for example ``desc-36P``;
        required if a scan was processed in several ways.
    runs : {"first", "concatenate"}
        If a subject has several runs or sessions, read the first by name and list the others as skipped, or join
        them all, see :func:`join_runs`.
    name : str, optional
        Name of the cohort; that of the folder by default.

    Returns
    -------
    Cohort
    """
    if runs not in RUNS:
        raise BrioError(f"runs cannot be '{runs}', {nearest(runs, RUNS)}")
    src = check_source(src, to_predict)
    columns = {"site_column": site_column, "label_column": label_column, "patient": patient, "control": control}
    table, roster = find_roster(src, participants, to_predict is None, **columns) or (None, Roster([]))
    selected = select_task(select_atlas(find_series_files(src, match), atlas, src), task, src)
    subjects, copies = group_by_subject(selected)
    if table is None:
        roster = Roster([{"participant_id": subject} for subject in subjects])
    scans = []
    skipped = list(roster.skipped)
    listed = {_add_prefix(entry["participant_id"]) for entry in roster.skipped}
    for row in roster.rows:
        subject = _add_prefix(row["participant_id"])
        if subject in listed:
            raise BrioError(f"{table}: {subject} appears more than once, with and without 'sub-'; keep one row")
        listed.add(subject)
        files = subjects.get(subject, [])
        if not files:
            skipped.append(describe_skipped(row["participant_id"], f"no time series of atlas '{selected[0].label}'"))
            continue
        scans.append((row, files if runs == "concatenate" else files[:1]))
        if runs == "first":
            skipped += [
                describe_skipped(row["participant_id"], "a further run, only the first was taken", file=f.path.name)
                for f in files[1:]
            ]
    if table is not None:
        skipped += [describe_skipped(s, f"no row in {table.name}") for s in subjects if s not in listed]
    label = selected[0].atlas or selected[0].feature
    options = {
        "atlas": selected[0].label,
        "participants": table,
        **columns,
        "task": task,
        "match": match,
        "runs": runs,
    }
    n_files = sum(len(files) for _, files in scans)
    provenance = describe_import("bids", src, options, n_files, skipped, roster.unlabelled)
    if copies:
        provenance["copies_in_other_formats"] = copies
    if scans and (processing := _select_plain(_read_sidecar(scans[0][1][0].path))):
        provenance["sidecar_of_first"] = processing
    return write_scans(
        out,
        _read_scans(scans),
        atlas=canonicalise_atlas_name(label),
        name=name or src.resolve().name,
        classes=roster.classes,
        provenance=provenance,
        to_predict=to_predict,
        rois=rois,
    )


def _add_prefix(participant_id: str) -> str:
    """Return ``sub-01`` for both ``sub-01`` and ``01``."""
    return participant_id if participant_id.startswith("sub-") else f"sub-{participant_id}"


def _read_scans(scans: list[tuple[dict[str, Any], list[SeriesFile]]]) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    for row, files in scans:
        paths = [file.path for file in files]
        yield row, paths[0], join_runs([_add_tr(read_series(p), p) for p in paths], paths)


def join_runs(runs: list[Series], paths: list[Path]) -> Series:
    """Join the runs of a subject end to end, with each ROI z-scored within each run.

    Otherwise differences in level and scale between runs would appear as correlation. An ROI without signal in one of
    the runs has none in the joined scan (NaN).

    Parameters
    ----------
    runs : list of Series, frames of shape [T_r, P]
    paths : list of Path
        Their files, for error messages.

    Returns
    -------
    Series, frames of shape [sum of T_r, P]

    Raises
    ------
    BrioError
        If the runs differ in their ROIs or repetition time.
    """
    if len(runs) == 1:
        return runs[0]
    order = RoiOrder.from_series(runs[0], paths[0])
    frames = [order.reorder(run, path) for run, path in zip(runs, paths, strict=True)]
    for run, path in zip(runs, paths, strict=True):
        if run.tr != runs[0].tr:
            raise BrioError(
                f"{path}: repetition time {run.tr}, but {runs[0].tr} in {paths[0]}; such runs cannot be joined"
            )
    alive = np.logical_and.reduce([find_live_rois(f) for f in frames])
    joined = np.full((sum(len(f) for f in frames), order.n_rois), np.nan, dtype=np.float32)
    joined[:, alive] = np.concatenate([_standardise(f[:, alive]) for f in frames])
    return replace(runs[0], frames=joined)


def _standardise(frames: np.ndarray) -> np.ndarray:
    """Scale each ROI to mean 0 and standard deviation 1 over its finite values."""
    finite = np.where(np.isfinite(frames), frames, np.nan).astype(np.float64)
    return (finite - np.nanmean(finite, axis=0)) / np.nanstd(finite, axis=0)


def _add_tr(series: Series, path: Path) -> Series:
    """Add the repetition time that the json sidecar states, if it does."""
    sidecar = _read_sidecar(path)
    tr = sidecar.get("RepetitionTime")
    if tr is None and sidecar.get("SamplingFrequency"):
        tr = 1.0 / _require_positive(sidecar["SamplingFrequency"], "SamplingFrequency", path)
    return series if tr is None else replace(series, tr=_require_positive(tr, "RepetitionTime", path))


def _require_positive(value: Any, key: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BrioError(f"{path}: {key} in its json sidecar is {value!r}; a positive number is needed")
    return float(value)


def _read_sidecar(path: Path) -> dict[str, Any]:
    sidecar = path.with_name(f"{get_series_stem(path)}.json")
    if not sidecar.is_file():
        return {}
    try:
        content = json.loads(sidecar.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrioError(f"{sidecar}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise BrioError(f"{sidecar}: must hold a JSON object")
    return content


def _select_plain(sidecar: dict[str, Any]) -> dict[str, Any]:
    """Select what a sidecar says about the processing (censored frames, filters), without lists of files."""
    return {
        k: v for k, v in sidecar.items() if isinstance(v, bool | int | float) or (isinstance(v, str) and len(v) < 200)
    }
