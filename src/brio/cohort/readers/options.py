"""Options of an import, described once for all readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .labels import ClassValues
from .rois import RoiChoice
from .to_predict import ScansToPredict

__all__ = ["ImportOptions"]


@dataclass(frozen=True, eq=False)
class ImportOptions:
    """What a user says about the files to import. None means not given; a reader takes some of them, see ``READERS``.

    Attributes
    ----------
    atlas : str, optional
        Atlas to read, where the names of the files hold several; else the name of the parcellation. Names and
        coordinates of the ROIs are bundled for ``aal116`` and ``cc200``.
    participants : str or Path, optional
        The participants table (tsv or csv), if it is not in its usual place.
    id_column, site_column, label_column : str, optional
        Columns of the participant, the site and the label; ``participant_id``, ``site`` and ``label`` by default.
    patient, control : str or sequence of str, optional
        Values of the label column for 1 and 0; required unless the column holds 0 and 1. Several values make one
        class, and the column is then kept.
    session_column : str, optional
        Column that tells apart the scans of a participant with several rows, ``session`` by default.
    sessions : {"first", "join", "average", "all"}, optional
        What becomes of participants with several scans: see :func:`~brio.cohort.readers.sessions.choose_sessions`.
        If it is not given, ``runs`` decides about BIDS derivatives, by default for the first scan of each. The other
        readers that take it raise an error if there are such participants, but read all scans that are to be predicted.
    task, match, runs : str, optional
        Of BIDS derivatives alone, see :func:`~brio.cohort.readers.bids.read_bids`.
    measure : {"correlation", "fisher-z"}, optional
        Of connectomes alone, see :func:`~brio.cohort.readers.fc.read_fc`.
    name : str, optional
        Name of the cohort.
    frames_in_rows : bool
        Whether to take rows as frames although they seem to be the ROIs.
    rois : RoiChoice
        Table of the ROIs, and ROIs to drop.
    to_predict : ScansToPredict, optional
        Read scans to be predicted: one file is enough, and neither a table nor sites and labels are needed.
    """

    atlas: str | None = None
    participants: str | Path | None = None
    id_column: str | None = None
    site_column: str | None = None
    label_column: str | None = None
    patient: ClassValues = None
    control: ClassValues = None
    session_column: str | None = None
    sessions: str | None = None
    task: str | None = None
    match: str | None = None
    runs: str | None = None
    measure: str | None = None
    name: str | None = None
    frames_in_rows: bool = False
    rois: RoiChoice = field(default_factory=RoiChoice)
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
