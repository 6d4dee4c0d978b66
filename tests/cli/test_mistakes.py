"""Mistakes that newcomers make, each with the sentence that answers it. Add a line for every new one.

Every answer is one line on standard error; nothing is printed or written besides.
"""

import shutil

import numpy as np
import pytest

from brio.cohort import Cohort

RUN = "run cohort --out new"
TABLE = "import table scans --out new"
FC = "import fc fc --out new"

MISTAKES = [
    # names
    (f"{RUN} --method rigde", "method 'rigde' is unknown; did you mean 'ridge'?"),
    (f"{RUN} --method ridge --set penaltys=3", "setting 'penaltys' is unknown to ridge; did you mean 'penalties'?"),
    (f"{RUN} --method ridge --set audit.min_frame=3", "did you mean 'audit.min_frames'?"),
    (f"{RUN} --method ridge --set audits.min_frames=3", "settings with a dot must begin with 'protocol.' or 'audit.'"),
    (f"{RUN} --method ridge --set penalties:3", "--set penalties:3: write it as key=value"),
    (f"{RUN} --method ridge --set penalties=many", "setting 'penalties'=many: must be a whole number from 1 to 1,000"),
    (f"{RUN} --method ridge --set penalties=0", "setting 'penalties'=0: must be a whole number from 1 to 1,000"),
    (f"{RUN} --method ridge --set penalties=2 --set penalties=3", "--set penalties: given more than once"),
    (f"{RUN} --method brio --set variant=none", "'variant'=none: must be full, w/o QG"),
    (f"{RUN} --method backbone --set lambda_env=1", "method 'backbone' fixes 'lambda_env' to 0.0"),
    (f"{RUN} --method ridge --fold site99", "The folds are site01, site02, site03, site04, site05."),
    (f"{RUN} --method ridge --fold SITE02", "fold 'SITE02' is unknown; did you mean 'site02'?"),
    (f"{RUN} --method ridge --device gpu", "device 'gpu' is unknown"),
    (f"{RUN} --method ridge --protocol lso", "setting 'protocol'=lso: must be loso or kfold"),
    (f"{RUN} --method ridge --seeds 0", "--seeds 0: must be a whole number from 1 to 1,000"),
    (f"{RUN} --method ridge --set epochs=4", "'epochs' is unknown to ridge"),
    (f"{RUN} --method brio --set mlp_bias=perhaps", "'mlp_bias'=perhaps: must be true or false"),
    (f"{RUN} --set dead_rois=leave", "'dead_rois'=leave: must be source-mean or zero"),
    (f"{RUN} --method brio --set epochs=4 --set T_w=4", "T_w"),
    (f"{RUN} --set protocol.validation_sites=none", "=none: must be a whole number from 0 to 10,000 or auto"),
    (f"{RUN} --protocol kfold --set protocol.n_folds=3", "n_folds"),
    (f"{RUN} --protocol kfold --method ridge --set protocol.n_folds=1000", "n_folds"),
    (f"{RUN} --method ridge --set audit.min_frames=5000", "the audit excludes every scan"),
    ("settings rigde", "did you mean 'ridge'?"),
    ("simulate --out new --rois 10", "'n_rois'=10: must be a multiple of four"),
    ("audit cohort --set min_frame=3", "'audit.min_frame' is unknown; did you mean 'audit.min_frames'?"),
    ("audit cohort --set min_frames=x", "'audit.min_frames'=x: must be a whole number"),
    ("fetch abide --atlas aal9 --out new", "aal9"),
    ("study ablatoin cohort --out new", "study 'ablatoin' is unknown; did you mean 'ablation'?"),
    # places
    ("run cohrot --method ridge --out new", "cohrot: is not a cohort folder (cohort.json is missing); create one with"),
    ("run scans --method ridge --out new", "scans: is not a cohort folder (cohort.json is missing); create one with"),
    ("run cohort --method ridge --out scans", "contains files that do not belong to a brio job; choose another --out"),
    ("study comparison cohort --method ridge --out scans", "contains files that do not belong to a brio study"),
    ("run cohort --method ridge --out cohort/cohort.json", "is a file, not a folder; choose another --out"),
    ("run cohort --method ridge --tuned job --out new", "job/tuning.json: cannot be read"),
    ("simulate --out cohort", "cohort: already exists; remove it, or choose another --out"),
    ("simulate --out job/plan.json/new", "job/plan.json"),
    (f"{RUN} --with nowhere", "nowhere: is not a cohort folder"),
    ("import table nowhere --out new", "nowhere: no such folder"),
    ("atlas nowhere power264 --out new", "nowhere: is not a cohort folder"),
    ("atlas cohort power264 --out new", "'stable_1_L' has no row in table power264"),
    ("table job --figure sites.xls", "--figure sites.xls: must end in"),
    ("table job --figure nowhere/sites.png", "nowhere"),
    ("table job job --figure sites.png", "--figure shows a single job; give only one folder"),
    ("report nowhere", "nowhere: this folder does not exist; give the --out folder of 'brio run'"),
    ("table cohort", "cohort: has no summary.json"),
    ("table nowhere", "nowhere: this folder does not exist; give the --out folder of 'brio run'"),
    ("compare nowhere", "nowhere: this folder does not exist; give the --out folder of 'brio run'"),
    ("explain job --out new", "a results folder of 'brio run'; give a folder that 'brio fit' wrote\n"),
    ("predict job scans --out new", "give a folder that 'brio fit' wrote, followed by the scans\n"),
    ("run job --method ridge --out new", "job: is a results folder of 'brio run', not a cohort folder"),
    ("predict cohort scans --out new", "is not a model, but a cohort folder; give a folder that 'brio fit' wrote"),
    # a folder that holds another job
    ("run cohort --method ridge --seeds 3 --out job", "(seeds: 1, now 3). Choose another --out, or resume that job"),
    ("run cohort --method ridge --method svm --out job", "methods: ridge, now ridge, svm"),
    ("run cohort --method ridge --fold site01 --out job", "folds: all, now site01"),
    ("run cohort --method ridge --set penalties=3 --out job", "setting penalties of ridge: 5, now 3"),
    ("run cohort --method ridge --set harmonise.kind=combat --out job", "setting harmonise.kind: none, now combat"),
    ("run cohort --method ridge --keep-all --out job", "(keep-all: false, now true)"),
    ("tune cohort --method ridge --out job", "job: contains a job that 'brio tune' did not write"),
    # options in a file
    ("run --config nowhere.toml", "nowhere.toml: cannot be read (No such file or directory); 'brio config COMMAND'"),
    (
        "run --config scans",
        "brio: scans: is not a TOML file of at most 128 KiB; 'brio config COMMAND' prints a file to start from\n",
    ),
    (f"{RUN} --engine cloud", "engine 'cloud' is unknown"),
    (f"{RUN} --engine dask --shard 1/2", "--shard cannot be used with --engine dask; leave out --shard"),
    (f"{RUN} --engine dask --slurm none.toml", "none.toml: cannot be read (No such file or directory); --slurm takes"),
    ("run --config broken.toml", "broken.toml: is not TOML"),
    ("run --config unknown.toml", "'brio run' has no option 'methods'; did you mean 'method'?"),
    ("run --config text.toml", "text.toml: 'seeds' must be a whole number, not \"three\""),
    ("run --config flat.toml", "flat.toml: 'set' must be a table: write [set]"),
    ("run --config tables.toml", "tables.toml: 'protocol' is a table, but only [set] may be a table"),
    ("fit --config list.toml", "list.toml: 'method' is a list, but must be a single value"),
    ("config rnu --seeds 3", "rnu: is not a command that takes --config; did you mean 'run'?"),
    ("config cohort", "cohort: is not the folder of a job (plan.json is missing)"),
    # the order of arguments, and what is left out
    ("tune cohort --out new", "no method was given; give one with --method NAME ('brio methods' lists the methods)"),
    ("tune ridge cohort --out new", "got unexpected extra argument(s) (cohort); see 'brio tune --help'"),
    ("runn", "no such command 'runn'"),
    ("run cohort", "missing option '--out'; see 'brio run --help'"),
    ("run --out x", "missing argument 'cohort'"),
    ("run cohort --methods x", "no such option: --methods"),
    ("run cohort --out x --seeds abc", "--seeds: must be a whole number; see 'brio run --help'"),
    ("predict model cohort --out x --accuracy much", "--accuracy: must be a number; see 'brio predict --help'"),
    ("run cohort --out", "option '--out' requires an argument"),
    # files of one's own
    (f"{TABLE} --label-column dx", "give the values of both classes with --patient and --control"),
    (f"{TABLE} --site-column sites", "has no column 'sites'; did you mean 'site'?"),
    (f"{TABLE} --participants people.tsv", "people.tsv: no such participants table"),
    (f"{TABLE} --atlas-table power", "power: is neither a file nor a known atlas; known atlases: aal116, cc200, po"),
    (f"{TABLE} --drop-roi roi05", "has no ROI 'roi05' to drop; similar names: roi005"),
    ("import tabel scans --out new", "unknown layout 'tabel'; did you mean 'table'?"),
    (f"{TABLE} --atlas rois.tsv", "--atlas-table"),
    ("import table fc --out new", "is a square symmetric matrix (such as a connectome)"),
    ("import fc scans --out new", "a connectome must be square; import time series"),
    (f"{FC} --measure r", "--measure r: unknown measure; known: correlation, fisher-z"),
    ("import table scans/p1.npy --out new", "is a file; give the folder of the scans, such as scans"),
    (f"{TABLE} --participants gone/people.tsv", "or in scans (there is no folder gone)"),
    ("import fc fc/p1.npy --out new", "is one file; give an npz file with all connectomes, or a folder"),
]


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """Files with mistakes in them, beside the cohort and the job; every test holds that they stay as they are."""
    here = tmp_path_factory.mktemp("mistaken") / "here"
    shutil.copytree(made, here)
    rng = np.random.default_rng(0)
    for folder in ("scans", "fc"):
        (here / folder).mkdir()
        rows = [f"p{i}\tA\t{i % 2}\t{'abc'[i % 3]}" for i in range(4)]
        (here / folder / "participants.tsv").write_text("\n".join(["participant_id\tsite\tlabel\tdx", *rows]) + "\n")
        for i in range(4):
            frames = rng.normal(size=(50, 6))
            np.save(here / folder / f"p{i}.npy", frames if folder == "scans" else np.corrcoef(frames.T))
    (here / "rois.tsv").write_text("name\nroi1\n")
    start = 'cohort = "cohort"\nout = "new"\n'
    (here / "broken.toml").write_text("cohort = cohort\n")
    (here / "unknown.toml").write_text(start + 'methods = ["ridge"]\n')
    (here / "text.toml").write_text(start + 'seeds = "three"\n')
    (here / "flat.toml").write_text(start + 'set = "epochs=3"\n')
    (here / "tables.toml").write_text(start + "[protocol]\nvalidation_sites = 1\n")
    (here / "list.toml").write_text(start + 'method = ["ridge"]\n')
    return here


@pytest.fixture
def mistaken(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(("words", "answer"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_answered_in_a_sentence_that_names_the_way_out(words, answer, mistaken, brio):
    before = {path: path.stat().st_mtime_ns for path in mistaken.rglob("*")}
    said = brio(*words.split())
    assert answer in said.refuse_in_a_line()
    assert said.out == ""
    assert {path: path.stat().st_mtime_ns for path in mistaken.rglob("*")} == before


@pytest.mark.parametrize(
    "words",
    [
        "run flat --keep-all --method ridge",
        "tune flat --keep-all --method ridge --budget 2",
        "fit flat --keep-all --method ridge --checkpoint-every 5",
        "study calibration flat --keep-all --method ridge --seeds 1",
        "run cohort --method ridge --engine dask --scheduler tcp://127.0.0.1:9",
    ],
)
def test_a_job_that_is_refused_after_it_was_planned_leaves_no_folder(brio, here, monkeypatch, words):
    if "dask" in words:
        clusters = pytest.importorskip("brio.jobs.dask")
        monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1, raising=True)
    rng = np.random.default_rng(0)
    scans = [rng.normal(size=(60, 3)) for _ in range(20)]
    scans[3][:] = 1.0
    sites, labels = [f"site{k % 5}" for k in range(20)], [k // 5 % 2 for k in range(20)]
    Cohort.from_scans(scans, site=sites, label=labels).save("flat")
    before = set(here.iterdir())
    said = brio(*words.split(), "--quiet", "--out", "deep/new").refuse()
    assert set(here.iterdir()) == before, said
