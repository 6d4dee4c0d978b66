"""Write the output of pipelines as they name it: XCP-D in its modes, giga_connectome, HALFpipe and C-PAC."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
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
    """Write a scan in two atlases: releases to 0.10 have ``seg-``, later ones ``atlas-``; infants have sessions."""
    stem = f"{sub}_ses-V02_task-rest_run-1" if mode == "hbcd" else f"{sub}_task-rest"
    is_cifti, entity = mode != "linc", "atlas" if mode == "nichart" else "seg"
    space = "fsLR" if is_cifti else "MNI152NLin2009cAsym"
    func = src / sub / ("ses-V02/func" if mode == "hbcd" else "func")
    for atlas, values in (("4S156Parcels", frames), ("Gordon", frames[:, ::-1])):
        start = func / f"{stem}_space-{space}_{entity}-{atlas}"
        write_text(Path(f"{start}_stat-mean_timeseries.tsv"), values, REGIONS)
        write_json(Path(f"{start}_stat-mean_timeseries.json"), SamplingFrequency="TR", Sources=["bids:a"])
        Path(f"{start}_stat-coverage_bold.tsv").write_text("Node\tcoverage\nLH_Vis_1\t0.9\n")
        write_json(Path(f"{start}_stat-coverage_bold.json"), RepetitionTime=9)
        write_relmat(Path(f"{start}_stat-pearsoncorrelation_relmat.tsv"), values, "Node")
        if is_cifti:
            save_cifti(Path(f"{start}_den-91k_stat-mean_timeseries.ptseries.nii"), values, REGIONS, TR)
    write_json(func / f"{stem}_space-{space}_desc-denoised_bold.json", RepetitionTime=TR)
    filtered = "_desc-filtered" if mode == "abcd" else ""
    motion = "rot_x\tframewise_displacement\n0.1\tn/a\n" + f"0.1\t{MEAN_FD - 0.1}\n0.1\t{MEAN_FD + 0.1}\n"
    (func / f"{stem}{filtered}_motion.tsv").write_text(motion)
    if mode == "hbcd":  # of all runs together
        (func / f"{stem.replace('_run-1', '')}_motion.tsv").write_text("framewise_displacement\n7\n")
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
    """Write a scan as releases before 0.5 do: groups of one file."""
    with h5py.File(src / "atlas-MIST_desc-simple.h5", "a") as file:
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
    """Write a scan with the motion of older releases (1D files), or of newer ones (a table)."""
    func = src / "output" / "pipeline_cpac-default" / sub / "ses-1" / "func"
    start = func / f"{sub}_ses-1_task-rest_run-1"
    numbers = [f"#{i + 1}" for i in range(frames.shape[1])]
    name = "Schaefer_space-MNI152NLin6ASym_reg-default_desc-Mean" if is_new else "Schaeferspace-MNI152NLin6_desc-Mean-1"
    write_text(Path(f"{start}_atlas-{name}_timeseries.1D"), frames, numbers)
    write_text(Path(f"{start}_atlas-{name.replace('Mean', 'SpatReg')}_timeseries.txt"), frames + 1, None)
    write_json(Path(f"{start}_desc-preproc_bold.json"), RepetitionTime=TR, Sources=["a"])
    fd = np.array([[0.0], [MEAN_FD], [2 * MEAN_FD]])
    if is_new:
        names = ("Framewise displacement Jenkinson", "Framewise displacement power", "DVARS")
        write_text(Path(f"{start}_motion.tsv"), np.hstack([fd + 1, fd, fd]), names)
        write_text(Path(f"{start}_desc-movementParameters_motion.tsv"), np.hstack([fd, fd]), ("roll", "pitch"))
    else:
        write_text(Path(f"{start}_framewise-displacement-power.1D"), fd, None)
        write_text(Path(f"{start}_framewise-displacement-jenkinson.1D"), fd + 1, None)
        write_text(Path(f"{start}_movement-parameters.1D"), np.hstack([fd, fd]), None)


def _bind(write: Callable[..., None], word: object) -> Callable[[Path, str, np.ndarray], None]:
    return lambda src, sub, frames: write(word, src, sub, frames)


# How each pipeline writes a scan, the atlas to ask for, and whether it states motion.
PIPELINES = {
    **{f"xcpd-{mode}": (_bind(write_xcpd, mode), "4S156Parcels", True) for mode in ("abcd", "hbcd", "linc", "nichart")},
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
