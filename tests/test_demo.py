"""The demonstration: from nothing to a figure."""

import functools
import shutil

import numpy as np
import pandas as pd
import pytest

from brio import demo
from brio.cohort.simulate import Simulation

pytestmark = pytest.mark.xdist_group("demo")  # its tests share one small demonstration


def run_small(out, **options):
    """Run the demonstration on a small cohort with few epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "DEMO_SETTINGS", {"epochs": 4, "T_w": 2, "M": 2, "K": 2})
        patch.setattr(demo, "Simulation", functools.partial(Simulation, n_sites=5, per_class=3, n_rois=8, frames=60))
        return demo.run_demo(out, **options)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A small demonstration: its folder, its result, what it said and the shares it reported; never changed."""
    said, shares = [], []
    out = tmp_path_factory.mktemp("demo") / "demo"
    return out, run_small(out, progress=lambda message, share: shares.append(share), say=said.append), said, shares


def test_the_demonstration_leaves_tables_and_a_figure(shown):
    import matplotlib.image

    out, result, told, shares = shown
    assert {"results.csv", "summary.json", "predictions.csv", "sites.png"} <= {p.name for p in out.iterdir()}
    assert not [p for p in out.rglob("*") if "partial" in p.name]
    rows = pd.read_csv(out / "results.csv")
    assert rows["method"].unique().tolist() == ["brio", "backbone", "ridge"]
    assert len(rows) == 3 * 5
    assert list(result.summary.methods) == ["brio", "backbone", "ridge"]
    assert result.summary.smoke_run
    assert "stable evidence in ROIs 1-2, unstable in 3-4," in told[1]
    assert "5-6" in told[2]
    assert "7-8" in told[2]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0

    assert (out / "sites.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    picture = matplotlib.image.imread(out / "sites.png")
    height, width = picture.shape[:2]
    assert 900 < width < 2000
    assert 400 < height < 1500
    gray = picture[..., :3].mean(-1)
    assert 0.5 < (gray > 0.95).mean() < 0.99  # a picture on white, neither empty nor full
    for colour in ([0x00, 0x72, 0xB2], [0xD5, 0x5E, 0x00], [0x00, 0x9E, 0x73]):  # a mark for each method
        assert (np.abs(picture[..., :3] - np.array(colour) / 255).max(-1) < 0.02).sum() > 300


def test_the_demonstration_goes_on_and_draws_again(shown, tmp_path):
    shutil.copytree(shown[0], tmp_path / "demo")
    (tmp_path / "demo" / "sites.png").unlink()
    told = []
    run_small(tmp_path / "demo", say=told.append)
    assert "resuming: 15 of 15 runs are finished" in told
    assert (tmp_path / "demo" / "sites.png").is_file()


@pytest.mark.soak
def test_the_demonstration_finds_what_was_planted(tmp_path):
    result = demo.run_demo(tmp_path / "demo")
    found = {name: m.auc.mean for name, m in result.summary.methods.items()}
    assert found["brio"] > 0.6
    assert found["ridge"] > 0.6
    assert result.summary.methods["brio"].auc.interval[0] > 0.5
