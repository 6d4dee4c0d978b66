"""File names of BIDS derivatives: which subject, which scan, which atlas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ...errors import BrioError, nearest
from .assembly import canonical
from .series import SUFFIXES, find_series, series_stem, series_suffix

__all__ = ["Found", "choose_atlas", "choose_task", "find_scans", "parse_name", "settle_variants"]

SCAN_ENTITIES = ("ses", "task", "acq", "ce", "dir", "rec", "run", "echo")
"""Entities that tell scans of a subject apart; all others tell how one scan was processed."""
BARE = frozenset({"bold", "timeseries"})


@dataclass(frozen=True)
class Found:
    """One time-series file as its name describes it."""

    path: Path
    subject: str
    atlas: str
    feature: str
    task: str
    scan: tuple[str, ...]
    variant: str

    @property
    def label(self) -> str:
        """What ``--atlas`` may call it: the atlas, the feature, or ``feature/atlas`` where both are there."""
        return "/".join(filter(None, (self.feature, self.atlas)))

    @property
    def order(self) -> list[str | int]:
        """Sort key in which run-2 comes before run-10."""
        return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", self.path.name)]


def parse_name(path: Path) -> Found | None:
    """Read the entities of a name; None for a file that is not a parcellated time series of a subject.

    Confounds (``desc-confounds_timeseries.tsv``) have no atlas and are therefore none. C-PAC may run an entity
    into the next (``atlas-Yeo-17space-MNI152``) or break an atlas at an underscore; both are mended.

    Examples
    --------
    >>> found = parse_name(Path("sub-01_ses-2_task-rest_atlas-Yeo-17space-MNI152_desc-Mean-1_timeseries.1D"))
    >>> found.subject, found.atlas, found.scan
    ('sub-01', 'Yeo-17', ('ses-2', 'task-rest'))
    """
    suffix, stem = series_suffix(path), series_stem(path)
    if not stem.startswith("sub-") or not (stem.endswith("_timeseries") or suffix == ".ptseries.nii"):
        return None
    entities: dict[str, str] = {}
    previous = ""
    for piece in stem.split("_"):
        key, dash, value = piece.partition("-")
        if dash:
            entities[key] = value
        elif previous in ("atlas", "seg") and piece not in BARE:
            entities[previous] += f"_{piece}"
            key = previous
        previous = key
    atlas = re.sub(r"(space|res|desc|reg)-.*$", "", entities.pop("atlas", "") or entities.pop("seg", ""))
    feature = entities.pop("feature", "")
    if not (atlas or feature) or entities.pop("stat", "mean") != "mean":
        return None
    subject = "sub-" + entities.pop("sub")
    return Found(
        path=path,
        subject=subject,
        atlas=atlas,
        feature=feature,
        task=entities.get("task", ""),
        scan=tuple(f"{k}-{entities[k]}" for k in SCAN_ENTITIES if k in entities),
        variant="_".join(f"{k}-{v}" for k, v in sorted(entities.items()) if k not in SCAN_ENTITIES),
    )


def find_scans(src: Path, match: str | None) -> list[Found]:
    """All time series below ``src`` whose path there holds ``match`` (wildcards allowed)."""
    named = [f for path in find_series(src) if (f := parse_name(path))]
    if not named:
        raise BrioError(
            f"{src}: no file named sub-*_atlas-<atlas>_*timeseries.tsv, .txt, .1D or .ptseries.nii below it"
        )
    kept = [f for f in named if match is None or fnmatchcase(f.path.relative_to(src).as_posix(), f"*{match}*")]
    if not kept:
        raise BrioError(
            f"{src}: none of the {len(named)} time series matches '{match}', for example {named[0].path.name}"
        )
    return kept


def choose_atlas(found: list[Found], asked: str | None, src: Path) -> list[Found]:
    """The files of one atlas: of the one asked for, or of the only one there is."""
    kept = [f for f in found if asked is None or asked in (f.label, f.atlas, f.feature)]
    if not kept and asked is not None:
        # each name is resolved once: a folder holds thousands of files but few atlases
        alike = {a for a in {f.atlas for f in found} if a and canonical(a).lower() == canonical(asked).lower()}
        kept = [f for f in found if f.atlas in alike]
    labels = sorted({f.label for f in kept})
    if not kept:
        raise BrioError(f"{src}: holds no atlas '{asked}', {nearest(asked or '', {f.label for f in found})}")
    if len(labels) > 1:
        raise BrioError(f"{src}: holds the atlases {', '.join(labels)}; choose one with --atlas")
    return kept


def choose_task(found: list[Found], asked: str | None, src: Path) -> list[Found]:
    """The files of one task; rest is never taken for a task of another name."""
    tasks = sorted({f.task for f in found if f.task})
    if asked is None:
        if len(tasks) > 1:
            raise BrioError(f"{src}: holds the tasks {', '.join(tasks)}; choose one with --task")
        return found
    if asked not in tasks:
        raise BrioError(f"{src}: holds no task '{asked}', {nearest(asked, tasks)}")
    return [f for f in found if f.task == asked]


def settle_variants(found: Iterable[Found]) -> tuple[dict[str, list[Found]], int]:
    """One file for each scan of each subject, scans in order; also how many copies in a second format there were.

    A scan that was processed in two ways (``space-``, ``desc-``, ``reg-``...) is not two scans: the user must say
    which one is meant.
    """
    scans: dict[tuple[str, tuple[str, ...]], Found] = {}
    copies = 0
    for file in sorted(found, key=lambda f: (SUFFIXES.index(series_suffix(f.path) or ""), f.path)):
        first = scans.setdefault((file.subject, file.scan), file)
        if first is file:
            continue
        if first.path.parent != file.path.parent or series_stem(first.path) != series_stem(file.path):
            raise BrioError(
                f"{file.path}: the same scan as {first.path}, processed in another way; "
                "choose by a part of the path with --match"
            )
        copies += 1
    subjects: dict[str, list[Found]] = {}
    for file in sorted(scans.values(), key=lambda f: f.order):
        subjects.setdefault(file.subject, []).append(file)
    return subjects, copies
