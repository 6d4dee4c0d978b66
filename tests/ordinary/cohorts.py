"""Cohorts as people have them, with planted truth, each written once per session to a folder that commands read."""

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import brio
from brio import Cohort, Simulation, simulate
from brio.cohort import Atlas
from made_cohorts import take_settings

SMALL = Simulation(n_sites=5, per_class=5, n_rois=12, frames=60, stable=0.8, dead_share=0.0, seed=7)
"""Small enough for every method."""
STABLE = ["stable_1_L", "stable_2_R", "stable_3_L"]
"""The stable network of twelve regions."""
NOTHING = dataclasses.replace(SMALL, stable=0.0, unstable=0.0, spurious=0.0)
"""The same hospitals where patients do not differ from controls."""


@dataclasses.dataclass
class People:
    """Scans and their table before they are a cohort: what the edits below change."""

    scans: list[np.ndarray]
    table: pd.DataFrame
    atlas: Atlas

    @classmethod
    def of(cls, cohort: Cohort) -> "People":
        """Copy what a cohort holds."""
        scans = [np.array(cohort.scan(i)) for i in range(len(cohort))]
        return cls(scans, cohort.participants.drop(columns=["n_frames", "brio_scan_id"], errors="ignore"), cohort.atlas)

    def select(self, index: np.ndarray) -> "People":
        """Some of the scans, in this order."""
        rows = self.table.iloc[index].reset_index(drop=True)
        return People([self.scans[i] for i in index], rows, self.atlas)

    def write(self, folder: Path, labelled: bool = True) -> Path:
        """Write raw files as people have them: one csv file per scan, and a table where they are labelled."""
        folder.mkdir()
        for participant, scan in zip(self.table["participant_id"], self.scans, strict=True):
            pd.DataFrame(scan, columns=self.atlas.rois["name"]).to_csv(folder / f"{participant}.csv", index=False)
        if labelled:
            self.table.to_csv(folder / "participants.tsv", sep="\t", index=False)
        return folder

    def to_cohort(self) -> Cohort:
        """Build the cohort in memory."""
        known = ["participant_id", "site", "label", "session"]
        return Cohort.from_scans(
            self.scans,
            site=self.table["site"],
            label=self.table["label"],
            participant_id=self.table["participant_id"],
            session=self.table.get("session"),
            covariates=self.table.drop(columns=known, errors="ignore"),
            atlas=self.atlas,
            classes=("control", "patient"),
        )


def simulated(**changes: object) -> People:
    """The small cohort with other parameters of the simulation."""
    return People.of(simulate(dataclasses.replace(SMALL, **changes)))


def _two_per_class() -> People:
    people = simulated(per_class=4)
    first = people.table.groupby(["site", "label"]).cumcount() < 2
    return people.select(np.flatnonzero(first))


def _confounded() -> People:
    """Patients are older and move more; their connectomes are those of controls."""
    people = People.of(simulate(dataclasses.replace(NOTHING, n_sites=6, per_class=8)))
    rng, label = np.random.default_rng(0), people.table["label"].to_numpy()
    people.table["age"] = np.round(25 + 8 * label + rng.normal(0, 2, len(label)), 1)
    people.table["mean_fd"] = np.round(0.1 + 0.2 * label + rng.uniform(0, 0.1, len(label)), 3)
    return people


def _unequal() -> People:
    """Scans of 30 to 60 frames, whatever the site and the class."""
    people = simulated()
    lengths = np.random.default_rng(1).integers(30, 60, len(people.scans))
    people.scans = [scan[:n] for scan, n in zip(people.scans, lengths, strict=True)]
    return people


def _dead_region() -> People:
    """Region 11 has no signal at one site, and in one scan elsewhere."""
    people = simulated()
    sites = people.table["site"].to_numpy()
    for i in [*np.flatnonzero(sites == "site02"), len(sites) - 1]:
        people.scans[i][:, 11] = 0.0
    return people


def _one_class() -> People:
    """Six sites, the last of which scanned patients only."""
    people = simulated(n_sites=6)
    return people.select(np.flatnonzero((people.table["site"] != "site06") | (people.table["label"] == 1)))


SITES = {"site01": "São Paulo", "site02": "Zürich 2", "site03": "St. Mary's", "site04": "Łódź", "site05": "North (3 T)"}


def _named() -> People:
    """Names with blanks, accents, brackets and quotes, of sites and of participants."""
    people = simulated()
    people.table["site"] = people.table["site"].map(SITES)
    people.table["participant_id"] = [f"Müller {i} é" for i in range(len(people.scans))]
    return people


def _numbered() -> People:
    """Identifiers and sites that are numbers with leading zeros."""
    people = simulated()
    people.table["participant_id"] = [f"{i:05d}" for i in range(len(people.scans))]
    people.table["site"] = people.table["site"].str.replace("site", "0")
    return people


BUILDERS: dict[str, Callable[[], People]] = {
    "3 sites": lambda: simulated(n_sites=3),
    "4 sites": lambda: simulated(n_sites=4),
    "5 sites": simulated,
    "9 sites": lambda: simulated(n_sites=9, per_class=4),
    "20 sites": lambda: simulated(n_sites=20, per_class=3),
    "two per class": _two_per_class,
    "separable": lambda: simulated(n_sites=6, stable=1.4, unstable=0.0, spurious=0.0, site_shift=0.05),
    "chance": lambda: People.of(simulate(dataclasses.replace(NOTHING, n_sites=8, per_class=8))),
    "confounded": _confounded,
    "unequal scans": _unequal,
    "dead region": _dead_region,
    "two sessions": lambda: simulated(sessions=2, session_sd=0.1),
    "one-class site": _one_class,
    "named": _named,
    "numbered": _numbered,
}
"""What each cohort is called in the tests, and how its people are made."""


def _pick(sites: tuple[str, ...], **changes: object) -> People:
    people = simulated(
        n_sites=6, per_class=7, stable=0.5, unstable=0.0, spurious=0.0, site_shift=0.05, seed=9, **changes
    )
    return people.select(np.flatnonzero(people.table["site"].isin(sites)))


HOSPITALS: dict[str, Callable[[], People]] = {
    "five hospitals": lambda: _pick(("site01", "site02", "site03", "site04", "site05")),
    "sixth hospital": lambda: _pick(("site06",)),
    "six hospitals": lambda: _pick(tuple(f"site{k:02d}" for k in range(1, 7))),
    "five hospitals, two sessions": lambda: _pick(("site01", "site02", "site03", "site04", "site05"), sessions=2),
    "large sites": lambda: simulated(n_sites=3, per_class=12),
}
"""Cohorts for one purpose: sites of one simulation, to fit a model at some and use it at another, and large ones."""


def shuffle(people: People) -> People:
    """The same people in another order; sessions of a participant keep theirs."""
    ids = people.table["participant_id"]
    rank = dict(zip(pd.unique(ids), np.random.default_rng(5).permutation(ids.nunique()), strict=True))
    return people.select(np.argsort(ids.map(rank).to_numpy(), kind="stable"))


def rename(people: People) -> People:
    """The same people under other identifiers, whose order is another one too."""
    names = pd.unique(people.table["participant_id"])
    other = {name: f"x{(7919 * i) % 100_003:06d}" for i, name in enumerate(names)}
    return dataclasses.replace(people, table=people.table.replace({"participant_id": other}))


def other_sites(people: People) -> dict[str, str]:
    """Another name of each site; the order of the names is reversed."""
    names = sorted(people.table["site"].unique(), reverse=True)
    return {name: f"{chr(ord('A') + i)} ward" for i, name in enumerate(names)}


def rename_sites(people: People) -> People:
    """The same people at sites with other names."""
    return dataclasses.replace(people, table=people.table.replace({"site": other_sites(people)}))


@functools.cache
def _cache() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="brio-ordinary-")


def build(name: str, change: Callable[[People], People] | None = None) -> Path:
    """Return the cohort folder of that name, perhaps shuffled or renamed; it is written once per session."""
    folder = Path(_cache().name) / f"{name} {change.__name__ if change else ''}".strip().replace(" ", "-")
    if not folder.exists():
        people = (BUILDERS | HOSPITALS)[name]()
        (change(people) if change else people).to_cohort().save(folder)
    return folder


TINY: dict[str, object] = {"epochs": 2, "T_w": 1, "K": 2, "bootstraps": 10}
"""Settings that make a method fast, of those that it has."""


def shrink(method: str) -> dict[str, object]:
    """Settings of a method for a fast run."""
    return take_settings(method, TINY)


@functools.cache
def run_job(name: str, *methods: str, change: Callable[[People], People] | None = None, **options: object) -> Path:
    """Return the folder of a job on a cohort, computed once per session; methods of one job share their settings."""
    folder = Path(tempfile.mkdtemp(dir=_cache().name)) / "job"
    settings = {key: value for method in methods for key, value in shrink(method).items()}
    settings |= {key.replace("__", "."): value for key, value in options.pop("settings", ())}
    options = {"exclude": False, "device": "cpu"} | options
    brio.run(build(name, change), list(methods), out=folder, settings=settings, **options)
    return folder
