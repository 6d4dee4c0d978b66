"""A received model may be forged: altered in any place, with hashes that fit, it is refused or gives finite numbers."""

import functools
import math
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from damaged_files import Damages, damage, place
from safetensors.torch import load, save

from brio import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.jobs import JobSpec
from brio.models import adapt_model, evaluate_model, explain_model, fit_model, predict_scans, read_model, write_model
from brio.models.explain_output import describe_explanation
from brio.models.folder import write_card
from commands import command

SMALL = {
    "brio": {"epochs": 2, "T_w": 1, "M": 3, "K": 2, "J": 2, "cell_batch": 3, "sinkhorn_iterations": 5},
    "gcn": {"epochs": 1},
    "brio-plus": {"K": 2},
    "combat": {"harmonise.kind": "combat", "harmonise.unseen": "pooled", "harmonise.covariates": True},
    "residualise": {"harmonise.kind": "residualise", "harmonise.covariates": "age"},
}
KINDS = ("ridge", "log-ridge", "brio-plus", "gcn", "brio", "combat", "residualise", "adapted")
SAMPLE = 4
"""About how many cases of each file of a model are tried every time."""

pytestmark = pytest.mark.xdist_group("altered models")  # one process fits them


@pytest.fixture(scope="session")
def altered_cohort() -> Cohort:
    return simulate(Simulation(n_sites=4, per_class=5, n_rois=8, frames=50))


@pytest.fixture(scope="session")
def store_model(altered_cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Fit and write a model of a kind, once."""
    root = tmp_path_factory.mktemp("altered")

    @functools.cache
    def store(kind: str) -> Path:
        method = kind if kind in ("log-ridge", "brio-plus", "gcn", "brio") else "ridge"
        seeds = 2 if kind == "gcn" else 1
        spec = JobSpec(altered_cohort, [method], settings=SMALL.get(kind, {}), seeds=seeds, exclude=False, device="cpu")
        model = fit_model(spec, holds_scans=True)
        if kind == "ridge":
            model = evaluate_model(model, spec)
        if kind == "adapted":
            model = adapt_model(
                model, simulate(Simulation(n_sites=4, per_class=6, n_rois=8, frames=60, seed=9)), device="cpu"
            )
        write_model(model, root / kind)
        return root / kind

    return store


# ---------------------------------------------------------------- what is altered


TENSORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one more": lambda t: torch.cat([t.reshape(-1), t.reshape(-1)[:1]]) if t.ndim < 2 else torch.cat([t, t[:1]]),
    "one axis more": lambda t: t.unsqueeze(0),
    "flat": lambda t: t.reshape(-1),
    "transposed": lambda t: t.mT if t.ndim > 1 else t.reshape(-1)[:0],
    "empty": lambda t: t.new_zeros(0),
    "half": lambda t: t.half() if t.is_floating_point() else t.int(),
    "whole": lambda t: t.long() if t.is_floating_point() else t.double(),
    "true or false": lambda t: t != 0,
    "NaN": lambda t: torch.full_like(t, math.nan) if t.is_floating_point() else -t,
    "infinite": lambda t: make_infinite(t) if t.is_floating_point() else t + 10**6,
    "huge": lambda t: torch.full_like(t, 1e38) if t.is_floating_point() else torch.full_like(t, 2**62),
    "negative": lambda t: -t.abs() - 1,
    "zero": torch.zeros_like,
}


def make_infinite(t: torch.Tensor) -> torch.Tensor:
    """The first value alone."""
    return torch.where(torch.arange(t.numel()).reshape(t.shape) == 0, math.inf, t)


def save_changed(tensors: dict[str, torch.Tensor], name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
    return save(tensors | {name: change(tensors[name]).contiguous()})


def damage_tensors(tensors: dict[str, torch.Tensor]) -> Damages:
    """Drop, rename and change each of some tensors, and add one."""
    for name, tensor in tensors.items():
        others = {key: value for key, value in tensors.items() if key != name}
        yield f"{name} dropped", partial(save, others)
        for how, change in TENSORS.items():
            yield f"{name} {how}", partial(save_changed, tensors, name, change)
        yield f"{name} renamed", partial(save, {**others, f"{name}x": tensor})
    yield "extra", partial(save, tensors | {"parameters.extra": torch.zeros(3)})


def list_alterations(folder: Path, sample: int | None) -> Iterator[tuple[Path, str, Callable[[], bytes]]]:
    """Damage every JSON file, table and tensor of a model; of each file about so many cases."""
    for file in sorted(folder.iterdir()):
        content, cases = file.read_bytes(), []
        if file.suffix in (".json", ".tsv"):
            cases = list(damage(file.name, content))
        if file.suffix == ".safetensors":
            cases = list(damage_tensors(load(content)))
        for how, make in cases[:: max(1, len(cases) // sample) if sample else 1]:
            yield file, how, make


# ---------------------------------------------------------------- what is asked of it


def use(folder: Path, cohort: Cohort) -> None:
    """Do with a model what the commands do: finite numbers, or an error for people."""
    model = read_model(folder)
    table = predict_scans(model, cohort, reestimates=2, device="cpu").table
    values = table[["probability", "low", "high"]].to_numpy(dtype=float)
    assert ((values >= 0) & (values <= 1)).all()  # so none is missing
    write_card(model)
    try:
        explanation = explain_model(model, cohort, reestimates=2, device="cpu")
    except BrioError:
        return
    describe_explanation(explanation)
    for name in ("edges", "rois", "factors"):
        shown = getattr(explanation, name)
        if shown is not None:
            numbers = shown[[c for c in ("coefficient", "pattern", "emphasis", "share") if c in shown]]
            assert np.isfinite(numbers.to_numpy(dtype=float)).all(), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "sample"),
    [
        *((kind, SAMPLE) for kind in KINDS if kind != "log-ridge"),  # whose files are those of ridge
        *(pytest.param(kind, None, marks=pytest.mark.soak) for kind in KINDS),
    ],
)
def test_an_altered_model_is_refused_or_gives_finite_numbers(kind, sample, store_model, altered_cohort, tmp_path):
    here = shutil.copytree(store_model(kind), tmp_path / "model")
    cohort, wrong, n_refused = altered_cohort.select(np.arange(10)), [], 0
    for original, how, make in list_alterations(store_model(kind), sample):
        file = original.name
        place(here / file, make())
        try:
            use(here, cohort)
        except BrioError as error:
            n_refused += 1
            if "\n" in str(error):
                wrong.append(f"{file}: {how}: several lines")
        except Exception as error:  # which is what is looked for
            wrong.append(f"{file}: {how}: {type(error).__name__}: {str(error)[:100]}")
        place(here / file, original.read_bytes())
    assert n_refused > 0  # else nothing was altered
    assert not wrong, "\n".join(wrong)


def test_the_commands_say_what_is_wrong_and_where(store_model, altered_cohort, tmp_path):
    altered_cohort.select(np.arange(4)).save(tmp_path / "scans")
    folder = shutil.copytree(store_model("ridge"), tmp_path / "model")
    weights = folder / "weights-0.safetensors"
    tensors = load(weights.read_bytes())
    place(weights, save(tensors | {"learned.mean": tensors["learned.mean"][:, :-1].contiguous()}))
    for words in (("predict", folder, tmp_path / "scans"), ("explain", folder)):
        said = command(*words, "--device", "cpu", "--out", tmp_path / "out").refuse()
        text = " ".join(said.err.split())
        assert "'learned.mean' has the shape [8, 7], which does not match rois.tsv and model.json; " in text
        assert not (tmp_path / "out").exists()
