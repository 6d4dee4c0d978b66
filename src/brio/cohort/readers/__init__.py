"""Readers of real file layouts; each ends in a cohort folder.

========  ==========================================================  =============================================
kind      layout                                                      options
========  ==========================================================  =============================================
pcp       ABIDE of the Preprocessed Connectomes Project               atlas, participants, name
dpabi     REST-meta-MDD, ``ROISignals_*.mat`` of DPABI                atlas (required), participants, name
bids      participants.tsv and XCP-D, HALFpipe, C-PAC or CIFTI files  atlas, participants, site_column, label_column,
                                                                      patient, control, task, match, runs, name
table     a participants table and one file a scan                    atlas, participants, site_column, label_column,
                                                                      patient, control, name
packed    ABIDE in 8 bits, one npz an atlas                           atlas, name
========  ==========================================================  =============================================
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest
from ..cohort import Cohort
from .assembly import reasons, refuse_existing
from .bids import read_bids
from .dpabi import read_dpabi
from .fetch import fetch_abide
from .packed import read_packed
from .pcp import read_pcp
from .series import Series, read_series
from .table import read_files

__all__ = ["READERS", "Reader", "Series", "fetch_abide", "import_cohort", "import_summary", "read_series"]

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
    kind : str
        A key of ``READERS``.
    src, out : str or Path
        Where the scans are; the cohort folder to write. After an error nothing is left at ``out``.
    **options
        Options of the reader, see the table of this module; None means not given.

    Returns
    -------
    Cohort
        ``cohort.provenance["skipped"]`` lists who was left out and why; :func:`import_summary` puts it in a line.
    """
    if kind not in READERS:
        raise BrioError(f"there is no kind of cohort '{kind}', {nearest(kind, READERS)}")
    reader = READERS[kind]
    given = {k: v for k, v in options.items() if v is not None}
    accepted = {n: p for n, p in inspect.signature(reader).parameters.items() if p.kind is p.KEYWORD_ONLY}
    for option in given:
        if option not in accepted:
            hint = f"it uses {', '.join(map(_flag, accepted))}"
            raise BrioError(f"kind '{kind}' has no use for {_flag(option)}; {hint}")
    for option, parameter in accepted.items():
        if parameter.default is parameter.empty and option not in given:
            raise BrioError(f"kind '{kind}' needs {_flag(option)}")
    refuse_existing(out)
    return reader(src, out, **given)


def import_summary(cohort: Cohort) -> str:
    """What an import took and left out, in one line.

    Examples
    --------
    >>> import numpy as np
    >>> scans = [np.random.default_rng(i).normal(size=(20, 3)) for i in range(2)]
    >>> left_out = [{"participant_id": "p3", "reason": "no file"}]
    >>> cohort = Cohort.from_scans(scans, site=["A", "A"], label=[0, 1], provenance={"skipped": left_out})
    >>> import_summary(cohort)
    '2 scans imported, 1 skipped: no file (1)'
    """
    skipped = cohort.provenance.get("skipped", [])
    tail = f": {reasons(skipped)}" if skipped else ""
    return f"{len(cohort)} scans imported, {len(skipped)} skipped{tail}"


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
