"""``study.json``, ``table.csv`` and ``finding.md``: what a study left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..schemas import OMIT_NONE, StoredCount, formerly, from_json, to_json
from ..storage import lock_folder, remove_file, remove_leftovers, write_recorded
from .files import (
    FINDING,
    FINDING_OF_0_1,
    STUDY,
    SUMS,
    TABLE,
    format_csv,
    format_json,
    is_kept,
    read_csv,
    read_file,
    read_json,
)
from .format import disarm_html
from .run_record import ProtocolName


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options with which a study was called, so that it can be repeated."""

    methods: tuple[str, ...] | None = None  # methods that were named; None for those of the paper
    labels: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    protocol: ProtocolName | None = field(default=None, metadata=OMIT_NONE)
    seeds: StoredCount = 3
    settings: dict[str, Any] = field(default_factory=dict)
    folds: tuple[str, ...] | None = None
    companions: tuple[str, ...] = ()  # atlases of the cohorts that were audited along with it
    exclude: bool = True  # whether the audit's exclusions were applied
    runs_per_stack: StoredCount | None = None
    reuse: tuple[str, ...] = field(default=(), metadata=formerly("finished"))
    device: str | None = None  # where the arms were trained; None where a file of an earlier version does not say


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """What ``study.json`` says about a study."""

    name: str
    title: str = ""
    paper: str = ""  # what the paper reports
    text: tuple[str, ...] = ()  # what was found, a sentence each
    smoke: str = ""  # why it is a smoke run; empty where it is not
    cohort: str = ""
    atlas: str = ""
    fingerprint: str = ""
    n_scans: StoredCount = 0
    folds: StoredCount = 0
    seeds: StoredCount = 3
    epochs: tuple[StoredCount, ...] = ()  # those of its runs
    K: tuple[StoredCount, ...] = ()
    arms: tuple[str, ...] = ()
    options: StudyOptions | None = field(default=None, metadata=formerly("asked"))
    brio: str = ""  # version
    hashes: str | None = field(default=None, metadata=OMIT_NONE)

    @property
    def smoke_note(self) -> str:
        """The sentence that marks a smoke run; empty where it is none."""
        return f"This is a smoke run ({self.smoke}): no basis for a claim." if self.smoke else ""

    def frame(self, paragraphs: Iterable[str]) -> list[str]:
        """Put title, the paper's claim and the figure around what was found; a page shows these by itself."""
        return [f"# {self.title}", *paragraphs, f"The paper: {self.paper}", f"![{self.title}](figure.png)"]


@dataclass(frozen=True, eq=False)
class StoredStudy:
    """A study folder: its record, what was found in Markdown, and its table (None where it was not kept)."""

    folder: Path
    record: StudyRecord
    finding: str
    table: pd.DataFrame | None

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.folder.name

    @property
    def finding_alone(self) -> str:
        """What was found, without what :meth:`StudyRecord.frame` puts around it and without the mark of a smoke run."""
        beside = {disarm_html(line) for line in self.record.frame([self.record.smoke_note])}
        return "\n".join(line for line in self.finding.splitlines() if not line or line not in beside)

    @classmethod
    def read(cls, folder: Path) -> StoredStudy:
        """Read the folder of a study; its table or its text is enough, the record then has the name alone."""
        path = folder / STUDY
        texts = [folder / name for name in (FINDING, FINDING_OF_0_1) if is_kept(folder / name)]
        finding = read_file(texts[0]).decode(errors="replace") if texts else ""
        table = read_csv(folder / TABLE) if is_kept(folder / TABLE) else None
        only_tables = not is_kept(path) and (finding or table is not None)
        document = {"name": folder.name} | ({} if only_tables else read_json(path))
        return cls(folder, from_json(StudyRecord, document, path), finding, table)

    def write(self, float_format: str | None = None, figures: Mapping[str, bytes] | None = None) -> None:
        """Write the files of the study; its record comes last."""
        files: dict[str, str | bytes] = dict(figures or {})
        if self.table is not None:
            files[TABLE] = format_csv(self.table, float_format)
        files[FINDING] = disarm_html(self.finding)
        files[STUDY] = format_json(to_json(dataclasses.replace(self.record, hashes=SUMS)))
        with lock_folder(self.folder.parent):
            remove_leftovers(self.folder, reserved=True)
            write_recorded(self.folder, files)
            remove_file(self.folder / FINDING_OF_0_1)
