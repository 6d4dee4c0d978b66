"""Do the numbers come back?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_p, format_signed, state_p

from .comparisons import compare_pair, name_family, site_scores
from .evidence import (
    count_fingerprints,
    describe_version,
    name_source,
    read_measured_table,
    read_measurement,
    read_runs,
)
from .markdown import arm_label, atlas_label, fixed, signed_interval, state, write_frame, write_page, write_table

FILE = "reproducibility.md"
TITLE = "Do the numbers come back?"
FULL = "repeats/aal116-full-precision"
BEFORE_KERNELS = "repeats/aal116-before-encoder-kernels/arms"
BEFORE_ORDER = "repeats/aal116-before-ordered-sums"
STUDY_ARMS = "studies/aal116/arms"


@cache
def compare_jobs(method: str, first: str, second: str) -> pd.Series:
    """Compare a method in two jobs with the same folds and seeds: second minus first.

    Returns
    -------
    Series
        The paired difference over sites, ``first`` and ``second`` (mean AUC), ``largest`` (the largest difference of a
        single run in points), ``typical`` (their mean), ``equal`` and ``same_epoch`` (counts of runs), ``runs``.
    """
    runs = []
    for folder in (first, second):
        table = read_runs(folder)
        runs.append(table[table["method"] == method].set_index(["fold", "seed"]).sort_index())
    auc = pd.DataFrame({name: part["auc"] for name, part in zip(("first", "second"), runs, strict=True)})
    sites = pd.DataFrame(
        {name: site_scores(part.reset_index())[method] for name, part in zip(("first", "second"), runs, strict=True)}
    )
    moved = 100 * (auc["second"] - auc["first"]).abs()
    more = {
        "first": sites["first"].mean(),
        "second": sites["second"].mean(),
        "largest": moved.max(),
        "typical": moved.mean(),
        "equal": int((moved < 1e-9).sum()),  # the last bit of an AUC depends on the version that computed it
        "same_epoch": int((runs[0]["selected_epoch"] == runs[1]["selected_epoch"]).sum()),
        "runs": len(moved),
    }
    return pd.concat(
        [compare_pair(sites, "second", "first", "repeats", f"{method}, {second}"), pd.Series(more, dtype=object)]
    )


def _rows(pairs: list[tuple[str, str, str, str]]) -> list[list[str]]:
    rows = []
    for label, method, first, second in pairs:
        d = compare_jobs(method, first, second)
        difference = [format_signed(d["mean"]), signed_interval(d["low"], d["high"]), format_p(d["p"])]
        counts = [f"{d['same_epoch']} of {d['runs']}", f"{d['equal']} of {d['runs']}"]
        rows.append([label, fixed(d["first"]), fixed(d["second"]), *difference, fixed(d["largest"]), *counts])
    return rows


HEADER = ["first job, second job", "first", "second", "second minus first", "95 % interval", "p"]
HEADER += ["largest difference of a run", "runs with the same epoch", "runs with the same AUC"]


def _arms() -> list[str]:
    return sorted(read_runs(BEFORE_KERNELS)["method"].unique(), key=lambda name: (name != "brio", name))


def _read_repeated() -> list[str]:
    """Return what was measured of each network that was trained twice, one line each."""
    lines = read_measurement("repeated-training.txt").splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("method"))
    return lines[header + 1 :]


def page() -> str:
    """Return the page."""
    arms = {arm: compare_jobs(arm, BEFORE_KERNELS, f"{STUDY_ARMS}/{arm}") for arm in _arms()}
    largest_mean = max(abs(d["mean"]) for d in arms.values())
    largest_run = max(d["largest"] for d in arms.values())
    tf32 = compare_jobs("gcn", "repeats/cc200-gcn-full-precision", "repeats/cc200-gcn-tf32")
    first = compare_jobs("brio", FULL, BEFORE_KERNELS)
    precision = [
        ("BRIO, AAL116: full precision, TF32 with later code", "brio", FULL, BEFORE_KERNELS),
        ("BRIO, AAL116: full precision, TF32 with still later code", "brio", FULL, f"{STUDY_ARMS}/brio"),
        ("GCN, CC200: full precision, TF32", "gcn", "repeats/cc200-gcn-full-precision", "repeats/cc200-gcn-tf32"),
    ]
    kernels = [
        (f"{arm_label(arm)}: before and after the encoder's kernels", arm, BEFORE_KERNELS, f"{STUDY_ARMS}/{arm}")
        for arm in arms
    ]
    order = [
        (f"`{m}`: same command, twice", m, f"{BEFORE_ORDER}/{m}", f"{STUDY_ARMS}/{m}") for m in ("gsat", "brainood")
    ]
    fingerprints = [
        [atlas_label(atlas), fingerprint[:8], str(n)]
        for (atlas, fingerprint), n in sorted(count_fingerprints().items())
    ]
    models = read_measured_table("left-out-models.txt")
    repeated = _read_repeated()
    return write_page(
        TITLE,
        state(
            "**Numbers of trained networks depend on the code and the precision.** Between two jobs with the same "
            f"settings, folds and seeds but different code, a mean over {arms['brio']['runs']} runs moved by up to "
            f"{fixed(largest_mean)} points and a single run by up to {fixed(largest_run)}. Differences of about a "
            "point between two trained networks should not be read as gains.",
            largest_mean > 1,
        ),
        f"*Arms and precision, and the same command twice:* {describe_version(f'{STUDY_ARMS}/brio')}",
        f"AUC in percent at unseen sites. Differences are paired over sites. {name_family('repeats')}",
        "## Precision",
        state(
            f"That TF32 costs anything is not shown, nor that it does not: for the GCN on CC200 the difference is "
            f"{format_signed(tf32['mean'])} ({state_p(tf32['p'])}; better at {tf32['better']}, worse at "
            f"{tf32['worse']} of {tf32['n']} sites). Between the two jobs of each row the code had changed as well.",
            tf32["p"] > 0.05,
        ),
        write_table(HEADER, _rows(precision)),
        f"A single run of BRIO differs by {fixed(first['typical'])} points on average between the first two jobs.",
        "## Other code",
        "The same arms on AAL116 in TF32, before and after the layers of the encoder became GPU kernels:",
        write_table(HEADER, _rows(kernels)),
        "## The order of sums",
        "`gsat` and `brainood` did not repeat: their kernels added up the edges of a region in the order in which "
        "programs ended. This was corrected after these jobs, and the order of every sum is now fixed.",
        write_table(HEADER, _rows(order)),
        state(
            f"All {len(repeated)} networks, trained a second time on an H200 with the same folds and seeds, have the "
            "same weights to the last bit: `python benchmarks/repeat_training.py abide-aal --device cuda-tf32 --times "
            "2`, eight runs of eight epochs each; stored as `evidence/measurements/repeated-training.txt`.",
            all("  the same  " in line for line in repeated),
        ),
        "## The scans",
        state(
            "All stored jobs of an atlas ran on the same scans: the cohort's fingerprint is one.",
            len(fingerprints) == len({row[0] for row in fingerprints}),
        ),
        write_table(["atlas", "cohort fingerprint", "jobs"], fingerprints),
        "No stored job is a smoke run: each has all folds and at least "
        f"{read_runs('unseen-sites/aal116')['seed'].nunique()} seeds. The generator of these pages refuses any other.",
        "## Models in files",
        state(
            "Each site was left out in turn: a model was fitted to the other sites and stored, the scans of the site "
            "were written as files, and `brio predict` was run on them. Margins are those of `brio run` to "
            f"{models['largest difference of margins'].astype(float).max():.1e}, and no AUC differs.",
            bool((models["of AUC"].astype(float) == 0).all()),
        ),
        write_frame(models),
        "`python benchmarks/left_out_models.py abide-aal --with abide-cc --method METHOD`; stored as "
        "`evidence/measurements/left-out-models.txt`. Of the networks only BRIO was measured, with `--site NYU --site "
        "LEUVEN_1 --site UM_1 --device cuda`: trained on a GPU, applied on a CPU.",
        name_source(
            FULL,
            BEFORE_KERNELS,
            BEFORE_ORDER,
            STUDY_ARMS,
            "repeats/cc200-gcn-full-precision",
            "repeats/cc200-gcn-tf32",
            "measurements",
        ),
    )
