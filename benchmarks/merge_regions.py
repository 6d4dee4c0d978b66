"""Merge neighbouring regions of a cohort into fewer, to test a method on a parcellation that nobody tuned it on.

    python benchmarks/merge_regions.py COHORT OUT --regions 100

Regions are grouped by Ward's rule on their coordinates in the atlas table; no scan and no label takes part. The series
of a group is the mean of the z-scored series of those of its regions that have signal, and zero where none has.
"""

import argparse

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage

from brio import Cohort
from brio.cohort import Atlas


def group_regions(atlas: Atlas, n_groups: int) -> np.ndarray:
    """Return the group of each region, 0 to n_groups - 1, by Ward's rule on the coordinates. Shape [P]."""
    tree = linkage(atlas.rois[["x", "y", "z"]].to_numpy(float), "ward")
    return fcluster(tree, n_groups, "maxclust") - 1


def merge_scan(scan: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Average the z-scored series of each group of regions. Shape [T, P] -> [T, groups]."""
    frames = np.asarray(scan, dtype=np.float64)
    valid = np.isfinite(frames).all(1)
    frames = frames[valid]
    spread = frames.std(0)
    alive = spread > 1e-9 * max(spread.max(), 1e-300)
    z = np.where(alive, (frames - frames.mean(0)) / np.where(alive, spread, 1.0), 0.0)
    member = np.eye(group.max() + 1)[group] * alive[:, None]  # [P, groups]
    return z @ (member / np.maximum(member.sum(0), 1.0))


def merge_regions(cohort: Cohort, n_groups: int) -> Cohort:
    """Return the cohort with its regions merged into ``n_groups``."""
    group = group_regions(cohort.atlas, n_groups)
    centres = cohort.atlas.rois.groupby(group)[["x", "y", "z"]].mean()
    rois = pd.DataFrame({"name": [f"group_{k + 1:03d}" for k in range(n_groups)], **centres})
    table = cohort.participants
    own = ("participant_id", "site", "label", "n_frames")
    return Cohort.from_scans(
        [merge_scan(cohort.scan(i), group) for i in range(len(cohort))],
        site=table["site"],
        label=table["label"],
        participant_id=table["participant_id"],
        covariates=table.drop(columns=[c for c in own if c in table]),
        atlas=Atlas(f"{cohort.atlas.name} merged to {n_groups}", rois),
        classes=cohort.classes,
        name=f"{cohort.name}-{n_groups}",
        provenance={"kind": "merged", "of": cohort.fingerprint, "regions": n_groups},
    )


def main() -> None:
    """Read, merge, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("out")
    parser.add_argument("--regions", type=int, required=True)
    args = parser.parse_args()
    merged = merge_regions(Cohort.load(args.cohort), args.regions).save(args.out)
    print(f"{args.out}: {len(merged)} scans, {merged.n_rois} regions")


if __name__ == "__main__":
    main()
