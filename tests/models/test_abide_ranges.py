"""Strange scans of one left-out site of ABIDE: which kinds are flagged, and which are noted."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
SITE = "CALTECH"
FLAGGED = {"noise", "another atlas of the same size", "regions in another order", "all left regions first"}
NOTED = {"half the length", "another repetition time"}


@pytest.fixture(scope="module")
def benchmark_module():
    """What the benchmark of all sites makes strange scans with."""
    path = Path(__file__).parents[2] / "benchmarks" / "strange_scans.py"
    spec = importlib.util.spec_from_file_location("strange_scans", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_strange_scans_of_a_left_out_site(benchmark_module, abide_folder, tmp_path):
    aal, cc = benchmark_module.read_atlases(abide_folder, tmp_path)
    own, wide = (cohort.select(cohort.sites == SITE) for cohort in (aal, cc))
    scans = {"ordinary": own} | benchmark_module.make_strange(own, wide)
    checked = benchmark_module.check_without(aal, scans, SITE)
    assert {name for name, table in checked.items() if (table["flag"] == "foreign").all()} == FLAGGED
    assert {name for name, table in checked.items() if (table["flag"] == "").all()} == checked.keys() - FLAGGED
    assert {name for name, table in checked.items() if (table["notes"] != "").all()} >= NOTED
