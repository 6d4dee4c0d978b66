"""A table with the oddities of people's tables, and what each question about it asks: plain pandas, nothing of brio."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from itertools import cycle, islice, pairwise
from typing import TypeVar

import pandas as pd

T = TypeVar("T")

IDS = [f"p{i}" for i in range(12)]
SITES = [f"S{i % 2}" for i in range(12)]
LABELS = [str(i // 2 % 2) for i in range(12)]

# Cells of each column, repeated down the rows, and further words that a user may type for them.
ODD: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plain": (("left", "right"), ("LEFT", "Right ", "\u00a0left\u2003", "ｌｅｆｔ", "lef", "le ft", "left right")),
    "three": (("left", "right", "both"), ("BOTH", "left/right")),
    "case": (("left", "Left", "right", "LEFT"), ("lEFT", "RIGHT")),
    "case_two": (("x", "X"), ()),
    "case_rest": (("asd", "tc", "TC"), ("ASD",)),
    "capital": (("MDD", "HC"), ("mdd", "Hc")),
    "trailing": (("asd ", "tc", "asd"), ("asd  ",)),
    "unbroken": (("asd\u00a0", "tc\u2009", "asd", "\u3000tc"), ("\u00a0asd",)),
    "inner": (("not asd", "not  asd", "not\u00a0asd", "asd"), ("NOT ASD", "notasd")),
    "accents": (("Zu\u0308rich", "Z\u00fcrich", "Bern"), ("Zürich", "zürich", "ZU\u0308RICH", "Zurich")),
    "full_width": (("ＡＢ", "AB", "C"), ("ab", "ｃ")),
    "lookalike": (("А", "A", "B"), ("а", "Ａ")),
    "sharp": (("Straße", "Weg"), ("STRASSE", "strasse")),
    "sharp_two": (("Straße", "STRASSE", "Weg"), ("weg",)),
    "ligature": (("ﬁeld", "field", "lab"), ("FIELD",)),
    "power": (("x²", "x2", "y"), ()),
    "roman": (("Ⅳ", "IV", "V"), ("iv",)),
    "greek": (("Σ", "ς", "τ"), ("σ",)),
    "dotless": (("İzmir", "Ankara"), ("izmir", "Izmir")),
    "missing": (("left", "NA", "right", "", "n/a", "left"), ("NA", "nan", "n/a")),
    "blank_missing": (("left", "\u00a0", "right", "NULL", " na "), ("null", " ")),
    "none": (("None", "some", "none "), ("NONE",)),
    "signs_missing": ((".", "a", "b", "-"), ()),
    "dots_missing": ((".", "1", "2", "-"), ("1.0",)),
    "all_missing": (("", "NA"), ("x",)),
    "one_value": (("left",), ("LEFT", "right")),
    "one_number": (("1", "1.0"), ("1.00", "0")),
    "zero_one": (("0", "1"), ("0.0", "１", "true", "01")),
    "zero_one_point": (("0.0", "1.0", "1", "0"), ("1.", "+1", "1e0")),
    "numbers": (("1", "1.0", "1.00", "2"), ("1e0", "01", "1.", "2.0", "１", "1,0", "one")),
    "exponents": (("1e1", "10", "20", "2E1"), ("10.0", "1_0", "1e+1")),
    "nine_ten": (("9", "10"), ("9.0",)),
    "many_numbers": (("1", "2", "3", "4", "5"), ("2.0", "6")),
    "ages": (("14.5", "9", "31", "14.50", "60", "0.5"), ("14,5", "145e-1")),
    "signed": (("0", "+1", "1", "-1"), ("1.0", "-1.0")),
    "tiny": (("0.1", "0.10", "1e-1", "0.2"), (".1", "0.3")),
    "codes": (("01", "1", "02"), ("1.0", "2", "001")),
    "zeros": (("001", "002"), ("1", "001 ", "1.0")),
    "long_codes": (("12345678901234567", "12345678901234568"), ("12345678901234567.0",)),
    "mixed": (("1", "x", "2"), ("1.0", "X")),
    "underscored": (("1_4", "14", "15"), ("1_5", "14.0")),
    "commas": (("14,5", "15,25", "14,50"), ("14.5",)),
    "thousands": (("1,250", "1,251"), ("1250", "1.25")),
    "fractions": (("1/2", "1/3"), ("0.5",)),
    "arabic": (("١", "1", "2"), ()),
    "hex": (("0x10", "16"), ("10",)),
    "percent": (("50%", "60%"), ("50", "50 %")),
    "dates": (("2020-01-02", "2021-03-04"), ("2020-1-2", "2020")),
    "points": (("01.02.2020", "02.01.2020"), ("1.2.2020",)),
    "boolean": (("True", "False"), ("true", "TRUE", "1", "yes", "T")),
    "boolean_two": (("True", "true", "False"), ("false",)),
    "yes": (("yes", "no"), ("Yes", "True", "y")),
    "quoted": (('"left"', "right"), ('"right"',)),
    "apostrophe": (("O'Neil", "Smith"), ("o'neil", "'Smith'")),
    "comma": (("a, b", "a", "b"), ("A, B", "a,b")),
    "bracket": (("[a]", "(b)", "a"), ("[A]", "b")),
    "wildcard": (("a*", "ab", "a?"), ("A*",)),
    "dash": (("site-1", "site_1", "site 1", "Site1"), ("site1", "SITE-1")),
    "padded": (("site-01", "site-1", "site-2"), ("SITE-2",)),
    "words": (("and", "or", "not"), ("AND",)),
}


def repeat(cells: Iterable[T]) -> list[T]:
    """Repeat cells down the rows."""
    return list(islice(cycle(cells), len(IDS)))


TABLE = {name: repeat(cells) for name, (cells, _) in ODD.items()}
ASKED = [(name, word) for name, (cells, words) in ODD.items() for word in dict.fromkeys((*cells, *words))]
"""What is asked of each column: every cell as it is written there, and the further words."""
SOME = [(name, word) for name, (cells, words) in ODD.items() for word in (cells[0], *words)]
LAST = [*dict(ASKED).items()]
PAIRS = [(name, *pair) for name, (cells, _) in ODD.items() for pair in [*pairwise(dict.fromkeys(cells))][:1]]
"""Less of it: the first cell and the further words, the last word, and a pair of cells."""

# ---------------------------------------------------------------- the expected side

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
CODE = re.compile(r"[+-]?(0[0-9]+|[0-9]{16,})")
COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
MISSING = {"", "n/a", "na", "nan", "#n/a", "null", "<na>"}
REFUSED = "refused"


def tidy(word: str) -> str:
    """Write a word with composed accents, letters of the usual width and single blanks inside."""
    usual = "".join(unicodedata.normalize("NFKC", c) if 0xFF00 < ord(c) < 0xFFEF else c for c in word)
    return " ".join(unicodedata.normalize("NFC", usual).split())


def read_words(cells: Iterable[str], missing: Iterable[str] = MISSING) -> pd.Series:
    """Words as they are meant, with gaps where nothing is; decimal commas are points."""
    words = pd.Series([tidy(cell) for cell in cells], dtype=object)
    words = words.mask(words.str.lower().isin([*missing]))
    rest = words[~words.str.lower().isin([".", "-", "none"])].dropna()
    if rest.str.fullmatch(COMMA).any() and not rest.str.fullmatch(r"[+-]?[0-9]{1,3},[0-9]{3}").all():
        rest = rest.str.replace(",", ".")
    return rest.reindex(words.index) if len(rest) and rest.str.fullmatch(NUMBER).all() else words


def read(cells: Iterable[str], missing: Iterable[str] = MISSING) -> pd.Series:
    """Numbers where all that is there is a number and none is a code, else words."""
    words = read_words(cells, missing)
    is_code = words.dropna().str.fullmatch(CODE).any()
    return words.astype(float) if words.dropna().str.fullmatch(NUMBER).all() and not is_code else words


def fold(word: str) -> float | str:
    """What spellings of a value have in common: the number, or the word without capitals."""
    is_number = NUMBER.fullmatch(word) and not CODE.fullmatch(word)
    return float(word) if is_number else word.casefold()


def equal(values: pd.Series, asked: str) -> pd.Series | str:
    """Who has the value that was asked for, unless a word is written in several ways."""
    same = values.map(lambda value: value if isinstance(value, float) else fold(value)) == fold(tidy(asked))
    return same if values[same].nunique() == 1 else REFUSED


def two_classes(values: pd.Series, positive: pd.Series | str) -> dict[int, int] | str:
    """Class of every row that has a value, if there are two classes."""
    if isinstance(positive, str) or positive[values.notna()].nunique() < 2:
        return REFUSED
    return positive[values.notna()].astype(int).to_dict()


def label_classes(values: pd.Series, patient: list[str], control: list[str]) -> dict[int, int] | str:
    """Label 1 or 0 of those in either class; a class that is not named is the one other value."""
    if not patient and not control:
        known = values.dtype == float and set(values.dropna()) == {0, 1}
        return two_classes(values, values == 1) if known else REFUSED
    found = [[equal(values, word) for word in words] for words in (patient, control)]
    if any(isinstance(same, str) for same in found[0] + found[1]):
        return REFUSED
    sides = [pd.concat(side, axis=1).any(axis=1) if side else None for side in found]
    for k in (0, 1):
        if sides[k] is None:
            sides[k] = values.notna() & ~sides[1 - k]
            if values[sides[k]].nunique() != 1:
                return REFUSED
    if (sides[0] & sides[1]).any():
        return REFUSED
    return two_classes(values.where(sides[0] | sides[1]), sides[0])


def alike(names: Iterable[str]) -> list[list[str]]:
    """Names that differ, but may well mean one site."""
    groups, latin = defaultdict(list), str.maketrans("авекмнорстухіѕј", "abekmhopctyxisj")
    for name in sorted(names):
        key: object = (
            float(name)
            if NUMBER.fullmatch(name) and len(name) < 16
            else unicodedata.normalize("NFKC", name).casefold().translate(latin)
        )
        if isinstance(key, str):
            key = re.sub(r"0*([0-9]+)", r"\1", re.sub(r"(?<![0-9])[\W_]+|[\W_]+(?![0-9])", "", key)) or name
        groups[key].append(name)
    return sorted(group for group in groups.values() if len(group) > 1)


SEXES = {
    "short": (("M", "F", "m", "f"), {}),
    "long": (("male", "Female", "MALE ", "female"), {}),
    "german": (("männlich", "weiblich", "Mann", "Frau"), {}),
    "french": (("homme", "femme", "Femme"), {}),
    "decomposed": (("ma\u0308nnlich", "weiblich"), {}),
    "wide": (("Ｍ", "Ｆ"), {}),
    "w": (("m", "w", "W"), {}),
    "gap": (("M", "", "F", "n/a"), {}),
    "unknown": (("M", "F", "diverse"), {}),
    "typing_error": (("male", "femal"), {}),
    "bare_codes": (("1", "2"), {}),
    "codes": (("1", "2"), {"male": "1", "female": "2"}),
    "other_codes": (("1", "2"), {"male": "2", "female": "1"}),
    "decimal_codes": (("1.0", "2.00", "1"), {"male": "1", "female": "2"}),
    "asked_decimal": (("1", "2"), {"male": "1.0", "female": "2e0"}),
    "asked_wide": (("1", "2"), {"male": "１", "female": "２"}),
    "further_code": (("1", "2", "9"), {"male": "1", "female": "2"}),
    "zero_code": (("0", "1"), {"male": "1", "female": "0"}),
    "half_told": (("1", "2"), {"male": "1"}),
    "own_words": (("boy", "girl"), {"male": "boy", "female": "girl"}),
    "own_capitals": (("Boy", "GIRL"), {"male": "boy", "female": "girl"}),
    "own_blanks": (("boy ", "girl\u00a0"), {"male": "boy", "female": " girl"}),
    "own_wide": (("boy", "girl"), {"male": "ｂｏｙ", "female": "girl"}),
    "swapped": (("M", "F"), {"male": "F", "female": "M"}),
    "same": (("M", "F"), {"male": "M", "female": "M"}),
    "same_number": (("1", "2"), {"male": "1", "female": "1.0"}),
    "absent": (("1", "2"), {"male": "1", "female": "3"}),
    "only_men": (("M", "male"), {}),
}
"""Cells of a column of sexes, and what ``--male`` and ``--female`` say of them."""
MEN, WOMEN = {"m", "male", "man", "männlich", "mann", "homme"}, {"f", "female", "w", "weiblich", "frau", "femme"}


def read_sexes(
    cells: Iterable[str], word: str = "", male: str | None = None, female: str | None = None
) -> dict[int, int] | str:
    """Who is male (1) and female (0), or else who is of the sex of a word (1) or not.

    Codes come before words, and numbers beside two codes mean nothing.
    """
    values, folded = read(cells), read_words(cells).str.casefold()
    meant = dict.fromkeys(MEN, 1) | dict.fromkeys(WOMEN, 0)
    sexes = folded.map(meant)
    for sex, code in ((1, male), (0, female)):
        if code is not None and isinstance(equal(values, code), str):
            return REFUSED
        sexes = sexes if code is None else sexes.mask(equal(values, code), sex)
    unclear = values.notna() & sexes.isna()
    if values.dtype == float and unclear.any() and not (male and female):
        return REFUSED
    if (male and female and fold(male) == fold(female)) or (not word and unclear.any() and values.dtype != float):
        return REFUSED
    known = values if word and values.dtype != float else sexes
    return two_classes(known, sexes == (meant[tidy(word).casefold()] if word else 1))


def own_files(ids: Iterable[str], stems: Iterable[str]) -> dict[str, list[str]]:
    """Files of everybody: each belongs to the longest id that begins its name and ends where a word ends."""
    files: dict[str, list[str]] = {name: [] for name in ids}
    for stem in stems:
        fits = [name for name in files if re.match(rf"{re.escape(tidy(name))}(?![^\W_])", tidy(stem))]
        if fits:
            files[max(fits, key=len)].append(stem)
    return files
