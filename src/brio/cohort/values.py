"""Names and values that the tables of a cohort may hold, and the one way in which they are read and compared."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from ..errors import BrioError, escape_controls, find_control, find_nearest

_FORMULA = re.compile(r"\s*[=+\-@][=+\-@\s]*[^=+\-@\s]")


def is_formula(value: object) -> bool:
    """Return whether a spreadsheet would read a text as a formula, also after blanks or with full-width characters."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:  # full-width characters count as the usual ones, and what shows nothing does not
        plain = (c for c in unicodedata.normalize("NFKC", value) if c.isspace() or not find_control(c))
        return _FORMULA.match("".join(plain)) is not None
    return False


def refuse_unsafe_names(names: Iterable[object], where: str) -> None:
    """Raise an error if a name is a formula, has a control character, or bytes that are not UTF-8."""
    for name in names:
        written = str(name).encode("utf-8", "backslashreplace").decode()
        if written != str(name):
            raise BrioError(f"{where}: '{written[:40]}' is not valid UTF-8; rename it")
        if control := find_control(str(name)):
            shown = escape_controls(str(name), keep="")[:40]
            raise BrioError(f"{where}: '{shown}' contains the invisible control character {control}; remove it")
        if is_formula(name):
            text = str(name).strip()
            why = f"begins with '{text[0]}', so spreadsheets treat it as a formula"
            raise BrioError(f"{where}: '{text[:40]}' {why}; change it")


def refuse_unsafe_cells(table: pd.DataFrame, where: str) -> None:
    """Raise an error if a column name or a text in a table is a formula or has a control character."""
    refuse_unsafe_names(table.columns, f"{where}, the name of a column")
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            refuse_unsafe_names(dict.fromkeys(table[column].tolist()), f"{where}, column '{column}'")


LISTED_NAMES, NAME_LENGTH = 8, 80  # names of a long list that a message shows, and letters of a long name
LISTED_VALUES = 12  # values of a column that a message shows; a column of ages has hundreds


def shorten_list(names: Sequence[str], most: int = LISTED_NAMES, separator: str = ", ") -> str:
    """Join names, shortening long ones; after ``most`` names, count the rest."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    shown = (name if len(name) <= NAME_LENGTH else f"{name[:NAME_LENGTH]}..." for name in names[:most])
    return separator.join(shown) + rest


MISSING = "n/a"  # how a table of a cohort folder writes a missing value

EXACT_DIGITS = 15  # whole numbers of so many digits are exact as floating-point numbers, which a column with gaps holds

MEASURES = ("age", "mean_fd", "tr")  # columns that hold quantities, never codes


def normalise_text(value: object) -> str:
    """Write a text in one way: composed accents, usual widths, one blank between words and none around them.

    What looks different stays different: superscripts, fractions and the letters of other alphabets.
    """
    text = unicodedata.normalize("NFC", str(value))
    return re.sub(r"[ \t\r\n]+", " ", text if text.isascii() else "".join(map(_use_usual_width, text))).strip(" ")


def _use_usual_width(letter: str) -> str:
    is_blank, form = unicodedata.category(letter) == "Zs", unicodedata.decomposition(letter)
    return " " if is_blank else unicodedata.normalize("NFKC", letter) if form[:4] in ("<wid", "<nar") else letter


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?(inf|infinity)", re.IGNORECASE)


def parse_number(value: object) -> int | float | None:
    """Parse a cell; None where it is no number: a date, a number with a comma or an underscore, inf or nan."""
    text = str(value)
    if not _NUMBER.fullmatch(text):
        return None
    is_whole = text.lstrip("+-").isdecimal() and len(text) < 4300  # Python takes no more digits
    return int(text) if is_whole else float(text)


def write_number(number: float) -> str:
    """Write a number as people do: a whole number without decimals."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def write_value(cell: Any) -> str:
    """Write a cell as text, empty where it is missing; a number that pandas has read has no needless decimals."""
    if pd.isna(cell):
        return ""
    if isinstance(cell, float | np.floating):  # one in single precision has fewer digits
        return write_number(float(str(cell))) if np.isfinite(cell) else str(cell)
    text = normalise_text(cell)
    return "" if text == MISSING else text


def read_numbers(column: pd.Series) -> pd.Series:
    """Read the numbers of a column; NaN where a cell is empty or holds no number."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    texts = column.map(normalise_text).astype(object)
    return texts.map(lambda text: np.nan if parse_number(text) is None else float(text)).astype(float)


def convert_column(column: pd.Series) -> pd.Series:
    """Convert text to whole numbers if possible, or else to numbers; otherwise leave it as text with gaps."""
    missing = column.isin(["", MISSING])
    texts = column[~missing]
    if any(map(_is_code, texts)) or None in (values := [parse_number(text) for text in texts]):
        return column.mask(missing)
    if not missing.any() and all(isinstance(v, int) for v in values):
        return pd.Series(values, index=column.index, dtype=np.int64)
    numbers = np.full(len(column), np.nan)
    numbers[~missing] = np.asarray(values, dtype=float)
    return pd.Series(numbers, index=column.index)


def _is_code(text: str) -> bool:
    """Return whether digits are a name: they begin with a zero, or are more than a number can hold exactly."""
    digits = text.lstrip("+-")
    return digits.isdecimal() and ((len(digits) > 1 and digits[0] == "0") or len(digits) > EXACT_DIGITS)


def _is_number(text: str) -> bool:
    """Return whether a text is a number, not a code, that a floating-point number holds exactly enough."""
    number = None if _is_code(text) else parse_number(text)
    return number is not None and abs(number) < 10**EXACT_DIGITS


# How a sex is written, without accents and capitals: English, German, French, Spanish and Italian. H and V are left
# out, because a column that has them may write M for a woman (mujer).
_FEMALE = "f female w woman girl weiblich frau maedchen madchen femme feminin feminine fille mujer femenino femenina "
_FEMALE += "hembra nina donna femmina femminile"
_MALE = "m male man boy mannlich maennlich mann junge homme masculin garcon hombre masculino varon nino uomo maschio "
_MALE += "maschile"
_SEXES = dict.fromkeys(_FEMALE.split(), "F") | dict.fromkeys(_MALE.split(), "M")


def read_sex(value: object) -> str | None:
    """Read a sex, F or M; None where it is neither."""
    letters = unicodedata.normalize("NFD", normalise_text(value).casefold())
    return _SEXES.get("".join(c for c in letters if not unicodedata.combining(c)).removesuffix("."))


def means_sex(column: str) -> bool:
    """Return whether a column holds the sex, by its name."""
    return normalise_text(column).casefold() == "sex"


def fold_value(value: object, is_sex: bool = False) -> str:
    """Write what spellings of one value have in common: a number, a sex, or a text without capitals."""
    text = normalise_text(value)
    if _is_number(text):
        return write_number(float(text))
    return (read_sex(text) if is_sex else None) or text.casefold()


# Letters that look like Latin ones, after capitals are folded: Cyrillic, and Greek.
_LOOK_ALIKES = str.maketrans("авекмнорстухіѕјαβεζηικμνορτυχ", "abekmhopctyxisjabezhikmnoptyx")


def fold_alike(name: object) -> str:
    """Write what names have in common that are easily confused: ``site_1``, ``Site 01`` and ``site-1.0`` are alike.

    Capitals, superscripts, letters that look alike, signs between letters and digits, and the form of numbers do not
    count.
    """
    text = unicodedata.normalize("NFKC", normalise_text(name)).casefold().translate(_LOOK_ALIKES)
    if (number := parse_number(text)) is not None and math.isfinite(number):
        return write_number(number)
    parts = re.split(r"([0-9]+)(?:\.0+(?![0-9]))?", text)  # words and, between them, whole numbers
    parts[1::2] = [number.lstrip("0") or "0" for number in parts[1::2]]
    parts[::2] = ["".join(c for c in word if unicodedata.category(c)[0] in "LMN") for word in parts[::2]]
    parts[2:-1:2] = [word or "-" for word in parts[2:-1:2]]  # 1-2 is not 12
    return "".join(parts) or text


def group_alike(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Group names that are easily confused, see :func:`fold_alike`; names that are unlike all others are left out."""
    groups: dict[str, set[str]] = {}
    for name in names:
        groups.setdefault(fold_alike(name), set()).add(name)
    return tuple(tuple(sorted(group)) for group in groups.values() if len(group) > 1)


def read_class_names(classes: Sequence[str], option: str) -> tuple[str, str]:
    """Return the names of two classes; raise an error if they are not two different names."""
    names = [normalise_text(name) for name in classes]
    if len(names) != 2 or len({*map(fold_value, names)} - {""}) != 2:
        example = "with the name of controls first, for example --class-names HC,MDD"
        raise BrioError(f"{option} takes two different names, {example}")
    return names[0], names[1]


def compare_classes(theirs: Sequence[str], own: Sequence[str]) -> Literal["same", "swapped", "other"]:
    """Compare the names of two classes with those of two others, as the values of a column are compared."""
    are_sexes = all(map(read_sex, (*theirs, *own)))
    one, two = ([fold_value(name, are_sexes) for name in names] for names in (theirs, own))
    return "same" if one == two else "swapped" if one == two[::-1] else "other"


def list_counts(counts: Mapping[str, int], most: int = LISTED_VALUES) -> str:
    """List values with the number of times that they occur, most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return shorten_list([f"'{value}' ({n:,})" for value, n in ordered], most)


class ColumnValues:
    """The values of a column. Several spellings of a number, or of a sex, are one value; of a word, they are an error.

    A value is known by what its spellings have in common, see :func:`fold_value`.
    """

    def __init__(self, cells: Iterable[object], where: str, is_sex: bool = False) -> None:
        """Read the cells of a column; ``where`` names it in messages."""
        self.where, self.is_sex = where, is_sex
        self.texts = [write_value(cell) for cell in cells]  # empty where a cell is missing
        counts = Counter(filter(None, self.texts))
        is_read = isinstance(cells, pd.Series) and cells.dtype.kind in "if"  # as numbers
        folded = {text: text if is_read else fold_value(text, is_sex) for text in counts}
        self.values = [folded.get(text) for text in self.texts]
        self.spellings: dict[str, Counter[str]] = {}  # how each value is written, and how often
        for text, value in folded.items():
            self.spellings.setdefault(value, Counter())[text] = counts[text]
        self.are_numbers = bool(counts) and (is_read or all(map(_is_number, counts)))

    def __str__(self) -> str:
        """List the values and how often they occur."""
        return list_counts({text: n for spelled in self.spellings.values() for text, n in spelled.items()})

    def find(self, asked: str) -> str | None:
        """Find the value that a user has typed; None where the column does not have it."""
        value = fold_value(asked, self.is_sex)
        if value not in self.spellings:
            return None
        self.refuse_spellings([value])
        return value

    def refuse_spellings(self, values: Iterable[str]) -> None:
        """Raise an error if one of the values is a word that the column writes in several ways."""
        for value in values:
            spelled = self.spellings[value]
            if len(spelled) > 1 and not self.are_numbers and not (self.is_sex and read_sex(value)):
                problem = f"writes one value in {len(spelled)} ways: {list_counts(spelled)}"
                raise BrioError(f"{self.where} {problem}; write it in one way in the table, and import again")

    def name(self, value: str) -> str:
        """Name a value as the column writes it; a number or a sex that is written in several ways, in the usual way."""
        (text, _), *others = self.spellings[value].most_common()
        return value if self.are_numbers or (others and self.is_sex and read_sex(value)) else text

    def suggest(self, asked: str) -> str:
        """Suggest which value was meant."""
        close = find_nearest(asked, map(self.name, self.spellings))
        return f"did you mean '{close}'?" if close else f"the column has {self}"

    def read_numbers(self) -> np.ndarray:
        """Read a column of numbers. Shape [N]; NaN where a cell is missing."""
        return np.array([float(text or "nan") for text in self.texts])


def check_numbers(table: pd.DataFrame, where: str, text_columns: Iterable[str]) -> None:
    """Refuse impossible numbers: infinite ones, and quantities that are too large.

    A column is checked if all its values are numbers. Text may be anything, and so may codes of many digits, except in
    the columns of quantities.
    """
    for column in table.columns.difference(["participant_id", *text_columns]):
        values = table[column].to_numpy(dtype=object)
        rows = [row for row in np.flatnonzero(pd.notna(values)) if values[row] not in ("", MISSING)]
        texts = [str(values[row]) for row in rows]
        numbers = [math.inf if _INFINITE.fullmatch(text) else parse_number(text) for text in texts]
        largest = 10**EXACT_DIGITS if column in MEASURES else math.inf
        odd = [abs(n) >= largest if isinstance(n, int) else n is not None and math.isinf(n) for n in numbers]
        if None not in numbers and True in odd:
            row = rows[odd.index(True)]
            cell = f"{str(values[row])[:40]} in row {row + 1} (participant {table['participant_id'].iloc[row]})"
            remedy = "correct the cell, leave it empty, or remove the column"
            raise BrioError(f"{where}: column '{column}' is {cell}, which is out of range; {remedy}")
