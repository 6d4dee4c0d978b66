"""What Python users see: the result of a job as text, as a page in a notebook and as a report."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import brio
from brio import BrioError
from brio.cohort.simulate import Simulation, simulate


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    cohort = simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60))
    return brio.run(cohort, ["ridge", "length-only"], seeds=2, out=tmp_path_factory.mktemp("api") / "o", device="cpu")


def test_the_table_is_the_summary_in_percent(result):
    table = result.table()
    assert list(table.index) == ["ridge", "length-only"]
    ridge = result.summary.methods["ridge"]
    assert table.loc["ridge", "AUC"] == 100 * ridge.auc.mean
    assert table.loc["ridge", "low"] == 100 * ridge.auc.interval[0]


def test_a_result_prints_its_table_and_is_named_in_one_line(result):
    auc = f"{100 * result.summary.methods['ridge'].auc.mean:.1f}"
    assert re.search(rf"^ +ridge +{re.escape(auc)} ", str(result), flags=re.MULTILINE)
    assert str(result).endswith(f"Folder: {result.folder}")
    assert repr(result) == f"Result(folder={str(result.folder)!r}, methods=['ridge', 'length-only'])"


def test_a_notebook_shows_the_table_with_what_to_know_about_it(result):
    page = result._repr_html_()
    auc = f"{100 * result.summary.methods['ridge'].auc.mean:.1f}"
    assert page.count("<tr>") == 3
    assert re.search(rf"<th [^>]*>ridge</th><td [^>]*>{re.escape(auc)}</td>", page)
    assert "Scores in percent" in page
    assert "This is a smoke run" in page
    warned = dataclasses.replace(result.summary, warnings=("a <b>shortcut</b>",), smoke_run=False)
    page = dataclasses.replace(result, summary=warned)._repr_html_()
    assert "warning: a &lt;b&gt;shortcut&lt;/b&gt;" in page
    assert "smoke run" not in page
    single = dataclasses.replace(result.summary, folds=("site01",), seeds=(0,))
    assert dataclasses.replace(result, summary=single).notes[0].startswith("1 test site, 1 seed, ")


def test_a_result_writes_its_report(result, tmp_path):
    assert result.report() == result.folder / "report.html"
    page = result.report(tmp_path / "new" / "mine.html")
    assert page == tmp_path / "new" / "mine.html"
    assert "ridge" in page.read_text(encoding="utf-8")
    assert (tmp_path / "new" / "MODEL_CARD.md").is_file()


def test_all_studies_of_the_paper_are_left_to_the_command_line(tmp_path):
    with pytest.raises(BrioError, match=r"brio.study makes a single study; .* 'brio study paper COHORT --out DIR'"):
        brio.study("paper", tmp_path / "nowhere", out=tmp_path / "o")


def test_single_values_need_no_list(tmp_path):
    cohort = simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60))
    options = {"folds": "site02", "companions": cohort, "device": "cpu"}
    once = brio.run(cohort, "ridge", out=tmp_path / "job", **options)
    assert once.rows["fold"].tolist() == ["site02"]
    study = brio.study(
        "comparison", cohort, out=tmp_path / "study", methods="ridge", reuse=tmp_path / "job", seeds=1, **options
    )
    assert [Path(folder).name for folder in study.record.options.reuse] == ["job"]


# ---------------------------------------------------------------- arguments of every kind


def number_items():
    yield from (1, 2)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Every public function with arguments that it takes, by name; some make a new folder for each call."""
    place = tmp_path_factory.mktemp("calls")
    cohort = simulate(Simulation(n_sites=4, per_class=4, n_rois=8, frames=60)).save(place / "cohort")
    scans = [cohort.scan(i) for i in range(len(cohort))]
    model = brio.fit(cohort, "ridge", device="cpu", out=place / "model")
    known = {"device": "cpu", "settings": {}, "companions": (), "exclude": True, "runs_per_stack": None}
    job = {"cohort": cohort, "label": None, "seeds": 1, "folds": ["site01"], "protocol": "loso", **known}
    result = brio.run(cohort, "ridge", device="cpu", out=place / "job")
    estimator = brio.BrioClassifier("ridge", device="cpu").fit(scans, cohort.labels, sites=cohort.sites)
    out = {"out": None}
    return (
        cohort,
        place,
        {
            "run": (brio.run, {"methods": ["ridge"], "tuned": None, "checkpoint_every": 0, **job, **out}),
            "tune": (brio.tune, {"methods": ["ridge"], "budget": 1, "oracle": False, **job, **out}),
            "study": (brio.study, {"name": "nothing", "methods": ["ridge"], "reuse": (), **job, **out}),
            "fit": (brio.fit, {"cohort": cohort, "method": "ridge", "evidence": None, "leave_out": (), **known, **out}),
            "predict": (brio.predict, {"model": model, "scans": cohort, "reestimates": 2, "device": "cpu", **out}),
            "load_model": (brio.load_model, {"path": place / "model"}),
            "import_cohort": (brio.import_cohort, {"kind": "table", "src": place / "nowhere", **out}),
            "audit": (brio.audit, {"cohort": cohort, "companions": ()}),
            "simulate": (brio.simulate, {"simulation": Simulation(n_sites=2, per_class=2, n_rois=8, frames=60)}),
            "Simulation": (brio.Simulation, {"burst_in_stable": False, "seed": 0, "duplicates": 0}),
            "AuditRules": (brio.AuditRules, {"min_frames": 40}),
            "Atlas": (brio.Atlas, {"name": "a", "rois": cohort.atlas.rois}),
            "Atlas.unnamed": (brio.Atlas.unnamed, {"n_rois": 3, "name": "a"}),
            "Cohort.load": (brio.Cohort.load, {"path": place / "cohort"}),
            "Cohort.save": (cohort.save, {"path": None}),
            "Cohort.select": (cohort.select, {"keep": [0]}),
            "Cohort.scan": (cohort.scan, {"i": 0}),
            "Cohort.from_scans": (
                brio.Cohort.from_scans,
                {
                    **{"scans": scans, "site": list(cohort.sites), "label": cohort.labels.tolist(), "covariates": None},
                    **{"participant_id": None, "session": None, "atlas": None, "classes": ("a", "b"), "name": "n"},
                    **{"provenance": None, "check_axes": True},
                },
            ),
            "Result.report": (result.report, {"path": None, "predictions": ()}),
            "BrioClassifier.predict": (estimator.predict, {"X": scans[:1]}),
            **{
                f"BrioClassifier, {name}": (
                    lambda _value=None, _name=name, **given: brio.BrioClassifier(**{"device": "cpu", **given}).fit(
                        scans, cohort.labels, sites=cohort.sites
                    ),
                    {name: value},
                )
                for name, value in {"method": "ridge", "kind": "scans", "device": "cpu", "settings": None}.items()
            },
        },
    )


ODD = {
    **{"None": None, "number": 3, "negative": -1, "NaN": float("nan"), "huge": 10**400, "half": 1.5, "complex": 1j},
    **{"true": True, "text": "text", "empty text": "", "null": "a\0b", "half a letter": "\udcff", "bytes": b"x"},
    **{"path": Path("nowhere"), "numpy int": np.int64(2), "numpy float": np.float32(0.5), "numpy bool": np.bool_(True)},
    **{"numpy text": np.str_("text"), "date": np.datetime64("2020-01-01"), "empty list": [], "a None": [None]},
    **{"numbers": [1, 2], "texts": ["x"], "tuple": (), "dict": {}, "numbered": {1: 2}, "named": {"a": [1]}},
    **{"set": {1, 2}, "array": np.zeros(3), "no values": np.zeros(0), "table": np.zeros((2, 2)), "range": range(3)},
    **{"objects": np.array([None, "a"], dtype=object), "series": pd.Series([1, 2]), "frame": pd.DataFrame({"a": [1]})},
    **{"object": object(), "type": int, "function": len, "generator": number_items, "no scans": None},
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_argument_of_any_public_function_is_taken_or_refused_in_a_sentence(calls, odd, tmp_path, monkeypatch):
    """Never with a traceback of another error; forty draws of function and argument each."""
    cohort, place, functions = calls
    monkeypatch.chdir(tmp_path)
    draws, failures = np.random.default_rng(list(ODD).index(odd)), []
    cells = [(name, argument) for name, (_, known) in functions.items() for argument in known]
    monkeypatch.setattr("brio.api.run_job", refuse_the_rest)
    monkeypatch.setattr("brio.api.tune_job", refuse_the_rest)
    monkeypatch.setattr("brio.models.fit_model", refuse_the_rest)
    monkeypatch.setattr("brio.models.predict_scans", refuse_the_rest)
    for name, argument in cells if odd in ("None", "no scans") else draws.permutation(cells)[:40]:
        value = number_items() if odd == "generator" else cohort.select([]) if odd == "no scans" else ODD[odd]
        function, known = functions[name]
        new = {key: place / f"{odd} {name}" for key, old in known.items() if key in ("out", "path") and old is None}
        try:
            function(**{**known, **new, argument: value})
        except (BrioError, IndexError):
            continue
        except Exception as error:
            if not (isinstance(error, ValueError) and name.startswith("BrioClassifier")):  # what scikit-learn says
                failures.append((name, argument, repr(error)))
    assert failures == []


def refuse_the_rest(*arguments, **options):
    raise BrioError("what was given could be used")


def test_numbers_and_lists_of_numpy_are_those_of_python(tmp_path):
    cohort = simulate(Simulation(n_sites=4, per_class=4, n_rois=8, frames=60))
    result = brio.run(cohort, np.array(["ridge"]), seeds=np.int64(1), folds=np.array(["site01"]), device="cpu")
    assert result.rows["fold"].tolist() == ["site01"]
    with pytest.raises(BrioError, match=r"argument 'cohort'.*a Cohort with scans or a path"):
        brio.run(cohort.select([]), "ridge")
    with pytest.raises(BrioError, match="argument 'check_axes'=no: must be True or False"):
        brio.Cohort.from_scans([], site=[], label=[], check_axes="no")
