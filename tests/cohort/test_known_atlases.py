"""Tables of known atlases: against nilearn where it holds the coordinates, with stand-ins where it downloads images."""

from unittest.mock import Mock

import nibabel
import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse

from brio.cohort.atlas import load_known_atlas, load_label_image

AFFINE = np.array([[-2.0, 0, 0, 40], [0, 2, 0, -60], [0, 0, 2, -30], [0, 0, 0, 1]])


@pytest.fixture(scope="module")
def datasets():
    from nilearn import datasets

    return datasets


def test_power_against_nilearn(datasets):
    rois = load_known_atlas("power264").rois
    theirs = datasets.fetch_coords_power_2011()["rois"]
    np.testing.assert_array_equal(rois[["index", "x", "y", "z"]], theirs[["roi", "x", "y", "z"]])
    assert rois["name"].is_unique


@pytest.mark.parametrize("by_network", [False, True])
@pytest.mark.parametrize(
    ("name", "fetch", "n_rois"),
    [("dosenbach160", "fetch_coords_dosenbach_2010", 160), ("seitzman300", "fetch_coords_seitzman_2018", 300)],
)
def test_dosenbach_and_seitzman_against_nilearn(datasets, name, fetch, n_rois, by_network):
    rois = load_known_atlas(name + "-by-network" * by_network).rois
    theirs = getattr(datasets, fetch)(ordered_regions=by_network)
    np.testing.assert_allclose(rois[["x", "y", "z"]], theirs["rois"], atol=0.005)
    assert rois["network"].tolist() == list(theirs["networks"])
    assert len(rois) == n_rois
    assert rois["name"].is_unique
    if not by_network:
        assert rois["index"].tolist() == list(range(1, n_rois + 1))
    if name == "dosenbach160":  # its labels end in their numbers
        assert [int(label.split()[-1]) for label in rois["name"]] == rois["index"].tolist()


@pytest.fixture
def image():
    """Labels 1, 2 and 4 in boxes; 3 has no voxel, as in some atlases."""
    volume = np.zeros((12, 14, 10), dtype=np.int16)
    volume[1:4, 2:5, 3:6], volume[7:12, 2:5, 3:8], volume[2:5, 8:13, 1:4] = 1, 2, 4
    return nibabel.Nifti1Image(volume, AFFINE)


def lut(*names: str) -> pd.DataFrame:
    return pd.DataFrame({"index": range(len(names) + 1), "name": ["Background", *names]})


@pytest.mark.parametrize(
    ("name", "fetcher", "options", "labels", "expected"),
    [
        (
            "schaefer300-17",
            "fetch_atlas_schaefer_2018",
            {"n_rois": 300, "yeo_networks": 17, "resolution_mm": 2},
            ("17Networks_LH_VisCent_1", "17Networks_LH_DefaultA_1", "17Networks_RH_x_1", "17Networks_RH_SomMotB_1"),
            {"network": ["VisCent", "DefaultA", "SomMotB"], "hemi": ["L", "L", "R"]},
        ),
        (
            "harvard-oxford-cortl",
            "fetch_atlas_harvard_oxford",
            {"atlas_name": "cortl-maxprob-thr25-2mm"},
            ("Left Pole", "Right Pole", "empty", "Right Pole"),
            {"name": ["Left Pole", "Right Pole", "Right Pole_2"]},
        ),
        (
            "BASC064",
            "fetch_atlas_basc_multiscale_2015",
            {"resolution": 64, "version": "sym"},
            ("1", "2", "3", "4"),
            {"name": ["basc64_001", "basc64_002", "basc64_004"]},
        ),
    ],
)
def test_images_of_labels(datasets, monkeypatch, tmp_path, image, name, fetcher, options, labels, expected):
    from nilearn.maskers import NiftiLabelsMasker

    path = tmp_path / "maps.nii.gz"
    image.to_filename(path)

    def fetch(verbose, **given):
        assert given == options
        maps = image if "oxford" in fetcher else str(path)  # nilearn returns either
        return {"maps": maps, "lut": lut(*labels)}

    monkeypatch.setattr(datasets, fetcher, fetch)
    atlas = load_known_atlas(name)
    assert atlas.name == name.lower()
    voxels = np.moveaxis(np.indices(image.shape), 0, -1)
    places = nibabel.Nifti1Image(voxels @ AFFINE[:3, :3].T + AFFINE[:3, 3], AFFINE)  # three "frames": x, y and z
    columns = NiftiLabelsMasker(image, standardize=None).fit_transform(places).T  # means in the order of time series
    np.testing.assert_allclose(atlas.rois[["x", "y", "z"]], columns, atol=0.006)
    assert atlas.rois["index"].tolist() == [1, 2, 4]
    for column, values in expected.items():
        assert atlas.rois[column].tolist() == values


def test_maps_of_difumo(datasets, monkeypatch, image):
    from nilearn.image import new_img_like
    from nilearn.plotting import find_probabilistic_atlas_cut_coords

    grid = np.indices(image.shape)
    peaks = np.array([[3, 4, 4], [8, 9, 5]])
    maps = np.stack([np.exp(-((grid - p[:, None, None, None]) ** 2).sum(0) / 1.5) for p in peaks], axis=-1)
    maps[maps < 1e-4] = 0
    maps4d = new_img_like(image, maps, copy_header=False)
    table = {"component": [1, 2], "difumo_names": ["Cuneus"] * 2, "yeo_networks7": ["VisCent", "DefaultB"]}
    monkeypatch.setattr(
        datasets, "fetch_atlas_difumo", lambda **options: {"maps": maps4d, "labels": pd.DataFrame(table)}
    )
    rois = load_known_atlas("difumo64").rois
    np.testing.assert_allclose(rois[["x", "y", "z"]], find_probabilistic_atlas_cut_coords(maps4d), atol=1.0)
    np.testing.assert_allclose(rois[["x", "y", "z"]], peaks @ AFFINE[:3, :3].T + AFFINE[:3, 3], atol=0.05)
    assert rois["name"].tolist() == ["Cuneus", "Cuneus_2"]
    assert rois["network"].tolist() == ["VisCent", "DefaultB"]


def test_a_download_that_fails(datasets, monkeypatch):
    error = RuntimeError("a page of addresses")
    error.__context__ = OSError("no route to host\nand a long trace")
    monkeypatch.setattr(datasets, "fetch_atlas_schaefer_2018", Mock(side_effect=error))
    refuse(
        r"nilearn could not download the atlas with fetch_atlas_schaefer_2018 \(no route to host\); .*",
        load_known_atlas,
        "schaefer100",
    )


@pytest.mark.parametrize(
    ("name", "fetcher", "file"),
    [
        ("aal116", "fetch_atlas_aal", "AAL.nii"),
        (
            "schaefer200-17",
            "fetch_atlas_schaefer_2018",
            "Schaefer2018_200Parcels_17Networks_order_FSLMNI152_2mm.nii.gz",
        ),
        ("harvard-oxford-sub", "fetch_atlas_harvard_oxford", "HarvardOxford-sub-maxprob-thr25-2mm.nii.gz"),
        ("basc7", "fetch_atlas_basc_multiscale_2015", "_scale007.nii.gz"),
    ],
)
def test_an_image_that_cannot_be_downloaded_is_named(datasets, monkeypatch, name, fetcher, file):
    monkeypatch.setattr(datasets, fetcher, Mock(side_effect=OSError("no route to host")))
    refuse(file, load_label_image, name)


@pytest.mark.parametrize("name", ["schaefer150", "difumo65", "basc8", "power", "harvard-oxford", "mine"])
def test_other_names(name):
    assert load_known_atlas(name) is None
    assert load_known_atlas("AAL").name == "aal116", "bundled atlases are known too"
