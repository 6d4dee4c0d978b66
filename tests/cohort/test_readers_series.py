"""One file of each format, and each way in which it can be broken."""

import struct
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
from file_layouts import refuse, save_cifti
from scipy.io import savemat

from brio import BrioError
from brio.cohort.readers.series import find_series, get_series_stem, read_series

X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def rows(x: np.ndarray, sep: str, end: str = "\n") -> str:
    return "".join(sep.join(repr(float(v)) for v in row) + end for row in x)


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.tsv", rows(X, "\t"), None),
        ("a.csv", rows(X, ","), None),
        ("a.csv", rows(X, ";"), None),
        ("a.txt", rows(X, "  "), None),
        ("a.txt", "\n" + rows(X, "\t", "\r\n") + "\n\n", None),
        ("a.1D", "# made by a pipeline of ours\n" + rows(X, " "), None),
        ("a.csv", "0,1,2,3\n" + rows(X, ","), None),
        ("a.csv", "\ufeff1,2,3,4\n" + rows(X, ","), None),
        ("a.1D", "#2001\t#2002\t#2101\t#2102\r\n" + rows(X, "\t", "\r\n"), ("2001", "2002", "2101", "2102")),
        ("a.1D", "# comment\n# a b c d\n" + rows(X, " "), ("a", "b", "c", "d")),
        ("a.tsv", "LH Vis\tRH Vis\tLH Mot\tRH Mot\n" + rows(X, "\t"), ("LH Vis", "RH Vis", "LH Mot", "RH Mot")),
        ("a.csv", '"a,1","b",c,d\n' + rows(X, ","), ("a,1", "b", "c", "d")),
    ],
)
def test_text_with_and_without_names(tmp_path, name, text, columns):
    series = read_series(write(tmp_path / name, text))
    np.testing.assert_array_equal(series.frames, X)
    assert series.frames.dtype == np.float32
    assert series.columns == columns


def test_missing_values_in_every_spelling(tmp_path):
    text = "a\tb\tc\td\te\tf\n1\tnan\tNaN\tn/a\tNA\t\n2\t3\tN/A\t-nan\t\t4\n"
    frames = read_series(write(tmp_path / "a.tsv", text)).frames
    np.testing.assert_array_equal(np.isnan(frames), [[0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0]])
    assert frames[1, [1, 5]].tolist() == [3, 4]
    series = read_series(write(tmp_path / "b.tsv", "n/a\tn/a\n1\t2\n"))  # the first row is no header
    assert (series.frames.shape, series.columns) == ((2, 2), None)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "a\tb\n1\t2\n3\toops\n", r"a\.tsv: line 3, column 2: 'oops' is not a number"),
        ("a.csv", "1,2,x\n3,4,5\n", r"line 1, column 3: 'x'"),
        ("a.txt", "1 1_0\n", r"line 1, column 2: '1_0'"),
        ("a.1D", "#1\t#2\t#3\n1\t2\n", r"header in line 1 names 3 columns, but the rows have 2"),
        ("a.csv", ",a,b\n0,1,2\n1,3,4\n", r"column 1 has no name"),
        ("a.tsv", "", r"has no frames"),
        ("a.tsv", "a\tb\n", r"has a header but no frames"),
    ],
)
def test_broken_text(tmp_path, name, text, message):
    with pytest.raises(BrioError, match=message) as caught:
        read_series(write(tmp_path / name, text))
    assert "\n" not in str(caught.value)


def test_an_empty_connectome_is_not_said_to_lack_frames(tmp_path):
    with pytest.raises(BrioError, match="has no ROIs; each row must be one ROI"):
        read_series(write(tmp_path / "a.tsv", ""), connectome=True)


def test_arrays_are_never_transposed(tmp_path):
    np.save(tmp_path / "a.npy", X.astype(np.float64))
    np.savez(tmp_path / "b.npz", series=X, ids=np.arange(3))
    np.savez(tmp_path / "c.npz", timeseries=X, fc=np.eye(4))
    savemat(tmp_path / "d.mat", {"data": X, "TR": 2.0, "who": "me"})
    savemat(tmp_path / "e.mat", {"ROISignals": X, "other": np.eye(3)})
    with h5py.File(tmp_path / "f.mat", "w") as file:  # as MATLAB's v7.3 lays a matrix out
        file["data"] = X.T
        file["note"] = np.full((5, 2), 65, dtype=np.uint16)
        file["note"].attrs["MATLAB_class"] = np.bytes_("char")
    for path in find_series(tmp_path):
        np.testing.assert_array_equal(read_series(path).frames, X, err_msg=path.name)
    assert len(find_series(tmp_path)) == 6


@pytest.mark.parametrize("kind", ["link", "data of another file", "virtual"])
def test_an_hdf5_file_leads_to_no_other(tmp_path, kind):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = X.T
    X.T.tofile(tmp_path / "other.raw")
    with h5py.File(tmp_path / "a.mat", "w") as file:
        if kind == "link":
            file["x"] = h5py.ExternalLink("other.h5", "/x")
        elif kind == "virtual":
            layout = h5py.VirtualLayout(X.T.shape, X.dtype)
            layout[:] = h5py.VirtualSource("other.h5", "x", X.T.shape)
            file.create_virtual_dataset("x", layout)
        else:
            file.create_dataset("x", X.T.shape, X.dtype, external=[(str(tmp_path / "other.raw"), 0, X.nbytes)])
    with h5py.File(tmp_path / "a.mat") as file:  # the data are there for who follows
        np.testing.assert_array_equal(file["x"][()].T, X)
    refuse(r"a\.mat: ", read_series, tmp_path / "a.mat")


def test_variable_by_name(tmp_path):
    savemat(tmp_path / "a.mat", {"one": X, "two": 2 * X})
    np.testing.assert_array_equal(read_series(tmp_path / "a.mat", variable="two").frames, 2 * X)
    refuse(r"a\.mat: has no variable 'three'", read_series, tmp_path / "a.mat", variable="three")
    refuse(r"contains one 7x4, two 7x4; save the array to read", read_series, tmp_path / "a.mat")


MATLAB_4 = ["f8", "f4", "u1", "i2", "u2", "i4"]


@pytest.mark.parametrize(
    ("version", "packed", "dtype"),
    [("4", False, dtype) for dtype in MATLAB_4]
    + [("5", packed, dtype) for packed in (False, True) for dtype in [*MATLAB_4, "i1", "u4", "i8", "u8"]],
)
def test_matlab_matrices_are_those_of_scipy(tmp_path, dtype, version, packed):
    from scipy.io import loadmat

    path = tmp_path / "a.mat"
    matrix = np.abs(20 * X).astype(dtype)
    savemat(path, {"t": 3.0, "series": matrix, "text": "abc"}, format=version, do_compression=packed)
    np.testing.assert_array_equal(read_series(path).frames, loadmat(path)["series"].astype(np.float32))
    np.testing.assert_array_equal(read_series(path).frames, matrix.astype(np.float32))


@pytest.mark.parametrize("order", ["<", ">"])
def test_matlab_stores_whole_numbers_in_fewer_bytes(tmp_path, order):
    """MATLAB writes a matrix of small whole numbers, whose class is double, as 8-bit integers, of either byte order."""
    from scipy.io import loadmat

    parts = [(6, struct.pack(f"{order}II", 6, 0)), (5, struct.pack(f"{order}ii", 3, 2)), (1, b"series")]
    parts.append((2, bytes(range(6))))
    body = b"".join(struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8) for kind, data in parts)
    mark = b"IM" if order == "<" else b"MI"
    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}H", 0x0100) + mark
    path = tmp_path / "a.mat"
    path.write_bytes(header + struct.pack(f"{order}II", 14, len(body)) + body)
    assert read_series(path).frames.tolist() == loadmat(path)["series"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_cifti(tmp_path):
    path = tmp_path / "a_timeseries.ptseries.nii"
    save_cifti(path, X, ("V1", "V2", "M1", "S1"), tr=0.8)
    series = read_series(path)
    np.testing.assert_array_equal(series.frames, X)
    assert series.columns == ("V1", "V2", "M1", "S1")
    assert series.tr == pytest.approx(0.8)
    assert get_series_stem(path) == "a_timeseries"


def test_volume_is_no_cifti(tmp_path):
    path = tmp_path / "a.ptseries.nii"
    nibabel.Nifti1Image(np.zeros((2, 2, 2), dtype=np.float32), np.eye(4)).to_filename(path)
    refuse("is not a CIFTI file", read_series, path)


def test_unknown_suffix(tmp_path):
    refuse(r"a\.xlsx: is not a time-series file", read_series, tmp_path / "a.xlsx")
