"""A simulated multi-site cohort whose truth is known.

Four networks of ROIs, each with its own part in the story:

* ``stable``: stronger coupling in patients, in every minute of the scan and at every site; what a model should find;
* ``unstable``: patients have one short burst of shared activity in it; it tends to separate the classes in the full
  scan, but re-estimating the connectome from other minutes makes it come and go;
* ``spurious``: coupling goes with the class at each site, but with a sign that differs between sites;
* ``site``: its strength depends on the scanner alone.

Beside these, patients may have slow courses of their own in two ROIs of each network (``dynamics``): signal that lies
in single time series and in no correlation, since the courses are orthogonal to each other.

All series are autocorrelated, scan length and repetition time differ between sites, a few ROIs lie outside the
field of view of some scans, and a scanner component with its own spatial pattern runs through each site.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..settings import require
from .atlas import Atlas
from .cohort import Cohort

__all__ = ["Simulation", "simulate"]

_NETWORKS = ("stable", "unstable", "spurious", "site")


@dataclass(frozen=True)
class Simulation:
    """How a cohort is simulated.

    Attributes
    ----------
    n_sites, per_class : int
        Sites, and subjects of each class at each site (sites differ by up to a quarter around it).
    n_rois : int
        ROIs, a multiple of four.
    frames : int
        Frames of the average site; sites lie between 0.7 and 1.3 of it.
    stable, unstable, spurious : float
        Strength of the three kinds of class effect.
    reversed_sites : int
        So many of the last sites have the burst of the unstable network in controls instead of patients: evidence that
        all other sites agree on, and that misleads there.
    dynamics : float
        Strength of the slow courses of single ROIs in patients.
    site_shift : float
        Strength of what depends on the scanner.
    dead_share : float
        Share of scans with an ROI outside the field of view.
    seed : int
    """

    n_sites: int = 6
    per_class: int = 14
    n_rois: int = 24
    frames: int = 140
    stable: float = 0.30
    unstable: float = 1.6
    spurious: float = 0.25
    reversed_sites: int = 0
    dynamics: float = 0.0
    site_shift: float = 0.3
    dead_share: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.n_sites >= 1, "n_sites", self.n_sites, "at least 1")
        require(self.per_class >= 1, "per_class", self.per_class, "at least 1")
        require(self.n_rois >= 8 and self.n_rois % 4 == 0, "n_rois", self.n_rois, "a multiple of four, at least 8")
        require(self.frames >= 30, "frames", self.frames, "at least 30")
        require(self.seed >= 0, "seed", self.seed, "0 or more")
        require(0 <= self.reversed_sites <= self.n_sites, "reversed_sites", self.reversed_sites, "0 to n_sites")
        require(0 <= self.dead_share <= 1, "dead_share", self.dead_share, "between 0 and 1")

    def network(self, name: str) -> np.ndarray:
        """ROIs (positions) of one of the four networks."""
        size = self.n_rois // len(_NETWORKS)
        start = _NETWORKS.index(name) * size
        return np.arange(start, start + size)

    @property
    def dynamic_rois(self) -> np.ndarray:
        """ROIs (positions) whose own course differs in patients: the last two of each network."""
        return np.concatenate([self.network(name)[-2:] for name in _NETWORKS])


def simulate(simulation: Simulation = Simulation()) -> Cohort:  # noqa: B008 - frozen
    """Simulate a cohort; ``cohort.provenance["truth"]`` says which ROIs carry what.

    Examples
    --------
    >>> cohort = simulate(Simulation(n_sites=4, per_class=6))
    >>> cohort.provenance["truth"]["stable"]
    [0, 1, 2, 3, 4, 5]
    """
    rng, moves = np.random.default_rng(simulation.seed), np.random.default_rng([simulation.seed, 1])
    scans: list[np.ndarray] = []
    rows: list[dict[str, object]] = []
    for e in range(simulation.n_sites):
        site = _Site.draw(simulation, e, rng)
        for label in (0, 1):
            for _ in range(site.per_class):
                scans.append(_scan(simulation, site, label, rng))
                rows.append(
                    {
                        "participant_id": f"sim{len(rows) + 1:04d}",
                        "site": site.name,
                        "label": label,
                        "age": round(float(rng.uniform(8, 40)), 1),
                        "sex": str(rng.choice(["F", "M"])),
                        "tr": site.tr,
                        "mean_fd": round(float(moves.lognormal(-2.0, 0.5)), 4),
                    }
                )
    table = pd.DataFrame(rows)
    return Cohort.from_scans(
        scans,
        site=table["site"],
        label=table["label"],
        participant_id=table["participant_id"],
        covariates=table[["age", "sex", "tr", "mean_fd"]],
        atlas=_atlas(simulation.n_rois),
        classes=("control", "patient"),
        name="simulated",
        provenance={
            "kind": "simulated",
            "seed": simulation.seed,
            "truth": {
                **{name: simulation.network(name).tolist() for name in _NETWORKS},
                **({"dynamics": simulation.dynamic_rois.tolist()} if simulation.dynamics else {}),
            },
        },
    )


@dataclass(frozen=True)
class _Site:
    name: str
    per_class: int
    frames: int
    tr: float
    memory: float  # autocorrelation at lag one
    coupling: float  # of the site network
    sign: int  # of the spurious effect
    burst_in: int  # class whose scans have the burst
    pattern: np.ndarray  # of the scanner component
    dead: int  # ROI at the edge of the field of view

    @classmethod
    def draw(cls, s: Simulation, e: int, rng: np.random.Generator) -> _Site:
        return cls(
            name=f"site{e + 1:02d}",
            per_class=max(2, round(s.per_class * rng.uniform(0.75, 1.25))),
            frames=round(s.frames * rng.uniform(0.7, 1.3)),
            tr=float(rng.choice([1.5, 2.0, 2.5])),
            memory=float(rng.uniform(0.5, 0.7)),
            coupling=0.6 + s.site_shift * rng.normal(),
            sign=1 if e % 2 else -1,
            burst_in=0 if e >= s.n_sites - s.reversed_sites else 1,
            pattern=s.site_shift * rng.normal(size=s.n_rois),
            dead=int(s.n_rois - 1 - rng.integers(0, s.n_rois // 4)),
        )


def _autocorrelated(n_frames: int, width: int, memory: float, rng: np.random.Generator) -> np.ndarray:
    """Unit-variance first-order autoregressive series. Shape [T, width]."""
    x = rng.normal(size=(n_frames + 20, width))
    for t in range(1, len(x)):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * x[t]
    return x[20:]


def _scan(s: Simulation, site: _Site, label: int, rng: np.random.Generator) -> np.ndarray:
    latent = _autocorrelated(site.frames, len(_NETWORKS) + 1, site.memory, rng)
    x = _autocorrelated(site.frames, s.n_rois, site.memory, rng) + latent[:, -1:] * site.pattern
    side = label - 0.5
    spread = 0.15 * rng.normal(size=3)
    loading = {
        "stable": 0.7 + s.stable * side + spread[0],
        "unstable": 0.6 + spread[1],
        "spurious": 0.7 + s.spurious * site.sign * 2 * side + spread[2],
        "site": site.coupling,
    }
    for k, name in enumerate(_NETWORKS):
        x[:, s.network(name)] += loading[name] * latent[:, k : k + 1]
    if label == site.burst_in:
        length = 6
        start = int(rng.integers(0, site.frames - length))
        x[start : start + length, s.network("unstable")] += s.unstable * np.hanning(length + 2)[1:-1, None] * 2
    if label == 1 and s.dynamics:
        clock = np.pi * (np.arange(site.frames) + 0.5) / site.frames
        for k, u in enumerate(s.dynamic_rois, 1):
            x[:, u] += s.dynamics * np.sqrt(2) * np.cos(k * clock)
    if rng.uniform() < s.dead_share:
        x[:, site.dead] = 0.0
    return x.astype(np.float32)


def _atlas(n_rois: int) -> Atlas:
    """ROIs spread over an ellipsoid of a brain's size, left and right in turn."""
    turn = np.arange(n_rois) * np.pi * (3 - np.sqrt(5))
    height = np.linspace(0.95, -0.6, n_rois)
    ring = np.sqrt(1 - height**2)
    x = np.abs(60 * ring * np.cos(turn)) + 5
    left = np.arange(n_rois) % 2 == 0
    side = np.where(left, "L", "R")
    size = n_rois // len(_NETWORKS)
    return Atlas(
        "simulated",
        pd.DataFrame(
            {
                "name": [f"{_NETWORKS[min(u // size, 3)]}_{u % size + 1}_{h}" for u, h in enumerate(side)],
                "hemi": side,
                "x": np.where(left, -x, x).round(1),
                "y": (80 * ring * np.sin(turn) - 20).round(1),
                "z": (60 * height + 10).round(1),
            }
        ),
    )
