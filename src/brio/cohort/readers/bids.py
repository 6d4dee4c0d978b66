"""BIDS derivatives: participants.tsv and the parcellated series of XCP-D, HALFpipe, C-PAC or a CIFTI pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BrioError, nearest
from ..cohort import Cohort
from ..signal import live_rois
from .assembly import RoiOrder, canonical, describe, source_folder, write_scans
from .bids_names import Found, choose_atlas, choose_task, find_scans, settle_variants
from .participants import find_table, read_roster, skip
from .series import Series, read_series, series_stem

__all__ = ["join_runs", "read_bids"]

RUNS = ("first", "concatenate")


def read_bids(
    src: str | Path,
    out: str | Path,
    *,
    atlas: str | None = None,
    participants: str | Path | None = None,
    site_column: str | None = None,
    label_column: str | None = None,
    patient: str | None = None,
    control: str | None = None,
    task: str | None = None,
    match: str | None = None,
    runs: str = "first",
    name: str | None = None,
) -> Cohort:
    """Import parcellated time series of BIDS derivatives.

    Read are ``*_timeseries.tsv``, ``.txt``, ``.1D`` and ``*.ptseries.nii`` whose name has an ``atlas-``, ``seg-`` or
    ``feature-`` entity. Parcels that are missing in a scan (NaN, n/a) stay as ROIs without signal. Columns are
    brought to one order by the names in the header.

    Parameters
    ----------
    src : str or Path
        The dataset or its derivatives; files may lie anywhere below.
    out : str or Path
        The cohort folder to write.
    atlas : str, optional
        Label of the ``atlas-``/``seg-`` or ``feature-`` entity, or ``feature/atlas``; needed where there are several.
    participants : str or Path, optional
        The table (tsv or csv, column ``participant_id``); by default participants.tsv in ``src``.
    site_column, label_column : str, optional
        Columns of the site and the label, ``site`` and ``label`` by default.
    patient, control : str, optional
        Values of the label column for 1 and 0; needed unless the column holds 0 and 1.
    task : str, optional
        Label of the ``task-`` entity; needed where there are several.
    match : str, optional
        Only files whose path below ``src`` holds this text (``*`` and ``?`` allowed), for example ``desc-36P``;
        needed where one scan was processed in several ways.
    runs : {"first", "concatenate"}
        Where a subject has several runs or sessions: take the first by name and list the others as skipped, or
        join them all, see :func:`join_runs`.
    name : str, optional
        Name of the cohort.
    """
    if runs not in RUNS:
        raise BrioError(f"runs cannot be '{runs}', {nearest(runs, RUNS)}")
    src = source_folder(src)
    table = find_table(src, participants)
    roster = read_roster(table, site_column=site_column, label_column=label_column, patient=patient, control=control)
    chosen = choose_task(choose_atlas(find_scans(src, match), atlas, src), task, src)
    subjects, copies = settle_variants(chosen)
    scans = []
    skipped = list(roster.skipped)
    known = {_subject(s["participant_id"]) for s in roster.skipped}
    for row in roster.rows:
        subject = _subject(row["participant_id"])
        if subject in known:
            raise BrioError(f"{table}: {subject} appears more than once, with and without 'sub-'; keep one row")
        known.add(subject)
        files = subjects.get(subject, [])
        if not files:
            skipped.append(skip(row["participant_id"], f"no time series of atlas '{chosen[0].label}'"))
            continue
        scans.append((row, files if runs == "concatenate" else files[:1]))
        if runs == "first":
            skipped += [
                skip(row["participant_id"], "a further run, only the first was taken", file=f.path.name)
                for f in files[1:]
            ]
    skipped += [skip(s, f"no row in {table.name}") for s in subjects if s not in known]
    label = chosen[0].atlas or chosen[0].feature
    options = {
        "atlas": chosen[0].label,
        "participants": table,
        "site_column": site_column,
        "label_column": label_column,
        "patient": patient,
        "control": control,
        "task": task,
        "match": match,
        "runs": runs,
    }
    provenance = describe("bids", src, options, sum(len(files) for _, files in scans), skipped)
    if copies:
        provenance["copies_in_other_formats"] = copies
    if scans and (notes := _plain(_sidecar(scans[0][1][0].path))):
        provenance["sidecar_of_first"] = notes
    return write_scans(
        out,
        _read(scans),
        atlas=canonical(label),
        name=name or src.resolve().name,
        classes=roster.classes,
        provenance=provenance,
    )


def _subject(participant_id: str) -> str:
    """``sub-01`` for both ``sub-01`` and ``01``."""
    return participant_id if participant_id.startswith("sub-") else f"sub-{participant_id}"


def _read(scans: list[tuple[dict[str, Any], list[Found]]]) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    for row, files in scans:
        paths = [f.path for f in files]
        yield row, paths[0], join_runs([_with_tr(read_series(p), p) for p in paths], paths)


def join_runs(runs: list[Series], paths: list[Path]) -> Series:
    """Join the runs of a subject end to end, each ROI z-scored within each run first.

    Without that, differences of level and scale between runs would pass for correlation. An ROI that has no signal
    in one of the runs has none in the joined scan (NaN), since its frames there could only be made up.
    """
    if len(runs) == 1:
        return runs[0]
    order = RoiOrder.of(runs[0], paths[0])
    frames = [order.bring(run, path) for run, path in zip(runs, paths, strict=True)]
    for run, path in zip(runs, paths, strict=True):
        if run.tr != runs[0].tr:
            raise BrioError(
                f"{path}: repetition time {run.tr}, but {runs[0].tr} in {paths[0]}; such runs cannot be joined"
            )
    alive = np.logical_and.reduce([live_rois(f) for f in frames])
    joined = np.full((sum(len(f) for f in frames), order.n_rois), np.nan, dtype=np.float32)
    joined[:, alive] = np.concatenate([_z(f[:, alive]) for f in frames])
    return replace(runs[0], frames=joined)


def _z(frames: np.ndarray) -> np.ndarray:
    finite = np.where(np.isfinite(frames), frames, np.nan).astype(np.float64)
    return (finite - np.nanmean(finite, axis=0)) / np.nanstd(finite, axis=0)


def _with_tr(series: Series, path: Path) -> Series:
    sidecar = _sidecar(path)
    tr = sidecar.get("RepetitionTime")
    if tr is None and sidecar.get("SamplingFrequency"):
        tr = 1.0 / _positive(sidecar["SamplingFrequency"], "SamplingFrequency", path)
    return series if tr is None else replace(series, tr=_positive(tr, "RepetitionTime", path))


def _positive(value: Any, key: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BrioError(f"{path}: {key} in its json sidecar is {value!r}; a positive number is needed")
    return float(value)


def _sidecar(path: Path) -> dict[str, Any]:
    sidecar = path.with_name(f"{series_stem(path)}.json")
    if not sidecar.is_file():
        return {}
    try:
        content = json.loads(sidecar.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrioError(f"{sidecar}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise BrioError(f"{sidecar}: must hold a JSON object")
    return content


def _plain(sidecar: dict[str, Any]) -> dict[str, Any]:
    """What a pipeline says about its processing (censored or interpolated frames, filters), without lists of files."""
    return {
        k: v for k, v in sidecar.items() if isinstance(v, bool | int | float) or (isinstance(v, str) and len(v) < 200)
    }
