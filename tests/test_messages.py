"""Messages name the arguments of Python where Python is used, and the options of the command line there."""

import re
import subprocess
import sys

import numpy as np
import pytest

import brio
from brio.errors import BrioError, name_arguments
from commands import command

RNG = np.random.default_rng(0)
SITES = ["A", "B", "C"]
COLUMNS = "participant_id\tsite\tlabel\tdx\tage"


@pytest.fixture(autouse=True)
def in_python(monkeypatch):
    monkeypatch.setattr(BrioError, "names_options", False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files of scans and of connectomes, and cohorts of three sites and of two."""
    place = tmp_path_factory.mktemp("messages")
    rows = [f"s{k:02d}\t{SITES[k % 3]}\t{k // 3 % 2}\t{'abc'[k % 3]}\t{k + 0.5}" for k in range(24)]
    for folder in ("table", "fc"):
        (place / folder).mkdir()
        (place / folder / "participants.tsv").write_text("\n".join([COLUMNS, *rows]) + "\n")
        for k in range(24):
            scan = RNG.normal(size=(60, 5))
            scan = 0.5 * np.corrcoef(scan.T) if folder == "fc" else scan
            np.savetxt(place / folder / f"s{k:02d}.csv", scan, delimiter=",")
    brio.simulate(brio.Simulation(n_sites=2, per_class=6, n_rois=8, frames=60)).save(place / "few")
    brio.import_cohort("table", place / "table", out=place / "cohort")
    return place


def read(place, kind="table", folder="table", **options):
    brio.import_cohort(kind, place / folder, out=place / "new", **options)


def predict_other_rois(place):
    scans, labels = RNG.normal(size=(24, 60, 4)), np.arange(24) // 3 % 2
    model = brio.BrioClassifier("ridge", device="cpu").fit(scans, labels, sites=np.resize(SITES, 24))
    model.predict(RNG.normal(size=(2, 60, 5)))


def repeat_participant(place):
    sessions = {"participant_id": ["p", "p", "q", "r"], "session": [1, 2, 1, 1]}
    brio.Cohort.from_scans(RNG.normal(size=(4, 60, 5)), site=["A", "B", "A", "B"], label=[0, 0, 1, 1], **sessions)


PROVOKED = {
    "label column": (lambda p: read(p, label_column="diagnosis"), "give the right column with label_column="),
    "three classes": (
        lambda p: read(p, label_column="dx"),
        "give the values of both classes with patient= and control=",
    ),
    "numbers": (lambda p: read(p, label_column="age"), "'brio run', for example with label='age>14.5'"),
    "no such class": (lambda p: read(p, label_column="dx", patient="X"), "no value 'X' for patient=;"),
    "both classes": (lambda p: read(p, patient="1", control="1"), "patient= and control= are both '1'"),
    "id column": (lambda p: read(p, id_column="who"), "give the right column with id_column="),
    "an option of another kind": (
        lambda p: read(p, task="rest"),
        "does not take task=; its options are atlas=",
    ),
    "atlas table": (lambda p: read(p, atlas="table.csv"), "atlas= takes the name of an atlas"),
    "no atlas": (lambda p: read(p, "dpabi"), "needs atlas="),
    "measure": (lambda p: read(p, "fc", "fc"), "state which with measure='correlation' or measure='fisher-z'"),
    "no measure": (lambda p: read(p, "fc", measure="covariance"), "measure='covariance': unknown measure"),
    "sessions of connectomes": (
        lambda p: read(p, "fc", sessions="join"),
        "sessions='join': cannot combine connectomes",
    ),
    "no denoise": (lambda p: read(p, "fmriprep", atlas="aal"), "needs denoise="),
    "few sites": (lambda p: brio.run(p / "few", "ridge", device="cpu"), "of the same sites with protocol='kfold'$"),
    "folds": (
        lambda p: brio.run(p / "cohort", "ridge", protocol="kfold", settings={"protocol.n_folds": 50}, device="cpu"),
        "settings={'protocol.n_folds': N}",
    ),
    "classes at sites": (
        lambda p: brio.run(p / "cohort", "ridge", label="dx=a", device="cpu"),
        "settings={'audit.min_class': N}",
    ),
    "seeds of a search": (
        lambda p: brio.tune(p / "cohort", "ridge", out=p / "tuned", protocol="kfold", seeds=2),
        "tune with seeds=1, or with protocol='loso'",
    ),
    "folder there": (
        lambda p: brio.Cohort.load(p / "cohort").save(p / "few"),
        "already exists; remove it, or choose another folder",
    ),
    "single scans": (lambda p: brio.fit(p / "cohort", "fc-hgnn", device="cpu"), "holds_scans=True"),
    "validation sites": (
        lambda p: brio.fit(p / "cohort", "ridge", validation_sites=["A"], device="cpu"),
        "leave out validation_sites=",
    ),
    "columns": (predict_other_rois, "leave out additional columns with drop_roi="),
    "sites of a participant": (repeat_participant, "keep one of them (in an import, with sessions='first')"),
}


@pytest.mark.parametrize("name", PROVOKED)
def test_a_provoked_error_names_arguments(place, name):
    provoke, words = PROVOKED[name]
    with pytest.raises(BrioError) as caught:
        provoke(place)
    message = str(caught.value)
    assert re.search(re.escape(words).replace(r"\$", "$"), message), message
    assert "--" not in re.sub("'brio [^']*'", "", message)


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("resume with --device cuda, or choose another --out", "resume with device='cuda', or choose another folder"),
        ("--high-pass 0.1 must be below --low-pass 0.05", "high_pass=0.1 must be below low_pass=0.05"),
        ("give --set bold_tr=none to use", "give settings={'bold_tr': None} to use"),
        ("set one with --set refit=true.", "set one with settings={'refit': True}."),
        (
            "give --holds-scans, --by-order or --validation-site",
            "give holds_scans=True, by_order=True or validation_sites=",
        ),
        (
            "use --evaluate or a folder of 'brio run C --label 'age>14.5' --seeds 3'",
            "use evaluate=True or a folder of 'brio run C --label 'age>14.5' --seeds 3'",
        ),
        ("leave it out (--drop-roi 'a b' --drop-roi c)", "leave it out (drop_roi='a b' drop_roi='c')"),
        ("run again without --records-only", "run again without records_only=True"),
        ("add --fold, --with or --keep-all", "add folds=, companions= or exclude=False"),
        ("use 'brio study paper COHORT --out DIR' -- or not", "use 'brio study paper COHORT --out DIR' -- or not"),
        (
            "load its file (--load), a well-known--thing",
            "load its file (brio.methods.load_methods()), a well-known--thing",
        ),
    ],
)
def test_options_become_arguments(text, translated):
    assert name_arguments(text) == name_arguments(translated) == translated


def test_the_command_line_names_options(place):
    assert str(BrioError("--patient")) == "patient="
    said = command("import", "table", place / "table", "--label-column", "dx", "--out", place / "new").refuse()
    assert "with --patient and --control" in said.err


def test_a_user_of_python_reads_arguments(place):
    code = f"import brio; brio.import_cohort('table', {str(place / 'table')!r}, out='new', label_column='dx')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr.rstrip().endswith(
        "give the values of both classes with patient= and control= (each accepts several values)"
    )
