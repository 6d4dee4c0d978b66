"""Check that a finished job can be the evidence of a model, before anything is fitted; needs no torch."""

from __future__ import annotations

from pathlib import Path

from ..errors import BrioError
from ..results import StoredJob

__all__ = ["read_evidence_job"]


def read_evidence_job(folder: str | Path, method: str, atlas: str | None = None) -> StoredJob:
    """Read a finished job that evaluated a method at test sites.

    Parameters
    ----------
    folder : str or Path
        Of ``brio run`` under leave-one-site-out, with its predictions.
    method : str
        Name of the method of the model.
    atlas : str, optional
        Name of the atlas of the model; not compared where it is not given.

    Returns
    -------
    StoredJob

    Raises
    ------
    BrioError
        If the job did not evaluate this method at test sites in this atlas, or its predictions were not kept.
    """
    job = StoredJob.read(Path(folder))
    if method not in job.summary.methods:
        has = ", ".join(job.summary.methods)
        raise BrioError(f"{folder}: evaluated {has}, not '{method}'; give a folder of 'brio run --method {method}'")
    if job.summary.protocol != "loso":
        raise BrioError(f"{folder}: was evaluated by k-fold, which says nothing about new sites; use --protocol loso")
    if job.predictions is None:
        raise BrioError(f"{folder}: its predictions were not kept, so there is no calibration and no rule to decide by")
    if atlas is not None and job.summary.atlas != atlas:
        raise BrioError(
            f"{folder}: was evaluated in the atlas '{job.summary.atlas}', but the model is fitted in '{atlas}'; give a "
            "job of the same cohort, or leave out --evidence and give --evaluate"
        )
    return job
