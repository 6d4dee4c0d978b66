"""Odd stored files: each reader and each command refuses them in one line that names the file, or works."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaged_files import damage, place

import brio
from brio import BrioClassifier, Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.models import read_model
from brio.results import Plan, RunStore, StoredJob, StoredStudy, StudyOptions, StudyRecord, Summary, TuningRecord
from brio.results.cohort import read_audit, read_cohort_facts, read_groups
from brio.results.job import read_predictions, read_results
from brio.results.summarise import read_covariances, read_sites
from commands import command

pytestmark = pytest.mark.xdist_group("damaged files")

NEVER_READ = (
    *("empty", "blank", "NUL bytes", "all NUL", "latin-1", "UTF-16", "binary"),
    *("a key twice", "header alone", "a short row", "a long row", "all rows long", "quote not closed"),
    *("holds null", "holds 3", "holds []", "holds 1111111111", "lists of depth 900", "objects of depth 100000"),
)
"""Damage that no reader may accept, whatever the file."""
NEVER_REFUSED = ("an unknown key", "an unknown column")
"""What a later version may add."""

SAMPLE = 7


def list_runs(root: Path) -> list[str]:
    return [path.name for path in (root / "job" / "runs").iterdir()]


READERS: dict[str, Callable[[Path], Any]] = {
    "job/plan.json": lambda root: Plan.read(root / "job"),
    "job/summary.json": lambda root: Summary.read(root / "job"),
    "job/results.csv": lambda root: read_results(root / "job"),
    "job/predictions.csv": lambda root: read_predictions(root / "job"),
    "job/audit.json": lambda root: read_audit(root / "job"),
    "job/facts.json": lambda root: read_cohort_facts(root / "job"),
    "job/groups.csv": lambda root: read_groups(root / "job"),
    "job/runs/*/run.json": lambda root: [RunStore(root / "job" / "runs").read_record(key) for key in list_runs(root)],
    "job/sites.csv": lambda root: read_sites(root / "job"),
    "job/covariances.csv": lambda root: read_covariances(root / "job"),
    "search/tuning.json": lambda root: TuningRecord.read(root / "search"),
    "study/study.json": lambda root: StoredStudy.read(root / "study"),
    "study/table.csv": lambda root: StoredStudy.read(root / "study"),
    "cohort/cohort.json": lambda root: Cohort.load(root / "cohort"),
    "cohort/participants.tsv": lambda root: Cohort.load(root / "cohort"),
    "cohort/atlas.tsv": lambda root: Cohort.load(root / "cohort"),
    "model/model.json": lambda root: BrioClassifier.load(root / "model"),
    "model/rois.tsv": lambda root: read_model(root / "model"),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """Every kind of folder, each as small as it can be; searches and studies are written without computing any."""
    root = tmp_path_factory.mktemp("stored")
    cohort = simulate(Simulation(n_sites=4, per_class=5, n_rois=8, frames=60)).save(root / "cohort")
    brio.run(cohort, ["ridge", "covariates-only"], seeds=1, out=root / "job", device="cpu")
    job = StoredJob.read(root / "job")
    folds: dict[str, dict[str, Any]] = {fold: {"penalties": 7} for fold in job.summary.folds}
    search = TuningRecord(
        budget=2,
        cohort=job.summary.cohort,
        atlas=job.summary.atlas,
        protocol={"name": "loso", **job.plan.protocol_settings},
        validation_sites=dict.fromkeys(folds, ("site01",)),
        given_settings={"choose_by": "source-sites"},
        tried={"ridge": 2},
        choices={"ridge": folds},
    )
    search.write(root / "search", job.rows[["method", "fold"]])
    options = StudyOptions(methods=("ridge",), seeds=1)
    record = StudyRecord(name="study", arms=("ridge",), epochs=(4,), text=("A sentence.",), options=options)
    StoredStudy(root / "study", record, "Found.", job.rows).write()
    classifier = BrioClassifier(
        "ridge", settings={"choose_by": "source-sites"}, validation_sites=0, random_state=0, device="cpu"
    )
    scans = [cohort.scan(i) for i in range(len(cohort))]
    classifier.fit(scans, cohort.labels, sites=cohort.sites).save(root / "model")
    return root


@pytest.fixture
def box(stored, tmp_path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(stored, tmp_path / "box")


def sample_cases(file: str, content: bytes, size: int) -> list[tuple[str, Callable[[], bytes]]]:
    """Some cases that every reader must refuse or accept, and as many of the others; always the same."""
    by_rule: dict[bool, list] = {True: [], False: []}
    for what, make in damage(file, content):
        by_rule[what in (*NEVER_READ, *NEVER_REFUSED)].append((what, make))
    draw = random.Random(file)
    return [case for cases in by_rule.values() for case in draw.sample(cases, min(size, len(cases)))]


def check_refusal(message: str, file: str) -> None:
    assert "\n" not in message
    assert len(message) < 600
    assert file in message


@pytest.mark.parametrize("size", [SAMPLE, pytest.param(1500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("pattern", READERS)
def test_a_reader_names_the_damaged_file_or_reads_it(pattern, size, box):
    path = min(box.glob(pattern))
    read, original = READERS[pattern], path.read_bytes()
    read(box)
    for what, make in sample_cases(str(path.relative_to(box)), original, size):
        place(path, make())
        try:
            read(box)
        except BrioError as error:
            assert what not in NEVER_REFUSED, what
            check_refusal(str(error), path.name)
        else:
            assert what not in NEVER_READ or (what, path.name) == ("header alone", "table.csv"), what
        place(path, original)
    read(box)


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("job/results.csv", "site01", "", "table job"),
        ("job/predictions.csv", "site01,0,", "site01,zero,", "report job"),
        ("job/results.csv", "validation_auc,", "validation,", "table job"),
        ("job/facts.json", '"sites"', '"places"', "report job"),
        ("job/audit.json", '"duplicate_correlation": 0.5', '"duplicate_correlation": [0.5]', "report job"),
        ("job/plan.json", '"stacks": [', '"stacks": [5, ', "run cohort --method ridge --seeds 1 --out job"),
        ("search/tuning.json", '"choices"', '"chosen"', "run cohort --method ridge --tuned search --out new"),
        ("cohort/cohort.json", '"classes": [', '"classes": ["x", ', "audit cohort"),
        ("model/model.json", '"members": [', '"members": [3, ', "explain model --out new"),
        ("model/model.json", '"ranges": {', '"ranges": {"tr": 1, ', "predict model cohort --out new"),
    ],
)
def test_a_command_names_the_damaged_file(file, old, new, words, box, monkeypatch):
    """The first occurrence of a text is replaced by another that is as good JSON or CSV."""
    text = " ".join((box / file).read_text().split()) if file.endswith(".json") else (box / file).read_text()
    assert old in text
    place(box / file, text.replace(old, new, 1).encode())
    monkeypatch.chdir(box)
    before = sorted(box.rglob("*"))
    said = command(*words.split())
    assert said.out == ""
    check_refusal(said.refuse_in_a_line().rstrip("\n"), file)
    assert sorted(box.rglob("*")) == before
