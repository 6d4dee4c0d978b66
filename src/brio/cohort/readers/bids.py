"""Read BIDS derivatives: participants.tsv and parcellated series of XCP-D, HALFpipe, C-PAC or CIFTI pipelines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import BrioError, escape_controls, nearest
from ..cohort import Cohort
from ..repetition_time import LONGEST, SHORTEST, require_repetition_time
from .assembly import canonicalise_atlas_name, check_source, describe_import, write_scans
from .bids_names import (
    SeriesFile,
    find_series_files,
    group_by_session,
    group_by_subject,
    select_atlas,
    select_task,
)
from .input_files import describe_name, is_regular, read_json_object
from .options import ImportOptions
from .participants import Roster, describe_skipped, find_roster
from .series import Series, get_series_stem, read_series
from .sessions import check_sessions_option, choose_sessions, join_scans, read_chosen

RUNS = ("first", "concatenate")


def read_bids(src: str | Path, out: str | Path, options: ImportOptions) -> Cohort:
    """Import parcellated time series of BIDS derivatives.

    The reader takes ``*_timeseries.tsv``, ``.txt``, ``.1D`` and ``*.ptseries.nii`` files whose name has an ``atlas-``,
    ``seg-`` or ``feature-`` entity. Parcels that are missing in a scan (NaN, n/a) are kept as ROIs without signal.
    Columns are brought into one order by the names in the header.
    """
    runs, sessions = RUNS[0] if options.runs is None else options.runs, options.sessions
    if runs not in RUNS:
        raise BrioError(f"runs cannot be '{runs}', {nearest(runs, RUNS)}")
    check_sessions_option(sessions)
    src = check_source(src, options)
    found = find_roster(src, options.participants, options.labels_required, **options.columns)
    table, roster = found or (None, Roster([]))
    selected = select_task(select_atlas(find_series_files(src, options.match), options.atlas, src), options.task, src)
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
        by_session = {"": files} if sessions is None else group_by_session(files)
        for session, own in by_session.items():
            named = row if sessions is None else row | {"session": session}
            scans.append((named, own if runs == "concatenate" else own[:1]))
            further = own[1:] if runs == "first" else []
            skipped += [
                describe_skipped(row["participant_id"], _explain_further(own[0], f), file=f.path.name) for f in further
            ]
    chosen, further_sessions = choose_sessions(scans, sessions)
    skipped += further_sessions
    if table is not None:
        skipped += [describe_skipped(s, f"no row in {table.name}") for s in subjects if s not in listed]
    label = selected[0].atlas or selected[0].feature
    stated = {
        "atlas": selected[0].label,
        "participants": table,
        **options.columns,
        "task": options.task,
        "match": options.match,
        "runs": runs,
        "sessions": sessions,
    }
    n_files = sum(len(files) for _, sources in chosen for files in sources)
    provenance = describe_import("bids", src, stated, n_files, skipped, roster.unlabelled, roster.renamed)
    if copies:
        provenance["copies_in_other_formats"] = copies
    if scans and (processing := _select_plain(_read_sidecar(scans[0][1][0].path))):
        provenance["sidecar_of_first"] = processing
    return write_scans(
        out,
        read_chosen(chosen, _read_runs, sessions),
        options,
        atlas=canonicalise_atlas_name(label),
        name=describe_name(src.resolve().name),
        classes=roster.classes,
        provenance=provenance,
    )


def _add_prefix(participant_id: str) -> str:
    """Return ``sub-01`` for both ``sub-01`` and ``01``."""
    return participant_id if participant_id.startswith("sub-") else f"sub-{participant_id}"


def _explain_further(first: SeriesFile, further: SeriesFile) -> str:
    """Say why a file is not read, and which option reads it."""
    if first.session != further.session:
        return "a further session, only the first was taken (--sessions join, average or all takes more)"
    return "a further run, only the first was taken (--runs concatenate joins runs)"


def _read_runs(files: list[SeriesFile]) -> tuple[Path, Series]:
    paths = [file.path for file in files]
    return paths[0], join_scans([_add_tr(read_series(path), path) for path in paths], paths)


def _add_tr(series: Series, path: Path) -> Series:
    """Add the repetition time that the json sidecar states, if it does."""
    sidecar = _read_sidecar(path)
    tr, frequency = sidecar.get("RepetitionTime"), sidecar.get("SamplingFrequency")
    if tr is not None:
        return replace(series, tr=require_repetition_time(tr, f"{path}: RepetitionTime in its json sidecar"))
    if not frequency:
        return series
    is_number = isinstance(frequency, int | float) and not isinstance(frequency, bool)
    if not (is_number and 1.0 / LONGEST <= frequency <= 1.0 / SHORTEST):
        raise BrioError(
            f"{path}: SamplingFrequency in its json sidecar is {repr(frequency)[:40]}; a positive number of frames per "
            "second is needed"
        )
    return replace(series, tr=1.0 / frequency)


def _read_sidecar(path: Path) -> dict[str, Any]:
    sidecar = path.with_name(f"{get_series_stem(path)}.json")
    return read_json_object(sidecar) if is_regular(sidecar) else {}


def _select_plain(sidecar: dict[str, Any]) -> dict[str, Any]:
    """Select what a sidecar says about the processing (censored frames, filters), without lists of files."""
    return {
        k: escape_controls(v) if isinstance(v, str) else v
        for k, v in sidecar.items()
        if (isinstance(v, bool | int | float) and abs(v) < 1e300) or (isinstance(v, str) and len(v) < 200)
    }
