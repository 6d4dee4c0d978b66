"""Find what is no region: columns by their name or since they count the rows, and rows that should be columns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...errors import BrioError

_SIGNAL = "(mean|avg)?(global|glob|gs|gsr|csf|wm|whitematter|wmcsf|csfwm)(mean|sig|signal|ts|meansignal|regressor)?"
_MOTION = (
    "(mean|power|jenkinson)?fd(power|jenkinson)?|framewise(displacement)?|(std)?dvars|rmsd|(rel|abs)(mean)?rms|"
    "(trans|rot|hm|motion)[xyz]|[xyz](trans|rot)|(head)?motion(parameters?)?[0-9]*|rp[0-9]+|pitch|yaw"
)
_REGRESSOR = "[actw]compcor[0-9]+|edgecomp[0-9]+|cosine[0-9]+|aroma(motion|motioncomponent)?[0-9]+"
_OUTLIER = "(motion|nonsteadystate)outlier[0-9]+"
_COUNTER = "time|timepoint|frame|volume|vol|index|unnamed0"
_NUISANCE = re.compile(f"(({_SIGNAL}|{_MOTION})(derivative1)?(power2)?)|{_REGRESSOR}|{_OUTLIER}|{_COUNTER}")
"""Names of columns, in small letters and without signs, that are hardly a region: fMRIPrep, CONN, C-PAC, AFNI, FSL."""
SHORTEST_SCAN = 20
"""Frames below which a column of a region may be a straight line by chance."""
TOLERANCE = 4 * float(np.finfo(np.float32).eps)
"""Largest distance from the straight line, as a share of the largest value: what rounding to float32 leaves."""
_NAMELESS = re.compile(r"(Unnamed: \d+)?")


def find_nuisance(names: Sequence[str]) -> list[str]:
    """Find the names of columns that are hardly a region."""
    return [name for name in names if _NUISANCE.fullmatch("".join(c for c in name.lower() if c.isalnum()))]


def refuse_nuisance(names: Sequence[str], path: Path) -> None:
    """Refuse columns whose names are those of nuisance signals. Whoever means regions lists them in a table of ROIs."""
    nuisance = find_nuisance(names)
    if 2 * len(nuisance) > len(names):
        raise BrioError(
            f"{path}: {len(nuisance)} of its {len(names)} columns are confounds ({', '.join(nuisance[:3])}, ...), as "
            "fMRIPrep writes them to desc-confounds_timeseries.tsv; give the files with the time series of regions"
        )
    if nuisance:
        flags = " ".join(f"--drop-roi {shlex.quote(name)}" for name in nuisance)
        listed = ", ".join(f"'{name}'" for name in nuisance[:6]) + (", ..." if len(nuisance) > 6 else "")
        is_named = f"column {listed} is" if len(nuisance) == 1 else f"columns {listed} are"
        raise BrioError(
            f"{path}: {is_named} named like a nuisance signal, not a region; leave it out with {flags}, or, if it is a "
            "region, list the regions in a table (--atlas-table)"
        )


def is_nameless(name: str) -> bool:
    """Return whether a header leaves a column without name, which pandas calls ``Unnamed: 0``."""
    return _NAMELESS.fullmatch(name) is not None


def find_row_counters(frames: np.ndarray) -> np.ndarray:
    """Find the columns that are a straight line over the rows, rising or falling.

    Shapes: frames [T, P].
    """
    n_frames = len(frames)
    if n_frames < 3:
        return np.zeros(0, dtype=np.int64)
    # five rows tell nearly all columns from a line, so that few are compared as a whole
    probes = np.unique(np.linspace(0, n_frames - 1, 5).astype(np.int64))
    candidates = np.flatnonzero(_is_line(frames[probes].astype(np.float64), probes))
    return candidates[_is_line(frames[:, candidates].astype(np.float64), np.arange(n_frames))]


def _is_line(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Tell which columns are a + b * row. A step b that rounding may have made is no step."""
    with np.errstate(invalid="ignore", over="ignore"):
        slope = (values[-1] - values[0]) / (rows[-1] - rows[0])
        rounding = TOLERANCE * np.abs(values).max(axis=0)
        distance = np.abs(values - values[0] - rows[:, None] * slope).max(axis=0)
        return (distance <= rounding) & (np.abs(slope) > 8 * rounding)


def refuse_row_counters(frames: np.ndarray, names: tuple[str, ...], path: Path, drop: frozenset[str]) -> None:
    """Refuse a scan with a column that counts its rows. No region does, in any scan.

    Shapes: frames [T, P].
    """
    if len(frames) < SHORTEST_SCAN:
        return
    for i in find_row_counters(frames):
        if names[i] not in drop:
            first, second = (f"{value:g}" for value in frames[:2, i])
            raise BrioError(
                f"{path}: column {i + 1} ('{names[i]}') counts the rows ({first}, {second}, ...), so it is no region; "
                f"leave it out with --drop-roi {shlex.quote(names[i])}, or write the files without it (pandas: "
                "to_csv(index=False), R: row.names=FALSE)"
            )


def describe_left_out(left_out: Mapping[tuple[int, str], Sequence[Path]], n_scans: int) -> list[str]:
    """Describe the columns that were left out since they count the rows and have no name of a region."""
    sentences = []
    for (number, name), paths in left_out.items():
        column = f"column {number}" + (f" ('{name}')" if name else "")
        share = f"all {n_scans}" if len(paths) == n_scans else f"{len(paths)} of {n_scans}"
        share = "" if n_scans == 1 else f" (in {share} scans)"
        sentences.append(f"{paths[0]}: {column} counts the rows and has no name of a region, so it was left out{share}")
    return sentences
