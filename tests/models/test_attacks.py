"""The attacks of the benchmark on a simulated cohort: they find what a model stores, and else less."""

import csv
import importlib.util
from pathlib import Path

import pytest

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.models.attacks import read_measured_attacks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def attacks():
    """The benchmark."""
    spec = importlib.util.spec_from_file_location("model_attacks", ROOT / "benchmarks" / "model_attacks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def connectomes():
    return Connectomes(simulate(Simulation(n_sites=4, per_class=14, n_rois=32, frames=120, seed=2)))


def test_stored_rows_give_labels_and_participants_away(attacks, connectomes, tmp_path):
    found = attacks.attack_method("fc-hgnn", connectomes, "simulated")
    assert found.rows_diagnosis > 0.95
    assert found.rows_recognised > 0.5 * found.rows
    attacks.add_row(tmp_path / "rows.csv", found)
    attacks.add_row(tmp_path / "rows.csv", found)
    (row,) = csv.DictReader((tmp_path / "rows.csv").open())
    assert (row["method"], row["rows"]) == ("fc-hgnn", str(found.rows))


def test_coefficients_tell_members_from_others(attacks, connectomes):
    ridge = attacks.attack_method("ridge", connectomes, "simulated")
    assert ridge.membership > 0.6
    assert ridge.diagnosis_in > ridge.diagnosis_out
    assert ridge.rows is None
    assert ridge.describe_rows() == ""


def test_the_package_carries_the_figures_of_the_evidence(attacks):
    evidence = ROOT / "evidence" / "measurements" / "model-attacks.csv"
    assert (ROOT / "src" / "brio" / "models" / "measured_attacks.csv").read_bytes() == evidence.read_bytes()
    names, page = [row["method"] for row in csv.DictReader(evidence.open())], (ROOT / "docs" / "models.md").read_text()
    assert {*names} == {*attacks.METHODS}, "every kind of model that a cohort can be fitted with"
    for name in names:
        measured = read_measured_attacks(name)
        numbers = (measured.membership, measured.diagnosis_in, measured.diagnosis_out)
        assert f"| `{name}` | {' | '.join(f'{number:.2f}' for number in numbers)} |" in page
        assert (measured.rows is not None) == (name in attacks.ATTACKS_ON_ROWS)
    assert read_measured_attacks("own method") is None
