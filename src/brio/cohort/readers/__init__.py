"""Readers of file layouts. Each reader writes a cohort folder.

========  ===================================================  ====================================================
kind      layout                                               options
========  ===================================================  ====================================================
pcp       ABIDE of the Preprocessed Connectomes Project        atlas, participants, name
dpabi     REST-meta-MDD, ``ROISignals_*.mat`` of DPABI         atlas (required), participants, name
bids      participants.tsv and files of XCP-D, HALFpipe,       atlas, participants, site_column, label_column,
          C-PAC or CIFTI pipelines                             patient, control, task, match, runs, name
table     a participants table and one file per scan           atlas, participants, site_column, label_column,
                                                               patient, control, name
packed    ABIDE as 8-bit integers, one npz file per atlas      atlas, name
========  ===================================================  ====================================================
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest
from ..cohort import Cohort
from .assembly import refuse_existing, summarise_skipped
from .bids import read_bids
from .dpabi import read_dpabi
from .fetch import fetch_abide
from .packed import read_packed
from .pcp import read_pcp
from .series import Series, read_series
from .table import read_files

__all__ = ["READERS", "Reader", "Series", "fetch_abide", "import_cohort", "read_series", "summarise_import"]

Reader = Callable[..., Cohort]

READERS: dict[str, Reader] = {
    "pcp": read_pcp,
    "dpabi": read_dpabi,
    "bids": read_bids,
    "table": read_files,
    "packed": read_packed,
}


def import_cohort(kind: str, src: str | Path, out: str | Path, **options: Any) -> Cohort:
    """Import a folder of scans as a cohort.

    Parameters
    ----------
    kind : {"pcp", "dpabi", "bids", "table", "packed"}
        Layout of the folder, see the table of this module.
    src : str or Path
        Folder with the scans.
    out : str or Path
        Cohort folder to write; must not exist yet. After an error nothing is left there.
    **options
        Options of the reader. None means not given.

    Returns
    -------
    Cohort
        ``cohort.provenance["skipped"]`` lists what was skipped and why; :func:`summarise_import` puts it in one line.

    Raises
    ------
    BrioError
        If the kind or an option is unknown, ``out`` exists, or a file cannot be read.

    Examples
    --------
    >>> import_cohort("tabel", "scans", "cohort")
    Traceback (most recent call last):
    ...
    brio.errors.BrioError: there is no kind of cohort 'tabel', did you mean 'table'?
    """
    if kind not in READERS:
        raise BrioError(f"there is no kind of cohort '{kind}', {nearest(kind, READERS)}")
    reader = READERS[kind]
    values = {option: value for option, value in options.items() if value is not None}
    accepted = {n: p for n, p in inspect.signature(reader).parameters.items() if p.kind is p.KEYWORD_ONLY}
    for option in values:
        if option not in accepted:
            raise BrioError(
                f"kind '{kind}' does not take {_format_flag(option)}; "
                f"its options are {', '.join(map(_format_flag, accepted))}"
            )
    for option, parameter in accepted.items():
        if parameter.default is parameter.empty and option not in values:
            raise BrioError(f"kind '{kind}' needs {_format_flag(option)}")
    refuse_existing(out)
    return reader(src, out, **values)


def summarise_import(cohort: Cohort) -> str:
    """Summarise in one line how many scans were imported and skipped.

    Parameters
    ----------
    cohort : Cohort
        As returned by :func:`import_cohort`.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> scans = [np.random.default_rng(i).normal(size=(20, 3)) for i in range(2)]
    >>> skipped = [{"participant_id": "p3", "reason": "no file"}]
    >>> cohort = Cohort.from_scans(scans, site=["A", "A"], label=[0, 1], provenance={"skipped": skipped})
    >>> summarise_import(cohort)
    '2 scans imported, 1 skipped: no file (1)'
    """
    skipped = cohort.provenance.get("skipped", [])
    reasons = f": {summarise_skipped(skipped)}" if skipped else ""
    return f"{len(cohort)} scans imported, {len(skipped)} skipped{reasons}"


def _format_flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
