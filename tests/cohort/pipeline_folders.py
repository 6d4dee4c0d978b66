"""Write the output of pipelines as they name it: XCP-D in its modes, giga_connectome, HALFpipe and C-PAC."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pandas as pd
from file_layouts import make_frames, save_cifti, write_text

TR, MEAN_FD = 0.8, 0.25  # of every scan
REGIONS = ("LH_Vis_1", "LH_Vis_2", "RH_Vis_1", "Hippocampus", "Thalamus")
SUBJECTS = tuple(f"sub-{i:02d}" for i in range(1, 7))


def write_json(path: Path, **content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_relmat(path: Path, frames: np.ndarray, index_label: str | None) -> None:
    """Write correlations under names of the columns; the rows have names too if the index has one."""
    named = list(REGIONS) if index_label is not None else range(frames.shape[1])
    table = pd.DataFrame(np.corrcoef(frames.T), named, named)
    table.to_csv(path, sep="\t", index=index_label is not None, index_label=index_label)


def write_xcpd(mode: str, src: Path, sub: str, frames: np.ndarray) -> None:
    """Write a scan in two atlases: its run, and in the modes that combine runs what is joined of all of them.

    Release 26 names the atlas by ``atlas-``, those from 0.6 to 0.14 by ``seg-``. Infants have sessions.
    """
    joins, is_old = mode in ("abcd", "hbcd"), mode == "0.10"
    stem = f"{sub}_ses-V02_task-rest" if mode == "hbcd" else f"{sub}_task-rest"
    write_xcpd_scan(mode, src, f"{stem}_dir-AP_run-1" if joins else stem, frames, MEAN_FD, is_old)
    if joins:
        write_xcpd_scan(mode, src, stem, frames, 7.0, is_old)


def write_xcpd_scan(mode: str, src: Path, stem: str, frames: np.ndarray, mean_fd: float, is_old: bool = False) -> None:
    """Write the files of a run, or of joined runs; only ``nichart`` reads volumes."""
    is_cifti, entity = mode != "nichart", "seg" if is_old else "atlas"
    space = "fsLR" if is_cifti else "MNI152NLin6Asym_res-2"
    func = src / stem.split("_")[0] / ("ses-V02/func" if mode == "hbcd" else "func")
    for atlas, values in (("4S156Parcels", frames), ("Gordon", frames[:, ::-1])):
        start = f"{func}/{stem}_space-{space.removesuffix('_res-2')}_{entity}-{atlas}"
        dense = f"{start}_den-91k" if is_cifti else start
        start = dense if mode == "abcd" else start  # text has the density in some releases
        write_text(Path(f"{start}_stat-mean_timeseries.tsv"), values, REGIONS)
        write_json(Path(f"{start}_stat-mean_timeseries.json"), SamplingFrequency="TR", Sources=["bids:a"])
        Path(f"{start}_stat-coverage_bold.tsv").write_text("Node\tcoverage\nLH_Vis_1\t0.9\n")
        write_json(Path(f"{start}_stat-coverage_bold.json"), RepetitionTime=9)
        write_relmat(Path(f"{start}_stat-pearsoncorrelation_relmat.tsv"), values, "Node")
        if is_cifti:
            save_cifti(Path(f"{dense}_stat-mean_timeseries.ptseries.nii"), values, REGIONS, TR)
    write_json(func / f"{stem}_space-{space}_desc-denoised_bold.json", RepetitionTime=TR, TaskName="rest")
    motion = [f"0.1\t{value}\t0.1" for value in ("n/a", mean_fd - 0.1, mean_fd + 0.1)]
    header = "rot_x\tframewise_displacement\tframewise_displacement_filtered"
    name = f"{stem}_desc-filtered_motion.tsv" if is_old else f"{stem}_motion.tsv"
    (func / name).write_text("\n".join([header, *motion]) + "\n")
    (func / f"{stem}_outliers.tsv").write_text("framewise_displacement\n0\n1\n")
    (func / f"{stem}_desc-abcc_qc.hdf5").write_bytes(b"\x89HDF")


def write_giga(src: Path, sub: str, frames: np.ndarray) -> None:
    """Write a scan in two atlases with one sidecar, whose name has no ``seg-``."""
    start = src / sub / "func" / f"{sub}_task-rest"
    for atlas, values in (("Schaefer2018100Parcels7Networks", frames), ("MIST7", frames[:, :3])):
        numbers = [str(i) for i in range(values.shape[1])]
        write_text(Path(f"{start}_seg-{atlas}_desc-denoiseSimple_timeseries.tsv"), values, numbers)
        relmat = f"{start}_seg-{atlas}_meas-PearsonCorrelation_desc-denoiseSimple_relmat.tsv"
        write_relmat(Path(relmat), values, None)
    known = {"SamplingFrequency": 1 / TR, "MeanFramewiseDisplacement": MEAN_FD}
    write_json(Path(f"{start}_desc-denoiseSimple_timeseries.json"), ConfoundRegressors=["csf"], **known)


def write_giga_h5(src: Path, sub: str, frames: np.ndarray) -> None:
    """Write a scan as release 0.4 does: groups of one file per participant."""
    with h5py.File(src / f"{sub}_atlas-MIST_desc-simple.h5", "w") as file:
        name = f"{sub}_ses-1_task-rest_run-01_atlas-MIST_desc-7"
        data = file.create_dataset(f"{sub}/ses-1/{name}_timeseries", data=frames)
        data.attrs["RepetitionTime"] = TR
        file.create_dataset(f"{sub}/ses-1/{name}_connectome", data=np.corrcoef(frames.T))


def write_halfpipe(src: Path, sub: str, frames: np.ndarray) -> None:
    """Write a scan without header; the sidecar has the seconds between frames under SamplingFrequency."""
    func = src / "derivatives" / "halfpipe" / sub / "func" / "task-rest"
    start = func / f"{sub}_task-rest_feature-corrMatrix1_atlas-schaefer2018"
    write_text(Path(f"{start}_timeseries.tsv"), frames, None)
    write_json(Path(f"{start}_timeseries.json"), SamplingFrequency=TR, FDMean=MEAN_FD, FDPerc=3.0)
    write_text(Path(f"{start}_desc-correlation_matrix.tsv"), np.corrcoef(frames.T), None)
    confounds = src / "derivatives" / "fmriprep" / sub / "func" / f"{sub}_task-rest_desc-confounds_timeseries.tsv"
    write_text(confounds, frames[:, :2], ("csf", "framewise_displacement"))


def write_cpac(is_new: bool, src: Path, sub: str, frames: np.ndarray) -> None:
    """Write a scan with the motion of older releases (1D files), or of newer ones (a table).

    The header is what AFNI's 3dROIstats prints; the repetition time is in the header of the image alone.
    """
    func = src / "output" / "pipeline_cpac-default" / sub / "ses-1" / "func"
    start = func / f"{sub}_ses-1_task-rest_run-1"
    name = "Schaefer_space-MNI152NLin6ASym_reg-default_desc-Mean" if is_new else "Schaeferspace-MNI152NLin6_desc-Mean-1"
    header = ",".join(f"Mean_{i + 1}  " for i in range(frames.shape[1]))
    series = Path(f"{start}_atlas-{name}_timeseries.1D")
    series.parent.mkdir(parents=True)
    np.savetxt(series, frames, delimiter=",", header=header, comments="#", fmt="%.5f")
    write_json(series.with_suffix(".json"), CpacProvenance=["a"], Sources=["b"])
    write_text(Path(f"{start}_atlas-{name.replace('Mean', 'SpatReg')}_timeseries.txt"), frames + 1, None)
    write_json(Path(f"{start}_desc-preproc_bold.json"), CpacProvenance=["a"], Sources=["b"])
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2, 3), dtype=np.float32), np.eye(4))
    nibabel.save(image.slicer[..., 0], f"{start}_desc-mean_bold.nii.gz")
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((1.0, 1.0, 1.0, TR))
    nibabel.save(image, f"{start}_desc-preproc_bold.nii.gz")
    fd = np.array([[0.0], [MEAN_FD], [2 * MEAN_FD]])
    if is_new:
        names = ("Framewise displacement Jenkinson", "Framewise displacement power", "DVARS", "Max Displacement")
        write_text(Path(f"{start}_motion.tsv"), np.hstack([fd + 1, fd, fd, fd]), names)
        write_text(Path(f"{start}_desc-movementParameters_motion.tsv"), np.hstack([fd, fd]), ("roll", "pitch"))
        write_text(Path(f"{start}_desc-summary_motion.tsv"), np.array([[1.0, 9.0]]), ("Subject", "MeanFD_Power"))
    else:
        write_text(Path(f"{start}_framewise-displacement-power.1D"), fd, None)
        write_text(Path(f"{start}_framewise-displacement-jenkinson.1D"), fd + 1, None)
        write_text(Path(f"{start}_movement-parameters.1D"), np.hstack([fd, fd]), None)


def _bind(write: Callable[..., None], word: object) -> Callable[[Path, str, np.ndarray], None]:
    return lambda src, sub, frames: write(word, src, sub, frames)


XCPD_MODES = ("abcd", "hbcd", "linc", "nichart", "0.10")

# How each pipeline writes a scan, the atlas to ask for, and whether it states motion.
PIPELINES = {
    **{f"xcpd-{mode}": (_bind(write_xcpd, mode), "4S156Parcels", True) for mode in XCPD_MODES},
    "giga": (write_giga, "Schaefer2018100Parcels7Networks", True),
    "giga-h5": (write_giga_h5, "MIST", False),
    "halfpipe": (write_halfpipe, "schaefer2018", True),
    "cpac": (_bind(write_cpac, True), "Schaefer", True),
    "cpac-1.8": (_bind(write_cpac, False), "Schaefer", True),
}


def write_pipeline(name: str, src: Path) -> list[np.ndarray]:
    """Write the output of a pipeline, with a participants table whose column ``dx`` has MDD and HC."""
    src.mkdir(parents=True)
    frames = [make_frames(i) for i in range(len(SUBJECTS))]
    for sub, own in zip(SUBJECTS, frames, strict=True):
        PIPELINES[name][0](src, sub, own)
    rows = [f"{sub}\t{'AB'[i // 3]}\t{('MDD', 'HC')[i % 2]}" for i, sub in enumerate(SUBJECTS)]
    (src / "participants.tsv").write_text("\n".join(["participant_id\tsite\tdx", *rows]) + "\n")
    return frames
