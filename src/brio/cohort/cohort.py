"""The cohort: scans of unequal length, participants, sites, atlas, and its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError
from .atlas import Atlas
from .folder import (
    ATLAS,
    FRAMES,
    PARTICIPANTS,
    CohortWriter,
    ParticipantRow,
    RoiRow,
    check_frames_hash,
    check_participants,
    check_tables,
    find_filled,
    format_table,
    hash_content,
    locate_scans,
    read_header,
    read_table,
    require_filled,
)
from .scans import SCAN_ID, are_transposed, convert_frames, holds_fc, refuse_fc
from .values import refuse_unsafe_names

MOST_ROWS = 40
"""Rows of a table that are shown; the rest is counted."""


def format_range(low: float, high: float, unit: str) -> str:
    """Format a range of numbers with its unit."""
    return f"{low:g} {unit}" if low == high else f"{low:g} to {high:g} {unit}"


def format_lengths(n_frames: np.ndarray, connectomes: bool = False) -> str:
    """Format the range of the lengths of scans.

    Shapes: n_frames [N].
    """
    if connectomes:
        return "connectomes without frames"
    return format_range(int(n_frames.min()), int(n_frames.max()), "frames") if len(n_frames) else "no frames"


def format_repetition_times(participants: pd.DataFrame) -> str:
    """Format the range of the repetition times in a participants table; ``unknown`` where it states none."""
    if "tr" not in participants:
        return "unknown"
    tr = pd.to_numeric(participants["tr"], errors="coerce").dropna()
    return format_range(float(tr.min()), float(tr.max()), "s") if len(tr) else "unknown"


def name_class_columns(classes: tuple[str, str]) -> tuple[str, str]:
    """Name both classes with their labels."""
    zero, one = classes
    return ("controls (0)", "patients (1)") if (zero, one) == ("0", "1") else (f"{zero} (0)", f"{one} (1)")


def render_summary(
    title: str,
    facts: Sequence[tuple[str, str]],
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
) -> str:
    """Render a title, a list of facts and a table as HTML."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts
    )
    html = f"<div><strong>{escape(title)}</strong><table><tbody>{lines}</tbody></table>"
    if columns:
        head = "".join(
            f'<th style="text-align:{"right" if k else "left"}">{escape(name)}</th>' for k, name in enumerate(columns)
        )
        body = "".join(f"<tr>{_render_cells(row)}</tr>" for row in rows[:MOST_ROWS])
        if len(rows) > MOST_ROWS:
            body += f'<tr><td colspan="{len(columns)}">and {len(rows) - MOST_ROWS} more</td></tr>'
        html += f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return html + "</div>"


def _render_cells(row: Sequence[object]) -> str:
    return "".join(
        f'<td style="text-align:{"right" if k else "left"}">{escape(str(cell))}</td>' for k, cell in enumerate(row)
    )


FORMER_LABEL = "former_label"
"""Column of a cohort under another question (``brio.cohort.relabel``): the class of the label before it."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """Scans of unequal length, their participants, the atlas and the provenance. Immutable.

    Build one with :meth:`from_scans`, :meth:`load`, :func:`brio.simulate` or a reader
    (``brio.cohort.readers.import_cohort``).

    Attributes
    ----------
    name : str
    frames : ndarray of float32, shape [F, P]
        Frames of the scans, end to end; memory-mapped when loaded from a folder. After :meth:`select` they are still
        those of all scans: use :meth:`scan`.
    starts, n_frames : ndarray of int64, shape [N]
        Scan i is ``frames[starts[i] : starts[i] + n_frames[i]]``.
    participants : DataFrame, N rows
        One row per scan. Columns ``participant_id``, ``n_frames``, ``site``, ``label`` (0 or 1) and any covariates;
        ``tr`` is the repetition time in seconds, where it is known. Scans to predict may lack ``site`` and ``label``,
        all of them or some (empty text and NA); jobs and the audit refuse such a cohort. Where participants have
        several scans, ``session`` tells them apart and ``brio_scan_id`` names them.
    atlas : Atlas
        The P ROIs.
    classes : tuple of two str
        Names of the labels 0 and 1.
    provenance : dict
        Reader, source and options that produced the cohort.
    fingerprint : str
        Hash of the content. It identifies the cohort in every result.
    path : Path or None
        Folder that the cohort was loaded from.

    Examples
    --------
    >>> import numpy as np
    >>> scans = [np.random.default_rng(i).normal(size=(60 + i, 5)) for i in range(4)]
    >>> cohort = Cohort.from_scans(scans, site=["A", "A", "B", "B"], label=[0, 1, 0, 1])
    >>> len(cohort), cohort.n_rois, cohort.scan(3).shape
    (4, 5, (63, 5))
    """

    name: str
    frames: np.ndarray
    starts: np.ndarray
    n_frames: np.ndarray
    participants: pd.DataFrame
    atlas: Atlas
    classes: tuple[str, str] = ("0", "1")
    provenance: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    path: Path | None = None

    def __post_init__(self) -> None:
        refuse_unsafe_names([self.name, *self.classes], "name of the cohort or a class")

    def __len__(self) -> int:
        return len(self.participants)

    def __repr__(self) -> str:
        named = find_filled(self.participants, "site")
        sites = f" at {self.participants['site'][named].nunique()} sites" if named.any() else ""
        people = f" of {len(set(self.participant_ids))} participants" if self.has_repeated_scans else ""
        return (
            f"Cohort({self.name!r}: {len(self)} scans{people}{sites}, {self.n_rois} ROIs ({self.atlas.name}), "
            f"{self._frames_range()}, fingerprint {self.fingerprint[:12] or 'not computed'})"
        )

    def _repr_html_(self) -> str:
        """Summarise the cohort as an HTML table, which notebooks display."""
        facts = [
            ("scans", str(len(self))),
            ("ROIs", f"{self.n_rois} ({self.atlas.name})"),
            ("length", self._frames_range()),
            ("repetition time", format_repetition_times(self.participants)),
            ("fingerprint", self.fingerprint[:12] or "not computed"),
        ]
        title = f"Cohort {self.name}"
        columns = {"site", "label"}
        if not columns <= set(self.participants) or not all(find_filled(self.participants, c).all() for c in columns):
            return render_summary(title, facts)
        names = np.unique(self.sites)
        facts.insert(1, ("sites", str(len(names))))
        rows = [
            (site, *(int(((self.labels == label) & (self.sites == site)).sum()) for label in (0, 1))) for site in names
        ]
        return render_summary(title, facts, ("site", *name_class_columns(self.classes)), rows)

    def _frames_range(self) -> str:
        return format_lengths(self.n_frames, holds_fc(self.participants))

    @property
    def n_rois(self) -> int:
        """Number of ROIs, P."""
        return int(self.frames.shape[1])

    @property
    def ids(self) -> np.ndarray:
        """Name of each scan: ``brio_scan_id`` if participants have several, else ``participant_id``. Shape [N], str."""
        column = SCAN_ID if SCAN_ID in self.participants else "participant_id"
        return self.participants[column].to_numpy(dtype=str)

    @property
    def participant_ids(self) -> np.ndarray:
        """``participant_id`` of each scan; one may occur several times. Shape [N], str."""
        return self.participants["participant_id"].to_numpy(dtype=str)

    @property
    def has_repeated_scans(self) -> bool:
        """Whether a participant has several scans."""
        return "participant_id" in self.participants and bool(self.participants["participant_id"].duplicated().any())

    @property
    def sites(self) -> np.ndarray:
        """Site of each scan; a :class:`BrioError` where one has none. Shape [N], str."""
        return require_filled(self.participants, "site", self.name).to_numpy(dtype=str)

    @property
    def labels(self) -> np.ndarray:
        """Label of each scan, 0 or 1; a :class:`BrioError` where one has none. Shape [N], int64."""
        return require_filled(self.participants, "label", self.name).to_numpy(dtype=np.int64)

    @property
    def labelled(self) -> np.ndarray:
        """Whether each scan has a label, as scans to predict may not. Shape [N], bool."""
        return find_filled(self.participants, "label")

    @property
    def label_covariate(self) -> str | None:
        """Column of which ``brio.cohort.relabel`` made the labels, and which no method may see, or None."""
        asks = self.provenance.get("label")
        return str(asks["column"]) if isinstance(asks, dict) else None

    def require_labels(self) -> None:
        """Raise :class:`BrioError` unless every scan has a site and a label. Jobs and the audit call it first."""
        for column in ("label", "site"):
            require_filled(self.participants, column, self.name)

    def scan(self, i: int) -> np.ndarray:
        """Return the frames of one scan, without copying them.

        Parameters
        ----------
        i : int
            Position of the scan in the cohort.

        Returns
        -------
        ndarray of float32, shape [T_i, P]
        """
        return self.frames[self.starts[i] : self.starts[i] + self.n_frames[i]]

    def select(self, keep: Sequence[int] | np.ndarray) -> Cohort:
        """Return the cohort of some of the scans. No frame is copied.

        Parameters
        ----------
        keep : sequence of int, or ndarray of bool with shape [N]
            Positions of the scans, in the order wanted, or a mask.

        Returns
        -------
        Cohort
            This cohort if all scans are selected in their order. Otherwise its fingerprint is derived from that of this
            cohort and the selected participants, so it depends on the steps of a selection.

        Raises
        ------
        IndexError
            If a position is out of range.
        BrioError
            If a mask has not one value for each scan, or a position is no whole number.
        """
        chosen = np.asarray(keep)
        if chosen.ndim != 1 or (chosen.dtype == bool and len(chosen) != len(self)):
            raise BrioError(
                f"a mask of shape {chosen.shape} cannot select among {len(self)} scans; give one value each"
            )
        if chosen.dtype.kind not in "biu" and len(chosen):
            raise BrioError(f"scans are selected by positions (whole numbers) or a mask, not by {chosen.dtype}")
        index = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        if len(index) == len(self) and (index == np.arange(len(self))).all():
            return self
        selected = self.participants.iloc[index].reset_index(drop=True)
        digest = hashlib.sha256(self.fingerprint.encode())
        digest.update("\n".join(self.ids[index]).encode())
        return replace(
            self,
            participants=selected,
            starts=self.starts[index],
            n_frames=self.n_frames[index],
            fingerprint=digest.hexdigest(),
            path=None,
        )

    @classmethod
    def from_scans(
        cls,
        scans: Sequence[np.ndarray],
        *,
        site: Sequence[Any],
        label: Sequence[int],
        participant_id: Sequence[str] | None = None,
        session: Sequence[Any] | None = None,
        covariates: pd.DataFrame | None = None,
        atlas: Atlas | None = None,
        classes: tuple[str, str] = ("0", "1"),
        name: str = "in memory",
        provenance: dict[str, Any] | None = None,
        check_axes: bool = True,
    ) -> Cohort:
        """Build a cohort in memory from a list of arrays.

        Parameters
        ----------
        scans : sequence of N arrays of shape [T_i, P]
            Rows are frames, columns ROIs.
        site : sequence of N site names
        label : sequence of N labels
            0 (control) or 1 (patient); both must occur.
        participant_id : sequence of N str, optional
            ``s00001``, ``s00002``, ... by default. Unique unless ``session`` is given.
        session : sequence of N values, optional
            Tells apart the scans of a participant who has several.
        covariates : DataFrame, N rows, optional
            Further columns of the participants table, for example ``age``, ``sex`` and ``tr``; none that other
            arguments or the scans give.
        atlas : Atlas, optional
            The P ROIs; unnamed by default.
        classes : tuple of two str
            Names of the labels 0 and 1.
        name : str
        provenance : dict, optional
        check_axes : bool
            Refuse scans that are symmetric matrices and, without an atlas, scans whose rows seem to be the ROIs. Say
            False where rows are frames all the same.

        Returns
        -------
        Cohort

        Raises
        ------
        BrioError
            If there are no scans, a scan has not two axes, scans or atlas differ in their number of ROIs, lengths of
            the arguments differ, the participants table is not valid, or ``check_axes`` finds other axes.
        """
        if len(scans) == 0:
            raise BrioError("no scans were given")
        ids = [f"s{i + 1:05d}" for i in range(len(scans))] if participant_id is None else list(participant_id)
        arguments = {"site": site, "label": label, "participant_id": ids, "session": session, "covariates": covariates}
        for argument, values in arguments.items():
            if values is not None and len(values) != len(scans):
                raise BrioError(f"{len(scans)} scans, but {len(values)} values of {argument}; give one for each scan")
        arrays = [convert_frames(scan, f"participant {name}") for name, scan in zip(ids, scans, strict=True)]
        for participant, array in zip(ids, arrays, strict=True):
            if array.shape[1] != arrays[0].shape[1]:
                raise BrioError(
                    f"participant {participant}: {array.shape[1]} ROIs, but {ids[0]} has {arrays[0].shape[1]}; "
                    "all scans need the same parcellation"
                )
        table = pd.DataFrame({"participant_id": ids, "site": list(site), "label": list(label)})
        if session is not None:
            table["session"] = [str(value) for value in session]
        if covariates is not None:
            reserved = [str(column) for column in covariates.columns if column in (*table.columns, "n_frames")]
            if reserved:
                raise BrioError(
                    f"covariates: the scans and the other arguments already give {', '.join(reserved)}; drop these "
                    "columns"
                )
            table = pd.concat([table, covariates.reset_index(drop=True)], axis=1)
        if check_axes and not holds_fc(table):
            for participant, array in zip(ids, arrays, strict=True):
                refuse_fc(array, f"participant {participant}")
            if atlas is None and are_transposed(arrays):
                raise BrioError(
                    f"the scans have {arrays[0].shape[0]} rows, which correlate alike in all scans as ROIs do, and "
                    f"{arrays[0].shape[1]} columns, which do not; rows must be frames: transpose the scans or, if they "
                    "are frames, make the cohort with Cohort.from_scans(..., check_axes=False)"
                )
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        table["n_frames"] = lengths
        frames = np.concatenate(arrays)
        atlas = atlas or Atlas.unnamed(frames.shape[1])
        if len(atlas) != frames.shape[1]:
            raise BrioError(f"atlas '{atlas.name}' has {len(atlas)} ROIs, the scans have {frames.shape[1]}")
        table = check_participants(table, "participants")
        return cls(
            name=name,
            frames=frames,
            starts=locate_scans(lengths),
            n_frames=lengths,
            participants=table,
            atlas=atlas,
            classes=classes,
            provenance=provenance or {},
            fingerprint=hash_content(frames, format_table(table), format_table(atlas.rois), classes),
        )

    def save(self, path: str | Path) -> Cohort:
        """Write the cohort to a new folder of npy, tsv and json files, and load it from there.

        Scans to predict can be saved too, without sites and labels.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Cohort
            With memory-mapped frames.

        Raises
        ------
        BrioError
            If ``path`` exists already.
        """
        with CohortWriter(path, self.name, self.atlas, self.classes, self.provenance, labels_required=False) as writer:
            for i, row in enumerate(self.participants.to_dict("records")):
                writer.add(self.scan(i), row)
        return Cohort.load(path)

    @classmethod
    def load(cls, path: str | Path) -> Cohort:
        """Open a cohort folder.

        The frames are memory-mapped, not read. The tables are checked against their hash here; the frames, which may
        be many gigabytes, are checked by :meth:`verify`, which jobs and :meth:`BrioClassifier.fit` call first.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Cohort

        Raises
        ------
        BrioError
            If ``path`` is not a cohort folder, or a file in it is missing or was changed.
        """
        folder = Path(path)
        header = read_header(folder)
        check_tables(folder, header)
        try:
            frames = np.lib.format.open_memmap(folder / FRAMES, mode="r")
        except (ValueError, OSError, EOFError) as error:
            raise BrioError(f"{folder / FRAMES}: cannot be read ({error}); import the cohort again") from error
        participants, rois = read_table(folder / PARTICIPANTS, ParticipantRow), read_table(folder / ATLAS, RoiRow)
        lengths = participants["n_frames"].to_numpy(dtype=np.int64)
        if frames.shape != (lengths.sum(), len(rois)):
            raise BrioError(
                f"{folder / FRAMES}: has shape {frames.shape}, but {PARTICIPANTS} lists {lengths.sum()} frames and "
                f"{ATLAS} {len(rois)} ROIs; import the cohort again"
            )
        return cls(
            name=header["name"],
            frames=frames,
            starts=locate_scans(lengths),
            n_frames=lengths,
            participants=participants,
            atlas=Atlas(header["atlas"], rois),
            classes=(header["classes"][0], header["classes"][1]),
            provenance=header["provenance"],
            fingerprint=header["fingerprint"],
            path=folder,
        )

    def verify(self) -> None:
        """Check that the files on disk still match the fingerprint.

        Does nothing where ``path`` is None: a cohort in memory, or a selection.

        Raises
        ------
        BrioError
            If the frames, a table or the class names changed.
        """
        if self.path is None:
            return
        check_frames_hash(self.path)
        digest = hash_content(
            self.frames,
            (self.path / PARTICIPANTS).read_text(encoding="utf-8"),
            (self.path / ATLAS).read_text(encoding="utf-8"),
            self.classes,
        )
        if digest != self.fingerprint:
            raise BrioError(f"{self.path}: the content changed since the cohort was written; import it again")
