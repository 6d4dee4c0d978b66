"""The command line inside this process, small cohorts and settings that train in a moment."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from ridge_jobs import RIDGE

from brio import Cohort
from brio.cohort.simulate import Simulation, simulate
from commands import Said, command

collect_ignore = ["mortal_method.py"]  # registers a method, which only workers of the tests of faults shall know

SETTINGS = ["epochs=4", "cell_batch=4", "T_w=2", "M=2", "K=2"]
TINY = [*(word for setting in SETTINGS for word in ("--set", setting)), "--device", "cpu", "--quiet"]
SMALL = Simulation(n_sites=5, per_class=4, n_rois=8, frames=60)


def command_with_warnings(*words: object) -> Said:
    """Run ``brio`` with these words; ``err`` ends in the warnings that a user would see there."""
    torch.set_warn_always(True)  # not only the first time in this process
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("ignore", (DeprecationWarning, PendingDeprecationWarning))
        said = command(*words)
    torch.set_warn_always(False)
    told = "".join(f"{one.category.__name__}: {one.message}\n" for one in w)
    return said._replace(err=said.err + told)


@pytest.fixture(scope="session")
def brio():
    return command_with_warnings


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    return TINY


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A cohort of five sites in which sim0003 has a twin: the same scan, site and label under another name."""
    made = simulate(SMALL)
    index = [*range(len(made)), 2]
    facts = {"site": made.sites[index], "label": made.labels[index], "participant_id": [*made.ids, "twin"]}
    path = tmp_path_factory.mktemp("cohorts") / "small"
    Cohort.from_scans([made.scan(i) for i in index], **facts, atlas=made.atlas, name="small").save(path)
    return path


@pytest.fixture(scope="session")
def whole(folder, tmp_path_factory) -> Path:
    """A job of three stacks, by one process; never changed."""
    out = tmp_path_factory.mktemp("whole") / "job"
    command("run", folder, "--out", out, *RIDGE).succeed()
    return out


@pytest.fixture(scope="session")
def one_class(tmp_path_factory) -> Path:
    """A cohort of six sites; at site03 all are patients."""
    made = simulate(Simulation(n_sites=6, per_class=4, n_rois=8, frames=60))
    label = np.where(made.sites == "site03", 1, made.labels)
    path = tmp_path_factory.mktemp("cohorts") / "one-class"
    scans = [made.scan(i) for i in range(len(made))]
    Cohort.from_scans(scans, site=made.sites, label=label, participant_id=made.ids, name="one class").save(path)
    return path
