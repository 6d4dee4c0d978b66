"""Small folders of every kind that brio stores, and the commands that read each of their files."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from damaged_files import Case, place

from brio import BrioClassifier
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from commands import Said, command

QUIET = ("--quiet", "--device", "cpu")
RUN = ("--method", "ridge", "--method", "covariates-only", "--seeds", "1", *QUIET)
TUNE = ("--method", "ridge", "--budget", "2", "--seeds", "1", *QUIET)
STUDY = ("--method", "ridge", "--method", "logistic", "--seeds", "1", *QUIET)


def store_folders(root: Path) -> None:
    """Store a cohort, a job, a tuned job, a study and a model in a new folder."""
    cohort = root / "cohort"
    simulate(Simulation(n_sites=4, per_class=6, n_rois=8, frames=60)).save(cohort)
    for words in (
        ("run", cohort, *RUN, "--out", root / "job"),
        ("tune", cohort, *TUNE, "--out", root / "tuned"),
        ("study", "comparison", cohort, *STUDY, "--out", root / "studies"),
        ("fit", cohort, "--method", "ridge", "--evaluate", "--out", root / "model", *QUIET),
    ):
        said = command(*words)
        if said.status:
            raise AssertionError(said.err)
    shutil.rmtree(root / "studies" / "arms" / "loso" / "logistic" / "runs")  # the study has no need of them


READING: dict[str, tuple[str, ...]] = {
    "job/plan.json": ("table", "compare", "report", "config", "resume", "evidence", "reuse"),
    "job/summary.json": ("table", "table --compare", "compare", "report", "evidence", "reuse"),
    "job/results.csv": ("table", "table --compare", "compare", "report", "evidence", "reuse"),
    "job/predictions.csv": ("table", "compare", "report", "evidence", "reuse"),
    "job/audit.json": ("report", "config"),
    "job/facts.json": ("report",),
    "job/groups.csv": ("report",),
    "job/runs/*/run.json": ("report", "resume", "evidence"),
    "job/sites.csv": ("compare without predictions",),
    "job/covariances.csv": ("compare without predictions",),
    "tuned/tuning.json": ("report tuned", "config tuned", "tuned"),
    "tuned/configurations.csv": ("report tuned", "resume tuned"),
    "tuned/search/plan.json": ("resume tuned",),
    "tuned/search/runs/*/run.json": ("resume tuned",),
    "studies/studies/comparison/study.json": ("report studies",),
    "studies/studies/comparison/table.csv": ("report studies",),
    "studies/arms/loso/ridge/plan.json": ("report studies", "study"),
    "studies/arms/loso/ridge/results.csv": ("report studies", "study"),
    "cohort/cohort.json": ("audit", "run", "predict"),
    "cohort/participants.tsv": ("audit", "run", "predict"),
    "cohort/atlas.tsv": ("audit", "run", "predict"),
    "model/model.json": ("predict", "explain", "load"),
    "model/rois.tsv": ("predict", "load"),
}
"""File -> commands that read it, named as in :func:`list_words`; ``load`` is ``BrioClassifier.load``."""


def list_words(name: str, root: Path, out: Path) -> list[object]:
    """Return the words of a command that reads folders under ``root`` and writes under ``out``."""
    cohort, job, tuned, studies, model = (root / n for n in ("cohort", "job", "tuned", "studies", "model"))
    methods = ["--method", "ridge", "--method", "covariates-only", "--seeds", "1"]
    fit = ["fit", cohort, "--method", "ridge", *QUIET, "--out", out / "fitted"]
    return {
        "table": ["table", job],
        "table --compare": ["table", job, "--compare", "ridge", "--csv", out / "rows.csv"],
        "compare": ["compare", job],
        "compare without predictions": ["compare", job],
        "report": ["report", job, "--out", out / "report.html"],
        "report tuned": ["report", tuned, "--out", out / "report.html"],
        "report studies": ["report", studies, "--out", out / "report.html"],
        "config": ["config", job],
        "config tuned": ["config", tuned],
        "resume": ["run", cohort, *RUN, "--out", job],
        "resume tuned": ["tune", cohort, *TUNE, "--out", tuned],
        "tuned": ["run", cohort, "--method", "ridge", "--seeds", "1", "--tuned", tuned, *QUIET, "--out", out / "new"],
        "reuse": ["study", "comparison", cohort, *methods, "--reuse", job, *QUIET, "--out", out / "study"],
        "study": ["study", "comparison", cohort, *STUDY, "--out", studies],
        "evidence": [*fit, "--evidence", job],
        "audit": ["audit", cohort],
        "run": ["run", cohort, "--method", "ridge", "--seeds", "1", *QUIET, "--out", out / "new"],
        "predict": ["predict", model, cohort, "--out", out / "predicted", "--reestimates", "2", "--device", "cpu"],
        "explain": ["explain", model, "--out", out / "explained"],
    }[name]


def list_files(root: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each stored file, relative to ``root``, with the commands that read it; of all runs the first."""
    for pattern, commands in READING.items():
        yield str(min(root.glob(pattern)).relative_to(root)), commands


def read_damaged(root: Path, box: Path, case: Case, name: str) -> Said:
    """Damage a file in a copy of the folders that a command reads, and give the command; ``box`` is made anew."""
    shutil.rmtree(box, ignore_errors=True)
    (box / "out").mkdir(parents=True)
    words = [] if name == "load" else list_words(name, box, box / "out")
    folders = {word.relative_to(box).parts[0] for word in words if isinstance(word, Path)} | {case.file.split("/")[0]}
    for folder in folders - {"out"}:
        shutil.copytree(root / folder, box / folder)
    place(box, case)
    if name == "compare without predictions":
        (box / "job" / "predictions.csv").unlink()
    if name != "load":
        return command(*words)
    try:
        BrioClassifier.load(box / "model")
    except BrioError as error:
        return Said(2, "", f"brio: {error}\n")
    return Said(0, "", "")
