"""A small cohort and settings on which all studies run in seconds, and one run of all of them for every test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pandas as pd

import brio
from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.drawing import render_figure
from brio.jobs import JobSpec, train
from brio.studies import StudyContext, agreement, comparison, context, run_study, study
from brio.studies.study import Finding

SIMULATION = Simulation(n_sites=5, per_class=5, n_rois=12, frames=60, stable=0.8)
SETTINGS = {
    "epochs": "2",
    "cell_batch": "4",
    "T_w": "1",
    "M": "4",
    "K": "2",
    "J": "4",
    "d_t": "4",
    "d_h": "8",
    "d_e": "4",
    "d_mlp": "8",
    "learning_rate": "0.01",
    "sinkhorn_iterations": "5",
    "assignment_iterations": "30",
    "block_subjects": "12",
    "block_signals": "4",
    "block_products": "4",
    "protocol.n_folds": "4",
}
METHODS = ["ridge", "gcn", "brio"]
PLAIN, VARIANTS = ["ridge", "brio"], ["backbone"]
SEEDS = 2
FACTS = ["folds", "seeds", "epochs", "K"]


def context_on(cohort: Cohort | Path, out: Path, *, reuse=(), say=None, **options: object) -> StudyContext:
    """A context with small settings; None for the default of an option."""
    small = {"settings": SETTINGS, "seeds": SEEDS, "device": "cpu", "methods": METHODS}
    spec = JobSpec(cohort, **{name: value for name, value in {**small, **options}.items() if value is not None})
    return StudyContext(spec, out, reuse=reuse, **({} if say is None else {"say": say}))


def make_study(name: str, cohort: Cohort, out: Path, methods=(), *, settings=None, context=None, **options) -> Path:
    """Make a study without validation sites, with options of a job and of a context, and return its folder."""
    settings = {"protocol.validation_sites": 0} | (settings or {})
    spec = JobSpec(cohort, methods, settings=settings, device="cpu", **options)
    return run_study(name, StudyContext(spec, out, **(context or {})))


def bare(cohort: Cohort, **words: object) -> Cohort:
    """The scans of a cohort with sites and labels alone."""
    scans = [cohort.scan(i) for i in range(len(cohort))]
    known = {"site": cohort.sites, "label": cohort.labels, "participant_id": cohort.ids, "name": "bare"}
    return Cohort.from_scans(scans, **known | words)


def read(path: Path) -> pd.DataFrame:
    """A csv file as it was written."""
    text = {"fold": str, "note": str, "participant_id": str}
    return pd.read_csv(path, dtype=text)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@contextmanager
def watched() -> Iterator[dict[str, list]]:
    """What is executed (folders of arms) and fitted (method and number of runs) meanwhile."""
    seen: dict[str, list] = {"executed": [], "fitted": []}
    execute, fit = context.execute_plan, train._fit

    def executed(job, plan, folder):
        seen["executed"].append("/".join(folder.parts[-2:]))
        return execute(job, plan, folder)

    def fitted(method, connectomes, runs, *rest):
        seen["fitted"].append([method.name, len(runs)])
        return fit(method, connectomes, runs, *rest)

    with mock.patch.object(context, "execute_plan", executed), mock.patch.object(train, "_fit", fitted):
        yield seen


@contextmanager
def training(*arms: str) -> Iterator[None]:
    """Require that these arms, and no others, are trained meanwhile."""
    with watched() as seen:
        yield
    assert seen["executed"] == list(arms)


@contextmanager
def shorter() -> Iterator[None]:
    """Fewer values of the settings that studies vary."""
    fewer = {"K_VALUES": (2, 4), "J_VALUES": (2, 4), "SCALES": (0.5, 1.0), "PAPERS": ("brio-wo-rs", "brio-wo-sm")}
    with mock.patch.multiple(comparison, **fewer), mock.patch.object(agreement, "LAMBDAS", (0.0, 2.0, 4.0)):
        yield


RENDERED = "regions"
"""The study whose figure is rendered; those of the others are laid out, which is most of what can go wrong."""


def lay_out(figure, kind: str) -> bytes:
    """Do all but render a figure."""
    if kind == "png":
        return b"\x89PNG"
    figure.draw_without_rendering()
    return b"<svg/>"


def make_paper(root: Path) -> tuple[dict[str, list], dict[str, Finding]]:
    """All studies in ``root/out``, and the same runs by ``brio.run``; returns what it took, and found.

    Findings are as they were before they were written.
    """
    cohort, findings = simulate(SIMULATION), {}
    write = study._write_finding

    def kept(s, found, *rest):
        findings[s.name] = found
        render = render_figure if s.name == RENDERED else lay_out
        with mock.patch.object(study, "render_figure", render):
            write(s, found, *rest)

    with watched() as seen, shorter(), mock.patch.object(study, "_write_finding", kept):
        run_study("paper", context_on(cohort, root / "out"))
    brio.run(cohort, [*PLAIN, *VARIANTS], seeds=SEEDS, settings=SETTINGS, device="cpu", out=root / "loso")
    return seen, findings
