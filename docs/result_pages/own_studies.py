"""What the pages of our own studies share: both atlases, the command of a study, and how it was made."""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.results import StudyOptions, StudyRecord

from .evidence import link_figure, name_source, read_stored_study, read_study
from .markdown import atlas_label, in_words, write_commands

ATLASES = ("aal116", "cc200")
_COHORTS = {"aal116": "abide-aal", "cc200": "abide-cc"}


def study_folder(name: str, atlas: str) -> str:
    """Return the folder of a study in ``evidence/``."""
    return f"studies/{atlas}/{name}"


def read_record(name: str, atlas: str) -> StudyRecord:
    """Read what a study says about itself; a smoke run is refused."""
    record = read_stored_study(study_folder(name, atlas)).record
    if record.smoke:
        raise ValueError(f"study '{name}' on {atlas} is a smoke run: it has no place in the result pages")
    return record


@cache
def read_arms(name: str, atlas: str) -> dict[str, pd.DataFrame]:
    """Read the table of a study by method, in the order of its arms."""
    read_record(name, atlas)
    table = read_study(study_folder(name, atlas))
    return {str(arm).split(",")[0]: rows for arm, rows in table.groupby("arm", sort=False)}


def write_study_commands(name: str) -> str:
    """Return the commands that made a study on both atlases, from the options it has stored."""
    return write_commands(*(_compose_command(name, atlas) for atlas in ATLASES))


def _compose_command(name: str, atlas: str) -> str:
    options = read_record(name, atlas).options or StudyOptions()
    words = ["brio study", name, _COHORTS[atlas]]
    words += [f"--with {_COHORTS[other]}" for other in options.companions]
    words += [f"--method {method}" for method in options.methods or ()]
    words += [f"--seeds {options.seeds}"] if options.seeds != StudyOptions().seeds else []
    words += [f"--set {key}={value}" for key, value in options.settings.items()]
    words += [f"--device {options.device}"] if options.device else []
    return " ".join([*words, f"--out studies/{atlas}"])


def describe_study(name: str) -> str:
    """Say of which scans, folds and seeds a study was made."""
    (made,) = {(r.n_scans, r.folds, r.seeds) for r in (read_record(name, atlas) for atlas in ATLASES)}
    scans, folds, seeds = made
    return (
        f"ABIDE I, {scans} scans: {folds} folds with one test site each, all {folds - 1} other sites as source sites, "
        f"{seeds} seeds."
    )


def describe_versions() -> str:
    """Say with which version our own studies were made."""
    versions = {read_record(name, atlas).brio for name in STUDIES for atlas in ATLASES}
    return in_words(sorted(versions))


def show_figure(name: str, atlas: str, caption: str) -> str:
    """Return the figure of a study on one atlas."""
    return link_figure(f"{study_folder(name, atlas)}/figure.svg", f"{caption}, {atlas_label(atlas)}")


def show_figures(name: str, caption: str) -> list[str]:
    """Return the figure of a study on each atlas, under the name of the atlas."""
    return [block for a in ATLASES for block in (f"**{atlas_label(a)}**", show_figure(name, a, caption))]


def name_sources(name: str) -> str:
    """Return the line that says which stored files a page was computed from."""
    return name_source(*(study_folder(name, atlas) for atlas in ATLASES))


STUDIES = ("permutation", "learning-curve", "subgroups", "calibration", "decision-curve", "adaptation")
"""Studies of ours that have a page each. Their arms have no validation sites."""
