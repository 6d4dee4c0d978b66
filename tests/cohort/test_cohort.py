"""Cohort folders: what is written is what is read, and a change of anything is noticed."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from file_layouts import check, check_scans, refuse

from brio import Atlas, Cohort
from brio.cohort.cohort import write_cohort
from brio.cohort.readers import read_scans_to_predict
from brio.storage import write_sums

IDS = ["007", "0050002", "p3", "p4", "1e5", "p6"]
SITES = ["NYU", "NYU", "NYU", "1", "1", "1"]
LABELS = [0, 1, 0, 1, 0, 1]
ROIS = ["left", "right", "front", "back"]
FILES = ["SHA256SUMS", "atlas.tsv", "cohort.json", "frames.npy", "participants.tsv"]


def scans() -> list[np.ndarray]:
    return [np.random.default_rng(i).normal(size=(50 + i, 4)).astype(np.float32) for i in range(6)]


def cohort(frames=None, label=None, rois=None, **changed) -> Cohort:
    people = pd.DataFrame({"age": [7.1, np.nan, 1 / 3, 40.0, 12.5, 1e-17], "sex": list("FMFMFM")})
    given = {"site": SITES, "label": label or LABELS, "participant_id": IDS, "covariates": people, "name": "small"}
    given |= {"atlas": Atlas("four", pd.DataFrame({"name": rois or ROIS, "x": [1.5, 2, 3, 4]}))}
    given |= {"classes": ("healthy", "ill"), "provenance": {"kind": "made up"}}
    return Cohort.from_scans(frames or scans(), **given | changed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cohort().save(tmp_path / "small")
    return tmp_path / "small"


# ---------------------------------------------------------------- round trip


def test_save_and_load(folder):
    made, loaded = cohort(), Cohort.load(folder)
    check_scans(loaded, scans())
    assert [type(participant) for participant in loaded.participants["participant_id"]] == [str] * 6
    check(loaded, ids=IDS, sites=SITES, labels=LABELS)
    pd.testing.assert_frame_equal(loaded.participants, made.participants)
    pd.testing.assert_frame_equal(loaded.atlas.rois, made.atlas.rois)
    assert (loaded.name, loaded.atlas.name, loaded.classes) == ("small", "four", ("healthy", "ill"))
    assert loaded.provenance == {"kind": "made up"}
    loaded.verify()
    assert [loaded.fingerprint, len(loaded.fingerprint)] == [made.fingerprint, 64]
    moved = folder.rename(folder.with_name("moved"))
    assert Cohort.load(moved).fingerprint == made.fingerprint
    assert sorted(p.name for p in moved.iterdir()) == FILES, "plain files alone"
    assert list(moved.parent.iterdir()) == [moved]


def test_frames_are_mapped_not_read_and_a_selection_copies_none(folder):
    loaded = Cohort.load(folder)
    assert isinstance(loaded.frames, np.memmap)
    assert loaded.frames.mode == "r"
    assert np.shares_memory(loaded.scan(3), loaded.frames)
    with pytest.raises(ValueError, match="read-only"):
        loaded.scan(0)[0, 0] = 1.0
    some = loaded.select([4, 1])
    assert some.frames is loaded.frames
    check(some, ids=["1e5", "0050002"], labels=[0, 1])
    check_scans(some, [scans()[4], scans()[1]])


@pytest.mark.parametrize("word", ["NA", "None", "null"])
def test_a_site_may_be_called_anything(tmp_path, word):
    """A site called None is a site, not a missing value; else two such sites would silently become one."""
    made = cohort(site=[word] * 3 + ["NULL"] * 3, participant_id=[word, "NULL", *IDS[2:]])
    saved = made.save(tmp_path / "odd")
    check(saved, sites=[word] * 3 + ["NULL"] * 3, ids=[word, "NULL", *IDS[2:]])


@pytest.mark.parametrize("names", [["001", "NA", "2001", "1e3"], ["001", "002", "003", "004"]])
def test_roi_names_stay_text(tmp_path, names):
    assert cohort(rois=names).save(tmp_path / "odd").atlas.rois["name"].tolist() == names


# ---------------------------------------------------------------- fingerprint


@pytest.mark.parametrize(
    "classes",
    [("HC", "HC"), ("HC", "hc "), ("\u00e9", "e\u0301"), ("AB", "\uff21B"), ("1", "1.0"), ("", "a"), ("a", "b", "c")],
)
def test_two_classes_have_two_names(classes):
    refuse("two", cohort, classes=classes)


@pytest.mark.parametrize("names", [("Zo\u0308e", "Zöe"), ("Ann\u00a0B", "Ann B"), ("\uff21B", "AB"), ("Ann ", "Ann")])
def test_one_participant_under_two_forms_of_a_name_is_refused(names):
    refuse(names[1], cohort, participant_id=[*names, *IDS[2:]])


def test_fingerprint_changes_with_anything_that_counts():
    nudged = scans()
    nudged[5][-1, -1] = np.nextafter(nudged[5][-1, -1], np.float32(np.inf))
    changed = [
        cohort(),
        cohort(frames=nudged),
        cohort(label=[1, 0, 0, 1, 0, 1]),
        cohort(rois=["left", "right", "front", "top"]),
        cohort(site=["NYU", "NYU", "1", "1", "1", "1"]),
        cohort(participant_id=["7", *IDS[1:]]),
        cohort(frames=scans()[::-1]),
    ]
    assert len({c.fingerprint for c in changed}) == len(changed)


# ---------------------------------------------------------------- select


def test_a_selection_has_its_own_fingerprint(folder, tmp_path):
    loaded = Cohort.load(folder)
    mask = np.array([True, True, False, True, False, True])
    some = loaded.select(mask)
    assert some.fingerprint == loaded.select(np.flatnonzero(mask)).fingerprint == cohort().select(mask).fingerprint
    turned = cohort(frames=scans()[::-1])
    others = [loaded, some, loaded.select(~mask), loaded.select([1, 0, 3, 5]), turned.select(mask)]
    assert len({c.fingerprint for c in others}) == len(others)
    assert loaded.select(np.ones(6, dtype=bool)).fingerprint == loaded.fingerprint
    some.verify()
    saved = some.save(tmp_path / "some")
    assert saved.ids.tolist() == some.ids.tolist()
    np.testing.assert_array_equal(saved.frames, np.concatenate([scans()[i] for i in np.flatnonzero(mask)]))
    saved.verify()


# ---------------------------------------------------------------- damage


def edit(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_load_finds_an_edited_table_and_verify_a_changed_frame(folder):
    """Files that are truncated or missing: tests/storage/test_damage.py."""
    edit(folder / "frames.npy", scans()[5].tobytes()[-4:], b"abcd")
    refuse(r"frames\.npy: has been changed or damaged since it was written; import", Cohort.load(folder).verify)
    edit(folder / "participants.tsv", b"007\tNYU\t0", b"007\tNYU\t1")
    refuse(r"participants\.tsv: has been changed or damaged since it was written", Cohort.load, folder)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda f: f[:-1],
        lambda f: f[:, 0],
        lambda f: f[:, :3],
        lambda f: f.astype(">f8"),
        lambda f: np.array([{"a": 1}]),
    ],
)
def test_frames_of_another_cohort_or_pickled_objects(folder, wrong):
    np.save(folder / "frames.npy", wrong(np.load(folder / "frames.npy")))
    refuse("small", lambda: Cohort.load(folder).verify())


def test_format_of_another_version(folder):
    edit(folder / "cohort.json", b'"format": 1', b'"format": 2')
    refuse(r"cohort\.json: has format 2, but this version of brio reads format 1", Cohort.load, folder)


@pytest.mark.parametrize(("name", "kind"), [("predictions.html", "predictions"), ("explanation.html", "explanation")])
def test_a_folder_of_another_command_is_named(tmp_path, name, kind):
    (tmp_path / name).touch()
    refuse(f"is an? .*{kind}.*, not scans; give a cohort folder", read_scans_to_predict, tmp_path, tmp_path / "out")
    refuse(f"is an? .*{kind}.*, not a cohort folder", Cohort.load, tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "small/frames.npy"])
def test_not_a_cohort_folder(folder, name):
    refuse("not a cohort folder", Cohort.load, folder.parent / name)


# ---------------------------------------------------------------- writer


def people(label=LABELS) -> list[dict]:
    return [{"participant_id": w, "site": s, "label": k} for w, s, k in zip(IDS, SITES, label, strict=True)]


def write(folder: Path, rows: list[dict], frames: list[np.ndarray]) -> None:
    with write_cohort(folder, "new", Atlas.unnamed(4)) as add:
        for scan, person in zip(frames, rows, strict=True):
            add(scan, person)


@pytest.mark.parametrize(
    ("rows", "frames", "message"),
    [
        (people(), [*scans()[:5], np.ones((50, 3), np.float32)], r"participant p6: the scan has shape \(50, 3\)"),
        (people(), [*scans()[:5], np.full((50, 4), np.nan, np.float32)], "participant p6: the scan contains no finite"),
        (people([0, 1, 2, 0, 1, 0]), scans(), "participant p3 has label '2'"),
        (people([0, 1, None, 0, 1, 0]), scans(), "participant p3 has no label; write 0"),
        ([*people()[:5], {"participant_id": "x", "site": " ", "label": 1}], scans(), "column 'site' is empty in row 6"),
        ([], [], "the cohort has no scans to write"),
    ],
)
def test_what_the_writer_refuses_leaves_nothing(tmp_path, rows, frames, message):
    """Writers that are interrupted or killed: tests/storage."""
    refuse(message, write, tmp_path / "new", rows, frames)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(folder):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    refuse("small: already exists", cohort(label=LABELS[::-1]).save, folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    shutil.rmtree(folder)
    assert cohort(label=LABELS[::-1]).save(folder).labels.tolist() == LABELS[::-1]


# ---------------------------------------------------------------- the format

STORED_PARTICIPANTS = "participant_id\tsite\tlabel\tage\tn_frames\n007\tNA\t0\t7.5\t2\np2\tB\t1\tn/a\t3\n"
STORED_ATLAS = "name\tx\nleft\t-1.5\nright\t2.0\n"
STORED_HEADER = {
    "format": 1,
    "name": "old",
    "atlas": "two",
    "classes": ["control", "patient"],
    "n_scans": 2,
    "n_rois": 2,
    "provenance": {"kind": "table"},
    "tables": "118704fdaef6bd5f94544b0f53dfb0edd02e8da9ae86c65d9ead09a620c2bf6e",
    "fingerprint": "bc4e53cde5f8b2ff6919b513d92b8a144ee41c2bbad5453e7270f2ea9a0b0fd2",
}


def test_the_format_and_the_fingerprint_stay_as_they_are(tmp_path):
    """Folders that users have must load, and fingerprints that jobs have stored must not change."""
    (tmp_path / "participants.tsv").write_text(STORED_PARTICIPANTS, newline="")
    (tmp_path / "atlas.tsv").write_text(STORED_ATLAS, newline="")
    (tmp_path / "cohort.json").write_text(json.dumps(STORED_HEADER))
    np.save(tmp_path / "frames.npy", np.arange(10, dtype="<f4").reshape(5, 2))
    write_sums(tmp_path)
    stored = Cohort.load(tmp_path)
    stored.verify()
    check(stored, ids=["007", "p2"], sites=["NA", "B"])
    assert stored.scan(1).tolist() == [[4, 5], [6, 7], [8, 9]]
    saved = stored.save(tmp_path / "saved")
    assert saved.fingerprint == STORED_HEADER["fingerprint"]
    assert (tmp_path / "saved" / "participants.tsv").read_text() == STORED_PARTICIPANTS
    assert json.loads((tmp_path / "saved" / "cohort.json").read_text()) == STORED_HEADER


# ---------------------------------------------------------------- display


def test_repr_says_what_the_cohort_is():
    made = cohort()
    facts = "6 scans at 2 sites, 4 ROIs (four), 50 to 55 frames"
    assert repr(made) == f"Cohort('small': {facts}, fingerprint {made.fingerprint[:12]})"
    assert "no frames" in repr(made.select([]))


def test_notebooks_show_a_table():
    people = pd.DataFrame({"tr": [2.0, 2.0, 2.0, 0.8, 0.8, np.nan]})
    made = cohort(name="<b>A & B</b>", site=["N & Y", "N & Y", "N & Y", "<i>", "<i>", "<i>"], covariates=people)
    html = made._repr_html_()
    facts, sites = ElementTree.fromstring(html).iter("table")
    assert dict([cell.text for cell in row] for row in facts.iter("tr")) == {
        "scans": "6",
        "sites": "2",
        "ROIs": "4 (four)",
        "length": "50 to 55 frames",
        "repetition time": "0.8 to 2 s",
        "fingerprint": made.fingerprint[:12],
    }
    assert [[cell.text for cell in row] for row in sites.iter("tr")] == [
        ["site", "healthy (0)", "ill (1)"],
        ["<i>", "1", "2"],
        ["N & Y", "2", "1"],
    ]
    assert "&lt;b&gt;A &amp; B&lt;/b&gt;" in html
    assert "<b>" not in html
    assert "<i>" not in html
    assert not any(word in html for word in ("<script", "href", "src=", "<link"))
    assert "no frames" in made.select([])._repr_html_()


@pytest.mark.parametrize(
    ("argument", "value"),
    [("site", ["A"]), ("participant_id", ["p1"]), ("covariates", pd.DataFrame({"age": [20.0]}))],
)
def test_arguments_of_another_length_than_the_scans_are_refused(argument, value):
    refuse(f"{argument} has 1 entry for 6 scans", cohort, **{argument: value})


def test_scans_and_atlases_that_do_not_fit_together_are_refused():
    three = [scan[:, :3] for scan in scans()[1:]]
    refuse("no scans were given", Cohort.from_scans, [], site=[], label=[])
    refuse("participant 0050002 has 3 ROIs, but 007 has 4", cohort, frames=[scans()[0], *three])
    refuse(
        r"participant 007: a scan needs two axes \(frames, ROIs\), but this one has 1", cohort, frames=[np.ones(50)] * 6
    )
    refuse("atlas 'four' has 4 ROIs, but the scans have 3", cohort, frames=[scan[:, :3] for scan in scans()])
    refuse("the table of ROIs has no column 'name'", Atlas, "four", pd.DataFrame({"x": [1.0]}))
    refuse(
        "'x' contains 'left'; write a number in mm",
        Atlas,
        "four",
        pd.DataFrame({"name": ["a", "b"], "x": ["left", "1"]}),
    )


@pytest.mark.parametrize("column", ["participant_id", "site", "label", "session", "n_frames"])
def test_covariates_that_other_arguments_give_are_refused(column):
    people = pd.DataFrame({"age": [20.0] * 6, column: ["1"] * 6})
    refuse(f"covariates: drop {column}, which other arguments", cohort, covariates=people, session=["1"] * 6)


@pytest.mark.parametrize("keep", [np.array([True]), [0.5], np.ones((6, 6), dtype=bool), ["p3"], np.ones(5, bool)])
def test_a_selection_that_says_nothing_about_each_scan_is_refused(keep):
    refuse("select", cohort().select, keep)
