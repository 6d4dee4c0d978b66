"""From the output of pytest-benchmark to the page of ratios: sums of parts, targets, misses and floors."""

import importlib
import json
import sys

import pandas as pd
import pytest
import torch

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.studies.study import PAPER
from brio.training import Run, Stack


@pytest.fixture
def benchmarks_page():
    return importlib.import_module("result_pages.benchmarks")


def measured(group, contender, seconds, param=None, **facts):
    params = None if contender is None else {"contender": contender}
    stats = {"min": seconds, "median": 9 * seconds}
    return {"group": group, "params": params, "param": param, "stats": stats, "extra_info": {"times": 1} | facts}


RUN = [
    measured("FC", "brio", 0.5, "116 ROIs-brio", floor=0.1),
    measured("FC", "loop", 1.0, "116 ROIs-loop", target=3),
    measured("ridge", "brio", 4.0, floor=1.0, part_of="both", most_seconds_together=10),
    measured("ridge", "grid", 3.0, times=20, part_of="both", most_seconds_together=10),
    measured("svm", "brio", 5.0, floor=2.0, part_of="both", most_seconds_together=10),
    measured("svm", "grid", 1.0, times=20, part_of="both", most_seconds_together=10),
    measured("plus", None, 4.0, most_seconds=3.5),
]


@pytest.fixture
def kept(tmp_path, monkeypatch, capsys):
    """What is kept of a run, by the command."""
    conditions = {"device": "cpu", "threads": 2, "scans": 1000, "fits": "1030 scans"}
    machine = {"cpu": {"brand_raw": "Chip"}, "node": "me"}
    result = {"benchmarks": RUN, "conditions": conditions, "machine_info": machine, "datetime": "2026-11-16T10:00:59Z"}
    repeated = [one for one in RUN if one["group"] in ("svm", "plus")]  # one of two parts of a sum, and a whole
    later = result | {"benchmarks": repeated, "datetime": "2026-11-17T10:00"}
    earlier = [one | {"stats": {"min": 99.0}} if one in repeated else one for one in RUN]
    (tmp_path / "result.json").write_text(json.dumps(result | {"benchmarks": earlier}))
    (tmp_path / "later.json").write_text(json.dumps(later))
    target, results = tmp_path / "bench" / "cpu.json", [tmp_path / "result.json", tmp_path / "later.json"]
    monkeypatch.setattr(sys, "argv", ["ratios.py", *map(str, results), "--keep", str(target), "--note", "Noisy."])
    importlib.import_module("ratios").main()
    assert "| both | 9 | 10 | 3.0x | grid | 80 | 8.9 |  |" in capsys.readouterr().out
    return target


def test_kept_are_sums_of_parts_multiples_and_no_name_of_the_computer(kept):
    work = json.loads(kept.read_text())["work"]
    assert work["both"]["seconds"] == {"brio": 9.0, "grid": 80.0}
    assert (work["both"]["floor"], work["both"]["most_seconds"]) == (3.0, 10)
    entry = {"seconds": {"brio": 0.5, "loop": 1.0}, "targets": {"loop": 3}, "most_seconds": None, "floor": 0.1}
    assert work["FC, 116 ROIs"] == entry | {"measured": "2026-11-16 10:00"}
    assert (work["plus"]["seconds"], work["plus"]["measured"]) == ({"brio": 4.0}, "2026-11-17 10:00")  # the later run
    assert '"me"' not in kept.read_text()


def render(**names):
    return importlib.import_module("result_pages").render_page("benchmarks", **names)


def test_page_says_what_is_met_and_what_is_missed(kept, benchmarks_page, monkeypatch):
    monkeypatch.setattr(benchmarks_page, "FOLDER", kept.parent)
    text = render()
    assert "**1 of 3 targets are met on a CPU, " in text
    assert "| FC, 116 ROIs | 500\N{NO-BREAK SPACE}ms (5.0x) | loop | 1\N{NO-BREAK SPACE}s | 2.0 | 3x: missed |" in text
    assert "| both | 9\N{NO-BREAK SPACE}s (3.0x) |  |  |  | at most 10 s: met |" in text
    assert "| both | 9\N{NO-BREAK SPACE}s (3.0x) | grid | 80\N{NO-BREAK SPACE}s | 8.9 |  |" in text
    assert "Chip" in text
    assert "Noisy." in text
    assert "2026-11-16 10:00 and 2026-11-17 10:00" in text


def test_a_page_without_a_measurement_is_refused(benchmarks_page, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks_page, "FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match="no benchmark"):
        render()


def test_targets_on_a_gpu_are_compared_with_the_stored_table(benchmarks_page):
    columns = ["runs", "epochs", "steps", "ms per step", "transport, ms", "refresh, ms", "products, TFLOP", "device"]
    rows = [
        ["20", "100", "27", "4.00", "1.00", "77.0", "667", "cuda (NVIDIA H200, TF32)"],
        ["100", "100", "27", "15.00", "1.00", "300.0", "667", "cuda (NVIDIA H200, TF32)"],
        ["20", "100", "27", "99.00", "9.00", "99.0", "667", "cuda (NVIDIA H200)"],  # full precision
    ]
    twenty, hundred, transport, refresh = benchmarks_page.list_training_rows(pd.DataFrame(rows, columns=columns))
    assert twenty.own_cell.replace("\N{NO-BREAK SPACE}", " ") == "4 ms (8.0x)"  # floor: 667 TFLOP in 2,700 steps
    assert [row.outcome for row in (twenty, hundred, transport, refresh)] == ["met", "missed", "met", "missed"]


def test_the_count_of_products_is_that_of_torch():
    """But for the smaller ones, before and after the layers."""
    from brio_flops import count_flops
    from torch.utils.flop_counter import FlopCounterMode  # it imports Triton where that is installed

    cohort = simulate(Simulation(n_sites=5, per_class=4, n_rois=116, frames=60))
    method = make_method("brio", {"epochs": 2, "T_w": 1})
    stack = Stack.build(method, Connectomes(cohort), [Run(leave_one_site_out(cohort, 0)[0], 0)])
    stage = method.stages()[0]
    method.begin_stage(stack, stage)
    batch = torch.from_numpy(stack.sources.batches(1, method.settings.cell_batch)[0][0])
    for weights in stack.params.values():
        weights.requires_grad_(True)
    with FlopCounterMode(display=False) as counter:
        stack.compute_losses(batch, torch.zeros(1, dtype=torch.int64), torch.tensor(1.0), stage).sum().backward()
    counted = count_flops(method.settings, cohort.n_rois, batch.numel(), n_refreshes=0, n_source=0, n_frames=0)
    assert 0.95 < counted / counter.get_total_flops() < 1.0


@pytest.mark.parametrize(
    ("studies", "seconds", "outcome"), [(PAPER, 10, "met"), (PAPER, 100, "missed"), (PAPER[2:], 10, "open")]
)
def test_times_of_all_studies_are_compared_with_their_floor_and_target(benchmarks_page, studies, seconds, outcome):
    """Every study takes so many seconds and 494 TFLOP, one second at the peak; some studies meet no target for all."""
    table = pd.DataFrame({"study": studies, "whole s": float(seconds), "products, TFLOP": 494.0})
    row = benchmarks_page.sum_studies(table)
    assert (row.own, row.floor) == (len(studies) * seconds, len(studies))
    assert row.target_cell == f"at most 900 s: {outcome}"
    assert row.work.endswith("without `comparison` and `in-distribution` (target: all 12)") == (outcome == "open")
