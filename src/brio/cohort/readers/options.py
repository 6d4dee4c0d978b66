"""Options of an import, described once for all readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .labels import ClassValues
from .rois import RoiChoice
from .to_predict import ScansToPredict


@dataclass(frozen=True, eq=False)
class ImportOptions:
    """What a user says about the files to import; None where not given. Readers take some of them, see ``READERS``."""

    atlas: str | None = None
    participants: str | Path | None = None  # the participants table (tsv or csv), if it is not in its usual place
    id_column: str | None = None
    site_column: str | None = None
    label_column: str | None = None
    patient: ClassValues = None
    control: ClassValues = None
    session_column: str | None = None
    sessions: str | None = None
    task: str | None = None  # of BIDS derivatives alone, see brio.cohort.readers.bids.read_bids
    match: str | None = None
    runs: str | None = None
    measure: str | None = None  # of connectomes alone, see brio.cohort.readers.fc.read_fc
    name: str | None = None  # name of the cohort
    frames_in_rows: bool = False  # whether to take rows as frames although they seem to be the ROIs
    rois: RoiChoice = field(default_factory=RoiChoice)  # table of the ROIs, and ROIs to drop
    to_predict: ScansToPredict | None = None

    @property
    def labels_required(self) -> bool:
        """Whether every scan needs a site and a label."""
        return self.to_predict is None

    @property
    def columns(self) -> dict[str, Any]:
        """What :func:`~brio.cohort.readers.participants.read_roster` takes of them."""
        names = ("id_column", "site_column", "label_column", "patient", "control")
        return {name: getattr(self, name) for name in names}
