"""Which strange scans does the check of a model's range flag, and how many ordinary ones of a new site?

    python benchmarks/strange_scans.py FOLDER [--method ridge]

FOLDER holds packed scans of ABIDE, aal116 and cc200. For each site, a model is fitted to the others, and scans of the
site are checked as they are and made strange in seven ways, without the names of regions where these would give the
change away. Prints a table in Markdown: the share of flagged scans, its mean, median, least and largest over sites, and
the sites where more than a tenth of the scans as they are is flagged.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from brio.cohort import Atlas, Cohort, audit
from brio.cohort.cohort import locate_scans
from brio.cohort.readers import import_cohort
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.models import fit_model
from brio.models.model import Model
from brio.models.ranges import check_ranges

ORDINARY = "as they are"


def read_atlases(folder: str | Path, place: Path) -> tuple[Cohort, Cohort]:
    """Read ABIDE with both atlases, without the scans that the audit excludes."""
    aal, cc = (import_cohort("packed", folder, place / name, atlas=name) for name in ("aal116", "cc200"))
    keep = audit(aal, companions=[cc]).keep
    return aal.select(keep), cc.select(keep)


def fit_without(cohort: Cohort, site: str, method: str = "ridge") -> Model:
    """Fit a model to all sites but one."""
    return fit_model(JobSpec(cohort.select(cohort.sites != site), [method], exclude=False, device="cpu"))


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
        "left and right exchanged": _replace_scans(aal, [scan[:, sides] for scan in scans], unnamed),
        "two neighbouring columns exchanged": _replace_scans(aal, swapped, unnamed),
    }


def find_flagged_share(model: Model, cohort: Cohort) -> float:
    """Find the share of scans that a model does not take for its own kind."""
    return float((check_ranges(model.ranges, model.mean, Connectomes(cohort))["in_range"] == "no").mean())


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
    parser.add_argument("--method", default="ridge")
    args = parser.parse_args()
    shares: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="brio-strange-") as place:
        aal, cc = read_atlases(args.folder, Path(place))
        for site in sorted(set(aal.sites)):
            model = fit_without(aal, site, args.method)
            own, wide = (cohort.select(cohort.sites == site) for cohort in (aal, cc))
            for name, cohort in ({ORDINARY: own} | make_strange(own, wide)).items():
                shares.setdefault(name, {})[site] = 100 * find_flagged_share(model, cohort)
    print("| scans | flagged, mean over sites, % | median | least | largest |\n| --- | --- | --- | --- | --- |")
    for name, by_site in shares.items():
        values = list(by_site.values())
        cells = (np.mean(values), np.median(values), min(values), max(values))
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in cells)} |")
    many = [f"{site} {share:.1f}" for site, share in shares[ORDINARY].items() if share > 10]
    print(f"\n{ORDINARY}, more than 10 %: {', '.join(many) or 'at no site'}")


if __name__ == "__main__":
    main()
