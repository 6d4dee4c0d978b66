"""What a command prints last, and how it ends: errors of the system, interruptions, outputs of a job."""

import importlib
import sys
import threading
import warnings
from pathlib import Path

import pytest

from brio.version import __version__

application = importlib.import_module("brio.cli.app")  # brio.cli has an object of the same name


def test_the_version(brio):
    assert brio("--version") == (0, f"{__version__}\n", "")


def test_a_method_is_shown_with_its_settings(brio):
    said = brio("methods", "brio-wo-rs")
    assert said.status == 0
    assert "variant" in said.out
    assert "(fixed)" in said.out
    assert "What each setting means: brio settings brio-wo-rs" in said.out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError(2, "No such file or directory", "scans.npz"), "scans.npz: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("the network is gone"), "the network is gone"),
    ],
)
def test_an_error_of_the_system_is_one_line(error, line, brio, monkeypatch):
    def fail(**options):
        raise error

    monkeypatch.setattr(application, "app", fail)
    assert brio("methods") == (2, "", f"brio: {line}\n")


def test_the_status_that_a_command_asks_for_is_that_of_the_process(brio, monkeypatch):
    monkeypatch.setattr(application, "app", lambda **options: 3)
    assert brio("methods").status == 3


def test_an_interruption_before_a_command_begins(brio, monkeypatch):
    def interrupt(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(application, "app", interrupt)
    line = "brio: interrupted; give the same command again; nothing is left half-written\n"
    assert brio("methods") == (130, "", line)


def test_warnings_of_other_packages_are_shown_as_ever(brio, monkeypatch):
    monkeypatch.setattr(application, "app", lambda **options: warnings.warn("old call", FutureWarning, stacklevel=1))
    with pytest.warns(FutureWarning, match="old call"):
        assert brio("methods").status == 0


def test_a_command_runs_outside_of_the_main_thread(monkeypatch):
    """Signals are handled by the main thread alone; a command in another one goes without."""
    ended = []
    monkeypatch.setattr(application, "app", lambda **options: ended.append(threading.current_thread().name))
    monkeypatch.setattr(sys, "argv", ["brio", "methods"])
    thread = threading.Thread(target=application.main, name="other")
    thread.start()
    thread.join()
    assert ended == ["other"]


def test_a_job_with_a_report_names_its_table_figure_and_page(brio, here):
    said = brio(
        "run", "cohort", "--method", "ridge", "--fold", "site01", "--device", "cpu", "--out", "job2", "--report"
    )
    assert said.status == 0, said
    for name in ("table.md", "sites.png", "report.html"):
        assert (here / "job2" / name).stat().st_size > 0
        assert str(Path("job2") / name) in said.out
