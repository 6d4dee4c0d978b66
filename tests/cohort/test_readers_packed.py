"""Scans packed in 8 bits, invented and genuine."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse

from brio import BrioError
from brio.cohort.readers import import_cohort
from brio.cohort.scans import find_live_rois

IDS = np.array(["a_001", "a_002", "b_001", "b_002"])
LENGTHS = np.array([30, 25, 40, 30], dtype=np.int32)


def arrays(n_rois: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n_rois)
    scale = rng.uniform(0.01, 0.03, size=(4, n_rois)).astype(np.float32)
    frames = rng.integers(-127, 128, size=(LENGTHS.sum(), n_rois)).astype(np.int8)
    return {"frames": frames, "scale": scale, "n_frames": LENGTHS, "participant_id": IDS}


def people() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "participant_id": IDS,
            "site": ["A", "A", "B", "B"],
            "diagnosis": [1, 0, 0, 1],
            "age": [10, 11, 12, 13],
            "n_frames": LENGTHS,
            "dead_rois_aal": [7, 7, 7, 7],
            "fiq": [100, None, 101, 102],
            "tr_s": [2.0, 2.0, 1.5, 1.5],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    src = tmp_path / "packed"
    src.mkdir()
    people().to_csv(src / "participants.tsv", sep="\t", index=False)
    aal, cc200 = arrays(116), arrays(200)
    aal["scale"][1, :29] = 0
    cc200["frames"][30 + 25 : 30 + 25 + 40, :50] = 5  # flat, though not zero
    np.savez(src / "aal116.npz", **aal)
    np.savez(src / "cc200.npz", **cc200)
    return src


def rewrite(folder: Path, **changes: np.ndarray) -> None:
    np.savez(folder / "aal116.npz", **{**arrays(116), **changes})


@pytest.mark.parametrize(("asked", "atlas", "n_rois"), [("aal", "aal116", 116), ("cc200", "cc200", 200)])
def test_import(folder, tmp_path, asked, atlas, n_rois):
    cohort = import_cohort("packed", folder, tmp_path / "out", atlas=asked)
    assert (cohort.atlas.name, cohort.n_rois) == (atlas, n_rois)
    assert cohort.atlas.has_coordinates
    assert cohort.labels.tolist() == [1, 0, 0, 1]
    assert cohort.classes == ("TD", "ASD")
    packed = np.load(folder / f"{atlas}.npz")
    np.testing.assert_array_equal(cohort.scan(2), packed["frames"][55:95] * packed["scale"][2])
    assert cohort.n_frames.tolist() == LENGTHS.tolist()
    table = cohort.participants
    np.testing.assert_allclose(table["dead_fraction_aal116"], [0, 29 / 116, 0, 0], atol=1e-6)
    np.testing.assert_allclose(table["dead_fraction_cc200"], [0, 0, 50 / 200, 0], atol=1e-6)
    assert table["tr"].tolist() == [2.0, 2.0, 1.5, 1.5]
    assert table["age"].tolist() == [10, 11, 12, 13]
    assert table["fiq"].isna().tolist() == [False, True, False, False]
    assert not {"dead_rois_aal", "diagnosis", "tr_s"} & set(table.columns)


def test_atlas_must_be_chosen(folder, tmp_path):
    refuse("holds the atlases aal116, cc200; choose one", import_cohort, "packed", folder, tmp_path / "out")
    (folder / "cc200.npz").unlink()
    assert import_cohort("packed", folder, tmp_path / "out").n_rois == 116


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"participant_id": IDS[[1, 0, 2, 3]]}, "participant 1 is a_002, but a_001 in participants.tsv"),
        ({"participant_id": IDS[:3]}, "has 3 participants, participants.tsv has 4"),
        ({"n_frames": LENGTHS[::-1]}, "a_002 has 40 frames, but 25"),
        ({"n_frames": LENGTHS + 1}, "a_001 has 31 frames, but 30 in participants.tsv"),
        ({"frames": arrays(116)["frames"][:-1]}, "do not fit together"),
        ({"scale": arrays(200)["scale"]}, "do not fit together"),
        ({"frames": arrays(90)["frames"], "scale": arrays(90)["scale"]}, "has 90 columns, atlas aal116 has 116 ROIs"),
    ],
)
def test_parts_that_disagree(folder, tmp_path, changes, message):
    rewrite(folder, **changes)
    refuse(message, import_cohort, "packed", folder, tmp_path / "out", atlas="aal116")
    assert not list(tmp_path.glob("out*"))


def test_damaged_archive_and_table(folder, tmp_path):
    whole = (folder / "cc200.npz").read_bytes()
    (folder / "cc200.npz").write_bytes(whole[: len(whole) // 2])
    refuse(r"cc200\.npz: cannot be read as npz", import_cohort, "packed", folder, tmp_path / "out", atlas="aal116")
    (folder / "cc200.npz").unlink()
    people().assign(diagnosis=[1, 0, 2, 1]).to_csv(folder / "participants.tsv", sep="\t", index=False)
    refuse("participant b_001 has diagnosis '2'", import_cohort, "packed", folder, tmp_path / "out", atlas="aal116")
    np.savez(folder / "aal116.npz", x=np.zeros(3))
    people().to_csv(folder / "participants.tsv", sep="\t", index=False)
    with pytest.raises(BrioError, match=r"aal116\.npz: has no array 'frames'; it has x"):
        import_cohort("packed", folder, tmp_path / "out", atlas="aal116")


@pytest.mark.abide
@pytest.mark.soak
def test_genuine_scans(abide_folder, tmp_path):
    cohort = import_cohort("packed", abide_folder, tmp_path / "abide", atlas="aal116")
    assert (len(cohort), cohort.n_rois, len(set(cohort.sites))) == (1035, 116, 20)
    assert np.bincount(cohort.labels).tolist() == [530, 505]
    assert (cohort.n_frames.min(), cohort.n_frames.max()) == (78, 316)
    released = pd.read_csv(abide_folder / "participants.tsv", sep="\t")
    table = cohort.participants
    np.testing.assert_array_equal((table["dead_fraction_aal116"] * 116).round(), released["dead_rois_aal"])
    np.testing.assert_array_equal((table["dead_fraction_cc200"] * 200).round(), released["dead_rois_cc200"])
    worst = int(table["dead_fraction_aal116"].argmax())
    assert (~find_live_rois(cohort.scan(worst))).sum() == 65
    cohort.verify()
