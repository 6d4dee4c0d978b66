"""Choose what becomes of repeated scans: the first of each participant, all joined or averaged, or each kept.

A reader lists its scans, one row of the participants table and one source (a file, an array) each. Rows of one
participant are told apart by ``session``. Their order is that of the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...errors import BrioError, nearest
from ..auditing.duplicates import correlate_scans
from ..auditing.exclusions import DEFAULT_RULES
from ..sessions import SESSION_FRAMES
from ..signal import clean_scan, find_live_rois
from .assembly import Skipped
from .participants import describe_skipped
from .rois import RoiOrder
from .series import Series

SESSIONS = ("first", "join", "average", "all")
"""Values of ``--sessions``."""

Row = dict[str, Any]
Source = TypeVar("Source")


def check_sessions_option(sessions: str | None) -> None:
    """Raise :class:`BrioError` unless a value of ``--sessions`` is known or None."""
    if sessions is not None and sessions not in SESSIONS:
        raise BrioError(f"sessions cannot be '{sessions}', {nearest(sessions, SESSIONS)}")


def choose_sessions(
    scans: Sequence[tuple[Row, Source]], sessions: str | None, *, have_frames: bool = True
) -> tuple[list[tuple[Row, list[Source]]], list[Skipped]]:
    """Choose the scans to read of participants who have several."""
    groups: dict[str, list[tuple[Row, Source]]] = {}
    for row, source in scans:
        groups.setdefault(row["participant_id"], []).append((row, source))
    repeated = [name for name, group in groups.items() if len(group) > 1]
    if repeated and sessions is None:
        names = _list_names(groups[repeated[0]])
        of_frames = ", join (one long scan), average (mean connectome)" if have_frames else ""
        raise BrioError(
            f"{len(repeated)} of {len(groups)} participants have several scans ({repeated[0]}: sessions {names}); "
            f"choose with --sessions: first (the first scan of each){of_frames} or all (each scan a row, splits and "
            "statistics by participant)"
        )
    chosen: list[tuple[Row, list[Source]]] = []
    skipped: list[Skipped] = []
    for participant, group in groups.items():
        row = group[0][0]
        if len(group) == 1:
            chosen.append((row, [group[0][1]]))
        elif sessions == "all":
            chosen += [(own, [source]) for own, source in group]
        elif sessions == "first":
            chosen.append((row, [group[0][1]]))
            reason = "a further session, only the first was taken"
            skipped += [describe_skipped(participant, reason) for _ in group[1:]]
        else:
            _require_one_value(participant, [own for own, _ in group])
            chosen.append((row | {"session": _list_names(group, "+")}, [source for _, source in group]))
    return chosen, skipped


def _list_names(group: list[tuple[Row, Source]], separator: str = ", ") -> str:
    return separator.join(str(row.get("session")) for row, _ in group)


def _require_one_value(participant: str, rows: list[Row]) -> None:
    for column in ("site", "label"):
        values = list(dict.fromkeys(str(row.get(column)) for row in rows))
        if len(values) > 1:
            raise BrioError(
                f"participant {participant} has scans with {column} {values[0]} and {values[1]}; they cannot become "
                "one scan: correct the table, or keep one with --sessions first"
            )


def read_chosen(
    chosen: Iterable[tuple[Row, list[Source]]],
    read: Callable[[Source], tuple[Path, Series]],
    sessions: str | None = None,
) -> Iterator[tuple[Row, Path, Series]]:
    """Read scans one by one; several sources of a row become one scan."""
    for row, sources in chosen:
        paths, parts = zip(*map(read, sources), strict=True)
        scans = list(parts)
        if sessions == "average" and len(parts) > 1:
            scans = [_drop_invalid_frames(part) for part in parts]
            row = row | {SESSION_FRAMES: "+".join(str(len(scan.frames)) for scan in scans)}
        joined = join_scans(scans, list(paths))
        yield row, paths[0], joined if len(parts) == 1 else replace(joined, parts=_list_parts(parts))


def join_scans(scans: list[Series], paths: list[Path]) -> Series:
    """Join scans of a participant end to end, with each ROI z-scored within each scan.

    Otherwise differences in level and scale between scans would appear as correlation. An ROI without signal in one of
    the scans has none in the joined scan (NaN).

    Shapes: scans [T_r, P]; returns [sum of T_r, P].
    """
    if len(scans) == 1:
        return scans[0]
    order = RoiOrder.from_series(scans[0], paths[0])
    frames = [order.reorder(scan, path) for scan, path in zip(scans, paths, strict=True)]
    for scan, path in zip(scans, paths, strict=True):
        if scan.tr != scans[0].tr:
            raise BrioError(
                f"{path}: repetition time {scan.tr}, but {scans[0].tr} in {paths[0]}; such runs cannot be joined"
            )
    for i, j in combinations(range(len(frames)), 2):
        if _is_same_scan(frames[i], frames[j]):
            raise BrioError(
                f"{paths[j]}: is the same scan as {paths[i]} under another name; remove one, or import with --sessions "
                "all, so that 'brio audit' lists all such scans"
            )
    alive = np.logical_and.reduce([find_live_rois(f) for f in frames])
    joined = np.full((sum(len(f) for f in frames), order.n_rois), np.nan, dtype=np.float32)
    joined[:, alive] = np.concatenate([_standardise(f[:, alive]) for f in frames])
    return replace(scans[0], frames=joined, parts=_list_parts(scans))


def _list_parts(scans: Sequence[Series]) -> tuple[Series, ...]:
    """List scans that are joined, each with the scans that it was joined of itself (runs of a session)."""
    return tuple(part for scan in scans for part in (scan, *scan.parts))


def _is_same_scan(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two scans are one: equal, or as alike as duplicates of the audit, from either end."""
    if a.shape == b.shape and np.array_equal(a, b, equal_nan=True):
        return True
    n = min(len(a), len(b))
    for x, y in ((a[:n], b[:n]), (a[-n:], b[-n:])) if len(a) != len(b) else ((a, b),):
        rois = find_live_rois(x) & find_live_rois(y)
        valid = np.isfinite(x[:, rois]).all(axis=1) & np.isfinite(y[:, rois]).all(axis=1)
        if valid.sum() < DEFAULT_RULES.min_frames or not rois.any():
            continue
        correlation = correlate_scans(x[valid][:, rois], y[valid][:, rois])
        if correlation is not None and correlation > DEFAULT_RULES.duplicate_correlation:
            return True
    return False


def _standardise(frames: np.ndarray) -> np.ndarray:
    """Scale each ROI to mean 0 and standard deviation 1 over its finite values."""
    finite = np.where(np.isfinite(frames), frames, np.nan).astype(np.float64)
    return (finite - np.nanmean(finite, axis=0)) / np.nanstd(finite, axis=0)


def _drop_invalid_frames(series: Series) -> Series:
    """Drop frames with missing values now, so that the ends of sessions stay where they are recorded."""
    return replace(series, frames=clean_scan(series.frames)[0])
