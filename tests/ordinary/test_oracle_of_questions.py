"""Every option that reads a column, on columns as people write them: who is in which class, at which site, left out."""

import functools
import itertools
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import (
    ASKED,
    IDS,
    LABELS,
    LAST,
    NUMBER,
    ODD,
    PAIRS,
    REFUSED,
    SEXES,
    SITES,
    SOME,
    TABLE,
    alike,
    equal,
    fold,
    label_classes,
    own_files,
    read,
    read_sexes,
    read_words,
    repeat,
    tidy,
    two_classes,
)

from brio import BrioError, Cohort
from brio.cohort import relabel
from brio.cohort.covariates import read_covariates
from brio.cohort.readers import import_cohort, select_scans
from brio.estimator import build_labelled_cohort

SCANS = np.random.default_rng(0).normal(size=(len(IDS), 9, 3)).astype(np.float32)
COLUMNS = list(ODD)


@functools.cache
def folder() -> tempfile.TemporaryDirectory:
    """Hold what the tests write."""
    return tempfile.TemporaryDirectory(prefix="brio-questions-")


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=folder().name))


def write_files(stems: Iterable[str] = IDS) -> Path:
    """Write one file a scan."""
    src = new_folder()
    for i, stem in enumerate(stems):
        np.save(src / f"{stem}.npy", SCANS[i])
    return src


def write_table(columns: Mapping[str, Sequence[str]], ids: Sequence[str] = IDS) -> Path:
    """Write a table, some of whose cells are quoted."""
    lines = ["\t".join(["participant_id", *columns])]
    for row in zip(ids, *columns.values(), strict=True):
        quoted = (f'"{cell.replace(chr(34), 2 * chr(34))}"' if {*cell} & {*"\", '"} else cell for cell in row)
        lines.append("\t".join(quoted))
    path = new_folder() / "table.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@functools.cache
def people() -> Path:
    """The files of all people."""
    return write_files()


@functools.cache
def table_of(column: str) -> Path:
    """A table of one odd column alone, which is read faster."""
    return write_table({"site": SITES, "label": LABELS, column: TABLE[column]})


def bring(src: Path, table: Path, **options: object) -> Cohort:
    return import_cohort("table", src, new_folder() / "out", participants=table, **options)


def bring_column(column: str, **options: object) -> Cohort:
    return bring(people(), table_of(column), **options)


@functools.cache
def imported(column: str = "") -> Cohort:
    """All people with one odd column, or with all."""
    return bring_column(column) if column else bring(people(), write_table({"site": SITES, "label": LABELS} | TABLE))


@functools.cache
def in_memory() -> Cohort:
    """The same people, whose cells nobody has read yet."""
    return make_cohort(covariates=pd.DataFrame(TABLE))


def make_cohort(**changes: object) -> Cohort:
    given = {"site": SITES, "label": [int(label) for label in LABELS], "participant_id": IDS} | changes
    return Cohort.from_scans([*SCANS], **given)


def ask(call: Callable[[], object], *errors: type[Exception]) -> object:
    """Return what a call answers, or that it is refused."""
    try:
        return call()
    except (BrioError, *errors):
        return REFUSED


def rows(cohort: Cohort, values: Iterable[object]) -> dict[int, object]:
    """Values by row of the table."""
    return dict(zip((IDS.index(name) for name in cohort.participant_ids), values, strict=True))


def answer(cohort: Cohort, question: str) -> object:
    def tell() -> dict[int, object]:
        asked = relabel(cohort, question, min_class=0)
        return rows(asked, asked.labels.tolist())

    return ask(tell)


@functools.cache
def read_column(column: str) -> pd.Series:
    return read(TABLE[column])


def read_quantities(cells: Sequence[str]) -> pd.Series | None:
    """Numbers of a column that is asked for numbers, where leading zeros are no code; None where there are words."""
    words = read_words(cells)
    numbers = words.astype(float) if words.dropna().str.fullmatch(NUMBER).all() else pd.Series([np.inf])
    return numbers if (numbers.dropna().abs() <= 1e6).all() else None


# ---------------------------------------------------------------- --label


@pytest.mark.parametrize(("column", "word"), ASKED)
def test_question_for_a_value(column, word):
    values = read_column(column)
    assert answer(imported(column), f"{column}={word}") == two_classes(values, equal(values, word))


@pytest.mark.parametrize(("column", "word"), [(c, w) for c, w in LAST if "missing" not in c and c != "commas"])
def test_question_for_a_value_in_memory(column, word):
    values = read(TABLE[column], missing=[""])
    assert answer(in_memory(), f"{column}={word}") == two_classes(values, equal(values, word))


@pytest.mark.parametrize("column", COLUMNS)
def test_question_for_a_column(column):
    values = read_column(column)
    words = sorted(values.dropna().unique())
    is_certain = len(words) == len({word if values.dtype == float else word.casefold() for word in words}) == 2
    assert answer(imported(), column) == (two_classes(values, values == words[1]) if is_certain else REFUSED)


LIMITS = [
    "1",
    "14.5",
    " 1e1",
    "-0.5",
    "１",
    "1_4",
    "14,5",
    "1/2",
    "0x1",
    "inf",
    "nan",
    "١",
    "2020-01-02",
    "1.0.",
    "one",
]


@pytest.mark.parametrize(
    ("column", "limit"), [(column, limit) for column in COLUMNS for limit in LIMITS[: None if column == "ages" else 2]]
)
def test_question_for_larger_numbers(column, limit):
    values = read_quantities(TABLE[column])
    is_asked = values is not None and NUMBER.fullmatch(tidy(limit))
    expected = two_classes(values, values > float(limit)) if is_asked else REFUSED
    assert answer(imported(column), f"{column}>{limit}") == expected


@pytest.mark.parametrize("column", COLUMNS)
def test_question_for_the_median_of_the_site(column):
    values = read_quantities(TABLE[column])
    expected = REFUSED if values is None else two_classes(values, values > values.groupby(SITES).transform("median"))
    assert answer(imported(column), f"{column}>site-median") == expected


TYPED = {
    "whole": ([1, 2], {"1": 1, "2.0": 2, "True": None}),
    "broken": ([1.5, np.nan, 2.0], {"1.50": 1.5, "2": 2.0, "nan": None}),
    "truth": ([True, False], {"True": True, "false": False, "1": None, "1.0": None}),
    "truth_and_gap": ([True, None, False], {"true": True, "0": None}),
    "category": (pd.Categorical(["a", "b ", "c"]).astype(object), {"B": "b ", "c": "c"}),
    "day": ([pd.Timestamp("2020-01-02"), pd.Timestamp("2021-03-04")], {"2020": None}),
    "mixture": ([1, "1 ", "x"], {"x": "x"}),
    "gaps": ([None, "a", pd.NA, "b", np.nan], {"A": "a", "None": None, "nan": None, "<NA>": None}),
}
"""Cells of Python, and which of them a word names."""


@pytest.mark.parametrize(("name", "word"), [(name, word) for name, (_, words) in TYPED.items() for word in words])
def test_question_for_a_value_of_python(name, word):
    cells, words = TYPED[name]
    values = pd.Series(repeat(cells), dtype=object)
    cohort = make_cohort(covariates=pd.DataFrame({name: values}))
    expected = REFUSED if words[word] is None else two_classes(values, values == words[word])
    assert answer(cohort, f"{name}={word}") == expected
    assert answer(cohort.save(new_folder() / "cohort"), f"{name}={word}") == expected


# ---------------------------------------------------------------- --label-column, --patient, --control


@pytest.mark.parametrize(
    ("column", "patient", "control"),
    [(column, [word], []) for column, word in SOME]
    + [(column, [], [word]) for column, word in LAST]
    + [(column, [one], [other]) for column, one, other in PAIRS]
    + [(column, [one, other], []) for column, one, other in PAIRS if len({*TABLE[column]}) > 2]
    + [(column, [], []) for column in COLUMNS],
)
def test_classes_of_an_import(column, patient, control):
    def tell() -> dict[int, object]:
        named = {"patient": patient, "control": control}
        options = {key: words[0] if len(words) == 1 else words for key, words in named.items() if words}
        cohort = bring_column(column, label_column=column, **options)
        assert {entry["participant_id"] for entry in cohort.provenance["skipped"]} == {*IDS} - {*cohort.ids}
        for name, words in zip(cohort.classes, (control, patient), strict=True):
            assert len(words) != 1 or fold(name) == fold(tidy(words[0])), "a class is called as the value that made it"
        return rows(cohort, cohort.labels.tolist())

    assert ask(tell) == label_classes(read_column(column), patient, control)


# ---------------------------------------------------------------- --site-column


@pytest.mark.parametrize("column", COLUMNS)
def test_sites_of_an_import(column):
    words = read_words(TABLE[column]).dropna()
    groups = alike(words.unique())

    def tell() -> tuple[dict[int, object], list[list[str]]]:
        cohort = bring_column(column, site_column=column)
        told = cohort.provenance.get("warnings", [])
        assert len(told) == len(groups), told
        reasons = {entry["participant_id"]: entry["reason"] for entry in cohort.provenance["skipped"]}
        assert {*reasons} == {*IDS} - {*cohort.ids}
        for name, reason in reasons.items():
            cell = tidy(TABLE[column][IDS.index(name)])
            assert f"'{cell}'" in reason or not cell.isalpha(), "a word that was taken for no site is named"
        seen = [group for group in groups if any(all(f"'{name}'" in text for name in group) for text in told)]
        return rows(cohort, cohort.sites.tolist()), seen

    has_both = len({LABELS[i] for i in words.index}) == 2
    assert ask(tell) == ((words.to_dict(), groups) if has_both else REFUSED)


@pytest.mark.parametrize("column", [c for c in COLUMNS if "missing" not in c and c != "commas"])
def test_sites_in_memory(column):
    expected = read_words(TABLE[column], missing=[]).to_dict()
    cohort = make_cohort(site=TABLE[column])
    assert rows(cohort, cohort.sites.tolist()) == expected
    labelled, _ = build_labelled_cohort([*SCANS], LABELS, np.array(TABLE[column], dtype=object))
    assert labelled.sites.tolist() == [*expected.values()]


@pytest.mark.parametrize("word", ["NA", "nan", "None", "null", "n/a", "<NA>", "N/A"])
def test_a_site_may_have_any_name_in_memory(word, tmp_path):
    sites = repeat(["S1", word])
    cohort = make_cohort(site=sites)
    saved = cohort.save(tmp_path / "cohort")
    assert cohort.sites.tolist() == saved.sites.tolist() == sites
    assert build_labelled_cohort([*SCANS], LABELS, np.array(sites))[0].sites.tolist() == sites


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT, "", " ", "\u00a0", "\u3000 "])
def test_a_missing_site_is_refused_in_memory(gap):
    sites = [gap, *SITES[1:]]
    assert ask(lambda: make_cohort(site=sites)) == REFUSED
    assert ask(lambda: build_labelled_cohort([*SCANS], LABELS, np.array(sites, dtype=object))) == REFUSED


# ---------------------------------------------------------------- --sex-column, --male, --female, --age-column


@pytest.mark.parametrize("name", SEXES)
def test_sexes_of_an_import(name):
    cells, codes = SEXES[name]
    table = write_table({"site": SITES, "label": LABELS, "who": repeat(cells)})
    cohort = ask(lambda: bring(people(), table, sex_column="who", **codes))
    for word in ("", "M", "male", "männlich", "Frau"):
        found = answer(cohort, f"sex={word}" if word else "sex") if isinstance(cohort, Cohort) else REFUSED
        assert found == read_sexes(repeat(cells), word, **codes), word


@pytest.mark.parametrize("word", ["diverse", "femal", "x"])
def test_a_sex_that_is_not_understood_is_told(word):
    table = write_table({"site": SITES, "label": LABELS, "sex": repeat(["M", "F", word])})
    assert any(f"'{word}'" in text for text in bring(people(), table).provenance.get("warnings", []))


@pytest.mark.parametrize("column", COLUMNS)
def test_ages_of_an_import(column):
    values = read_quantities(TABLE[column])
    expected = values.tolist() if values is not None and values.notna().all() else REFUSED
    found = ask(lambda: read_covariates(bring_column(column, age_column=column), ["age"], "it").ravel().tolist())
    assert found == expected


# ---------------------------------------------------------------- --where, --exclude


def select(condition: str, cohort: Cohort | None = None) -> object:
    def tell() -> set[int]:
        selected, _ = select_scans(cohort or imported(), condition, None)
        return {*rows(selected, selected.ids)}

    return ask(tell)


def quote(word: str) -> str:
    return f'"{word}"' if '"' not in word else f"'{word}'"


def kept(found: pd.Series | str, needs_both: bool = False) -> object:
    """Rows that stay; none, or for an import those of one class, are too few."""
    is_enough = not isinstance(found, str) and found.any()
    if needs_both and is_enough:
        is_enough = len({LABELS[i] for i in found.index[found]}) == 2
    return {*found.index[found]} if is_enough else REFUSED


@pytest.mark.parametrize(("column", "word"), SOME)
def test_condition_on_a_value(column, word):
    values, text, choose = read_column(column), quote(word), functools.partial(select, cohort=imported(column))
    same = REFUSED if values.dtype == float else equal(values, word)
    assert choose(f"{column} == {text}") == kept(same)
    assert choose(f"{column} in [{text}, 'absent']") == kept(same)
    if not isinstance(same, str):
        for condition in (f"{column} != {text}", f"not {column} == {text}", f"{column} not in [{text}]"):
            assert choose(condition) == kept(values.notna() & ~same), condition


@pytest.mark.parametrize(("column", "word"), LAST)
def test_condition_of_an_import(column, word):
    values = read_column(column)
    is_number = values.dtype == float and values.notna().any()
    literal = repr(values.dropna().iloc[0]) if is_number else quote(word)
    same = equal(values, literal if is_number else word)
    found = ask(lambda: {*rows(cohort := bring_column(column, where=f"{column} == {literal}"), cohort.ids)})
    assert found == kept(same, needs_both=True)


@pytest.mark.parametrize("column", COLUMNS)
def test_condition_on_a_number(column):
    values = read_column(column)
    is_number = values.dtype == float and values.notna().any()
    for number, sign in itertools.product((1, 14.5, 10.0), ("==", ">", "<=")):
        found = values.to_frame("x").eval(f"x {sign} {number}") if is_number else REFUSED
        assert select(f"{column} {sign} {number}", imported(column)) == kept(found), (sign, number)


AMBIGUOUS = [
    "1 < 2 < ages",
    "(ages > 15) == (numbers > 1)",
    "(ages > 15) > 0",
    "ages > 15 == True",
    "ages == True",
    "plain == ['left', 'right']",
    "plain == ('left', 'right')",
    "'left' in plain",
    "plain in three",
    "plain not in three",
    "plain in ['left', 1]",
    "ages in [9, 'nine']",
    "ages in 9",
    "plain in 'left'",
    "9 < ages in [31, 60]",
    "plain == 'left' == 'left'",
    "plain == three == 'left'",
    "ages",
    "not ages",
    "-ages > 3",
    "ages > -plain",
    "ages > 1_4",
    "ages > 14,5",
    "ages > 0x1",
    "ages > 1j",
    "ages > None",
    "ages is 9",
    "plain is 'left'",
    "ages == 9 or 31",
    "plain == 'left' or 'right'",
    "True",
    "1 < 2",
    "ages > '9'",
    "plain > 'left'",
    "plain == 1",
    "ages + 1 > 3",
    "ages > 1e999",
    "plain == 'nowhere'",
    "plain in ['nowhere', 'elsewhere']",
    "plain in []",
    "case == 'left'",
    "case != 'Left'",
    "case in ['right', 'LEFT']",
]


@pytest.mark.parametrize("condition", AMBIGUOUS)
def test_condition_that_may_be_read_in_two_ways(condition):
    assert select(condition) == REFUSED


def compare(form: str, *parts: Iterable[str]) -> st.SearchStrategy[str]:
    return st.builds(form.format, *map(st.sampled_from, parts))


NUMERIC, WORDED = ("ages", "numbers", "dots_missing"), ("plain", "three", "missing")
COMPARISONS = st.one_of(
    compare("{} {} {}", NUMERIC, ("<", "<=", ">", ">=", "==", "!="), ("1", "9.0", "14.5", "2e1", "-1")),
    compare("{} < ages <= {}", ("0", "9"), ("14.5", "31", "60")),
    compare("{} {} {}", WORDED, ("==", "!="), ("'left'", '"right"')),
    compare("{} {} [{}]", WORDED, ("in", "not in"), ("'left'", "'left', 'right'", "'right',")),
    compare("ages {} [9, 31.0]", ("in", "not in")),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda part: st.one_of(
        st.builds("{} and {}".format, part, part),
        st.builds("{} or {}".format, part, part),
        st.builds("({})".format, part),
        st.builds("not {}".format, part),
        st.builds("not ({})".format, part),
    ),
    max_leaves=5,
)


@hypothesis.settings(max_examples=40, phases=[hypothesis.Phase.generate])
@given(CONDITIONS)
def test_condition_means_what_python_means(condition):
    used = [*{*re.findall("[a-z_]+", condition)} & {*COLUMNS}]
    table = pd.DataFrame({name: read(TABLE[name]) for name in used}).dropna()
    python = pd.Series([eval(condition, {}, row) for row in table.to_dict("records")], index=table.index)
    pd.testing.assert_series_equal(python, table.eval(condition, engine="python"), check_names=False)
    assert select(condition) == kept(python)


# ---------------------------------------------------------------- --id-column, --exclude, --session-column


LEAVE_OUT = {
    "nobody": {},
    "a condition": {"where": "age < 50"},
    "a list": {"exclude": "p0-2\n"},
    "no label": {"label_column": "dx", "patient": "1", "control": "0"},
    "another group": {"label_column": "group", "patient": "1", "control": "0"},
    "no site": {"site_column": "centre"},
}
LIKE = ["p0", "p0-2", "p0-2-3", "p1", "p10"]
FILES = [files for n in range(4) for files in itertools.combinations(["p0", "p0-2", "p0-2-3"], n)]
FILES += [("p0_rest",), ("p0_a", "p0_b"), ("p0", "p0_b"), ("p0-2_a", "p0-2_b"), ("p0-9",), ("p00",), ("p0-2rest",)]


def add_option(options: dict[str, object]) -> dict[str, object]:
    """Write the list that an option names."""
    if "exclude" in options:
        path = new_folder() / "list.txt"
        path.write_text(str(options["exclude"]), encoding="utf-8")
        options = options | {"exclude": path}
    return options


@pytest.mark.parametrize("files", FILES, ids="+".join)
@pytest.mark.parametrize("how", LEAVE_OUT)
def test_files_of_ids_that_contain_ids(files, how):
    stems = [*files, "p1_rest", "p10"]
    out = {"p0-2"} if how != "nobody" else set()
    columns = {"site": list("ABABA"), "label": list("01101"), "age": ["20", "90", "20", "20", "20"]}
    columns |= {"dx": ["0", "", *"101"], "group": ["0", "7", *"101"], "centre": ["A", "", *"BAB"]}
    table = write_table(columns, LIKE)

    def tell() -> dict[str, str]:
        cohort = bring(write_files(stems), table, **add_option(LEAVE_OUT[how]))
        return dict(zip(map(str, cohort.ids), tell_files(cohort, stems), strict=True))

    own = {name: theirs for name, theirs in own_files(LIKE, stems).items() if name not in out}
    own = {name: [name] if name in theirs else theirs for name, theirs in own.items()}
    several = any(len(theirs) > 1 for theirs in own.values())
    assert ask(tell) == (REFUSED if several else {name: theirs[0] for name, theirs in own.items() if theirs})


def tell_files(cohort: Cohort, stems: Sequence[str]) -> list[str]:
    """Which file was read as each scan."""
    return [stems[(cohort.scan(i) == SCANS).all(axis=(1, 2)).argmax()] for i in range(len(cohort))]


NAMES = {name: [*dict.fromkeys(cells)] for name, (cells, _) in ODD.items() if "missing" not in name}
NAMES = {name: cells for name, cells in NAMES.items() if not {*"/"} & {*"".join(cells)}}


@pytest.mark.parametrize("name", NAMES)
def test_ids_of_an_import(name):
    ids, words = [*NAMES[name], "anchor 1", "anchor 2"], [tidy(cell) for cell in [*NAMES[name], "anchor 1", "anchor 2"]]
    is_one = len({*words}) < len(words)
    files = [word for i, word in enumerate(words) if word.casefold() not in {w.casefold() for w in words[:i]}]
    columns = {"who": ids, "site": repeat("ABB")[: len(ids)], "label": ["1"] * (len(ids) - 1) + ["0"]}

    def tell() -> dict[str, str]:
        cohort = bring(write_files(files), write_table(columns, IDS[: len(ids)]), id_column="who")
        return dict(zip(map(tidy, cohort.ids), tell_files(cohort, files), strict=True))

    own = {word: theirs[0] for word, theirs in own_files(words, files).items() if theirs}
    assert ask(tell) == (REFUSED if is_one else own)


WRITTEN = {
    "as it is": ("p0", "p0"),
    "decomposed": ("Zo\u0308e", "Z\u00f6e"),
    "composed": ("Z\u00f6e", "Zo\u0308e"),
    "unbroken": ("Ann\u00a0B", "Ann B"),
    "two blanks": ("Ann  B", "Ann B"),
    "trailing": ("Ann\u00a0", "Ann"),
    "wide": ("ＡＢ", "AB"),
    "zeros": ("007", "007"),
    "lookalike": ("А1", "A1"),
    "capitals": ("ann", "Ann"),
    "fewer zeros": ("7", "007"),
    "decimal": ("7.0", "7"),
    "wildcard": ("a*", "ab"),
    "longer": ("p1", "p11"),
}
"""An id in a table and the name of a file, or an id in a list."""
UNLIKE = ("lookalike", "capitals", "fewer zeros", "decimal", "wildcard", "longer")


@pytest.mark.parametrize("name", WRITTEN)
def test_id_and_file_in_other_spellings(name):
    one, other = WRITTEN[name]
    table = write_table({"site": list("ABA"), "label": list("001")}, [one, "x", "y"])
    cohort = bring(write_files([other, "x", "y"]), table)
    expected = ["x", "y"] if name in UNLIKE else [tidy(one), "x", "y"]
    assert [tidy(found) for found in cohort.ids] == expected
    for i, k in enumerate([1, 2] if name in UNLIKE else [0, 1, 2]):
        np.testing.assert_array_equal(cohort.scan(i), SCANS[k])


@pytest.mark.parametrize("name", WRITTEN)
def test_list_of_ids_in_other_spellings(name):
    one, other = WRITTEN[name]
    table = write_table({"site": list("ABAB"), "label": list("0011")}, [one, "x", "y", "z"])
    files = write_files([one.strip(), "x", "y", "z"])
    for text in (f"{other}\nz\n", f"participant_id,reason\n{other},moved\nz,\n"):
        options = add_option({"exclude": text})
        for found in (bring(files, table, **options), select_scans(bring(files, table), None, options["exclude"])[0]):
            assert [tidy(left) for left in found.ids] == ([tidy(one)] if name in UNLIKE else []) + ["x", "y"]


@pytest.mark.parametrize(
    ("ids", "line", "out"),
    [
        (["1", "sub-1"], "1", "1"),
        (["1", "sub-1"], "sub-1", "sub-1"),
        (["sub-1", "sub-10"], "1", "sub-1"),
        (["1", "10"], "sub-1", "1"),
    ],
)
def test_list_with_and_without_the_prefix_of_bids(ids, line, out):
    everybody = [*ids, "x", "y"]
    table = write_table({"site": list("ABAB"), "label": list("0101")}, everybody)
    left = bring(write_files(everybody), table, **add_option({"exclude": line})).ids
    assert {*left} == {*everybody} - {out}


@pytest.mark.parametrize("name", WRITTEN)
def test_two_spellings_of_one_id(name):
    one, other = WRITTEN[name]
    is_one = tidy(one) == tidy(other)
    table = write_table({"site": list("ABAB"), "label": list("0011"), "who": [one, other, "y", "z"]}, list("abcd"))
    found = ask(lambda: len(bring(write_files([one.strip(), *({other} - {one}), "y", "z"]), table, id_column="who")))
    assert found == (REFUSED if is_one else 4)
    found = ask(lambda: len(make_cohort(participant_id=[one, other, *map("q{}".format, range(10))])))
    assert found == (REFUSED if is_one else len(IDS))


SESSIONS = {
    "numbers": (["1", "2"], ["ses-1", "ses-2"]),
    "prefix": (["ses-1", "ses-2"], ["ses-1", "ses-2"]),
    "zeros": (["01", "02"], ["ses-01", "ses-02"]),
    "decimals": (["1.0", "2.0"], ["ses-1", "ses-2"]),
    "wide": (["１", "２"], ["ses-1", "ses-2"]),
    "words": (["pre", "post"], ["ses-pre", "ses-post"]),
    "blanks": (["pre ", "post\u00a0"], ["pre", "post"]),
    "begun alike": (["1", "10"], ["ses-1", "ses-10"]),
    "hyphen": (["1", "2"], ["1", "2"]),
    "one file": (["1", "2"], ["ses-2"]),
    "same": (["1", "1"], ["ses-1", "ses-2"]),
    "same but for blanks": (["pre", "pre "], ["ses-pre", "ses-post"]),
    "same but for width": (["1", "１"], ["ses-1", "ses-2"]),
}
"""Sessions of one participant in a table, and the files of these sessions."""


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_of_an_import(name):
    sessions, files = SESSIONS[name]
    stems = [*(f"p0_{file}" for file in files), "p1", "p2"]
    columns = {"site": list("AABA"), "label": list("0001"), "visit": [*sessions, "1", "1"]}
    table = write_table(columns, ["p0", "p0", "p1", "p2"])

    def tell() -> list[tuple[str, str]]:
        cohort = bring(write_files(stems), table, session_column="visit", sessions="all")
        return [*zip(cohort.participant_ids.tolist(), tell_files(cohort, stems), strict=True)]

    assert ask(tell) == (REFUSED if "same" in name else [(stem.split("_")[0], stem) for stem in stems])


HEADERS = {
    "nothing": None,
    "names": ["left", "right", "mid"],
    "from 0": ["0", "1", "2"],
    "from 1": ["1", "2", "3"],
    "codes": ["2001", "2002", "2101"],
    "codes in any order": ["4112", "2001", "7"],
    "decimals": ["1.0", "2.0", "3.0"],
    "zeros": ["001", "002", "003"],
    "names and numbers": ["7", "left", "9"],
    "strides": ["10", "20", "30"],
}
VALUES = {
    "decimals": lambda rng: np.round(rng.normal(size=(20, 3)), 3),
    "whole": lambda rng: rng.integers(-9, 9, size=(20, 3)),
    "counts": lambda rng: rng.integers(1000, 9000, size=(20, 3)),
    "constant first row": lambda rng: np.vstack([[0, 0, 0], rng.integers(1, 9, size=(19, 3))]),
}
"""Header of all files of a folder, and what is below it."""


# a first row of zeros that all files share would be a header
FILED = [(*case, i) for case in itertools.product(HEADERS, VALUES) for i in (False, True)]
FILED = [(h, v, i) for h, v, i in FILED if h != "nothing" or not (i or v == "constant first row")]


@pytest.mark.parametrize(("header", "below", "index"), FILED)
def test_header_of_files(header, below, index):
    src, rng, frames = new_folder(), np.random.default_rng(3), {}
    for name in IDS[:4]:
        frames[name] = VALUES[below](rng)
        columns = HEADERS[header] or range(3)
        pd.DataFrame(frames[name], columns=columns).to_csv(src / f"{name}.csv", index=index, header=header != "nothing")
    cohort = ask(lambda: bring(src, write_table({"site": list("ABAB"), "label": list("0011")}, IDS[:4])))
    if cohort == REFUSED and header == "names and numbers":
        return
    for i, name in enumerate(cohort.ids):
        np.testing.assert_array_equal(cohort.scan(i), frames[name].astype(np.float32))
    named = header in ("names", "names and numbers", "codes", "codes in any order", "strides")
    assert not named or cohort.atlas.rois["name"].tolist() == HEADERS[header]


# ---------------------------------------------------------------- the estimator, and cohorts in memory


TWO = [("a", "b"), ("HC", "MDD"), (0, 1), (1, 2), (0.0, 1.0), (True, False), ("0", "1"), ("b", "a"), ("01", "1")]
TWO += [("А", "A"), ("1", "x")]
NOT_TWO = [("left", "Left"), ("left", "left "), ("left", "\u00a0left"), ("Z\u00f6e", "Zo\u0308e"), ("AB", "ＡＢ")]
NOT_TWO += [("1", "1.0"), ("a", "b", "c"), ("asd", "ASD", "tc"), ("asd", "asd ", "tc"), (0, 1, 2), ("a",), (0, np.nan)]
NOT_TWO += [(0.5, 1.5), (None, "a"), ("", "a")]


@pytest.mark.parametrize("labels", [*TWO, *NOT_TWO], ids=repr)
def test_labels_of_the_estimator(labels):
    y = np.array(repeat(labels))
    expected = (y == max(labels)).astype(int).tolist() if labels in TWO else REFUSED
    assert ask(lambda: build_labelled_cohort([*SCANS], y, SITES)[0].labels.tolist(), ValueError) == expected


TRUTHS = [(0, 1), (False, True), (0.0, 1.0), ("0", "1"), ("0.0", "1"), ("0 ", "\u00a01"), ("０", "１")]
UNCLEAR = [(0, 2), (0, 0), (0, 0.5), (0, None), (0, np.nan), ("0", ""), ("0", "1_0"), ("0", "١"), ("no", "yes")]


@pytest.mark.parametrize("labels", [*TRUTHS, *UNCLEAR], ids=repr)
def test_labels_in_memory(labels):
    expected = repeat([0, 1]) if labels in TRUTHS else REFUSED
    assert ask(lambda: make_cohort(label=repeat(labels)).labels.tolist()) == expected


ONE_NAME = [
    ("HC", "HC"),
    ("HC", "hc"),
    ("HC", "HC "),
    ("Z\u00f6e", "Zo\u0308e"),
    ("AB", "ＡＢ"),
    ("1", "1.0"),
    ("", "x"),
]


@pytest.mark.parametrize("classes", ONE_NAME)
def test_names_of_classes_that_are_one(classes):
    assert ask(lambda: make_cohort(classes=classes)) == REFUSED


# ---------------------------------------------------------------- what is certain changes nothing


DRESSED = st.sampled_from([
    str, lambda w: f" {w}", lambda w: f"{w}\u00a0", lambda w: f"\u3000{w} ", lambda w: w.replace(" ", "\u2003 "),
    lambda w: unicodedata.normalize("NFD", w), lambda w: unicodedata.normalize("NFC", w),
    lambda w: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in w),
])  # fmt: skip
WORDS = st.sampled_from(["Zürich", "St. Mary", "1", "01", "x2", "A b c"])


@hypothesis.settings(max_examples=8, phases=[hypothesis.Phase.generate])
@given(st.lists(st.tuples(WORDS, DRESSED), min_size=len(IDS), max_size=len(IDS)), st.permutations(range(len(IDS))))
def test_forms_of_a_word_and_order_change_no_answer(cells, order):
    words, dressed = [word for word, _ in cells], [dress(word) for word, dress in cells]
    plain = make_cohort(site=words, covariates=pd.DataFrame({"x": words}))
    odd = make_cohort(site=dressed, covariates=pd.DataFrame({"x": dressed}))
    assert odd.fingerprint == plain.fingerprint
    again = make_cohort(site=odd.sites, covariates=odd.participants[["x"]])
    assert again.fingerprint == odd.fingerprint, "reading what was read changes nothing"
    ids, label, site = ([given[i] for i in order] for given in (IDS, [int(label) for label in LABELS], dressed))
    moved = make_cohort(
        participant_id=ids, label=label, site=site, covariates=pd.DataFrame({"x": [dressed[i] for i in order]})
    )
    for word in {*words}:
        assert answer(odd, f"x={word}") == answer(plain, f"x={word}") == answer(moved, f"x={word}")
    assert select(f"x == '{words[0]}'", odd) == select(f"x == '{words[0]}'", moved)
