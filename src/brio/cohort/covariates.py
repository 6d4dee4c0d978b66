"""Age, sex and motion of participants, names of the classes, and questions that are asked in place of the diagnosis."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..errors import BrioError, nearest
from ..formatting import format_count
from .cohort import FORMER_LABEL, REQUIRED_COLUMNS, TEXT_COLUMNS, Cohort, find_filled
from .scans import index_participants, require_repetition_time

# Column of the participants table for each covariate.
COVARIATE_COLUMNS = {"sex": "sex", "age": "age", "motion": "mean_fd"}

# How a sex may be written, in lower case, and its number.
SEX_CODES = {"f": 0.0, "female": 0.0, "w": 0.0, "woman": 0.0, "m": 1.0, "male": 1.0, "man": 1.0}
_MAY_BE_MISSING = {"motion"}
LARGEST_COVARIATE = 1e6  # largest age or motion, in whatever unit, that is taken for one


def read_covariates(cohort: Cohort, names: Sequence[str], requester: str) -> np.ndarray:
    """Read covariates as numbers.

    Shapes: returns [N, C].

    Returns sex is 0 (female) or 1 (male). Motion may have gaps (NaN), which a method fills from its source scans.
    """
    if not names:
        return np.zeros((len(cohort), 0))
    return np.stack([_read_column(cohort, name, requester) for name in names], axis=1)


def _read_column(cohort: Cohort, name: str, requester: str) -> np.ndarray:
    column = COVARIATE_COLUMNS[name]
    if column not in cohort.participants:
        raise BrioError(
            f"{requester} needs the {name} of every participant; the cohort '{cohort.name}' has no column '{column}': "
            "add it to the participants table and import again"
        )
    if column == cohort.label_covariate:
        raise BrioError(
            f"{requester} needs the {name} of every participant, but the labels of cohort '{cohort.name}' are made of "
            "it: it would be given the answer; leave it out"
        )
    values = cohort.participants[column]
    if name == "sex":
        text = values.astype("string").str.strip().str.lower()
        numbers = text.map(SEX_CODES).astype(float)
        unknown = text.notna() & numbers.isna()
        if unknown.any():
            raise BrioError(
                f"{requester}: sex of participant {cohort.ids[unknown.to_numpy()][0]} is '{values[unknown].iloc[0]}'; "
                "write F and M, then import again"
            )
    else:
        numbers = pd.to_numeric(values, errors="coerce").astype(float)
        # neither text that is no number nor an infinite value is a missing one
        unusable = (values.notna() & ~(numbers.abs() <= LARGEST_COVARIATE)).to_numpy()
        if unusable.any():
            raise BrioError(
                f"{requester}: {name} of participant {cohort.ids[unusable][0]} is '{values[unusable].iloc[0]}' in the "
                f"column '{column}'; write a number, or leave the cell empty, then import again"
            )
    array = numbers.to_numpy(dtype=float)
    missing = np.isnan(array)
    if missing.all() or (missing.any() and name not in _MAY_BE_MISSING):
        raise BrioError(
            f"{requester} needs the {name} of every participant; {int(missing.sum())} of {len(array)} have none "
            f"(the first is {cohort.ids[missing][0]}): fill the column '{column}' or leave them out"
        )
    return array


def read_repetition_times(cohort: Cohort, requester: str) -> np.ndarray:
    """Read the repetition time of each scan.

    Shapes: returns [N].
    """
    if "tr" not in cohort.participants:
        raise BrioError(
            f"{requester} resamples BOLD to one clock and needs the repetition time; the cohort '{cohort.name}' has no "
            "column 'tr' (seconds): add it and import again, or give --set bold_tr=none to use the frames as they are"
        )
    tr = pd.to_numeric(cohort.participants["tr"], errors="coerce").to_numpy(dtype=float)
    if not (tr > 0).all():
        raise BrioError(
            f"{requester} needs the repetition time of every scan; participant {cohort.ids[~(tr > 0)][0]} has none in "
            "the column 'tr' (seconds): fill it, or give --set bold_tr=none to use the frames as they are"
        )
    for name, seconds in zip(cohort.ids, tr.tolist(), strict=True):
        require_repetition_time(seconds, f"{requester}: the repetition time (column 'tr') of participant {name}")
    return tr


def read_hemispheres(cohort: Cohort, requester: str) -> np.ndarray:
    """Read the hemisphere of each ROI.

    It is taken from the column ``hemi`` of the atlas (L, R, anything else is midline), else from the sign of the
    coordinate ``x``.

    Shapes: returns [P].
    """
    rois = cohort.atlas.rois
    if "hemi" in rois:
        side = rois["hemi"].astype(str).str.upper().map({"L": -1, "R": 1}).fillna(0).to_numpy(dtype=np.int64)
    elif "x" in rois:
        side = np.sign(rois["x"].to_numpy(dtype=float).round(1)).astype(np.int64)
    else:
        raise BrioError(
            f"{requester} needs the hemisphere of each ROI; the atlas '{cohort.atlas.name}' has neither a column "
            "'hemi' nor 'x': import with an atlas table that has one"
        )
    if not ((side < 0).sum() >= 2 and (side > 0).sum() >= 2):
        raise BrioError(
            f"{requester} needs two ROIs or more of each hemisphere, which atlas '{cohort.atlas.name}' has not"
        )
    return side


_PEOPLE = ("patient", "control", "case")  # names that are words for people; others are labels


@dataclass(frozen=True)
class ClassNames:
    """The names of both classes."""

    negative: str = "control"  # of label 0 and label 1
    positive: str = "patient"

    @property
    def positives(self) -> str:
        """What participants of the positive class are called."""
        return f"{self.positive}s" if self.positive in _PEOPLE else f"participants labelled {self.positive}"

    @property
    def negatives(self) -> str:
        """What participants of the negative class are called."""
        return ClassNames(positive=self.negative).positives

    @property
    def are_positive(self) -> str:
        """What completes "where half are ..."."""
        return self.positives.removeprefix("participants ")

    @property
    def are_negative(self) -> str:
        """What completes "where half are ...", of the negative class."""
        return self.negatives.removeprefix("participants ")

    @property
    def pair(self) -> str:
        """What a pair of both classes is called."""
        if self.positive in _PEOPLE and self.negative in _PEOPLE:
            return f"a {self.positive} and a {self.negative}"
        return f"a participant labelled {self.positive} and one labelled {self.negative}"

    @property
    def are_sexes(self) -> bool:
        """Whether the names are those of the sexes."""
        codes = {SEX_CODES.get(name.strip().lower()) for name in (self.negative, self.positive)}
        return len(codes) == 2 and None not in codes


SITE_MEDIAN = "site-median"
_QUESTION = re.compile(r"\s*([^<>=]+?)\s*(?:([>=])\s*([^<>=]+?)\s*)?")
_FORMS = f"write COLUMN, COLUMN=VALUE, COLUMN>NUMBER or COLUMN>{SITE_MEDIAN}"
_MOST_SHOWN = 5


def relabel(cohort: Cohort, question: str, min_class: int = 5) -> Cohort:
    """Return the same scans under labels that answer another question."""
    match = _QUESTION.fullmatch(question)
    if match is None:
        raise BrioError(f"the question '{question}' cannot be read; {_FORMS}")
    column, sign, asked = match.groups()
    reserved = {*REQUIRED_COLUMNS, *TEXT_COLUMNS, "n_frames"}
    offered = [str(name) for name in cohort.participants.columns if name not in reserved]
    if column in reserved:
        why = "it names scans or sites, or is the cohort's own label"
        raise BrioError(f"the column '{column}' cannot be a question: {why}")
    if column not in offered:
        hint = nearest(column, offered) if offered else "it has no covariates: add one to the table and import again"
        raise BrioError(f"the participants table of cohort '{cohort.name}' has no column '{column}' to ask for; {hint}")
    first, member = index_participants(cohort.participant_ids)
    filled = find_filled(cohort.participants, column)
    filled &= (cohort.participants[column].astype(str).str.strip() != "").to_numpy()
    values = cohort.participants[column][filled].groupby(member[filled]).first().reindex(range(len(first)))
    sites = cohort.sites[first]
    if sign == ">":
        label, classes = _compare_numbers(column, values, asked, sites, cohort.participant_ids[first])
    else:
        label, classes = _compare_values(column, values, asked)
    known = label >= 0
    for k, name in enumerate(classes):
        if not (label == k).any():
            raise BrioError(
                f"the question '{question}' leaves one class: none of the {known.sum()} participants of cohort "
                f"'{cohort.name}' with a value of '{column}' is '{name}'; ask another one"
            )
    small = [
        s for s in np.unique(sites[known]) if min(np.bincount(label[known & (sites == s)], minlength=2)) < min_class
    ]
    used = known & ~np.isin(sites, small)
    if not used.any():
        raise BrioError(
            f"the question '{question}' leaves no site of cohort '{cohort.name}' with {min_class} participants of each "
            "class; ask another one, or allow fewer with --set audit.min_class=N"
        )
    scans = np.flatnonzero(used[member])
    table = cohort.participants.iloc[scans].reset_index(drop=True)
    if cohort.labelled.all() and "label" in table:
        table[FORMER_LABEL] = [cohort.classes[k] for k in table["label"]]
    table["label"] = label[member][scans].astype(np.int64)
    text = f"{column}{sign or ''}{asked or ''}"
    asks = {
        "question": text,
        "column": column,
        "without_value": int((~known).sum()),
        "small_sites": [str(site) for site in small],
        "at_small_sites": int((known & ~used).sum()),
        "min_class": min_class,
    }
    digest = hashlib.sha256("\n".join([cohort.fingerprint, text, *classes, *cohort.ids[scans]]).encode())
    digest.update(table["label"].to_numpy().astype("<i8").tobytes())
    return replace(
        cohort,
        name=f"{cohort.name} ({text})",
        participants=table,
        starts=cohort.starts[scans],
        n_frames=cohort.n_frames[scans],
        classes=classes,
        provenance=cohort.provenance | {"label": asks},
        fingerprint=digest.hexdigest(),
        path=None,
    )


def describe_question(cohort: Cohort) -> str:
    """Say in a sentence what a cohort of :func:`relabel` asks, and who is left out; empty for any other cohort."""
    asks = cohort.provenance.get("label")
    if not isinstance(asks, dict):
        return ""
    first, _ = index_participants(cohort.participant_ids)
    counts = np.bincount(cohort.labels[first], minlength=2)
    parts = [f"{name} ({n} participants)" for name, n in zip(cohort.classes, counts, strict=True)]
    sentence = f"labels: {parts[1]} or {parts[0]}"
    left_out = []
    if asks["without_value"]:
        left_out.append(f"{format_count(asks['without_value'], 'participant')} without {asks['column']}")
    if asks["small_sites"]:
        left_out.append(
            f"{format_count(asks['at_small_sites'], 'participant')} of sites with fewer than {asks['min_class']} of a "
            f"class ({', '.join(asks['small_sites'])})"
        )
    sentence += f"; left out: {' and '.join(left_out)}" if left_out else ""
    if asks["question"].endswith(SITE_MEDIAN):
        sentence += "; the median of a site is that of all its participants: it defines the label and is not learned"
    return sentence


def _compare_numbers(
    column: str, values: pd.Series, asked: str, sites: np.ndarray, participants: np.ndarray
) -> tuple[np.ndarray, tuple[str, str]]:
    """Label 1 above a number or the median of the own site, 0 up to it, -1 without a value."""
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    unusable = (values.notna() & ~(numbers.abs() <= LARGEST_COVARIATE)).to_numpy()
    if unusable.any():
        raise BrioError(
            f"'{column}' of participant {participants[unusable][0]} is '{values[unusable].iloc[0]}', which is not a "
            f"number to compare; ask '{column}={values[unusable].iloc[0]}', or correct the table and import again"
        )
    if asked == SITE_MEDIAN:
        limit, name = numbers.groupby(sites).transform("median"), "site median"
    else:
        try:
            limit, name = float(asked), asked
        except ValueError:
            raise BrioError(f"'{asked}' is not a number; write '{column}>NUMBER' or '{column}>{SITE_MEDIAN}'") from None
    label = np.where(numbers.notna(), numbers > limit, -1).astype(np.int64)
    return label, (f"{column} up to {name}", f"{column} above {name}")


def _compare_values(column: str, values: pd.Series, asked: str | None) -> tuple[np.ndarray, tuple[str, str]]:
    """Label 1 for a value and 0 for others, or 0 and 1 for the two values of a column; -1 without a value."""
    text = values.map(_write_value, na_action="ignore").astype(object)
    if column == "sex" and asked is None:
        codes = text.str.lower().map(SEX_CODES)
        unknown = text.notna() & codes.isna()
        if unknown.any():
            raise BrioError(f"a sex is written '{text[unknown].iloc[0]}'; write F and M, then import again")
        return codes.fillna(-1).to_numpy(dtype=np.int64), ("F", "M")
    distinct = sorted(set(text.dropna()))
    if asked is None:
        if len(distinct) != 2:
            raise BrioError(
                f"the column '{column}' has {format_count(len(distinct), 'value')} ({_list_some(distinct)}), and a "
                f"question needs two; ask '{column}=VALUE', '{column}>NUMBER' or '{column}>{SITE_MEDIAN}'"
            )
        one, classes = distinct[1], (f"{column} {distinct[0]}", f"{column} {distinct[1]}")
    else:
        found = [value for value in distinct if value.casefold() == _write_value(asked).casefold()]
        if not found:
            raise BrioError(f"no participant has the value '{asked}' of '{column}'; it holds {_list_some(distinct)}")
        one, classes = found[0], (f"{column} other than {found[0]}", f"{column} {found[0]}")
    return np.where(text.notna(), text == one, -1).astype(np.int64), classes


def _write_value(value: object) -> str:
    """Write a value as people do: a whole number without decimals, text without blanks around it."""
    try:
        number = float(str(value))
    except ValueError:
        return str(value).strip()
    return str(int(number)) if number.is_integer() else repr(number)


def _list_some(values: Iterable[str]) -> str:
    shown = list(values)
    return ", ".join(shown[:_MOST_SHOWN]) + (", …" if len(shown) > _MOST_SHOWN else "")
