"""An atlas of one's own: a table of ROIs, repeated names, ROIs that are dropped, and atlases added later."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from file_layouts import CODES, check, check_scans, refuse, refuse_import, scan, write_layout, write_text

from brio import Cohort
from brio.cohort.atlas import Atlas, number_repeated_names
from brio.cohort.readers import READERS, add_atlas, import_cohort, read_scans_to_predict
from brio.cohort.readers.rois import _find_rows, read_atlas_table
from brio.models.model import check_atlas

NAMES = ["Insula", "Cuneus", "Insula", "Global", "Insula_2"]
NUMBERED = ["Insula", "Cuneus", "Insula_3", "Global", "Insula_2"]
TABLE = pd.DataFrame(
    {
        "network": ["vis", "sal", "sal", "sal"],
        "z": [1.5, 2, 3, 4],
        "x": [-10, 30, -40, 50],
        "name": ["Cuneus", "Insula", "Insula_2", "Insula_3"],
        "y": [-70, 5, 6, 7],
        "volume": [100, 200, 300, 400],
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four scans with repeated names in their header and a column of the global signal."""
    src = tmp_path / "study"
    src.mkdir()
    for i in range(4):
        write_text(src / f"p{i}.tsv", scan(i, 5), NAMES)
    rows = "".join(f"p{i}\tS{i // 2}\t{i % 2}\n" for i in range(4))
    (src / "participants.tsv").write_text("participant_id\tsite\tlabel\n" + rows)
    TABLE.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
    return src


def test_numbers_of_repeated_names_pass_over_names_that_are_there():
    assert list(number_repeated_names(NAMES)[0]) == NUMBERED
    assert number_repeated_names(["a", "b"]) == (("a", "b"), {})
    names = [*"aababcca", "a_2"]
    numbered, renamed = number_repeated_names(names)
    assert len(set(numbered)) == len(names)
    assert all(new.split("_")[0] == old.split("_")[0] for new, old in zip(numbered, names, strict=True))
    assert {k: len(v) for k, v in renamed.items()} == {"a": 4, "b": 2, "c": 2}


def test_repeated_names_are_numbered_with_a_warning(folder, tmp_path):
    cohort = import_cohort("table", folder, tmp_path / "out", drop_roi="Global")
    kept = [i for i, name in enumerate(NUMBERED) if name != "Global"]
    assert cohort.atlas.rois["name"].tolist() == [NUMBERED[i] for i in kept]
    np.testing.assert_allclose(cohort.scan(1), scan(1, 5)[:, kept], rtol=1e-6)
    (warning,) = cohort.provenance["warnings"]
    assert "p0.tsv: columns with the same name were numbered in order: Insula -> Insula, Insula_3" in warning
    write_text(folder / "p2.tsv", scan(2, 5), NAMES[::-1])
    refuse_import(r"p2\.tsv: column 'Insula' appears more than once.*different name", folder, drop_roi="Global")


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".txt"])
def test_a_table_gives_names_coordinates_networks_and_order(folder, tmp_path, suffix):
    path = tmp_path / f"rois{suffix}"
    table = TABLE.rename(columns={"x": "X", "name": "Name"})
    table.to_csv(path, sep="," if suffix == ".csv" else "\t", index=False)
    cohort = import_cohort("table", folder, tmp_path / "out", atlas_table=path, drop_roi="Global")
    assert cohort.atlas.name == "rois"
    pd.testing.assert_frame_equal(cohort.atlas.rois[TABLE.columns], TABLE, check_dtype=False)
    order = [NUMBERED.index(name) for name in TABLE["name"]]
    check_scans(cohort, [scan(i, 5)[:, order] for i in range(4)])
    assert cohort.provenance["options"]["atlas_table"] == path.name
    assert cohort.provenance["options"]["drop_roi"] == ["Global"]
    assert cohort.provenance["rois"] == f"header matched to table {path.name} by name"
    cohort.verify()


def test_repeated_names_of_scans_to_predict_are_not_guessed(folder, tmp_path):
    cohort = import_cohort("table", folder, tmp_path / "out", atlas_table=tmp_path / "mine.tsv", drop_roi="Global")
    cohort.atlas.rois.to_csv(tmp_path / "rois.tsv", sep="\t", index=False)
    options = {"atlas_table": tmp_path / "rois.tsv", "drop_roi": "Global"}

    def read(header, **words):
        write_text(tmp_path / "new.tsv", scan(9, 5), header)
        name = f"scans {len(list(tmp_path.iterdir()))}"
        return read_scans_to_predict(tmp_path / "new.tsv", tmp_path / name, **options, **words)

    for header in (NAMES, [NAMES[2], NAMES[0], *NAMES[1:2], *NAMES[3:]]):
        refuse(r"new\.tsv: column 'Insula' appears more than once.*names in rois", read, header)
    read(NUMBERED)  # no name twice: any order
    in_order = read(["Cuneus", "Insula", "Insula_2", "Insula", "Global"])
    np.testing.assert_allclose(in_order.scan(0), scan(9, 5)[:, :4], rtol=1e-6)
    assert cohort.provenance["header"] == NAMES
    known = read(NAMES, known_header=cohort.provenance["header"])  # as a model knows it
    order = [NUMBERED.index(name) for name in TABLE["name"]]
    np.testing.assert_allclose(known.scan(0), scan(9, 5)[:, order], rtol=1e-6)
    refuse("differs from that of the model's scans; use the column names", read, NAMES[::-1], known_header=NAMES)


def test_columns_of_the_files_may_stand_in_any_order(folder, tmp_path):
    names, shuffled = list("abcde"), [3, 0, 4, 1, 2]
    for i in range(4):
        order = shuffled if i == 2 else range(5)
        write_text(folder / f"p{i}.tsv", scan(i, 5)[:, list(order)], [names[u] for u in order])
    table = pd.DataFrame({"name": ["five", "four", "three", "two"], "code": list("edcb")})
    table.to_csv(tmp_path / "codes.csv", index=False)
    options = {"atlas_table": tmp_path / "codes.csv", "drop_roi": ["a", "three"]}
    cohort = import_cohort("table", folder, tmp_path / "out", **options)
    assert cohort.atlas.rois["name"].tolist() == ["five", "four", "two"]
    check_scans(cohort, [scan(i, 5)[:, [4, 3, 1]] for i in range(4)])


def test_rows_that_no_scan_has_are_named(folder, tmp_path):
    more = pd.concat([TABLE, TABLE.head(1).assign(name="Putamen"), TABLE.head(1).assign(name="Global")])
    more.to_csv(tmp_path / "more.tsv", sep="\t", index=False)
    cohort = import_cohort("table", folder, tmp_path / "out", atlas_table=tmp_path / "more.tsv", drop_roi=["Global"])
    assert len(cohort.atlas) == 4
    assert "more.tsv: rows not used (ROIs missing from the scans, or dropped): Putamen" in cohort.provenance["warnings"]


def test_files_without_header_are_taken_in_the_order_of_the_table(tmp_path):
    src = write_layout("table", tmp_path / "study")
    table = pd.DataFrame({"name": list("abcdef"), "x": range(6), "y": range(6), "z": range(6)})
    table.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
    cohort = import_cohort("table", src, tmp_path / "out", atlas_table=tmp_path / "mine.tsv", drop_roi="b")
    assert cohort.atlas.rois["x"].tolist() == [0, 2, 3, 4, 5]
    np.testing.assert_allclose(cohort.scan(2), scan(2, 6)[:, [0, 2, 3, 4, 5]], rtol=1e-6)
    table.drop(index=2).to_csv(tmp_path / "five.tsv", sep="\t", index=False)
    refuse_import(r"6 columns without names, but table five\.tsv has 5 ROIs", src, atlas_table=tmp_path / "five.tsv")
    cohort = import_cohort("table", src, tmp_path / "out2", atlas_table=tmp_path / "five.tsv", drop_roi="roi003")
    assert cohort.atlas.rois["name"].tolist() == list("abdef")
    np.testing.assert_allclose(cohort.scan(0), scan(0, 6)[:, [0, 1, 3, 4, 5]], rtol=1e-6)


# connectomes lose rows too, see test_given_fc.py; the table of images names labels, see test_readers_images.py
@pytest.mark.parametrize("kind", [kind for kind in READERS if kind not in ("fc", "fmriprep")])
def test_every_reader_takes_a_table_and_drops(kind, tmp_path):
    src = write_layout(kind, tmp_path / "study")
    atlas = {"atlas": "aal116"} if kind == "dpabi" else {}
    plain = import_cohort(kind, src, tmp_path / "plain", **atlas)
    assert "warnings" not in plain.provenance
    assert not {"atlas_table", "drop_roi"} & set(plain.provenance["options"])
    rois = plain.atlas.rois.assign(network="one")
    if kind == "pcp":  # the header has codes
        assert rois["code"].astype(str).tolist() == CODES
    rois.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
    dropped = rois["name"][3]
    options = {"atlas_table": tmp_path / "mine.tsv", "drop_roi": [dropped]}
    cohort = import_cohort(kind, src, tmp_path / "out", **atlas, **options)
    keep = np.arange(plain.n_rois) != 3
    np.testing.assert_array_equal(cohort.frames, plain.frames[:, keep])
    assert cohort.atlas.rois["name"].tolist() == rois["name"][keep].tolist()
    assert set(cohort.atlas.rois["network"]) == {"one"}
    read = read_scans_to_predict(src, tmp_path / "read", **atlas, **options)
    assert read.fingerprint == cohort.fingerprint
    alone = import_cohort(kind, src, tmp_path / "alone", **atlas, drop_roi=dropped)  # without a table
    np.testing.assert_array_equal(alone.frames, plain.frames[:, keep])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop_roi": "global"}, r"p0\.tsv: has no ROI 'global' to drop; similar names: Global"),
        ({"drop_roi": "global", "atlas_table": "mine.tsv"}, "has no ROI 'global' to drop; similar names: Global"),
        ({"drop_roi": "Insulae"}, r"similar names: Insula, Insula_3, Insula_2"),
        ({"drop_roi": "qqq"}, r"names: Insula, Cuneus, Insula_3, Global, Insula_2"),
        ({"drop_roi": NUMBERED[1:]}, "fewer than two ROIs are left"),
        ({"atlas_table": "mine.tsv"}, r"column 'Global' has no row in table mine\.tsv.*--drop-roi"),
        (
            {"atlas": "mine.tsv"},
            r"--atlas takes the name of an atlas, not a file such as mine\.tsv; .*--atlas-table",
        ),
        ({"atlas": "aal.nii.gz"}, r"not a file such as aal\.nii\.gz.*--atlas-table"),
        ({"atlas_table": "gone.tsv"}, r"gone\.tsv: this table of ROIs does not exist"),
        ({"drop_roi": "x", "runs": "first"}, "kind 'table' does not take --runs; .*--atlas-table, --drop-roi"),
    ],
)
def test_what_is_refused(folder, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    refuse(message, import_cohort, "table", folder, tmp_path / "out", **options)


def test_a_wrong_code_is_named_and_not_those_that_the_table_has(tmp_path):
    """The header has codes, which the column of names does not list."""
    table = Atlas("mine", pd.DataFrame({"name": ["a", "b", "c"], "code": [2001, 2002, 2101]}))
    message = r"column '9999' has no row in table t \(names: 2001, 2002, 2101\); correct it"
    refuse(message, _find_rows, table, ["2001", "2002", "9999"], "p.tsv: column", "t", "correct it")


@pytest.mark.parametrize(
    ("name", "text", "rois"),
    [
        (
            "xcpd.tsv",
            "index\tlabel\tnetwork_label\n1\ta\tVis\n2\tb\tDMN\n",
            {"name": ["a", "b"], "network": ["Vis", "DMN"]},
        ),
        ("mist.csv", "roi;label;name\n1;a;AREA A\n2;b;AREA B\n", {"name": ["AREA A", "AREA B"], "code": ["a", "b"]}),
        ("nilearn.csv", "index,name\n0,Background\n1,a\n2,b\n", {"name": ["a", "b"], "index": ["1", "2"]}),
        ("labels.json", '{"0": "Background", "1": "a", "2": "b"}', {"name": ["a", "b"], "index": ["1", "2"]}),
    ],
)
def test_tables_of_other_tools(tmp_path, name, text, rois):
    (tmp_path / name).write_text(text)
    atlas, warnings = read_atlas_table(tmp_path / name)
    assert (atlas.rois[[*rois]].to_dict("list"), warnings) == (rois, [])
    assert atlas.find_rows(["b", "a"])[0].tolist() == [1, 0], "the columns of scans are called so"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "region\tx\ty\tz\na\t1\t2\t3\n",
            "no column 'name' with the names of the ROIs; its columns are region, x, y, z",
        ),
        ("name\tx\ty\na\t1\t2\n", "has a column 'x', but not all three of x, y and z"),
        ("name\tx\ty\tz\na\t1\t2\t3\nb\t1,250\t2\t3\n", "column 'x' contains '1,250' in row 2"),
        ("name\tx\ty\tz\na\t1\t2\tinf\n", "column 'z' contains 'inf' in row 1"),
        ("name\tx\n\t3\n", "but not all"),
        ("name\tnetwork\na\tvis\n\tvis\n", "column 'name' is empty in row 2"),
        ("index\tname\n0\tBackground\n1\t\n", "column 'name' is empty in row 2"),
        ("index\tname\tx\ty\tz\n0\tBackground\t\t\t\n1\ta\tleft\t1\t1\n", "column 'x' contains 'left' in row 2"),
        ("name\n", "needs a header and at least one row"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, message):
    (tmp_path / "mine.tsv").write_text(text)
    refuse(f"mine\\.tsv: .*{message}|mine\\.tsv: {message}", read_atlas_table, tmp_path / "mine.tsv")


def test_gaps_and_repeated_names_of_a_table(tmp_path):
    (tmp_path / "mine.csv").write_text("hemi,name,z,y,x\nleft,a,1,2,3\nRH,a,n/a,2,3\n,b,1,1,1\n")
    atlas, warnings = read_atlas_table(tmp_path / "mine.csv")
    check(atlas.rois.fillna({"hemi": "none"}), name=["a", "a_2", "b"], hemi=["L", "R", "none"], z=[1.0, np.nan, 1.0])
    assert len(warnings) == 2
    assert "rows with the same name were numbered in order: a -> a, a_2" in warnings[0]
    assert "no coordinates for a_2, so brio cannot" in warnings[1]


def make_cohort(atlas: Atlas | None) -> Cohort:
    scans = [scan(i, 4) for i in range(4)]
    return Cohort.from_scans(scans, site=["A", "A", "B", "B"], label=[0, 1, 0, 1], atlas=atlas, covariates=None)


def test_an_atlas_is_added_later(folder, tmp_path):
    own = Atlas("mine", pd.DataFrame({"name": ["Insula", "Cuneus", "Insula_3", "Insula_2"], "code": [1, 2, 3, 4]}))
    cohort = make_cohort(own).save(tmp_path / "cohort")
    before = (tmp_path / "cohort" / "atlas.tsv").read_bytes()
    named, warnings = add_atlas(cohort, tmp_path / "mine.tsv", tmp_path / "named")
    assert warnings == []
    assert named.atlas.name == "mine"
    check(named.atlas.rois, name=own.rois["name"], x=[30, -10, 50, -40], code=[1, 2, 3, 4])  # the order stays
    np.testing.assert_array_equal(named.frames, cohort.frames)
    pd.testing.assert_frame_equal(named.participants, cohort.participants)
    assert named.provenance["atlas_added"]["matched_by"] == "name"
    assert named.fingerprint != cohort.fingerprint
    named.verify()
    assert (tmp_path / "cohort" / "atlas.tsv").read_bytes() == before
    check_atlas(own, named)  # a model of the old cohort still takes the scans


def test_an_atlas_is_added_by_order(folder, tmp_path):
    unnamed = make_cohort(None)
    named, _ = add_atlas(unnamed, tmp_path / "mine.tsv", tmp_path / "a")
    assert (named.atlas.name, named.atlas.rois["name"].tolist()) == ("mine", TABLE["name"].tolist())
    others = make_cohort(Atlas("other", pd.DataFrame({"name": list("abcd")})))
    message = r"cohort 'in memory': ROI 'a' has no row in table .*mine\.tsv .*--by-order"
    refuse(message, add_atlas, others, tmp_path / "mine.tsv", tmp_path / "b")
    named, _ = add_atlas(others, tmp_path / "mine.tsv", tmp_path / "b", by_order=True)
    check(named.atlas.rois, name=list("abcd"), x=TABLE["x"])
    refuse("power264: has 264 ROIs, but cohort 'in memory' has 4", add_atlas, unnamed, "power264", tmp_path / "c")


def test_repeated_names_cannot_be_found():
    numbered = Atlas("mine", pd.DataFrame({"name": [1, 1, 2]}))
    refuse("'q' has no row in table t", _find_rows, numbered, ["q"], "scan.csv:", "t", "rename")
    atlas = Atlas("mine", pd.DataFrame({"name": ["left", "left"]}))
    refuse(
        "scan.csv: names cannot be matched, because names are repeated in table rois.tsv; rename",
        _find_rows,
        atlas,
        ["left"],
        "scan.csv:",
        "rois.tsv",
        "rename",
    )


@pytest.mark.parametrize("x", ["2_0", "inf", "1,5x"])
def test_a_coordinate_that_is_no_number_is_named(tmp_path, x):
    path = tmp_path / "rois.tsv"
    path.write_text(f"name\tx\ty\tz\na\t1\t2\t3\nb\t{x}\t2\t3\n")
    refuse(f"'x' contains '{x}' in row 2", read_atlas_table, path)
    path.write_text("name\tx\ty\tz\na\t-1.5\t2e1\t3\nb\t\t２\t3\n")
    np.testing.assert_array_equal(read_atlas_table(path)[0].rois[["x", "y"]], [[-1.5, 20], [np.nan, 2]])
