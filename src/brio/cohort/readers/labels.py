"""Map the diagnoses of a participants table to the labels 0 and 1."""

from __future__ import annotations

from collections import Counter

from ...errors import BrioError

__all__ = ["map_labels"]


def map_labels(
    values: list[str | None],
    where: str,
    patient: str | None,
    control: str | None,
    labels_required: bool = True,
) -> tuple[list[int | None], tuple[str, str]]:
    """Map text to the labels 1 (patient) and 0 (control).

    Parameters
    ----------
    values : list of str or None
        None where a value is missing.
    where : str
        File and column of the values, for error messages.
    patient, control : str or None
        Values that mean 1 and 0. If both are None, the values must be 0 and 1. If one is given, there must be exactly
        two values. If both are given, any other value is another group.
    labels_required : bool
        Whether both classes must occur. If not, one may be absent, as long as no value is left over that it may mean.

    Returns
    -------
    labels : list of 0, 1 or None
        None for a missing value or another group.
    classes : tuple of two str
        Names of the labels 0 and 1.

    Raises
    ------
    BrioError
        If the values do not give two classes, or not one where labels are not required.
    """
    counts = Counter(v for v in values if v is not None)
    listing = ", ".join(f"'{v}' ({n})" for v, n in sorted(counts.items())) or "nothing"
    rest = [v for v in counts if not any(_is_equal(v, value) for value in (patient, control) if value is not None)]
    for value, option in ((patient, "--patient"), (control, "--control")):
        absent = value is not None and not any(_is_equal(v, value) for v in counts)
        if absent and (labels_required or rest):
            raise BrioError(f"{where} has no value '{value}' for {option}; it holds {listing}")
    if patient is None and control is None:
        if not all(_is_equal(v, "0") or _is_equal(v, "1") for v in counts):
            raise BrioError(f"{where} holds {listing}; name two values with --patient and --control")
        patient, control = "1", "0"
    elif patient is None or control is None:
        if len(rest) > 1 or (labels_required and not rest):
            raise BrioError(f"{where} holds {listing}; name two values with --patient and --control")
        other = rest[0] if rest else f"not {control if patient is None else patient}"
        patient, control = other if patient is None else patient, other if control is None else control
    if _is_equal(patient, control):
        raise BrioError(f"{where}: --patient and --control are both '{patient}'")
    mapped = [
        None if v is None else 1 if _is_equal(v, patient) else 0 if _is_equal(v, control) else None for v in values
    ]
    if labels_required and {0, 1} - set(mapped):
        raise BrioError(f"{where} holds {listing}: one class only; two classes are needed")
    return mapped, (control, patient)


def _is_equal(value: str, other: str) -> bool:
    """Compare as text, then as numbers (``1.0`` is ``1``)."""
    if value == other:
        return True
    try:
        return float(value) == float(other)
    except ValueError:
        return False
