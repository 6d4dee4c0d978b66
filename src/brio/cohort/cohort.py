"""`Cohort`: scans of unequal length end to end in one array, with a table of participants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError
from .atlas import Atlas

__all__ = ["FORMAT", "REQUIRED_COLUMNS", "Cohort", "check_participants", "content_hash", "read_table", "table_text"]

FORMAT = 1
REQUIRED_COLUMNS = ("participant_id", "site", "label")
FRAMES, PARTICIPANTS, ATLAS, HEADER = "frames.npy", "participants.tsv", "atlas.tsv", "cohort.json"
MISSING = "n/a"


@dataclass(frozen=True, eq=False)
class Cohort:
    """Ragged scans, participants, atlas and where they came from; never changed once made.

    Attributes
    ----------
    name : str
    frames : ndarray of float32, shape [sum of lengths, P]
        All scans end to end; memory-mapped when loaded from a folder.
    starts, n_frames : ndarray of int64, shape [N]
        Scan i owns ``frames[starts[i] : starts[i] + n_frames[i]]``.
    participants : DataFrame
        One row a scan: ``participant_id``, ``site``, ``label`` (0 or 1), and any covariates.
        ``tr`` holds the repetition time in seconds where it is known.
    atlas : Atlas
    classes : tuple of two str
        What the labels 0 and 1 mean.
    provenance : dict
        Reader, source and options that made the cohort.
    fingerprint : str
        Hash of the content; names the cohort in every result.

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

    def __len__(self) -> int:
        return len(self.participants)

    def __repr__(self) -> str:
        frames = f"{self.n_frames.min()}-{self.n_frames.max()}" if len(self) else "no"
        return (
            f"Cohort({self.name!r}: {len(self)} scans, {self.participants['site'].nunique()} sites, "
            f"{self.n_rois} ROIs, {frames} frames, {self.fingerprint[:12]})"
        )

    @property
    def n_rois(self) -> int:
        return int(self.frames.shape[1])

    @property
    def ids(self) -> np.ndarray:
        return self.participants["participant_id"].to_numpy(dtype=str)

    @property
    def sites(self) -> np.ndarray:
        return self.participants["site"].to_numpy(dtype=str)

    @property
    def labels(self) -> np.ndarray:
        return self.participants["label"].to_numpy(dtype=np.int64)

    def scan(self, i: int) -> np.ndarray:
        """The frames of scan ``i``, a view of shape [T_i, P]."""
        return self.frames[self.starts[i] : self.starts[i] + self.n_frames[i]]

    def select(self, keep: Sequence[int] | np.ndarray) -> Cohort:
        """The cohort of the given scans (indices or a boolean mask); no frame is copied."""
        index = np.flatnonzero(keep) if np.asarray(keep).dtype == bool else np.asarray(keep, dtype=np.int64)
        if len(index) == len(self) and (index == np.arange(len(self))).all():
            return self
        kept = self.participants.iloc[index].reset_index(drop=True)
        digest = hashlib.sha256(self.fingerprint.encode())
        digest.update("\n".join(kept["participant_id"].astype(str)).encode())
        return replace(
            self,
            participants=kept,
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
        covariates: pd.DataFrame | None = None,
        atlas: Atlas | None = None,
        classes: tuple[str, str] = ("0", "1"),
        name: str = "in memory",
        provenance: dict[str, Any] | None = None,
    ) -> Cohort:
        """Build a cohort in memory from a list of arrays of shape [T_i, P]."""
        if len(scans) == 0:
            raise BrioError("no scans were given")
        ids = [f"s{i + 1:05d}" for i in range(len(scans))] if participant_id is None else list(participant_id)
        arrays = [np.asarray(s, dtype=np.float32) for s in scans]
        for who, a in zip(ids, arrays, strict=True):
            if a.ndim != 2:
                raise BrioError(f"participant {who}: a scan needs two axes (frames, ROIs), this one has {a.ndim}")
            if a.shape[1] != arrays[0].shape[1]:
                raise BrioError(
                    f"participant {who}: {a.shape[1]} ROIs, but {ids[0]} has {arrays[0].shape[1]}; "
                    "all scans need the same parcellation"
                )
        table = pd.DataFrame({"participant_id": ids, "site": list(site), "label": list(label)})
        if covariates is not None:
            table = pd.concat([table, covariates.reset_index(drop=True)], axis=1)
        lengths = np.array([len(a) for a in arrays], dtype=np.int64)
        table["n_frames"] = lengths
        frames = np.concatenate(arrays)
        atlas = atlas or Atlas.unnamed(frames.shape[1])
        if len(atlas) != frames.shape[1]:
            raise BrioError(f"atlas '{atlas.name}' has {len(atlas)} ROIs, the scans have {frames.shape[1]}")
        table = check_participants(table, "participants")
        return cls(
            name=name,
            frames=frames,
            starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
            n_frames=lengths,
            participants=table,
            atlas=atlas,
            classes=classes,
            provenance=provenance or {},
            fingerprint=content_hash(frames, table_text(table), table_text(atlas.rois), classes),
        )

    def save(self, path: str | Path) -> Cohort:
        """Write the cohort as a folder of npy, tsv and json, and return it as loaded from there."""
        from .writer import CohortWriter

        with CohortWriter(path, self.name, self.atlas, self.classes, self.provenance) as writer:
            for i, row in enumerate(self.participants.to_dict("records")):
                writer.add(self.scan(i), row)
        return Cohort.load(path)

    @classmethod
    def load(cls, path: str | Path) -> Cohort:
        """Open a cohort folder. Frames are memory-mapped, not read.

        The tables are checked against the fingerprint here; the frames, which may be many
        gigabytes, by :meth:`verify`, which every training command calls first.
        """
        folder = Path(path)
        header = _read_header(folder)
        for part in (FRAMES, PARTICIPANTS, ATLAS):
            if not (folder / part).is_file():
                raise BrioError(f"{folder}: {part} is missing; import the cohort again")
        if _table_hash(folder) != header["tables"]:
            raise BrioError(
                f"{folder}: {PARTICIPANTS} or {ATLAS} changed since the fingerprint was taken; import again"
            )
        try:
            frames = np.load(folder / FRAMES, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise BrioError(f"{folder / FRAMES}: cannot be read ({error}); import the cohort again") from error
        participants = read_table(folder / PARTICIPANTS, text=("participant_id", "site"))
        rois = read_table(folder / ATLAS, text=("name",))
        lengths = participants["n_frames"].to_numpy(dtype=np.int64)
        if frames.shape != (lengths.sum(), len(rois)):
            raise BrioError(
                f"{folder / FRAMES}: has shape {frames.shape}, but the participants own {lengths.sum()} frames of "
                f"{len(rois)} ROIs; import the cohort again"
            )
        return cls(
            name=header["name"],
            frames=frames,
            starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
            n_frames=lengths,
            participants=participants,
            atlas=Atlas(header["atlas"], rois),
            classes=(header["classes"][0], header["classes"][1]),
            provenance=header["provenance"],
            fingerprint=header["fingerprint"],
            path=folder,
        )

    def verify(self) -> None:
        """Compare the frames on disk with the fingerprint; raise if anything changed."""
        if self.path is None:
            return
        digest = content_hash(
            self.frames,
            (self.path / PARTICIPANTS).read_text(encoding="utf-8"),
            (self.path / ATLAS).read_text(encoding="utf-8"),
            self.classes,
        )
        if digest != self.fingerprint:
            raise BrioError(
                f"{self.path}: the content changed since its fingerprint was taken; import the cohort again"
            )


def check_participants(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """Validate a participants table and return it with plain types."""
    for column in REQUIRED_COLUMNS:
        if column not in table.columns:
            raise BrioError(f"{where}: column '{column}' is missing; it has {', '.join(map(str, table.columns))}")
    table = table.copy()
    for column in ("participant_id", "site"):
        empty = table[column].isna() | (table[column].astype(str).str.strip() == "")
        if empty.any():
            raise BrioError(f"{where}: column '{column}' is empty in row {int(np.flatnonzero(empty)[0]) + 1}")
        table[column] = table[column].astype(str)
    doubled = table["participant_id"][table["participant_id"].duplicated()]
    if len(doubled):
        raise BrioError(f"{where}: participant {doubled.iloc[0]} appears more than once")
    values = pd.to_numeric(table["label"], errors="coerce")
    wrong = ~values.isin([0, 1])
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BrioError(
            f"{where}: participant {table['participant_id'].iloc[row]} has label "
            f"'{table['label'].iloc[row]}'; labels must be 0 (control) or 1 (patient)"
        )
    table["label"] = values.astype(np.int64)
    if table["label"].nunique() != 2:
        raise BrioError(f"{where}: column 'label' holds one class only; two classes are needed")
    return table


def table_text(table: pd.DataFrame) -> str:
    """A table as it stands in a cohort folder."""
    return table.to_csv(sep="\t", index=False, na_rep=MISSING, lineterminator="\n")


def content_hash(frames: np.ndarray, participants: str, atlas: str, classes: tuple[str, str]) -> str:
    """SHA-256 over the frames, the text of both tables and the meaning of the labels."""
    head = f"{frames.shape} {frames.dtype.str}\n{participants}\n{atlas}\n{json.dumps(list(classes))}"
    digest = hashlib.sha256(head.encode())
    rows = max(1, (64 << 20) // max(1, frames.shape[1] * frames.itemsize))
    for start in range(0, len(frames), rows):
        digest.update(np.ascontiguousarray(frames[start : start + rows]).data)
    return digest.hexdigest()


def read_table(path: Path, text: Sequence[str]) -> pd.DataFrame:
    """Read a table of a cohort folder; the columns in ``text`` stay as they are written (``007``, ``None``, ``NA``)."""
    table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, encoding="utf-8")
    for column in table.columns.difference(list(text)):
        table[column] = _typed(table[column])
    return table


def _typed(written: pd.Series) -> pd.Series:
    """Whole numbers, numbers or text, whichever the known values are."""
    missing = written.isin(["", MISSING])
    for kind in (int, float):
        try:
            values = [kind(v) for v in written[~missing]]
        except ValueError:
            continue
        if kind is int and not missing.any():
            return pd.Series(values, index=written.index, dtype=np.int64)
        out = np.full(len(written), np.nan)
        out[~missing] = values
        return pd.Series(out, index=written.index)
    return written.mask(missing)


def _table_hash(folder: Path) -> str:
    return hashlib.sha256((folder / PARTICIPANTS).read_bytes() + (folder / ATLAS).read_bytes()).hexdigest()


def _read_header(folder: Path) -> dict[str, Any]:
    if not (folder / HEADER).is_file():
        raise BrioError(f"{folder}: not a cohort folder ({HEADER} is missing); make one with 'brio import'")
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BrioError(f"{folder / HEADER}: not valid JSON ({error}); import the cohort again") from error
    found = header.get("format") if isinstance(header, dict) else None
    if found != FORMAT:
        raise BrioError(f"{folder / HEADER}: format {found}, this version reads {FORMAT}; import the cohort again")
    gone = {"name", "atlas", "classes", "provenance", "tables", "fingerprint"} - set(header)
    if gone:
        raise BrioError(f"{folder / HEADER}: has no {', '.join(sorted(gone))}; import the cohort again")
    return header
