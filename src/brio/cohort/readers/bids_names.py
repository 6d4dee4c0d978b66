"""Parse the file names of BIDS derivatives: subject, scan and atlas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ...errors import BrioError, nearest
from .assembly import canonicalise_atlas_name
from .series import SUFFIXES, find_series, get_series_stem, get_series_suffix

SCAN_ENTITIES = ("ses", "task", "acq", "ce", "dir", "rec", "run", "echo")
"""Entities that distinguish scans of a subject; all others say how a scan was processed."""
SUFFIX_WORDS = frozenset({"bold", "timeseries"})
"""Last words of a name, which are not part of an atlas label."""


@dataclass(frozen=True)
class SeriesFile:
    """A time-series file as its name describes it."""

    path: Path
    subject: str  # with sub-
    atlas: str  # labels of these entities; empty where the name has none
    feature: str
    task: str
    scan: tuple[str, ...]  # entities that identify the scan of the subject: session, task, run and others

    @property
    def label(self) -> str:
        """What ``--atlas`` selects it by: the atlas, the feature, or ``feature/atlas`` where there are both."""
        return "/".join(filter(None, (self.feature, self.atlas)))

    @property
    def session(self) -> str:
        """The entity ``ses-``; empty where the name has none."""
        return next((entity for entity in self.scan if entity.startswith("ses-")), "")

    @property
    def sort_key(self) -> list[str | int]:
        """Name with its numbers as numbers: run-2 comes before run-10."""
        return [int(p) if i % 2 else p for i, p in enumerate(re.split(r"([0-9]+)", self.path.name))]


def parse_name(path: Path) -> SeriesFile | None:
    """Parse the entities of a file name.

    Confounds (``desc-confounds_timeseries.tsv``) have no atlas and are not parcellated series. C-PAC may join an entity
    to the next (``atlas-Yeo-17space-MNI152``) or split an atlas at an underscore; both are repaired.
    """
    suffix, stem = get_series_suffix(path), get_series_stem(path)
    if not stem.startswith("sub-") or not (stem.endswith("_timeseries") or suffix == ".ptseries.nii"):
        return None
    entities: dict[str, str] = {}
    previous = ""
    for piece in stem.split("_"):
        key, dash, value = piece.partition("-")
        if dash:
            entities[key] = value
        elif previous in ("atlas", "seg") and piece not in SUFFIX_WORDS:
            entities[previous] += f"_{piece}"
            key = previous
        previous = key
    atlas = re.sub(r"(space|res|desc|reg)-.*$", "", entities.pop("atlas", "") or entities.pop("seg", ""))
    feature = entities.pop("feature", "")
    if not (atlas or feature) or entities.pop("stat", "mean") != "mean":
        return None
    subject = "sub-" + entities.pop("sub")
    return SeriesFile(
        path=path,
        subject=subject,
        atlas=atlas,
        feature=feature,
        task=entities.get("task", ""),
        scan=tuple(f"{k}-{entities[k]}" for k in SCAN_ENTITIES if k in entities),
    )


def find_series_files(src: Path, match: str | None) -> list[SeriesFile]:
    """Find the parcellated time series below a folder."""
    files = [file for path in find_series(src) if (file := parse_name(path))]
    if not files:
        raise BrioError(
            f"{src}: no file named sub-*_atlas-<atlas>_*timeseries.tsv, .txt, .1D or .ptseries.nii below it"
        )
    folder = src if src.is_dir() else src.parent
    matching = [f for f in files if match is None or fnmatchcase(f.path.relative_to(folder).as_posix(), f"*{match}*")]
    if not matching:
        raise BrioError(
            f"{src}: none of the {len(files)} time series matches '{match}', for example {files[0].path.name}"
        )
    return matching


def select_atlas(files: list[SeriesFile], requested: str | None, src: Path) -> list[SeriesFile]:
    """Select the files of one atlas: the requested one, or the only one there is."""
    selected = [file for file in files if requested is None or requested in (file.label, file.atlas, file.feature)]
    if not selected and requested is not None:
        # each name is looked up once: a folder holds thousands of files but few atlases
        name = canonicalise_atlas_name(requested).lower()
        synonyms = {a for a in {file.atlas for file in files} if a and canonicalise_atlas_name(a).lower() == name}
        selected = [file for file in files if file.atlas in synonyms]
    labels = sorted({file.label for file in selected})
    if not selected:
        hint = nearest(requested or "", {file.label for file in files})
        raise BrioError(f"{src}: holds no atlas '{requested}', {hint}")
    if len(labels) > 1:
        raise BrioError(f"{src}: holds the atlases {', '.join(labels)}; choose one with --atlas")
    return selected


def select_task(files: list[SeriesFile], requested: str | None, src: Path) -> list[SeriesFile]:
    """Select the files of one task: the requested one, or the only one there is."""
    tasks = sorted({file.task for file in files if file.task})
    if requested is None:
        if len(tasks) > 1:
            raise BrioError(f"{src}: holds the tasks {', '.join(tasks)}; choose one with --task")
        return files
    if requested not in tasks:
        raise BrioError(f"{src}: holds no task '{requested}', {nearest(requested, tasks)}")
    return [file for file in files if file.task == requested]


def group_by_subject(files: Iterable[SeriesFile]) -> tuple[dict[str, list[SeriesFile]], int]:
    """Group files by subject, with one file for each scan.

    A scan that was processed in two ways (``space-``, ``desc-``, ``reg-``, ...) is not two scans: the user must say
    which of them to read.
    """
    scans: dict[tuple[str, tuple[str, ...]], SeriesFile] = {}
    copies = 0
    for file in sorted(files, key=lambda f: (SUFFIXES.index(get_series_suffix(f.path) or ""), f.path)):
        first = scans.setdefault((file.subject, file.scan), file)
        if first is file:
            continue
        if first.path.parent != file.path.parent or get_series_stem(first.path) != get_series_stem(file.path):
            raise BrioError(
                f"{file.path}: the same scan as {first.path}, processed in another way; "
                "choose by a part of the path with --match"
            )
        copies += 1
    subjects: dict[str, list[SeriesFile]] = {}
    for file in sorted(scans.values(), key=lambda file: file.sort_key):
        subjects.setdefault(file.subject, []).append(file)
    return subjects, copies


def group_by_session(files: Iterable[SeriesFile]) -> dict[str, list[SeriesFile]]:
    """Group the files of one subject by session; without sessions in the names, each run is one."""
    files = list(files)
    has_sessions = any(entity.startswith("ses-") for file in files for entity in file.scan)
    groups: dict[str, list[SeriesFile]] = {}
    for file in files:
        entities = [e for e in file.scan if e.startswith("ses-") or not (has_sessions or e.startswith("task-"))]
        session = "_".join(entities).removeprefix("ses-") or "1"
        groups.setdefault(session, []).append(file)
    return groups
