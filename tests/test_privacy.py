"""Nothing leaves the machine but what ``brio fetch`` asks for; the page of promises says which files name people."""

import re
import socket
from pathlib import Path

import pytest

from brio.cohort.simulate import Simulation, simulate
from commands import command

FAST = [
    "audit cohort",
    "run cohort --method ridge --device cpu --out job --quiet",
    "table job",
    "fit cohort --method ridge --device cpu --out model --quiet",
    "predict model other --reestimates 4 --device cpu --out predictions",
]
SLOW = [
    "methods",
    "settings ridge",
    "studies",
    "tune cohort --method gcn --set epochs=2 --budget 2 --seeds 1 --device cpu --out tuned --quiet",
    "run cohort --method brio --set epochs=2 --set T_w=1 --device cpu --out network --report --quiet",
    "config network",
    "compare network",
    "fit cohort --method log-ridge --evaluate --device cpu --out model --quiet",
    "predict model other --device cpu --out predictions",
    "adapt model other --device cpu --out adapted",
    "explain model --cohort cohort --sites --device cpu --out explanation --quiet",
    "study subgroups cohort --method ridge --seeds 1 --device cpu --out study --quiet",
    "report study",
    "demo --out demo --quiet",
]


@pytest.fixture
def attempts(monkeypatch):
    """Whoever looks up an address or connects to another machine is refused and noted."""
    noted = []

    class Refused(socket.socket):
        def connect(self, address):
            refuse(address)

        connect_ex = sendto = connect

    def refuse(*args, **kwargs):
        noted.append(args)
        raise OSError("the network is closed")

    monkeypatch.setattr(socket, "socket", Refused)
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    return noted


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate(Simulation(n_sites=5, per_class=6, n_rois=8, frames=60)).save("cohort")
    simulate(Simulation(n_sites=1, per_class=6, n_rois=8, frames=60, seed=1)).save("other")
    return tmp_path


def run_all(lines, attempts):
    for line in lines:
        command(*line.split()).succeed()
        assert attempts == [], line


def test_no_command_asks_for_the_network(here, attempts):
    run_all(FAST, attempts)


@pytest.mark.soak
def test_no_long_command_asks_for_the_network(here, attempts):
    run_all(SLOW, attempts)


def test_fetch_does_and_says_so_where_it_cannot(here, attempts):
    said = command("fetch", "abide", "--data-dir", here / "data", "--out", "abide").refuse()
    assert attempts  # the guard sees what there is to see
    assert "the download of ABIDE failed" in said.err
    assert not (here / "abide").exists()


def test_the_promises_say_which_files_of_a_job_name_participants(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate(Simulation(n_sites=3, per_class=5, n_rois=8, frames=60, duplicates=1)).save("cohort")
    run_all(["run cohort --method ridge --device cpu --out job --quiet", "report job"], [])
    files = [path for path in Path("job").rglob("*") if path.is_file()]
    named = {path.relative_to("job").parts[0] for path in files if re.search(rb"sim\d{4}", path.read_bytes())}
    page = (Path(__file__).parents[1] / "docs" / "promises.md").read_text(encoding="utf-8")
    listed = page.partition("The following files of a job name participants too:")[2].partition("All other files")[0]
    assert {name.rstrip("/") for name in re.findall("`([^`]+)`", listed)} == named
    others = page.partition("All other files")[2].partition("do not")[0]
    assert set(re.findall("`([^`]+)`", others)) <= {path.name for path in files}
