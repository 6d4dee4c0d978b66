"""Check that a finished job can be the evidence of a model, before anything is fitted; needs no torch."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ..cohort import Cohort
from ..errors import BrioError
from ..formatting import format_count
from ..results import StoredJob

UNNAMED = ["0", "1"]
"""Classes of a cohort whose classes have no names: labels alone are compared."""
OTHER_EVIDENCE = "give a job of the same cohort, or leave out --evidence and give --evaluate"


def read_evidence_job(folder: str | Path, method: str, cohort: Cohort | None = None) -> StoredJob:
    """Read a finished job that evaluated a method at test sites."""
    job = StoredJob.read(Path(folder))
    if method not in job.summary.methods:
        has = ", ".join(job.summary.methods)
        raise BrioError(f"{folder}: evaluated {has}, not '{method}'; give a folder of 'brio run --method {method}'")
    if job.summary.protocol != "loso":
        raise BrioError(f"{folder}: was evaluated by k-fold, which says nothing about new sites; use --protocol loso")
    if job.predictions is None:
        raise BrioError(f"{folder}: its predictions were not kept, so there is no calibration and no rule to decide by")
    if cohort is not None:
        compare_participants(job, method, cohort)
    return job


def compare_participants(job: StoredJob, method: str, cohort: Cohort) -> tuple[str, ...]:
    """Refuse evidence of another question, and say which participants of a cohort it lacks or has besides.

    Another question are another atlas, other classes, another label of a participant, or no participant in common.
    """
    assert job.predictions is not None
    folder, keys = job.folder, ["participant_id", "site"]
    if job.summary.atlas != cohort.atlas.name:
        raise BrioError(
            f"{folder}: was evaluated in the atlas '{job.summary.atlas}', but the model is fitted in "
            f"'{cohort.atlas.name}'; {OTHER_EVIDENCE}"
        )
    theirs = (job.cohort_facts or {}).get("classes", UNNAMED)
    names = [[name.casefold() for name in classes] for classes in (theirs, cohort.classes)]
    if names[0] != names[1] and UNNAMED not in names:
        raise BrioError(
            f"{folder}: is evidence of another question: its classes are {' and '.join(theirs)}, those of the model "
            f"{' and '.join(cohort.classes)}; {OTHER_EVIDENCE}"
        )
    labelled = cohort.select(cohort.labelled)
    own = pd.DataFrame({"participant_id": labelled.participant_ids, "site": labelled.sites, "own": labelled.labels})
    evaluated = job.predictions.loc[job.predictions["method"] == method, [*keys, "label"]].astype({"site": str})
    pairs = own.drop_duplicates().merge(evaluated.drop_duplicates(), on=keys, how="outer", indicator="found")
    common = pairs[pairs["found"] == "both"]
    n_own, n_common = (pairs["found"] != "right_only").sum(), len(common)
    n_differing = int((common["own"] != common["label"]).sum())
    if n_common == 0:
        raise BrioError(f"{folder}: has no participant (by name and site) in common with the model; {OTHER_EVIDENCE}")
    if n_differing:
        raise BrioError(
            f"{folder}: is evidence of another question: {n_differing} of {format_count(n_common, 'participant')} in "
            f"common {'has' if n_differing == 1 else 'have'} another label there than in the cohort of the model; "
            f"{OTHER_EVIDENCE}"
        )
    differences = []
    if n_common < n_own:
        differences.append(f"the evidence is of {n_common} of the {n_own} participants of the model")
    if n_more := len(pairs) - n_own:
        differences.append(f"the evidence has {format_count(n_more, 'participant')} that the model was not fitted to")
    if not differences and job.summary.fingerprint != cohort.fingerprint:
        differences.append("the evidence is of the same participants, but of other scans or tables of them")
    return tuple(differences)
