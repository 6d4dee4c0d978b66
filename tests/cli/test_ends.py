"""What a command prints last, and how it ends: errors of the system, interruptions, outputs of a job."""

import importlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest

from brio import storage
from brio.storage import reserve_name

application = importlib.import_module("brio.cli.app")  # brio.cli has an object of the same name


def test_a_method_is_shown_with_its_settings(brio):
    said = brio("methods", "brio-wo-rs").succeed()
    assert "variant" in said.out
    assert "(fixed)" in said.out
    assert "'brio settings brio-wo-rs' explains each setting" in said.out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError(2, "No such file or directory", "scans.npz"), "scans.npz: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("the network is gone"), "the network is gone"),
    ],
)
def test_an_error_of_the_system_is_one_line(error, line, brio, monkeypatch):
    monkeypatch.setattr(application, "app", Mock(side_effect=error))
    assert brio("methods") == (2, "", f"brio: {line}\n")


def test_the_status_that_a_command_asks_for_is_that_of_the_process(brio, monkeypatch):
    monkeypatch.setattr(application, "app", lambda **options: 3)
    assert brio("methods").status == 3


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
    words = ["--method", "ridge", "--fold", "site01", "--device", "cpu", "--report"]
    said = brio("run", "cohort", *words, "--out", "job2").succeed()
    for name in ("table.md", "sites.png", "report.html"):
        assert (here / "job2" / name).stat().st_size > 0
        assert str(Path("job2") / name) in said.out


WITH_OUT = {
    "simulate": "simulate --sites 2 --per-class 2 --rois 8",
    "select": "select cohort --where age>0",
    "run": "run cohort --method ridge --fold site01 --device cpu --quiet",
    "fit": "fit cohort --method gcn --set epochs=1 --checkpoint-every 100 --device cpu --quiet",
    "report": "report job",
    "compare": "compare job job2",
    "study": "study subgroups cohort --method ridge --fold site01 --seeds 1 --device cpu --quiet",
    "federate": "federate start --rois cohort --classes control,patient --sites 3",
}
LONG_NAMES = {"240": "o" * 240, "as long as can be": "o" * 255, "accents": "é" * 127, "spaces": "my project (2) é"}


@pytest.mark.parametrize("name", LONG_NAMES.values(), ids=LONG_NAMES)
@pytest.mark.parametrize("words", WITH_OUT.values(), ids=WITH_OUT)
def test_a_long_name_of_out_works_in_every_command(brio, here, undrawn, words, name):
    shutil.copytree("job", "job2")
    before = {path.name for path in here.iterdir()}
    brio(*words.split(), "--out", name).succeed()
    left = {path.name for path in here.iterdir()} - before
    assert name in left
    assert len(left) == (3 if words.startswith("report") else 1)  # with its references and its card


def test_a_name_that_no_disk_takes_is_refused_before_the_work(brio, here, tmp_path):
    for name in ("o" * 256, "é" * 128):
        assert "255 bytes" in brio("simulate", "--out", name).refuse_in_a_line()
    assert storage.name_beside(tmp_path / "scans", ".extracted") == tmp_path / "scans.extracted"
    beside = {storage.name_beside(tmp_path / f"{'é' * 120}{k}{'a' * 14}", ".extracted").name for k in (1, 2)}
    assert len(beside) == 2
    assert all(len(os.fsencode(name)) <= 255 and name.endswith(".extracted") for name in beside)


# ---------------------------------------------------------------- streams and signals, in a process of its own


def start(words: str, **options) -> subprocess.CompletedProcess:
    """Run a line of a shell in which ``brio`` is the program; it ends within a minute."""
    line = f'brio() {{ {shlex.quote(sys.executable)} -m brio "$@"; }}; {words}'
    options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in a job of the background
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize(
    ("words", "status", "err"),
    [
        ("brio methods 2>&- >&- <&-", 0, ""),
        ("set -o pipefail; brio methods | head -1 >/dev/null", 0, ""),
        ("brio methods nothing 2>/dev/full", 2, ""),
        ("brio methods > /dev/full", 2, "brio: standard output: No space left on device\n"),
    ],
)
def test_a_stream_that_nobody_reads_ends_no_command(words, status, err):
    ended = start(words)
    assert (ended.returncode, ended.stderr) == (status, err)


ASKED = "import os, signal, time\ndef ask(): os.kill(os.getpid(), signal.{signal}); time.sleep(0.1)\n"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("SIGTERM", "try: ask()\nexcept BaseException: pass\nwhile True: time.sleep(0.05)"),  # a package keeps it
        ("SIGINT", "try: ask()\nexcept BaseException as error: raise RuntimeError('import failed') from None"),
        ("SIGINT", "exec('ask()')"),  # after which Python would end itself by a signal of its own
        ("SIGTERM", "try: ask()\nfinally: time.sleep(2.5)"),  # cleaning up may take longer than a reminder
    ],
)
def test_a_command_that_is_asked_to_end_says_so_whatever_becomes_of_the_exception(tmp_path, code, asked):
    status, word = {"SIGTERM": (143, "terminated"), "SIGINT": (130, "interrupted")}[asked]
    (tmp_path / "mine.py").write_text(ASKED.format(signal=asked) + code)
    ended = start("brio methods --load mine.py", cwd=tmp_path)
    assert ended.returncode == status, ended.stderr
    left = "no half-written files were left"
    assert ended.stderr.splitlines()[1:] == [f"brio: {word}; run the same command again ({left})"]


def test_a_program_that_is_asked_to_end_while_it_is_imported_says_so():
    code = """
import os, signal, sys, brio.__main__ as program
class Import:
    def find_spec(self, name, *further):
        if name == "brio.cli": os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Import())
program.main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (143, "brio: terminated; run the same command again\n")


BROKEN = {
    "torch": "raise OSError('libtorch_cpu.so: cannot open shared object file')",
    "numpy": "try: import numpy.gone\nexcept ImportError as error: raise ImportError('READ THIS') from error",
    "msgspec": "raise MemoryError",
    "rich": "raise RuntimeError('no\\nterminal')",
    "scipy": "from math import nothing",
    "safetensors": "import nothing_of_this_name",
    "pandas": "print(",
}


@pytest.mark.parametrize("library", BROKEN)
def test_a_library_that_cannot_be_loaded_is_one_line(here, tmp_path, library):
    (tmp_path / "broken" / library).mkdir(parents=True)
    (tmp_path / "broken" / library / "__init__.py").write_text(BROKEN[library])
    line = 'PYTHONPATH="$PWD/../broken:$PYTHONPATH" brio run cohort --method logistic --device cpu --out new'
    ended = start(line, cwd=here)
    assert ended.returncode == 2, ended.stderr
    assert re.fullmatch(rf"brio: ({library}|a library) cannot be loaded \(.*\n", ended.stderr)
    assert not (here / "new").exists()


@pytest.mark.parametrize("limit", [150_000, 400_000])  # kB: libraries are not all mapped
def test_a_limit_of_memory_in_which_no_library_has_room_is_one_line(here, limit):
    words = "run cohort --method ridge --device cpu --out new"
    ended = start(f"ulimit -v {limit}; OMP_NUM_THREADS=1 brio {words}", cwd=here)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1


def test_what_a_killed_command_had_unpacked_is_removed_by_the_next(brio, tmp_path, monkeypatch):
    code = """
import os, signal
from brio.storage import open_scratch_folder
with open_scratch_folder() as folder:
    (folder / "scan").write_text("of a participant")
    assert folder.stat().st_mode & 0o77 == 0
    os.kill(os.getpid(), signal.SIGKILL)
"""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    (left,) = tmp_path.iterdir()
    head, machine, _, _, *rest = left.name.split("-")
    again = left.with_name("-".join([head, machine, str(os.getppid()), "s01234567", *rest]))  # its number is reused
    again.mkdir()
    live = reserve_name(tmp_path)
    live.mkdir()
    assert brio("version").status == 0
    assert list(tmp_path.iterdir()) == [live]
