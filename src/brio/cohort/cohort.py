"""The cohort: scans of unequal length with their participants and atlas; its fingerprint, and its folder on disk."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import schemas
from ..errors import BrioError, file_error
from ..formatting import format_count
from ..settings import check_arguments
from ..storage import NewFile, check_stored, create_whole_folder, write_new, write_sums
from .atlas import Atlas
from .scans import SCAN_ID, are_transposed, convert_frames, holds_fc, name_repeated_scans, refuse_fc
from .values import (
    MISSING,
    check_numbers,
    convert_column,
    normalise_text,
    read_class_names,
    read_numbers,
    refuse_unsafe_cells,
    refuse_unsafe_names,
    shorten_list,
    write_value,
)

FORMAT = 1  # version of the folder layout
FRAMES, PARTICIPANTS, ATLAS, HEADER = "frames.npy", "participants.tsv", "atlas.tsv", "cohort.json"
REQUIRED_COLUMNS = ("participant_id", "site", "label")
# Columns of the participants table that stay as they are written.
TEXT_COLUMNS = ("participant_id", "site", "session", SCAN_ID)
QUANTITIES = ("age", "mean_fd")  # of which no value is genuine that looks like a code for a missing one
UNNAMED_CLASSES = ("0", "1")
"""Names of the classes if none are given; then only labels can be compared."""
_OTHER_FOLDERS = {
    "model.json": "a model of 'brio fit'",
    "plan.json": "a results folder of 'brio run'",
    "predictions.html": "a folder of predictions of 'brio predict'",
    "explanation.html": "an explanation of 'brio explain'",
}
IMPORT_AGAIN = "import the cohort again"
CHANGED = "changed after the cohort was written; import the cohort again"


@dataclass(frozen=True)
class CohortHeader:
    """Entries of ``cohort.json`` that brio checks on every load."""

    name: str
    atlas: str
    classes: tuple[str, str]
    provenance: dict[str, Any]
    tables: schemas.Hex
    fingerprint: schemas.Hex


@dataclass(frozen=True)
class ParticipantRow:
    """Columns of ``participants.tsv`` that brio checks on every load; site and label are optional for prediction."""

    participant_id: schemas.Name
    n_frames: schemas.StoredPositiveCount
    site: str = ""
    session: str = ""
    brio_scan_id: schemas.Name = ""
    label: schemas.StoredLabel | None = None


@dataclass(frozen=True)
class RoiRow:
    """Columns of ``atlas.tsv`` that brio checks on every load: the name of the ROI, and MNI coordinates in mm."""

    name: str
    x: float | None = None
    y: float | None = None
    z: float | None = None


def check_participants(table: pd.DataFrame, where: str, labels_required: bool = True) -> pd.DataFrame:
    """Check a participants table, convert ids, sites and labels to plain types, and name repeated scans."""
    required = REQUIRED_COLUMNS if labels_required else ("participant_id",)
    for column in required:
        if column not in table.columns:
            raise BrioError(f"{where}: has no column '{column}'; its columns are {', '.join(map(str, table.columns))}")
    if table.columns.duplicated().any():
        raise BrioError(f"{where}: column '{table.columns[table.columns.duplicated()][0]}' appears more than once")
    for column in table.columns:
        if not table[column].map(pd.api.types.is_scalar).all():
            raise BrioError(f"{where}: column '{column}' contains lists or arrays; write one value in each cell")
    refuse_unsafe_cells(table, where)
    table = table.copy()
    if "site" in table:  # 1 and 1.0, as columns with gaps hold whole numbers
        table["site"] = table["site"].map(lambda cell: write_value(cell) if isinstance(cell, float) else cell)
    for column in table.columns.difference(["participant_id", SCAN_ID]):
        table[column] = table[column].map(lambda cell: normalise_text(cell) if isinstance(cell, str) else cell)
    for column in table.columns.intersection(["participant_id", "site"]):
        empty = table[column].isna() | (table[column].astype(str).str.strip() == "")
        if empty.any() and column in required:
            row = int(np.flatnonzero(empty)[0]) + 1
            raise BrioError(f"{where}: column '{column}' is empty in row {row}; every scan needs a {column}")
        table[column] = table[column].astype(str).mask(empty, "")
    spelled: dict[str, str] = {}
    for participant in table["participant_id"].unique():
        other = spelled.setdefault(normalise_text(participant), participant)
        if other != participant:
            problem = f"participants '{other}' and '{participant}' differ only in blanks or in the form of letters"
            raise BrioError(f"{where}: {problem}; give them different names, or keep one")
    if "label" in table:
        labels = read_numbers(table["label"])
        invalid = ~labels.isin([0, 1]) & (labels_required | find_filled(table, "label"))
        if invalid.any():
            participant, label = table.loc[invalid, ["participant_id", "label"]].iloc[0]
            has = f"label '{label}'" if str(label).strip() and pd.notna(label) else "no label"
            raise BrioError(f"{where}: participant {participant} has {has}; write 0 (control) or 1 (patient)")
        if labels_required and labels.nunique() != 2:
            raise BrioError(f"{where}: column 'label' has only one class, but two classes are needed")
        table["label"] = labels.astype("Int64" if labels.isna().any() else np.int64)
    table = name_repeated_scans(table, where)
    check_numbers(table, where, TEXT_COLUMNS)
    refuse_codes(table, where)
    return table.drop(columns=[c for c in ("site", "label") if c in table and not find_filled(table, c).any()])


def refuse_codes(table: pd.DataFrame, where: str) -> None:
    """Refuse ages and motion that look like codes for missing values, or are text."""
    problems, codes = list[str](), set[str]()
    for column in table.columns.intersection(QUANTITIES):
        numbers, is_text = _read_mostly_numbers(table, column)
        codes_here = find_codes(numbers, is_quantity=True)
        texts = find_filled(table, column) & np.isnan(numbers) & (not is_text)
        codes |= {f"{number:g}" for number in numbers[codes_here]}
        for odd, why in ((codes_here, "which looks like a code for a missing value"), (texts, "which is not a number")):
            if odd.any():
                participant, value = table.loc[odd, ["participant_id", column]].iloc[0]
                problems.append(f"{column} of participant {participant} is {value}, {why}")
    if problems:
        option = f", or import with --missing '{','.join(sorted(codes))}'" if codes else ""
        remedy = f"correct the cell, or leave it empty if the value is unknown{option}"
        raise BrioError(f"{where}: {shorten_list(problems, 3, '; ')}; {remedy}")


def describe_codes(table: pd.DataFrame, where: str) -> list[str]:
    """Describe, for a warning, numbers of other columns that look like codes; they may be genuine values."""
    found, codes = list[str](), set[str]()
    for column in table.columns.difference([*TEXT_COLUMNS, *QUANTITIES, "label", "n_frames"]):
        numbers, is_text = _read_mostly_numbers(table, column)
        odd = numbers[find_codes(numbers, is_quantity=False) & (not is_text)]
        found += [f"{column} {number:g} ({n})" for number, n in zip(*np.unique(odd, return_counts=True), strict=True)]
        codes |= {f"{number:g}" for number in odd}
    remedy = f"if they are, import again with --missing '{','.join(sorted(codes))}'"
    return [f"{where}: looks like codes for missing values: {shorten_list(found)}; {remedy}"] if found else []


def _read_mostly_numbers(table: pd.DataFrame, column: str) -> tuple[np.ndarray, bool]:
    """Read the numbers of a column, and say whether most of it is text, such as ranges of age."""
    numbers, filled = read_numbers(table[column]).to_numpy(dtype=float), find_filled(table, column)
    return numbers, bool(2 * (filled & np.isnan(numbers)).sum() >= filled.sum())


def find_codes(numbers: np.ndarray, is_quantity: bool) -> np.ndarray:
    """Find numbers that look like codes for missing values, such as -99 and 999.

    Unless the numbers are a quantity that cannot be so, codes lie outside the other values by more than the range of
    these, of which there are three at least, or are negative below values that are not.

    Shapes: numbers [N]; returns [N].
    """
    if is_quantity:
        return (numbers <= -99) | np.isin(numbers, [999, 9999])  # -99, -999, -9999 as well
    nines = [float(digit * n) for digit in "789" for n in range(2, 6)]
    codes = np.isin(-numbers, nines) | np.isin(numbers, [number for number in nines if number > 99])
    rest = numbers[np.isfinite(numbers) & ~codes]
    if len(rest) < 3:
        return codes & (numbers < 0) & bool((rest >= 0).all())
    low, high = rest.min(), rest.max()
    return codes & (np.maximum(low - numbers, numbers - high) > high - low)


def find_filled(table: pd.DataFrame, column: str) -> np.ndarray:
    """Find the rows that have a value in a column.

    Shapes: returns [N].
    """
    if column not in table:
        return np.zeros(len(table), dtype=bool)
    values = table[column].to_numpy(dtype=object)  # called often, and pandas takes ten times as long
    filled = np.asarray(pd.notna(values))
    filled[filled] = values[filled] != ""
    return filled


def require_filled(table: pd.DataFrame, column: str, cohort: str) -> pd.Series:
    """Return a column of a participants table; raise :class:`BrioError` unless every row has a value."""
    empty = ~find_filled(table, column)
    if empty.any() or column not in table:
        count = "the scans" if empty.all() else f"{int(empty.sum())} of {len(empty)} scans"
        first = "" if empty.all() else f" (the first is {table['participant_id'][empty].iloc[0]})"
        remedy = f"add a {column} for every scan to the participants table and import again"
        raise BrioError(f"cohort '{cohort}': {count} have no {column}{first}; {remedy}")
    return table[column]


def locate_scans(n_frames: np.ndarray) -> np.ndarray:
    """Compute where each scan starts in the frames.

    Shapes: n_frames [N]; returns [N].
    """
    return np.concatenate([[0], np.cumsum(n_frames)[:-1]]).astype(np.int64)


def format_table(table: pd.DataFrame) -> str:
    """Format a table as the tab-separated text that a cohort folder stores.

    The fingerprint is computed from this text, so the text for a given table must never change.
    """
    return table.to_csv(sep="\t", index=False, na_rep=MISSING, lineterminator="\n")


def read_table(path: Path, row: type, remedy: str = IMPORT_AGAIN) -> pd.DataFrame:
    """Read a table that :func:`format_table` wrote."""
    content = schemas.read_bounded(path, schemas.MAX_PARTICIPANT_TABLE_BYTES, remedy)
    text = schemas.check_rows(content, path, "\t", remedy)
    table = pd.read_csv(io.StringIO(text), sep="\t", dtype=str, keep_default_na=False, index_col=False)
    refuse_unsafe_cells(table, str(path))
    for column in table.columns.difference(schemas.list_text_columns(row)):
        table[column] = convert_column(table[column])
        if table[column].dtype.kind == "f" and np.isinf(table[column]).any():
            raise file_error(path, f"column {schemas.show_value(column)} contains a number out of range", remedy)
    return schemas.check_columns(table, path, row, remedy)


def name_other_folder(folder: Path) -> str:
    """Name the kind of brio folder that was given instead of a cohort; empty for any other folder."""
    return next((kind for name, kind in _OTHER_FOLDERS.items() if (folder / name).is_file()), "")


def read_header(folder: Path) -> dict[str, Any]:
    """Read and check ``cohort.json``."""
    path = folder / HEADER
    if not path.is_file():
        kind = name_other_folder(folder)
        if kind:
            raise BrioError(f"{folder}: is {kind}, not a cohort folder; give a folder that 'brio import' wrote")
        raise BrioError(f"{folder}: is not a cohort folder ({HEADER} is missing); create one with 'brio import'")
    header = schemas.parse_json(schemas.read_bounded(path, schemas.MAX_JSON_BYTES, IMPORT_AGAIN), path, IMPORT_AGAIN)
    if header.get("format") != FORMAT:
        version = schemas.show_value(header.get("format"))
        raise BrioError(f"{path}: has format {version}, but this version of brio reads format {FORMAT}; {IMPORT_AGAIN}")
    schemas.from_json(CohortHeader, header, path, IMPORT_AGAIN)
    named = [header["name"], header["atlas"], *header["classes"]]
    refuse_unsafe_names(named, f"{path}, the name of the cohort, its atlas or a class")
    return header


HASH_CHUNK_BYTES = 64 << 20


def hash_content(frames: np.ndarray, participants: str, atlas: str, classes: tuple[str, str]) -> str:
    """Compute the fingerprint of a new or stored cohort: SHA-256 of its frames, both tables and the class names.

    Shapes: frames [sum of T_i, P].
    """
    head = f"{frames.shape} {frames.dtype.str}\n{participants}\n{atlas}\n{json.dumps(list(classes))}"
    digest = hashlib.sha256(head.encode())
    rows = max(1, HASH_CHUNK_BYTES // max(1, frames.shape[1] * frames.itemsize))
    for start in range(0, len(frames), rows):
        digest.update(np.ascontiguousarray(frames[start : start + rows]).data)
    return digest.hexdigest()


def hash_tables(folder: Path) -> str:
    """Compute one hash of both tables of a cohort folder; it is checked on every load."""
    return hashlib.sha256((folder / PARTICIPANTS).read_bytes() + (folder / ATLAS).read_bytes()).hexdigest()


@contextmanager
def write_cohort(
    out: str | Path,
    name: str,
    atlas: Atlas,
    classes: tuple[str, str] = UNNAMED_CLASSES,
    provenance: dict[str, Any] | None = None,
    labels_required: bool = True,
) -> Iterator[Callable[[np.ndarray, dict[str, Any]], None]]:
    """Write scans one by one to a new cohort folder; yield a function that adds a scan [T, P] with its row.

    Scans go to a temporary folder next to ``out``. When the ``with`` block ends without an error, the participants are
    checked, the fingerprint is computed, and the temporary folder is renamed to ``out``. After an error, the temporary
    folder is removed. Anything that the block adds to ``provenance`` is written too.
    """
    refuse_unsafe_names([name, atlas.name, *classes], "the name of the cohort, its atlas or a class")
    out, provenance, rows = Path(out), {} if provenance is None else provenance, list[dict[str, Any]]()
    with create_whole_folder(out) as partial, closing(NewFile(partial / FRAMES, out / FRAMES)) as file:

        def write_npy_header() -> None:
            # numpy leaves room in the header for the first axis to grow, so it can be rewritten in place
            shape = (sum(row["n_frames"] for row in rows), len(atlas))
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})

        def add(scan: np.ndarray, participant: dict[str, Any]) -> None:
            where = f"participant {participant.get('participant_id', f'row {len(rows) + 1}')}"
            frames = convert_frames(scan, where)
            if frames.shape[1] != len(atlas):
                has = f"atlas '{atlas.name}' has {len(atlas)} ROIs"
                raise BrioError(f"{where}: the scan has shape {frames.shape}, but {has}")
            if not np.isfinite(frames).any():
                raise BrioError(f"{where}: the scan contains no finite value; leave it out")
            file.write(np.ascontiguousarray(frames, dtype="<f4").data)
            rows.append({**participant, "n_frames": len(frames)})

        write_npy_header()
        yield add
        if not rows:
            raise BrioError(f"{out}: the cohort has no scans to write")
        file.rewind()
        write_npy_header()
        file.sync()
        source = str(provenance.get("source") or out)  # an error is about the input
        table = check_participants(pd.DataFrame(rows), source, labels_required)
        tables = {PARTICIPANTS: format_table(table), ATLAS: format_table(atlas.rois)}
        for part, text in tables.items():
            write_new(partial / part, text)
        frames = np.load(partial / FRAMES, mmap_mode="r", allow_pickle=False)
        header = {
            "format": FORMAT,
            "name": name,
            "atlas": atlas.name,
            "classes": list(classes),
            "n_scans": len(table),
            "n_rois": len(atlas),
            "provenance": provenance,
            "tables": hash_tables(partial),
            "fingerprint": hash_content(frames, tables[PARTICIPANTS], tables[ATLAS], classes),
        }
        write_new(partial / HEADER, json.dumps(header, indent=2) + "\n")
        write_sums(partial, (HEADER, PARTICIPANTS, ATLAS, FRAMES))


MOST_SITES = 40  # sites that are shown in a notebook


def _format_range(values: np.ndarray, unit: str, none: str) -> str:
    """Format the range of numbers with its unit; ``none`` where there are none."""
    if not len(values):
        return none
    low, high = float(values.min()), float(values.max())
    return f"{low:g} {unit}" if low == high else f"{low:g} to {high:g} {unit}"


# Column of a cohort under another question (`brio.cohort.relabel`): the class of the label before it.
FORMER_LABEL = "former_label"
LABEL_VALUES = "label_values"  # entry of the provenance: the values that made each label at import, with their counts


@dataclass(frozen=True, eq=False)
class Cohort:
    """Scans, which may differ in length, with their participants, atlas and provenance.

    Build a cohort with :meth:`from_scans`, :meth:`load`, :func:`brio.simulate` or :func:`brio.import_cohort`.

    Attributes
    ----------
    name : str
    frames : ndarray of float32, shape [F, P]
        The concatenated frames of all scans, memory-mapped if the cohort was loaded from a folder. A selection keeps
        the whole array; use :meth:`scan` to get the frames of one scan.
    starts, n_frames : ndarray of int64, shape [N]
        Scan i is ``frames[starts[i] : starts[i] + n_frames[i]]``.
    participants : DataFrame, N rows
        One row per scan. The columns are ``participant_id``, ``n_frames``, ``site``, ``label`` (0 or 1) and any
        covariates; ``tr`` is the repetition time in seconds. Scans to predict may lack ``site`` and ``label``; the
        audit rejects a cohort with such scans. If participants have several scans, ``session`` distinguishes the
        scans of a participant, and ``brio_scan_id`` is unique for each scan. Do not change this table: sites and labels
        are read from it only once.
    atlas : Atlas
        The P ROIs of the scans.
    classes : tuple of two str
        Names of the labels 0 and 1.
    provenance : dict
        How the cohort was made: for an import, the reader, source and options.
    fingerprint : str
        Hash that identifies the cohort, with its selection of scans, in every result.
    path : Path or None
        Folder from which the cohort was loaded; None if the cohort was made or changed in memory.

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
        refuse_unsafe_names([self.name, *self.classes], "the name of the cohort or a class")

    def __len__(self) -> int:
        return len(self.participants)

    def __repr__(self) -> str:
        named = find_filled(self.participants, "site")
        sites = f" at {format_count(self.participants['site'][named].nunique(), 'site')}" if named.any() else ""
        people = f" of {format_count(len(set(self.participant_ids)), 'participant')}" if self.has_repeated_scans else ""
        return (
            f"Cohort({self.name!r}: {format_count(len(self), 'scan')}{people}{sites}, {self.n_rois} ROIs "
            f"({self.atlas.name}), {self._frames_range()}, fingerprint {self.fingerprint[:12] or 'not computed'})"
        )

    def _repr_html_(self) -> str:
        """Summarise the cohort as an HTML table, which notebooks display."""
        tr = read_numbers(self.participants.get("tr", pd.Series(dtype=float)))
        facts = {
            "scans": str(len(self)),
            "ROIs": f"{self.n_rois} ({self.atlas.name})",
            "length": self._frames_range(),
            "repetition time": _format_range(tr.dropna(), "s", "unknown"),
            "fingerprint": self.fingerprint[:12] or "not computed",
        }
        sites = ""
        if all(c in self.participants and find_filled(self.participants, c).all() for c in ("site", "label")):
            facts |= {"sites": str(len(set(self.sites)))}
            classes = ("controls", "patients") if self.classes == UNNAMED_CLASSES else self.classes
            counts = {f"{name} ({k})": self.labels == k for k, name in enumerate(classes)}
            by_site = pd.DataFrame({"site": self.sites, **counts}).groupby("site", as_index=False).sum()
            sites = by_site.to_html(index=False, max_rows=MOST_SITES)
        table = pd.Series(facts, dtype=object).to_frame().to_html(header=False)
        return f"<div><strong>{escape(f'Cohort {self.name}')}</strong>{table}{sites}</div>"

    def _frames_range(self) -> str:
        if holds_fc(self.participants):
            return "connectomes without frames"
        return _format_range(self.n_frames, "frames", "no frames")

    @property
    def n_rois(self) -> int:
        """Number of ROIs, P."""
        return int(self.frames.shape[1])

    @property
    def ids(self) -> np.ndarray:
        """Name of each scan: ``brio_scan_id`` if the table has this column, else ``participant_id``. Shape [N], str."""
        column = SCAN_ID if SCAN_ID in self.participants else "participant_id"
        return self.participants[column].to_numpy(dtype=str)

    @property
    def participant_ids(self) -> np.ndarray:
        """``participant_id`` of each scan; an id may occur several times. Shape [N], str."""
        return self.participants["participant_id"].to_numpy(dtype=str)

    @property
    def has_repeated_scans(self) -> bool:
        """Whether any participant has several scans."""
        return "participant_id" in self.participants and bool(self.participants["participant_id"].duplicated().any())

    @property
    def sites(self) -> np.ndarray:
        """Site of each scan; raises :class:`BrioError` if a scan has none. Shape [N], str."""
        return self._known_sites.copy()

    @cached_property
    def _known_sites(self) -> np.ndarray:
        return require_filled(self.participants, "site", self.name).to_numpy(dtype=str)

    @property
    def labels(self) -> np.ndarray:
        """Label of each scan, 0 or 1; raises :class:`BrioError` if a scan has none. Shape [N], int64."""
        return self._known_labels.copy()

    @cached_property
    def _known_labels(self) -> np.ndarray:
        return require_filled(self.participants, "label", self.name).to_numpy(dtype=np.int64)

    @property
    def labelled(self) -> np.ndarray:
        """Whether each scan has a label; scans to predict may have none. Shape [N], bool."""
        return find_filled(self.participants, "label")

    @property
    def label_covariate(self) -> str | None:
        """Column from which ``brio.cohort.relabel`` made the labels, or None. No method may use this column."""
        asks = self.provenance.get("label")
        return str(asks["column"]) if isinstance(asks, dict) else None

    def require_labels(self) -> None:
        """Raise :class:`BrioError` unless every scan has a site and a label, as jobs and the audit require."""
        for column in ("label", "site"):
            require_filled(self.participants, column, self.name)

    @check_arguments
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
        return np.asarray(self.frames[self.starts[i] : self.starts[i] + self.n_frames[i]])  # not a memmap to others

    @check_arguments
    def select(self, keep: Sequence[int] | np.ndarray) -> Cohort:
        """Return a cohort with some of the scans. Frames are not copied.

        Parameters
        ----------
        keep : sequence of int, or ndarray of bool with shape [N]
            Positions of the scans in the desired order, or a mask.

        Returns
        -------
        Cohort
            This cohort if all scans are selected in their present order, otherwise a new cohort. The new fingerprint is
            computed from the fingerprint of this cohort and the ids of the selected scans.

        Raises
        ------
        IndexError
            If a position is out of range.
        BrioError
            If a mask does not have one value for each scan, or a position is not a whole number.
        """
        chosen = np.asarray(keep)
        if chosen.ndim != 1 or (chosen.dtype == bool and len(chosen) != len(self)):
            raise BrioError(
                f"an array of shape {chosen.shape} cannot select from {len(self)} scans; give a list of positions, or "
                "a mask with one value per scan"
            )
        if chosen.dtype.kind not in "biu" and len(chosen):
            given = f"not by values of type {chosen.dtype}"
            raise BrioError(f"select scans by their positions (whole numbers) or by a mask, {given}")
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
    @check_arguments
    def from_scans(
        cls,
        scans: Sequence[np.ndarray],
        *,
        site: Sequence[Any],
        label: Sequence[Any],
        participant_id: Sequence[str] | None = None,
        session: Sequence[Any] | None = None,
        covariates: pd.DataFrame | None = None,
        atlas: Atlas | None = None,
        classes: tuple[str, str] = UNNAMED_CLASSES,
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
            Session of each scan; needed if a participant has several scans.
        covariates : DataFrame, N rows, optional
            Further columns of the participants table, for example ``age``, ``sex`` and ``tr``.
        atlas : Atlas, optional
            The P ROIs; unnamed by default.
        classes : tuple of two str
            Names of the labels 0 and 1.
        name : str
        provenance : dict, optional
        check_axes : bool
            Whether to reject symmetric matrices and, without an atlas, scans whose rows seem to be ROIs. Use False if
            the rows are in fact frames.

        Returns
        -------
        Cohort

        Raises
        ------
        BrioError
            If a scan or an argument is not valid, arguments have different lengths, scans have different numbers of
            ROIs, or ``check_axes`` rejects a scan.
        """
        if len(scans) == 0:
            raise BrioError("no scans were given")
        classes = read_class_names(classes, "classes")
        ids = [f"s{i + 1:05d}" for i in range(len(scans))] if participant_id is None else list(participant_id)
        arguments = {"site": site, "label": label, "participant_id": ids, "session": session, "covariates": covariates}
        for argument, values in arguments.items():
            if values is not None and len(values) != len(scans):
                has = f"{format_count(len(values), 'entry', 'entries')} for {format_count(len(scans), 'scan')}"
                raise BrioError(f"{argument} has {has}; give one entry per scan")
        arrays = [convert_frames(scan, f"participant {name}") for name, scan in zip(ids, scans, strict=True)]
        for participant, array in zip(ids, arrays, strict=True):
            if array.shape[1] != arrays[0].shape[1]:
                differ = f"{array.shape[1]} ROIs, but {ids[0]} has {arrays[0].shape[1]}"
                raise BrioError(f"participant {participant} has {differ}; all scans need the same parcellation")
        table = pd.DataFrame({"participant_id": ids, "site": list(site), "label": list(label)})
        if session is not None:
            table["session"] = [str(value) for value in session]
        if covariates is not None:
            reserved = [str(column) for column in covariates.columns if column in (*table.columns, "n_frames")]
            if reserved:
                raise BrioError(f"covariates: drop {', '.join(reserved)}, which other arguments or the scans provide")
            table = pd.concat([table, covariates.reset_index(drop=True)], axis=1)
        if check_axes and not holds_fc(table):
            for participant, array in zip(ids, arrays, strict=True):
                refuse_fc(array, f"participant {participant}")
            if atlas is None and are_transposed(arrays):
                remedy = "transpose the scans or, if rows are frames, call Cohort.from_scans(..., check_axes=False)"
                raise BrioError(
                    f"the {len(arrays[0])} rows of the scans seem to be ROIs, and the columns frames; {remedy}"
                )
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        table["n_frames"] = lengths
        frames = np.concatenate(arrays)
        atlas = atlas or Atlas.unnamed(frames.shape[1])
        if len(atlas) != frames.shape[1]:
            raise BrioError(f"atlas '{atlas.name}' has {len(atlas)} ROIs, but the scans have {frames.shape[1]}")
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

    @check_arguments
    def save(self, path: str | Path) -> Cohort:
        """Write the cohort to a new folder, and load it from that folder.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Cohort
            The stored cohort, with memory-mapped frames.

        Raises
        ------
        BrioError
            If ``path`` already exists, or a scan contains no finite value.
        """
        with write_cohort(path, self.name, self.atlas, self.classes, self.provenance, labels_required=False) as add:
            for i, row in enumerate(self.participants.to_dict("records")):
                add(self.scan(i), row)
        return Cohort.load(path)

    @classmethod
    @check_arguments
    def load(cls, path: str | Path) -> Cohort:
        """Open a cohort folder.

        This method checks the tables, but only memory-maps the frames. To check the frames as well, call
        :meth:`verify`, as :func:`brio.run` does.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Cohort

        Raises
        ------
        BrioError
            If ``path`` is not a cohort folder, a file in it is missing, or ``cohort.json`` or a table has been changed.
        """
        folder = Path(path)
        header = read_header(folder)
        for part in (FRAMES, PARTICIPANTS, ATLAS):
            if not (folder / part).is_file():
                raise BrioError(f"{folder}: {part} is missing; {IMPORT_AGAIN}")
        for part in (HEADER, PARTICIPANTS, ATLAS):
            check_stored(folder / part, IMPORT_AGAIN)
        if hash_tables(folder) != header["tables"]:
            raise BrioError(f"{folder}: {PARTICIPANTS} or {ATLAS} {CHANGED}")
        try:
            frames = np.lib.format.open_memmap(folder / FRAMES, mode="r")
        except (ValueError, OSError, EOFError) as error:
            raise BrioError(f"{folder / FRAMES}: cannot be read ({error}); import the cohort again") from error
        participants, rois = read_table(folder / PARTICIPANTS, ParticipantRow), read_table(folder / ATLAS, RoiRow)
        lengths = participants["n_frames"].to_numpy(dtype=np.int64)
        if frames.shape != (lengths.sum(), len(rois)):
            listed = f"{PARTICIPANTS} lists {lengths.sum()} frames and {ATLAS} lists {len(rois)} ROIs"
            raise BrioError(f"{folder / FRAMES}: has shape {frames.shape}, but {listed}; {IMPORT_AGAIN}")
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

        This method does nothing if ``path`` is None.

        Raises
        ------
        BrioError
            If the frames, a table or the class names have changed.
        """
        if self.path is None:
            return
        check_stored(self.path / FRAMES, IMPORT_AGAIN)
        participants, atlas = ((self.path / part).read_text(encoding="utf-8") for part in (PARTICIPANTS, ATLAS))
        if hash_content(self.frames, participants, atlas, self.classes) != self.fingerprint:
            raise BrioError(f"{self.path}: the content {CHANGED}")
