"""A folder with good input for every command, and the commands that the matrix spoils it for.

Commands run inside a copy of the parts that they need, so that all names are short and relative.
"""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brio.cohort.simulate import Simulation, simulate
from cohort.file_layouts import LABELS, scan, write_layout
from commands import command

QUIET = "--quiet --device cpu"
RIDGE = f"--method ridge --seeds 1 {QUIET}"
TUNED = f"--method ridge --budget 2 --seeds 1 {QUIET}"
STUDIED = f"--method ridge --method logistic --seeds 1 {QUIET}"
COHORT = Simulation(n_sites=4, per_class=5, n_rois=8, frames=60)
HOSPITAL = dataclasses.replace(COHORT, n_sites=2, seed=9)
ATLAS = {"dpabi": "--atlas aal116"}
LAYOUTS = ("table", "bids", "pcp", "dpabi", "packed", "fc")

OWN_METHOD = """from brio.methods import Ridge, method


@method("own-ridge", family="mine", provenance="a copy", reference="none")
class OwnRidge(Ridge):
    pass
"""
CONFIG_FILE = 'seeds = 1\nmethod = ["ridge"]\nquiet = true\ndevice = "cpu"\n[set]\nchoose_by = "source-sites"\n'


class Recipe(NamedTuple):
    """A command that works on the workplace.

    Attributes
    ----------
    words : str
    parts : tuple of str
        Files and folders that it needs.
    outputs : tuple of str
        Files and folders that it may write.
    prints : bool
        Whether what it prints is its result, which is then the same each time.
    """

    words: str
    parts: tuple[str, ...]
    outputs: tuple[str, ...] = ("new",)
    prints: bool = False

    @property
    def command(self) -> str:
        """Name of the command, that of the layout included."""
        return " ".join(self.words.split()[: 2 if self.words.startswith("import") else 1])


RECIPES = {
    **{f"import {kind}": Recipe(f"import {kind} {kind} {ATLAS.get(kind, '')} --out new", (kind,)) for kind in LAYOUTS},
    "simulate": Recipe("simulate --sites 2 --per-class 2 --rois 8 --frames 40 --out new", ()),
    "atlas": Recipe("atlas cohort rois.tsv --by-order --out new", ("cohort", "rois.tsv")),
    "audit": Recipe("audit cohort", ("cohort",), (), prints=True),
    "run": Recipe(f"run cohort {RIDGE} --out new", ("cohort",)),
    "run again": Recipe(f"run cohort {RIDGE} --out job", ("cohort", "job"), ("job",)),
    "run --tuned": Recipe(f"run cohort {RIDGE} --tuned tuned --out new", ("cohort", "tuned")),
    "run --config": Recipe(
        "run cohort --config options.toml --method ridge --device cpu --quiet --out new", ("cohort", "options.toml")
    ),
    "run --load": Recipe(f"run cohort --load own.py --seeds 1 {QUIET} --out new", ("cohort", "own.py")),
    "tune": Recipe(f"tune cohort {TUNED} --out new", ("cohort",)),
    "tune again": Recipe(f"tune cohort {TUNED} --out tuned", ("cohort", "tuned"), ("tuned",)),
    "study": Recipe(f"study comparison cohort {STUDIED} --out new", ("cohort",)),
    "study again": Recipe(f"study comparison cohort {STUDIED} --out studies", ("cohort", "studies"), ("studies",)),
    "study --reuse": Recipe(f"study comparison cohort {RIDGE} --reuse job --out new", ("cohort", "job")),
    "fit": Recipe(f"fit cohort --method ridge {QUIET} --out new", ("cohort",)),
    "fit --evidence": Recipe(f"fit cohort --method ridge {QUIET} --evidence job --out new", ("cohort", "job")),
    "predict": Recipe("predict model cohort --reestimates 2 --device cpu --out new", ("model", "cohort")),
    "predict files": Recipe("predict model scans --reestimates 2 --device cpu --out new", ("model", "scans")),
    "explain": Recipe(f"explain model {QUIET} --out new", ("model",)),
    "explain --cohort": Recipe(f"explain model --cohort cohort --reestimates 2 {QUIET} --out new", ("model", "cohort")),
    "adapt": Recipe("adapt model hospital --device cpu --out new", ("model", "hospital")),
    "table": Recipe("table job", ("job",), (), prints=True),
    "compare": Recipe("compare job", ("job",), (), prints=True),
    "report": Recipe("report job --out new/page.html", ("job",)),
    "report studies": Recipe("report studies --out new/page.html", ("studies",)),
    "report tuned": Recipe("report tuned --out new/page.html", ("tuned",)),
    "status": Recipe("status job", ("job",), (), prints=True),
    "config": Recipe("config job", ("job",), (), prints=True),
    "config tuned": Recipe("config tuned", ("tuned",), (), prints=True),
    "config run": Recipe("config run cohort --method ridge --seeds 3 --out new", (), (), prints=True),
    "settings": Recipe("settings ridge", (), (), prints=True),
    "settings --load": Recipe("settings own-ridge --load own.py", ("own.py",), (), prints=True),
    "methods": Recipe("methods ridge", (), (), prints=True),
    "demo": Recipe("demo --quiet --out new", ()),
}
"""Commands that work, by a name for each."""


def _write_connectomes(src: Path) -> None:
    write_layout("table", src)
    for i, path in enumerate(sorted(src.glob("*.npy"))):
        np.save(path, np.corrcoef(scan(i, 6).T + np.random.default_rng(i).normal(size=(6, 8 + i))))


def _write_scans(src: Path) -> None:
    src.mkdir()
    for i in range(3):
        np.save(src / f"new{i}.npy", np.random.default_rng(i).normal(size=(60, 8)).astype(np.float32))


class Workplace:
    """Good input, each part of which is made when it is first needed.

    Parameters
    ----------
    root : Path
        Empty folder to make it in.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def copy(self, parts: tuple[str, ...], box: Path) -> None:
        """Copy parts into a folder."""
        for part in parts:
            source = self.make(part)
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, box / part)

    def make(self, part: str) -> Path:
        """Return the place of a part; it is made if it is not there yet."""
        path = self.root / part
        if path.exists():
            return path
        if part in LAYOUTS[:-1]:
            return write_layout(part, path, LABELS)
        MAKERS[part](self, path)
        return path

    def give(self, *words: object) -> None:
        """Give a command that must work."""
        said = command(*words)
        if said.status:
            raise AssertionError(said.err)


MAKERS: dict[str, Callable[[Workplace, Path], object]] = {
    "fc": lambda here, path: _write_connectomes(path),
    "scans": lambda here, path: _write_scans(path),
    "cohort": lambda here, path: simulate(COHORT).save(path),
    "hospital": lambda here, path: simulate(HOSPITAL).save(path),
    "rois.tsv": lambda here, path: path.write_text("name\tx\ty\tz\n" + "".join(f"r{i}\t{i}\t0\t9\n" for i in range(8))),
    "options.toml": lambda here, path: path.write_text(CONFIG_FILE),
    "own.py": lambda here, path: path.write_text(OWN_METHOD),
    "job": lambda here, path: here.give("run", here.make("cohort"), *RIDGE.split(), "--out", path),
    "tuned": lambda here, path: here.give("tune", here.make("cohort"), *TUNED.split(), "--out", path),
    "studies": lambda here, path: here.give(
        "study", "comparison", here.make("cohort"), *STUDIED.split(), "--out", path
    ),
    "model": lambda here, path: here.give(
        "fit", here.make("cohort"), "--method", "ridge", *QUIET.split(), "--evaluate", "--out", path
    ),
}
"""Part -> what makes it; files in a layout of ``brio import`` are written by their own writer."""
