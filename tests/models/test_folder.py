"""A model survives being written and read; a damaged one is refused."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.models import predict_scans, read_model, write_model
from brio.models.sums import read_known_files
from brio.storage import write_recorded
from commands import command, refuse
from doctored import change_json
from stored import rehash

SURVIVORS = ("ridge", "brio")


@pytest.fixture(scope="module")
def folder(fit, tmp_path_factory):
    """A model with every kind of file."""
    out = tmp_path_factory.mktemp("models") / "ridge"
    write_model(fit("ridge", **{"harmonise.kind": "combat", "harmonise.unseen": "pooled"}), out)
    return out


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in ("ridge", "brio-plus", "brio", "gcn", "fc-hgnn")),
        ("ridge", {"harmonise.kind": "combat", "harmonise.unseen": "pooled"}),
        ("ridge", {"harmonise.kind": "residualise", "harmonise.covariates": "age,motion"}),
    ],
)
def test_margins_are_those_of_the_model_that_was_written(fit, cohort, tmp_path, name, settings):
    model = fit(name, **settings)
    write_model(model, tmp_path / "model")
    again = read_model(tmp_path / "model")
    connectomes = Connectomes(cohort)
    for first, second in zip(model.compute_margins(connectomes, 2), again.compute_margins(connectomes, 2), strict=True):
        np.testing.assert_array_equal(first, second)
    assert (again.training, again.ranges, again.evidence) == (model.training, model.ranges, model.evidence)
    assert again.method.settings == model.method.settings
    assert again.atlas.rois["name"].tolist() == model.atlas.rois["name"].tolist()
    explains = model.method.explain(model.members[0].fitted) is not None
    assert len(again.patterns) == len(model.patterns) == (len(model.members) if explains else 0)
    for first, second in zip(model.patterns, again.patterns, strict=True):
        for value, stored in zip(vars(first).values(), vars(second).values(), strict=True):
            np.testing.assert_array_equal(value, stored)


@pytest.mark.soak  # two new interpreters
def test_probabilities_are_the_same_in_a_new_process_with_another_number_of_threads(fit, cohort, tmp_path):
    scans, threads = cohort.select(np.arange(12)), 3 if torch.get_num_threads() == 2 else 2
    scans.save(tmp_path / "cohort")
    start = f"import torch; assert torch.get_num_threads() == {threads}; from brio.cli import main; main()"
    for name in SURVIVORS:
        write_model(fit(name), tmp_path / name)
        words = (tmp_path / name, tmp_path / "cohort", "--out", tmp_path / f"by-{name}", "--reestimates", 2)
        command = [sys.executable, "-c", start, "predict", *map(str, words), "--device", "cpu"]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
        found = pd.read_csv(tmp_path / f"by-{name}" / "predictions.csv")["probability"]
        own = predict_scans(fit(name), scans, reestimates=2, device="cpu").table["probability"]
        np.testing.assert_allclose(found, own, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
@pytest.mark.parametrize("name", SURVIVORS)
def test_probabilities_on_a_gpu_are_those_of_the_cpu(fit, cohort, tmp_path, name):
    write_model(fit(name), tmp_path / "model")
    model = read_model(tmp_path / "model")
    here, there = (predict_scans(model, cohort, reestimates=4, device=device).table for device in ("cpu", "cuda"))
    for column in ("probability", "low", "high"):
        np.testing.assert_allclose(there[column], here[column], rtol=0, atol=1e-4, err_msg=column)


def test_no_participant_is_named_in_a_model(folder, cohort):
    for file in folder.iterdir():
        content = file.read_bytes()
        assert not [name for name in cohort.ids if name.encode() in content]


def test_every_changed_file_is_refused_by_name(folder, cohort, tmp_path):
    cohort.select([0, 1]).save(tmp_path / "scans")
    assert len(list(folder.iterdir())) == 8
    for file in sorted(folder.iterdir()):
        for k, damage in enumerate(("flip", "cut", "remove")):
            copy = shutil.copytree(folder, tmp_path / f"{file.name}-{k}")
            content = bytearray((copy / file.name).read_bytes())
            if damage == "remove":
                (copy / file.name).unlink()
            else:
                content[len(content) // 2] ^= 1
                (copy / file.name).write_bytes(content if damage == "flip" else content[: len(content) // 2])
            said = command("predict", copy, tmp_path / "scans", "--out", tmp_path / "out").refuse()
            assert file.name in said.err
            assert "copy the model again" in said.err
            assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format=99), "has format 99, but this version of brio reads format 2"),
        (lambda d: d.update(version=99), "was fitted by version 99 of 'ridge'"),
        (lambda d: d.update(method="rigde"), "did you mean 'ridge'"),
        (lambda d: d.update(ranges=None), "ranges is null, expected an object"),
        (lambda d: d.update(block_length="long"), "'long', expected a number above 0 and at most 1,000,000,000"),
        (lambda d: d.update(classes=["HC", "HC"]), "has two classes with the same name, 'HC'"),
        (lambda d: d["training"].update(n_scans=7), "states 7 training scans, but its sites have"),
        (lambda d: d["training"].update(versions={"torch": "2"}), "does not state which version of brio fitted it"),
        (lambda d: d["harmonise"].update(kind="none"), "has harmonisation of the kind 'none'"),
        (
            lambda d: d["members"][0].update(harmonised_sites=[]),
            r"for seed 0 that do not match harmonise.kind=combat",
        ),
        (lambda d: d["members"].extend(d["members"]), "has two members with the same seed"),
    ],
)
def test_a_model_of_another_version_or_that_contradicts_itself_is_refused(folder, tmp_path, change, words):
    copy = shutil.copytree(folder, tmp_path / "copy")
    change_json(copy / "model.json", change)
    refuse(words, read_model, copy)


COEFFICIENTS = "parameters.coefficients"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors | {COEFFICIENTS: tensors[COEFFICIENTS] * torch.nan}, "values that are not finite"),
        (lambda tensors: {k: v for k, v in tensors.items() if k != COEFFICIENTS}, f"lacks the tensor '{COEFFICIENTS}'"),
    ],
)
def test_weights_that_no_fit_gives_are_refused(folder, tmp_path, change, words):
    file = shutil.copytree(folder, tmp_path / "copy") / "weights-0.safetensors"
    save_file(change(load_file(file)), file)
    refuse(words, read_model, rehash(file.parent))


def test_what_is_no_model_or_exists_already_is_refused(folder, ridge, tmp_path):
    refuse("is not a model", read_model, tmp_path)
    sums = shutil.copytree(folder, tmp_path / "copy") / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.open() if "patterns" not in line))
    refuse("no line for patterns", read_model, sums.parent)
    refuse("already exists", write_model, ridge, folder)
    assert not list(folder.parent.glob("*.partial"))


def test_a_model_knows_the_header_of_its_files_where_names_are_repeated(cohort, fit, tmp_path):
    header = ["Insula", "Cuneus", "Insula", *(f"r{u}" for u in range(13))]
    model = fit("ridge", replace(cohort, provenance={"header": header}))
    write_model(model, tmp_path / "model")
    assert list(read_known_files(tmp_path / "model")["known_header"]) == header
    assert list(read_model(tmp_path / "model").training.header) == header
    write_model(fit("ridge"), tmp_path / "other")
    known = read_known_files(tmp_path / "other")
    assert known["known_rois"].rois.equals(cohort.atlas.rois)
    assert known | {"known_rois": None} == {"known_header": (), "known_extraction": None, "known_rois": None}


def test_a_header_is_not_read_from_a_file_that_is_nested_too_deeply(tmp_path):
    write_recorded(tmp_path, {"model.json": "[" * 100_000})
    refuse(r"model\.json.*nested", read_known_files, tmp_path)


def test_a_model_of_sites_with_one_patient_each_is_written(tmp_path):
    made = simulate(Simulation(n_sites=4, per_class=10, n_rois=8, frames=60))
    patients = np.concatenate(
        [np.flatnonzero((made.sites == e) & (made.labels == 1))[1:] for e in np.unique(made.sites)]
    )
    cohort = made.select(~np.isin(np.arange(len(made)), patients))
    model = brio.fit(cohort, "log-ridge", device="cpu", evaluate=True, out=tmp_path / "model")
    read = brio.load_model(tmp_path / "model")
    assert read.evidence == model.evidence
    assert read.attacks == model.attacks
    assert None in (read.attacks.diagnosis_in, read.attacks.diagnosis_out)  # a half of the patients is one or two
