"""Map the diagnoses of a participants table to the labels 0 and 1."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from ...errors import BrioError

ClassValues = str | Sequence[str] | None
"""What ``--patient`` or ``--control`` names: one value, several that make one class, or none."""
LONGEST_LIST = 12
"""Values that an error names; a column of ages has hundreds."""


def list_class_values(values: ClassValues) -> list[str]:
    """List the values that make one class."""
    return [values] if isinstance(values, str) else list(dict.fromkeys(values or ()))


def map_labels(
    values: list[str | None],
    where: str,
    patient: ClassValues,
    control: ClassValues,
    labels_required: bool = True,
) -> tuple[list[int | None], tuple[str, str]]:
    """Map text to the labels 1 (patient) and 0 (control)."""
    patients, controls = list_class_values(patient), list_class_values(control)
    counts = Counter(v for v in values if v is not None)
    listing = ", ".join(f"'{v}' ({n})" for v, n in sorted(counts.items())[:LONGEST_LIST]) or "nothing"
    if len(counts) > LONGEST_LIST:
        listing += f" and {len(counts) - LONGEST_LIST:,} more values"
    rest = [v for v in counts if not _is_among(v, [*patients, *controls])]
    for named, option in ((patients, "--patient"), (controls, "--control")):
        absent = [value for value in named if not any(_is_equal(v, value) for v in counts)]
        if absent and (labels_required or rest):
            raise BrioError(f"{where} has no value '{absent[0]}' for {option}; it holds {listing}")
    if not patients and not controls:
        if not all(_is_equal(v, "0") or _is_equal(v, "1") for v in counts):
            raise BrioError(f"{where} holds {listing}; name two values with --patient and --control")
        patients, controls = ["1"], ["0"]
    elif not patients or not controls:
        if len(rest) > 1 or (labels_required and not rest):
            raise BrioError(
                f"{where} holds {listing}; name two values with --patient and --control (both can be repeated)"
            )
        other = rest or [f"not {'/'.join(patients or controls)}"]
        patients, controls = patients or other, controls or other
    both = next((value for value in patients if _is_among(value, controls)), None)
    if both is not None:
        raise BrioError(f"{where}: --patient and --control are both '{both}'")
    mapped = [
        None if v is None else 1 if _is_among(v, patients) else 0 if _is_among(v, controls) else None for v in values
    ]
    if labels_required and {0, 1} - set(mapped):
        raise BrioError(f"{where} holds {listing}: one class only; two classes are needed")
    return mapped, ("/".join(controls), "/".join(patients))


def explain_other_group(value: str, patient: ClassValues, control: ClassValues) -> str:
    """Say that a value is of neither class, and which one it may be a misspelling of."""
    named = {name.strip().lower(): name for name in [*list_class_values(patient), *list_class_values(control)]}
    near = difflib.get_close_matches(value.strip().lower(), named, n=1, cutoff=0.75)
    return f"label '{value}' is neither patient nor control" + (f" (mistyped '{named[near[0]]}'?)" if near else "")


def _is_among(value: str, others: list[str]) -> bool:
    return any(_is_equal(value, other) for other in others)


def _is_equal(value: str, other: str) -> bool:
    """Compare as text, then as numbers (``1.0`` is ``1``)."""
    if value == other:
        return True
    try:
        return float(value) == float(other)
    except ValueError:
        return False
