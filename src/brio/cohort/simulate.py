"""Simulate a multi-site cohort with a known ground truth.

The ROIs form four brain networks of equal size. Each has one planted property:

``stable``
    Patients have stronger coupling than controls, throughout the scan and at every site.
``unstable``
    Patients have one short burst of shared activity. The burst tends to separate the classes in the full scan, but its
    effect varies when the connectome is re-estimated from other parts of the scan. BRIO should rely on this network
    less than on the stable one.
``spurious``
    Coupling differs between the classes at each site, but in opposite directions at odd and even sites.
``site``
    Coupling depends on the site and not on the class.

Patients may also have additional slow time courses in two ROIs of each brain network (``Simulation.dynamics``). These
time courses are orthogonal to each other, so they add no correlation between ROIs.

The noise is autocorrelated. Scan length and repetition time vary between sites, a scanner component with its own
spatial pattern runs through all scans of a site, and some scans have an ROI outside the field of view. Scans may occur
twice (``Simulation.duplicates``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from msgspec import Meta

from .. import settings
from ..machine import require_memory
from .atlas import Atlas
from .cohort import Cohort

_NETWORKS = ("stable", "unstable", "spurious", "site")
BURN_IN = 20  # frames dropped at the start of an autoregressive series
Effect = Annotated[float, Meta(ge=-1e3, le=1e3)]
PARTICIPANT_SD = 0.15  # SD of the coupling of a network between participants of a class
BURST_FRAMES = 6  # length of the burst in the unstable network


@dataclass(frozen=True)
class Simulation:
    """Parameters of a simulated cohort. The docstring of the module describes the planted brain networks.

    Attributes
    ----------
    n_sites : int
        Number of sites.
    per_class : int
        Number of participants of each class at an average site; individual sites deviate from it by up to a quarter.
    n_rois : int
        Number of ROIs, a multiple of four. Each brain network has a quarter of them.
    frames : int
        Number of frames in a scan at an average site; individual sites have 0.7 to 1.3 times this number.
    stable : float
        Difference in coupling strength between patients and controls in the stable network.
    unstable : float
        Strength of the burst in the unstable network; its peak is about twice this value.
    spurious : float
        Half the difference in coupling strength between the classes in the spurious network.
    reversed_sites : int
        Number of sites, counted from the last, at which controls rather than patients have the burst.
    burst_share : float
        Expected share of scans with the burst in the class that has bursts at a site.
    burst_in_stable : bool
        Whether the burst is in half of the ROIs of the stable network instead of in the unstable network.
    dynamics : float
        SD over time of the slow time courses of single ROIs in patients; 0 for no slow time courses.
    site_shift : float
        Strength of the scanner component, and SD over sites of the coupling of the site network.
    dead_share : float
        Expected share of scans with an ROI outside the field of view.
    sessions : int
        Number of scans of each participant; if there are several, the column ``session`` distinguishes the scans.
    session_sd : float
        SD between the sessions of a participant, of the coupling in the stable, unstable and spurious networks. The SD
        between participants of a class is 0.15.
    duplicates : int
        Number of scans, from the first on, that occur a second time with new participant ids.
    last_site_per_class : int or None
        Number of participants of each class at the last site; None for about as many as at the other sites.
    seed : int
        Seed of all random numbers.

    Examples
    --------
    >>> Simulation(n_rois=12).network("unstable")
    array([3, 4, 5])
    """

    n_sites: settings.Count = 6
    per_class: settings.Participants = 14
    n_rois: settings.SimulatedRois = 24
    frames: settings.SimulatedFrames = 140
    stable: Effect = 0.30
    unstable: Effect = 1.6
    spurious: Effect = 0.25
    reversed_sites: Annotated[int, Meta(ge=0, le=10_000)] = 0
    burst_share: settings.Share = 1.0
    burst_in_stable: bool = False
    dynamics: Effect = 0.0
    site_shift: Effect = 0.3
    dead_share: settings.Share = 0.05
    sessions: settings.Sessions = 1
    session_sd: settings.Spread = 0.0
    duplicates: Annotated[int, Meta(ge=0, le=100_000)] = 0
    last_site_per_class: Annotated[int, Meta(ge=2, le=100_000)] | None = None
    seed: settings.Seed = 0

    def __post_init__(self) -> None:
        settings.check_types(Simulation, {"burst_in_stable": self.burst_in_stable})
        settings.check_domains(self)
        settings.require(self.n_rois % 4 == 0, "n_rois", self.n_rois, "a multiple of four, at least 8")
        settings.require(
            0 <= self.reversed_sites <= self.n_sites, "reversed_sites", self.reversed_sites, "0 to n_sites"
        )
        settings.require(0 <= self.duplicates <= self.per_class, "duplicates", self.duplicates, "0 to per_class")

    @property
    def n_bytes(self) -> int:
        """Approximate size of the scans in bytes."""
        per_class = self.n_sites * self.per_class + (self.last_site_per_class or 0)
        return 8 * per_class * self.sessions * self.frames * self.n_rois

    def network(self, name: str) -> np.ndarray:
        """Return the ROIs of a brain network.

        Parameters
        ----------
        name : {"stable", "unstable", "spurious", "site"}

        Returns
        -------
        ndarray of int64, shape [n_rois / 4]
            Positions in the atlas.
        """
        size = self.n_rois // len(_NETWORKS)
        start = _NETWORKS.index(name) * size
        return np.arange(start, start + size)

    @property
    def burst_rois(self) -> np.ndarray:
        """ROIs of the burst: the unstable network, or the second half of the stable one. Shape [ROIs], int64."""
        stable = self.network("stable")
        return stable[len(stable) // 2 :] if self.burst_in_stable else self.network("unstable")

    @property
    def dynamic_rois(self) -> np.ndarray:
        """ROIs with slow time courses in patients: the last two of each network. Shape [8], int64."""
        return np.concatenate([self.network(name)[-2:] for name in _NETWORKS])


@settings.check_arguments
def simulate(simulation: Simulation = Simulation()) -> Cohort:  # noqa: B008 - frozen
    """Simulate a multi-site cohort with known effects.

    Parameters
    ----------
    simulation : Simulation
        Sizes, strengths of the planted effects and the seed.

    Returns
    -------
    Cohort
        A cohort with the columns ``age``, ``sex``, ``tr`` and ``mean_fd``, none of which depends on the class, and with
        ``session`` and ``brio_scan_id`` if there are several sessions. ``cohort.provenance["truth"]`` lists the ROIs of
        each brain network (as ``unstable``, the ROIs of the burst) and, if there are slow time courses, their ROIs as
        ``dynamics``. If scans are duplicated, ``cohort.provenance["duplicates"]`` lists the id of each duplicated
        participant with the id of the copy.

    Raises
    ------
    BrioError
        If the scans do not fit into memory.

    Examples
    --------
    >>> cohort = simulate(Simulation(n_sites=4, per_class=6))
    >>> cohort.provenance["truth"]["stable"]
    [0, 1, 2, 3, 4, 5]
    """
    # scans as they are drawn, and end to end
    require_memory(
        2 * simulation.n_bytes, "simulating scans of this size needs", "choose fewer or shorter scans, or fewer ROIs"
    )
    rng = np.random.default_rng(simulation.seed)
    motion_rng = np.random.default_rng([simulation.seed, 1])  # separate: motion must not move the other draws
    burst_rng = np.random.default_rng([simulation.seed, 2])  # likewise
    session_rng = np.random.default_rng([simulation.seed, 3])  # likewise
    scans: list[np.ndarray] = []
    rows: list[dict[str, object]] = []
    for e in range(simulation.n_sites):
        site = _Site.draw(simulation, e, rng)
        for label in (0, 1):
            for _ in range(site.per_class):
                sessions = np.zeros((simulation.sessions, 3))
                if simulation.session_sd:
                    sessions = simulation.session_sd * session_rng.normal(size=sessions.shape)
                own = np.empty(3)  # how the coupling of three networks differs from that of the class
                bursts = bool(burst_rng.uniform() < simulation.burst_share)
                scans.append(_draw_scan(simulation, site, label, rng, bursts, own, sessions[0], is_first=True))
                row: dict[str, object] = {
                    "participant_id": f"sim{len(rows) // simulation.sessions + 1:04d}",
                    "site": site.name,
                    "label": label,
                    "age": round(float(rng.uniform(8, 40)), 1),
                    "sex": str(rng.choice(["F", "M"])),
                    "tr": site.tr,
                    "mean_fd": round(float(motion_rng.lognormal(-2.0, 0.5)), 4),
                }
                rows.append(row)
                for session in range(1, simulation.sessions):
                    bursts = bool(session_rng.uniform() < simulation.burst_share)
                    scans.append(_draw_scan(simulation, site, label, session_rng, bursts, own, sessions[session]))
                    rows.append({**row, "mean_fd": round(float(session_rng.lognormal(-2.0, 0.5)), 4)})
    copied = [row["participant_id"] for row in rows[: simulation.duplicates]]
    copies = [f"sim{(len(rows) + k) // simulation.sessions + 1:04d}" for k in range(len(copied))]
    scans += scans[: len(copied)]
    rows += [{**row, "participant_id": copy} for row, copy in zip(rows, copies, strict=False)]
    table = pd.DataFrame(rows)
    return Cohort.from_scans(
        scans,
        site=table["site"],
        label=table["label"],
        participant_id=table["participant_id"],
        session=None if simulation.sessions == 1 else [i % simulation.sessions + 1 for i in range(len(rows))],
        covariates=table[["age", "sex", "tr", "mean_fd"]],
        atlas=_make_atlas(simulation.n_rois),
        classes=("control", "patient"),
        name="simulated",
        provenance={
            "kind": "simulated",
            "seed": simulation.seed,
            **({"duplicates": [list(pair) for pair in zip(copied, copies, strict=True)]} if copied else {}),
            "truth": {
                **{name: simulation.network(name).tolist() for name in _NETWORKS},
                "unstable": simulation.burst_rois.tolist(),
                **({"dynamics": simulation.dynamic_rois.tolist()} if simulation.dynamics else {}),
            },
        },
    )


@dataclass(frozen=True)
class _Site:
    """What all scans of a site share."""

    name: str
    per_class: int
    frames: int
    tr: float
    memory: float  # autocorrelation at lag one
    coupling: float  # strength of the site network
    sign: int  # direction of the spurious effect
    burst_label: int  # class whose scans have the burst
    pattern: np.ndarray  # scanner component in each ROI, shape [P]
    edge_roi: int  # ROI that lies outside the field of view of some scans

    @classmethod
    def draw(cls, s: Simulation, e: int, rng: np.random.Generator) -> _Site:
        """Draw the properties of site number ``e``. The order of the draws is part of the seed's meaning."""
        per_class = max(2, round(s.per_class * rng.uniform(0.75, 1.25)))
        if e == s.n_sites - 1 and s.last_site_per_class is not None:
            per_class = s.last_site_per_class
        return cls(
            name=f"site{e + 1:02d}",
            per_class=per_class,
            frames=round(s.frames * rng.uniform(0.7, 1.3)),
            tr=float(rng.choice([1.5, 2.0, 2.5])),
            memory=float(rng.uniform(0.5, 0.7)),
            coupling=0.6 + s.site_shift * rng.normal(),
            sign=1 if e % 2 else -1,
            burst_label=0 if e >= s.n_sites - s.reversed_sites else 1,
            pattern=s.site_shift * rng.normal(size=s.n_rois),
            edge_roi=int(s.n_rois - 1 - rng.integers(0, s.n_rois // 4)),
        )


def _draw_autocorrelated(n_frames: int, n_series: int, memory: float, rng: np.random.Generator) -> np.ndarray:
    """Draw first-order autoregressive series of unit variance. Shape [T, n_series]."""
    x = rng.normal(size=(n_frames + BURN_IN, n_series))
    for t in range(1, len(x)):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * x[t]
    return x[BURN_IN:]


def _draw_scan(
    s: Simulation,
    site: _Site,
    label: int,
    rng: np.random.Generator,
    bursts: bool,
    own: np.ndarray,
    of_session: np.ndarray,
    is_first: bool = False,
) -> np.ndarray:
    """Draw one scan of shape [T, P]; ``bursts``: it has the burst, if scans of its class have it.

    ``own`` [3] and ``of_session`` [3] are differences in coupling; ``own`` is drawn with the first scan.
    """
    latent = _draw_autocorrelated(site.frames, len(_NETWORKS) + 1, site.memory, rng)
    x = _draw_autocorrelated(site.frames, s.n_rois, site.memory, rng) + latent[:, -1:] * site.pattern
    contrast = label - 0.5  # -0.5 for controls, 0.5 for patients
    if is_first:  # the place of this draw is part of the seed's meaning
        own[:] = PARTICIPANT_SD * rng.normal(size=3)
    individual = own + of_session
    coupling = {
        "stable": 0.7 + s.stable * contrast + individual[0],
        "unstable": 0.6 + individual[1],
        "spurious": 0.7 + s.spurious * site.sign * 2 * contrast + individual[2],
        "site": site.coupling,
    }
    for k, name in enumerate(_NETWORKS):
        x[:, s.network(name)] += coupling[name] * latent[:, k : k + 1]
    if label == site.burst_label:
        start = int(rng.integers(0, site.frames - BURST_FRAMES))
        window = np.hanning(BURST_FRAMES + 2)[1:-1, None]
        x[start : start + BURST_FRAMES, s.burst_rois] += s.unstable * bursts * window * 2
    if label == 1 and s.dynamics:
        phase = np.pi * (np.arange(site.frames) + 0.5) / site.frames
        for k, u in enumerate(s.dynamic_rois, 1):
            x[:, u] += s.dynamics * np.sqrt(2) * np.cos(k * phase)
    if rng.uniform() < s.dead_share:
        x[:, site.edge_roi] = 0.0
    return x.astype(np.float32)


def _make_atlas(n_rois: int) -> Atlas:
    """Spread the ROIs over an ellipsoid of the size of a brain, alternating between left and right."""
    turn = np.arange(n_rois) * np.pi * (3 - np.sqrt(5))
    height = np.linspace(0.95, -0.6, n_rois)
    ring = np.sqrt(1 - height**2)
    x = np.abs(60 * ring * np.cos(turn)) + 5
    left = np.arange(n_rois) % 2 == 0
    side = np.where(left, "L", "R")
    size = n_rois // len(_NETWORKS)
    network = np.repeat(_NETWORKS, size)
    columns = {
        "name": [f"{name}_{u % size + 1}_{h}" for u, (name, h) in enumerate(zip(network, side, strict=True))],
        "network": network,
        "hemi": side,
        "x": np.where(left, -x, x).round(1),
        "y": (80 * ring * np.sin(turn) - 20).round(1),
        "z": (60 * height + 10).round(1),
    }
    return Atlas("simulated", pd.DataFrame(columns))
