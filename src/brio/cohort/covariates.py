"""Age, sex and motion of participants, names of the classes, and questions that replace the diagnosis."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..errors import BrioError, nearest
from ..formatting import format_count
from .cohort import FORMER_LABEL, LABEL_VALUES, REQUIRED_COLUMNS, TEXT_COLUMNS, UNNAMED_CLASSES, Cohort, find_filled
from .scans import index_participants, require_repetition_time
from .values import (
    ColumnValues,
    list_counts,
    means_sex,
    normalise_text,
    parse_number,
    read_numbers,
    read_sex,
    shorten_list,
    write_value,
)

# Column of the participants table for each covariate.
COVARIATE_COLUMNS = {"sex": "sex", "age": "age", "motion": "mean_fd"}

_SEX_NUMBERS = {"F": 0.0, "M": 1.0}
_MAY_BE_MISSING = {"motion"}
LARGEST_COVARIATE = 1e6  # largest age or motion, in whatever unit, that is taken for one


def list_known_covariates(cohort: Cohort) -> list[str]:
    """List the covariates with a value for some scan, without the one that the labels are computed from."""
    others = {name: column for name, column in COVARIATE_COLUMNS.items() if column != cohort.label_covariate}
    return [name for name, column in others.items() if find_filled(cohort.participants, column).any()]


def read_covariates(
    cohort: Cohort,
    names: Sequence[str],
    requester: str,
    instead: str = "leave out this method",
    partly: bool = False,
) -> np.ndarray:
    """Read covariates as numbers; if the labels are computed from one of them, the error says what to do ``instead``.

    Shapes: returns [N, C]. Sex is 0 (female) or 1 (male). Motion may be missing (NaN), if ``partly`` all of them, one
    at least known; methods fill gaps from their source scans.
    """
    known = list_known_covariates(cohort) if partly else names
    may_be_missing = set(COVARIATE_COLUMNS) if partly else _MAY_BE_MISSING
    columns = [
        np.full(len(cohort), np.nan)
        if name not in known and not set(names).isdisjoint(known)
        else _read_column(cohort, name, requester, instead, name in may_be_missing)
        for name in names
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(cohort), 0))


def _read_column(cohort: Cohort, name: str, requester: str, instead: str, may_be_missing: bool) -> np.ndarray:
    column, of_whom = COVARIATE_COLUMNS[name], "participants" if name in _MAY_BE_MISSING else "every participant"
    needed = f"{requester} needs the {name} of {of_whom}"
    if column not in cohort.participants:
        raise BrioError(
            f"{needed}, but the participants table of cohort '{cohort.name}' has no column '{column}'; "
            "add this column and import again"
        )
    if column == cohort.label_covariate:
        raise BrioError(f"{needed}, but the labels are computed from the column '{column}'; {instead}")
    values = cohort.participants[column].where(find_filled(cohort.participants, column))
    if name == "sex":
        numbers = _convert_sex(values, cohort.ids, f"{requester}: sex")
    else:
        remedy = f"write a number in the column '{column}' and import again"
        numbers = _convert_numbers(values, cohort.ids, f"{requester}: {name}", remedy)
    missing = numbers.isna().to_numpy()
    if missing.all() or (missing.any() and not may_be_missing):
        count = f"{int(missing.sum())} of {len(missing)} scans have no value (the first is {cohort.ids[missing][0]})"
        remedy = f"fill in column '{column}' and import again" + ("" if missing.all() else ", or leave out these scans")
        raise BrioError(f"{needed}, but {count}; {remedy}")
    return numbers.to_numpy(dtype=float)


def _convert_numbers(values: pd.Series, names: np.ndarray, what: str, remedy: str) -> pd.Series:
    """Convert values to numbers; text that is not a number, and infinite values, are refused, not taken as missing."""
    numbers = read_numbers(values)
    unusable = (values.notna() & ~(numbers.abs() <= LARGEST_COVARIATE)).to_numpy()
    if unusable.any():
        problem = "not a number" if numbers[unusable].isna().iloc[0] else f"beyond {LARGEST_COVARIATE:,.0f}"
        value = f"'{values[unusable].iloc[0]}', which is {problem}"
        raise BrioError(f"{what} of participant {names[unusable][0]} is {value}; {remedy}")
    return numbers


def _convert_sex(values: pd.Series, names: np.ndarray, what: str) -> pd.Series:
    """Convert a sex to its number."""
    codes = values.map(lambda sex: _SEX_NUMBERS.get(read_sex(sex) or ""), na_action="ignore").astype(float)
    unknown = (values.notna() & codes.isna()).to_numpy()
    if unknown.any():
        value = values[unknown].iloc[0]
        remedy = "write F or M in the participants table, or give --male and --female, and import again"
        raise BrioError(f"{what} of participant {names[unknown][0]} is '{value}'; {remedy}")
    return codes


def read_repetition_times(cohort: Cohort, requester: str) -> np.ndarray:
    """Read the repetition time of each scan.

    Shapes: returns [N].
    """
    tr = read_numbers(cohort.participants.get("tr", pd.Series(np.nan, cohort.participants.index))).to_numpy()
    if np.isnan(tr).any():
        lack = f"scan {cohort.ids[np.isnan(tr)][0]} has no value"
        if "tr" not in cohort.participants:
            lack = f"cohort '{cohort.name}' has no such column"
        remedy = (
            "add it in seconds to the participants table and import again, or give --set bold_tr=none to use the "
            "frames without resampling"
        )
        raise BrioError(f"{requester} needs the repetition time (column 'tr') of every scan, but {lack}; {remedy}")
    for name, seconds in zip(cohort.ids, tr.tolist(), strict=True):
        require_repetition_time(seconds, f"{requester}: the repetition time (column 'tr') of scan {name}")
    return tr


def read_hemispheres(cohort: Cohort, requester: str) -> np.ndarray:
    """Read the hemisphere of each ROI.

    It is taken from the column ``hemi`` of the atlas (L or R; anything else is midline) or, without this column, from
    the sign of the coordinate ``x``.

    Shapes: returns [P].
    """
    rois = cohort.atlas.rois
    if "hemi" in rois:
        side = rois["hemi"].astype(str).str.upper().map({"L": -1, "R": 1}).fillna(0).to_numpy(dtype=np.int64)
    elif "x" in rois:
        side = np.sign(rois["x"].to_numpy(dtype=float).round(1)).astype(np.int64)
    else:
        lack = f"atlas '{cohort.atlas.name}' has no column 'hemi' or 'x'"
        raise BrioError(f"{requester} needs the hemisphere of each ROI, but {lack}; add one of them with 'brio atlas'")
    if min((side < 0).sum(), (side > 0).sum()) < 2:
        raise BrioError(
            f"{requester} needs at least two ROIs in each hemisphere, but atlas '{cohort.atlas.name}' has fewer"
        )
    return side


_CONTROLS = {"control", "controls", "hc", "nc", "cn", "tc", "td", "tdc", "healthy", "normal", "typical", "typically"}
_PEOPLE = ("patient", "control", "case")  # names that are words for people; others are labels


@dataclass(frozen=True)
class ClassNames:
    """The names of both classes."""

    negative: str = "control"  # of label 0 and label 1
    positive: str = "patient"

    @property
    def positives(self) -> str:
        """Name for participants of the positive class."""
        return f"{self.positive}s" if self.positive in _PEOPLE else f"participants labelled {self.positive}"

    @property
    def negatives(self) -> str:
        """Name for participants of the negative class."""
        return ClassNames(positive=self.negative).positives

    @property
    def are_positive(self) -> str:
        """Completion of "where half are ..." for the positive class."""
        return self.positives.removeprefix("participants ")

    @property
    def are_negative(self) -> str:
        """Completion of "where half are ..." for the negative class."""
        return self.negatives.removeprefix("participants ")

    @property
    def pair(self) -> str:
        """Name for a pair of participants, one from each class."""
        if self.positive in _PEOPLE and self.negative in _PEOPLE:
            return f"a {self.positive} and a {self.negative}"
        return f"a participant labelled {self.positive} and one labelled {self.negative}"

    @property
    def controls(self) -> int | None:
        """Which label means controls, judging by the words in both names; None where they do not say."""
        if (self.negative, self.positive) == UNNAMED_CLASSES:
            return 0
        words = (set(re.findall(r"[^\W\d_]+", name.casefold())) for name in (self.negative, self.positive))
        are_controls = [not named.isdisjoint(_CONTROLS) for named in words]
        return are_controls.index(True) if sum(are_controls) == 1 else None

    @property
    def are_sexes(self) -> bool:
        """Whether the classes are the two sexes."""
        return {read_sex(self.negative), read_sex(self.positive)} == {*_SEX_NUMBERS}


SITE_MEDIAN = "site-median"
_QUESTION = re.compile(r"\s*([^<>=]+?)\s*(?:([>=])\s*([^<>=]+?)\s*)?")
_FORMS = f"write COLUMN, COLUMN=VALUE, COLUMN>NUMBER or COLUMN>{SITE_MEDIAN}"
_MOST_SHOWN = 5


def relabel(cohort: Cohort, question: str, min_class: int = 5) -> Cohort:
    """Return the same scans with labels that answer another question."""
    match = _QUESTION.fullmatch(question)
    if match is None:
        raise BrioError(f"the question '{question}' cannot be read; {_FORMS}")
    column, sign, asked = match.groups()
    reserved = {*REQUIRED_COLUMNS, *TEXT_COLUMNS, "n_frames"}
    offered = [str(name) for name in cohort.participants.columns if name not in reserved]
    if column in reserved:
        raise BrioError(f"column '{column}' cannot be used as a question; ask about a covariate")
    if column not in offered:
        if column == (cohort.provenance.get("options") or {}).get("label_column"):
            raise BrioError(f"column '{column}' is the label of cohort '{cohort.name}' already; leave out --label")
        hint = nearest(column, offered) if offered else "the table has no covariates; add one and import again"
        raise BrioError(f"the participants table of cohort '{cohort.name}' has no column '{column}'; {hint}")
    first, member = index_participants(cohort.participant_ids)
    texts, sites = cohort.participants[column].map(write_value), cohort.sites[first]
    filled = np.flatnonzero(texts != "")
    chosen = pd.Series(filled).groupby(member[filled]).first()  # the first scan of each participant with a value
    values = cohort.participants[column].where(texts != "")
    if sign == ">":
        of_scan, classes = _compare_numbers(
            column, values, asked, cohort.sites, cohort.participant_ids, chosen.tolist()
        )
    else:
        of_scan, classes = _compare_values(column, values, asked, cohort.participant_ids)
    label = np.full(len(first), -1)
    label[chosen.index] = of_scan[chosen]
    both = filled[of_scan[filled] != label[member[filled]]]
    if len(both) and sign != ">":  # a number is that of the first scan
        held = f"{texts.iloc[chosen[member[both[0]]]]} and {texts.iloc[both[0]]}, which are in different classes"
        raise BrioError(
            f"the question '{question}': participant {cohort.participant_ids[both[0]]} has scans with {column} {held}; "
            "keep one session of each participant"
        )
    known, leaves = label >= 0, f"the question '{question}' leaves"
    for k, name in enumerate(classes):
        if not (label == k).any():
            raise BrioError(f"{leaves} only one class: no participant is in class '{name}'; ask another question")
    of_class = pd.crosstab(sites[known], label[known])
    small = of_class.index[of_class.min(axis=1) < min_class].tolist()
    used = known & ~np.isin(sites, small)
    if not used.any():
        remedy = "ask another question, or accept smaller sites with --set audit.min_class=N"
        raise BrioError(f"{leaves} no site with at least {min_class} participants in each class; {remedy}")
    scans = np.flatnonzero(used[member])
    selected = cohort.select(scans)
    table = selected.participants.copy()
    if cohort.labelled.all() and "label" in table:
        table[FORMER_LABEL] = [cohort.classes[k] for k in table["label"]]
    table["label"] = label[member][scans].astype(np.int64)
    text, members = (
        f"{column}{sign or ''}{asked or ''}",
        texts.iloc[chosen].set_axis(chosen.index).reindex(range(len(first))),
    )
    asks = {
        "question": text,
        "column": column,
        "without_value": int((~known).sum()),
        "small_sites": small,
        "at_small_sites": int((known & ~used).sum()),
        "min_class": min_class,
        "first_scan_decides": len(np.unique(member[both])),
        "values": [] if sign == ">" else [members[used & (label == k)].value_counts().to_dict() for k in (0, 1)],
    }
    digest = hashlib.sha256("\n".join([cohort.fingerprint, text, *classes, *cohort.ids[scans]]).encode())
    digest.update(table["label"].to_numpy().astype("<i8").tobytes())
    return replace(
        selected,
        name=f"{cohort.name} ({text})",
        participants=table,
        classes=classes,
        provenance=cohort.provenance | {"label": asks},
        fingerprint=digest.hexdigest(),
        path=None,
    )


def leave_out_sites(cohort: Cohort, names: Sequence[str]) -> Cohort:
    """Return a cohort without the scans of some sites."""
    if not names:
        return cohort
    for name in names:
        if name not in cohort.sites:
            raise BrioError(f"there is no site '{name}' to leave out; {nearest(name, cohort.sites.tolist())}")
    left_out = np.isin(cohort.sites, names)
    if left_out.all():
        raise BrioError(f"cohort '{cohort.name}' has no sites other than {shorten_list(names)}; leave out fewer sites")
    return cohort.select(~left_out)


def describe_labels(cohort: Cohort) -> str:
    """Describe the classes of a cohort, with the values that made them and whom a question leaves out."""
    asks = cohort.provenance.get("label")
    asks = asks if isinstance(asks, dict) else {}
    made_by = (asks or cohort.provenance).get("values" if asks else LABEL_VALUES) or [{}, {}]
    names = ClassNames() if cohort.classes == UNNAMED_CLASSES else ClassNames(*cohort.classes)
    counts = np.bincount(cohort.labels[index_participants(cohort.participant_ids)[0]], minlength=2)
    parts = []
    for k, name in ((1, names.positive), (0, names.negative)):
        listing, all_counted = list_counts(made_by[k]), sum(made_by[k].values()) == counts[k]
        count = format_count(counts[k], "participant")
        parts.append(f"{name} = {k}: {listing if all_counted else count}")
        parts[-1] += f" (at import: {listing})" if listing and not all_counted else ""
    sentence = f"labels: {'; '.join(parts)}"
    if not asks:
        return sentence
    left_out = []
    if asks["without_value"]:
        left_out.append(f"{format_count(asks['without_value'], 'participant')} without {asks['column']}")
    if asks["small_sites"]:
        small, sites = f"sites with fewer than {asks['min_class']} participants in either class", asks["small_sites"]
        left_out.append(f"{format_count(asks['at_small_sites'], 'participant')} at {small} ({', '.join(sites)})")
    sentence += f"; left out: {' and '.join(left_out)}" if left_out else ""
    if several := asks.get("first_scan_decides"):
        who = format_count(several, "participant")
        sentence += f"; {who} would be in the other class by a later scan, and the first scan decides"
    if asks["question"].endswith(SITE_MEDIAN):
        sentence += "; the median of a site is computed from all participants of the site, because it defines the label"
    return sentence


# The answer to a question: a label for each participant, and the names of the classes.
Answer = tuple[np.ndarray, tuple[str, str]]


def _compare_numbers(
    column: str, values: pd.Series, asked: str, sites: np.ndarray, participants: np.ndarray, chosen: Sequence[int]
) -> Answer:
    """Assign label 1 above a number or the median of the site, 0 up to it, and -1 if there is no value.

    ``chosen`` has one scan of each participant, from which the median is computed.
    """
    remedy = f"correct this value and import again, or ask '{column}=VALUE'"
    numbers = _convert_numbers(values, participants, f"'{column}'", remedy)
    if asked == SITE_MEDIAN:
        median = numbers.iloc[chosen].groupby(sites[chosen]).median()
        limit, name = pd.Series(sites, numbers.index).map(median).astype(float), "site median"
    else:
        limit, name = parse_number(normalise_text(asked)), asked
        if limit is None:
            raise BrioError(f"'{asked}' is not a number; write '{column}>NUMBER' or '{column}>{SITE_MEDIAN}'")
    label = np.where(numbers.notna(), numbers > limit, -1).astype(np.int64)
    return label, (f"{column} up to {name}", f"{column} above {name}")


def _compare_values(column: str, values: pd.Series, asked: str | None, participants: np.ndarray) -> Answer:
    """Assign label 1 to a value and 0 to others, or 0 and 1 to the two values of a column; -1 if there is no value."""
    if column == "sex" and asked is None:
        return _convert_sex(values, participants, "sex").fillna(-1).to_numpy(dtype=np.int64), ("F", "M")
    read = ColumnValues(values, f"column '{column}'", means_sex(column))
    names = {read.name(value): value for value in read.spellings}
    if asked is None:
        read.refuse_spellings(read.spellings)
        if len(names) != 2:
            held = (
                f"{format_count(len(names), 'value')} "
                f"({shorten_list(sorted(names), _MOST_SHOWN) or 'all cells are empty'})"
            )
            compared = f"{column}>NUMBER' or '{column}>{SITE_MEDIAN}" if read.are_numbers else f"{column}=VALUE"
            remedy = f"ask '{compared}'" if len(names) > 2 else "ask about another column"
            raise BrioError(f"column '{column}' has {held}, but a question needs two classes; {remedy}")
        zero, one = sorted(names, key=float if read.are_numbers else None)
        classes = (f"{column} {zero}", f"{column} {one}")
        found: str | None = names[one]
    else:
        found = read.find(asked)
        if found is None:
            held = shorten_list(sorted(names), _MOST_SHOWN) or "no value"
            raise BrioError(f"no participant has the value '{asked}' in column '{column}'; this column contains {held}")
        classes = (f"{column} other than {read.name(found)}", f"{column} {read.name(found)}")
    return np.array([-1 if value is None else int(value == found) for value in read.values]), classes
