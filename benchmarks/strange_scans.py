"""Which strange scans does a model flag as foreign or note, and how many ordinary ones of a new site?

    python benchmarks/strange_scans.py FOLDER

FOLDER holds packed scans of ABIDE, aal116 and cc200. For each site, ranges are learned from the others, and scans of
the site are checked as they are and made strange in eight ways, without the names of regions where these would give the
change away. Prints a table in Markdown: the shares of flagged and of noted scans, their mean, least and largest over
sites; and how far scans lie from the mean connectome.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from brio.cohort import Atlas, Cohort, audit
from brio.cohort.cohort import locate_scans
from brio.cohort.readers import import_cohort
from brio.connectome import Connectomes
from brio.models.ranges import check_ranges, learn_ranges

ORDINARY = "as they are"


def read_atlases(folder: str | Path, place: Path) -> tuple[Cohort, Cohort]:
    """Read ABIDE with both atlases, without the scans that the audit excludes."""
    aal, cc = (import_cohort("packed", folder, place / name, atlas=name) for name in ("aal116", "cc200"))
    keep = audit(aal, companions=[cc]).keep
    return aal.select(keep), cc.select(keep)


def check_without(aal: Cohort, scans: dict[str, Cohort], site: str) -> dict[str, pd.DataFrame]:
    """Check scans against ranges that are learned from all sites but one."""
    ranges, mean = learn_ranges(Connectomes(aal), np.flatnonzero(aal.sites != site))
    return {k: check_ranges(ranges, mean, Connectomes(v), np.zeros(len(v), bool)) for k, v in scans.items()}


def make_strange(aal: Cohort, cc: Cohort) -> dict[str, Cohort]:
    """Make the scans of a site strange, each way a cohort of its own.

    Parameters
    ----------
    aal, cc : Cohort
        The same scans with 116 and with 200 ROIs.

    Returns
    -------
    dict of Cohort
    """
    rng, unnamed = np.random.default_rng(0), Atlas.unnamed(aal.n_rois)
    order, sides = rng.permutation(aal.n_rois), _exchange_sides(aal.atlas)
    scans, wide = ([np.array(one.scan(i)) for i in range(len(one))] for one in (aal, cc))
    swapped = [_exchange_neighbours(scan, rng.integers(aal.n_rois - 1)) for scan in scans]
    return {
        "noise": _replace_scans(aal, [rng.normal(size=scan.shape) for scan in scans]),
        "half the length": _replace_scans(aal, [scan[: len(scan) // 2] for scan in scans]),
        "another repetition time": replace(aal, participants=aal.participants.assign(tr=0.8)),
        "another atlas of the same size": _replace_scans(aal, [scan[:, : aal.n_rois] for scan in wide], unnamed),
        "regions in another order": _replace_scans(aal, [scan[:, order] for scan in scans], unnamed),
        "all left regions first": _replace_scans(aal, [scan[:, _sort_sides(aal.atlas)] for scan in scans], unnamed),
        "left and right exchanged": _replace_scans(aal, [scan[:, sides] for scan in scans], unnamed),
        "two neighbouring columns exchanged": _replace_scans(aal, swapped, unnamed),
    }


def _sort_sides(atlas: Atlas) -> np.ndarray:
    """Find the order of columns with all regions of the left side first, then those of the right, then the others."""
    side = atlas.rois["name"].astype(str).str[-2:].map({"_L": 0, "_R": 1}).fillna(2)
    return np.argsort(side.to_numpy(), kind="stable")


def _exchange_sides(atlas: Atlas) -> np.ndarray:
    """Find the column of the same region on the other side; of a region in the middle its own."""
    names, other = atlas.rois["name"].astype(str).tolist(), {"_L": "_R", "_R": "_L"}
    return np.array([names.index(name[:-2] + other.get(name[-2:], name[-2:])) for name in names])


def _exchange_neighbours(scan: np.ndarray, first: int) -> np.ndarray:
    """Exchange a column with the next one."""
    out = scan.copy()
    out[:, [first, first + 1]] = scan[:, [first + 1, first]]
    return out


def _replace_scans(cohort: Cohort, scans: list[np.ndarray], atlas: Atlas | None = None) -> Cohort:
    lengths = np.array([len(scan) for scan in scans])
    return replace(
        cohort,
        frames=np.concatenate(scans).astype(np.float32),
        starts=locate_scans(lengths),
        n_frames=lengths,
        participants=cohort.participants.assign(n_frames=lengths),
        atlas=atlas or cohort.atlas,
        path=None,
    )


def main() -> None:
    """Check every site and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    args = parser.parse_args()
    checked: dict[str, list[pd.DataFrame]] = {}
    with tempfile.TemporaryDirectory(prefix="brio-strange-") as place:
        aal, cc = read_atlases(args.folder, Path(place))
        for site in sorted(set(aal.sites)):
            own, wide = (cohort.select(cohort.sites == site) for cohort in (aal, cc))
            for name, table in check_without(aal, {ORDINARY: own} | make_strange(own, wide), site).items():
                checked.setdefault(name, []).append(table.assign(site=site))
    print("| scans | flagged, % | least and largest over sites | noted, % | least and largest | distance |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, tables in checked.items():
        cells = [name]
        for column in ("flag", "notes"):
            shares = [100 * (table[column] != "").mean() for table in tables]
            every = 100 * np.concatenate([table[column] != "" for table in tables]).mean()
            cells += [f"{every:.1f}", f"{min(shares):.1f}, {max(shares):.1f}"]
        distance = pd.concat(tables)["distance"]
        print(f"| {' | '.join(cells)} | {distance.min():.2f} to {distance.max():.2f}, median {distance.median():.2f} |")
    notes = pd.concat(checked[ORDINARY])["notes"].str.split().explode().value_counts()
    print(f"\n{ORDINARY}, notes: {', '.join(f'{n} {code}' for code, n in notes.items())}")


if __name__ == "__main__":
    main()
