"""Columns that count the rows of a scan are no regions: an index of pandas or R, volumes, times."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse
from scipy.io import savemat

from brio import BrioError, Cohort
from brio.cohort.readers import import_cohort, read_scans_to_predict, read_series
from brio.cohort.readers.series import find_row_counters

PEOPLE = ["p1", "p2", "p3", "p4"]
NAMES = ["a", "b", "c", "d", "e"]


def make_frames(i: int, n_frames: int = 60) -> pd.DataFrame:
    frames = np.random.default_rng(i).normal(size=(n_frames, 5)).astype(np.float32)
    return pd.DataFrame(frames)


def write_study(src: Path, write) -> Path:
    """Write the frames of each participant with ``write(frames, path without suffix)``."""
    src.mkdir()
    for i, person in enumerate(PEOPLE):
        write(make_frames(i), src / person)
    rows = [f"{person},{'AB'[i % 2]},{i // 2}" for i, person in enumerate(PEOPLE)]
    (src / "participants.csv").write_text("\n".join(["participant_id,site,label", *rows]) + "\n")
    return src


def write_named(column: str, position: int = 0, step: float = 1.0, start: float = 0.0):
    def write(frames: pd.DataFrame, path: Path) -> None:
        frames = frames.set_axis(NAMES, axis=1)
        frames.insert(position, column, start + step * np.arange(len(frames)))
        frames.to_csv(path.with_suffix(".csv"), index=False)

    return write


def write_plain(frames: pd.DataFrame, path: Path) -> None:
    frames.to_csv(path.with_suffix(".csv"), index=False)


def read_plain(tmp_path: Path) -> Cohort:
    return import_cohort("table", write_study(tmp_path / "plain", write_plain), tmp_path / "plain-out")


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("corner", ["", "frame", "Unnamed: 0"])
def test_the_index_beside_numbered_columns_is_left_out_with_a_warning(tmp_path, base, corner):
    def write(frames: pd.DataFrame, path: Path) -> None:
        frames.columns = frames.columns + base
        frames.to_csv(path.with_suffix(".csv"), index_label=corner or None)

    cohort = import_cohort("table", write_study(tmp_path / "study", write), tmp_path / "out")
    assert cohort.fingerprint == read_plain(tmp_path).fingerprint
    (warning,) = cohort.provenance["warnings"]
    column = f"column 1 ('{corner}')" if corner else "column 1"
    assert f"p1.csv: {column} counts the rows" in warning
    assert warning.endswith("was left out (in all 4 scans)")


@pytest.mark.parametrize(
    "write",
    [
        write_named("volume"),
        write_named("index", start=1),
        write_named("time", step=0.72),  # not exact in float32
        write_named("time", step=-2.5, start=1000.0),
        write_named("Insula", position=3),
    ],
)
def test_a_named_column_that_counts_is_refused_until_it_is_dropped(tmp_path, write):
    src = write_study(tmp_path / "study", write)
    columns = read_series(src / "p1.csv").columns
    (name,) = set(columns) - set(NAMES)
    expected = (
        rf"p1\.csv: column {columns.index(name) + 1} \('{name}'\) counts the rows .*--drop-roi {name}, .*index=False"
    )
    refuse(expected, import_cohort, "table", src, tmp_path / "out")
    refuse(expected, read_scans_to_predict, src / "p1.csv", tmp_path / "out", kind="table")
    cohort = import_cohort("table", src, tmp_path / "out", drop_roi=name)
    np.testing.assert_array_equal(cohort.scan(2), make_frames(2))


def add_index(frames: pd.DataFrame) -> np.ndarray:
    return np.column_stack([np.arange(len(frames)), frames])


@pytest.mark.parametrize(
    "write",
    [
        lambda frames, path: frames.to_csv(path.with_suffix(".csv"), header=False),
        lambda frames, path: np.save(path.with_suffix(".npy"), add_index(frames)),
        lambda frames, path: np.savetxt(path.with_suffix(".1D"), add_index(frames)),
        lambda frames, path: savemat(path.with_suffix(".mat"), {"ROISignals": add_index(frames)}),
    ],
)
def test_an_index_without_header_is_refused_in_every_format(tmp_path, write):
    src = write_study(tmp_path / "study", write)
    for options in ({}, {"atlas": "aal116"}):
        with pytest.raises(BrioError, match=r"p1\.\w+: column 1 \('roi001'\) counts the rows \(0, 1, .*roi001"):
            import_cohort("table", src, tmp_path / "out", **options)
    cohort = import_cohort("table", src, tmp_path / "out", drop_roi="roi001")
    np.testing.assert_allclose(cohort.scan(2), make_frames(2), rtol=1e-6)


def test_a_region_without_signal_is_no_index(tmp_path):
    def write(frames: pd.DataFrame, path: Path) -> None:
        frames = frames.copy()
        frames[0], frames[1], frames[2] = 0.0, 7.5, np.nan
        frames.to_csv(path.with_suffix(".csv"), index=False)

    cohort = import_cohort("table", write_study(tmp_path / "study", write), tmp_path / "out")
    assert cohort.n_rois == 5
    (warning,) = cohort.provenance["warnings"]
    assert warning.startswith("roi001, roi002, roi003: without signal in every scan")


def test_a_nameless_column_that_does_not_count_is_refused(tmp_path):
    frames = make_frames(0)
    frames.index = frames.index**2
    frames.to_csv(tmp_path / "a.csv")
    refuse(r"a\.csv: column 1 has no name in the header; .*index=False", read_series, tmp_path / "a.csv")
    frames.set_axis([f"t{i}" for i in range(60)]).to_csv(tmp_path / "b.csv")
    refuse(r"b\.csv: column 1 has no name in the header; .*names of the rows", read_series, tmp_path / "b.csv")


def test_noise_on_a_large_mean_is_no_line():
    """Steps that float32 cannot hold look like a line to rounding, not to the rule."""
    noise = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)
    for mean, scale in ((0, 1), (1e4, 1e-3), (1e6, 1e-6)):
        assert find_row_counters(np.float32(mean) + np.float32(scale) * noise).size == 0
    line = np.arange(200, dtype=np.float32)
    assert find_row_counters(np.column_stack([noise[:, :2], line, 3 - line / 7, noise])).tolist() == [2, 3]
    line[50] += 0.01
    assert find_row_counters(line[:, None]).size == 0


@pytest.mark.parametrize("drop", [["Unnamed: 0"], ["Unnamed: 0", "b"]])
def test_an_index_that_was_left_out_may_be_dropped_too(tmp_path, drop):
    src = write_study(
        tmp_path / "study",
        lambda frames, path: frames.set_axis(NAMES, axis=1).to_csv(path.with_suffix(".csv"), index_label="Unnamed: 0"),
    )
    cohort = import_cohort("table", src, tmp_path / "out", drop_roi=drop)
    assert cohort.atlas.rois["name"].tolist() == [name for name in NAMES if name not in drop]
    with pytest.raises(BrioError, match="there is no ROI 'Unnamed: 1' to drop"):
        import_cohort("table", src, tmp_path / "out2", drop_roi="Unnamed: 1")
