"""Try a case in a process of its own, under limits, and look at all that it did.

The process is a copy of this one, so that nothing has to be imported again; it runs in a folder that holds the input
and nothing else. A case fails where the command

* ends in a stack trace, another exit status than 0 or 2, or not in time;
* needs more memory than a limit;
* is refused in more than one line, or in a line that names nothing that the case expects;
* is refused and leaves anything changed, or succeeds and changes more than its output;
* opens a file for writing anywhere else, or leaves a temporary file;
* accepts what must be refused, or prints and writes another result than it does on good input.
"""

import contextlib
import csv
import ctypes
import json
import os
import pickle
import re
import resource
import select
import shutil
import signal
import stat
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from matrix_case import Case
from workplace import Recipe, Workplace

from commands import Said, command

SECONDS = 60
"""A command that takes longer is said to hang; on good input none takes a tenth of it."""
MEMORY = 768 * 2**20
"""Address space that a command may take on top of what the process has."""
LONGEST_LINE = 1500
NOTICE = "brio: --load executes"
"""Line that stands beside a refusal."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")
ELSEWHERE = re.compile(r"__pycache__|/(\.config|\.cache)/matplotlib")
"""What Python and matplotlib write when they are imported."""
VOLATILE = ("seconds", "created", "written", "source")
Snapshot = dict[str, tuple[int, int, int]]


class Trial(NamedTuple):
    """What became of a case.

    Attributes
    ----------
    case : Case
    outcome : str
        ``refused``, ``result`` or ``failed``.
    reason : str
        Why it failed.
    """

    case: Case
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.case}: {self.reason}"


class Ended(NamedTuple):
    """How a command ended, what it wrote elsewhere, and what it left in its output."""

    said: Said
    trace: str
    elsewhere: tuple[str, ...]
    result: Any


class Runner:
    """Tries cases on copies of a workplace.

    Parameters
    ----------
    root : Path
        Empty folder.
    """

    def __init__(self, root: Path) -> None:
        (root / "workplace").mkdir(parents=True)
        self.workplace = Workplace(root / "workplace")
        self.fence = root / "fence"
        self.box, self.temporary = self.fence / "box", self.fence / "tmp"
        self._good: dict[Recipe, Any] = {}

    def try_case(self, case: Case) -> Trial:
        """Try one case."""
        good = self.find_good_result(case.recipe) if case.expected == "same" else None
        self._prepare(case.recipe)
        case.spoil(self.box)
        before = take_snapshot(self.box)
        ended = self._run(case.words, case.recipe, case.forbidden)
        reason = self._judge(case, ended, before, good)
        if reason:
            return Trial(case, "failed", reason)
        assert ended is not None
        return Trial(case, "refused" if ended.said.status else "result")

    def find_good_result(self, recipe: Recipe) -> Any:
        """Return the result of a command on good input; it is computed once."""
        if recipe not in self._good:
            self._prepare(recipe)
            ended = self._run(tuple(recipe.words.split()), recipe)
            if ended is None or ended.trace or ended.said.status:
                raise AssertionError(f"{recipe.words} does not work on good input: {ended}")
            self._good[recipe] = ended.result
        return self._good[recipe]

    def _prepare(self, recipe: Recipe) -> None:
        _make_writable(self.fence)
        shutil.rmtree(self.fence, ignore_errors=True)
        self.box.mkdir(parents=True)
        self.temporary.mkdir()
        self.temporary.chmod(0o777)
        self.workplace.copy(recipe.parts, self.box)

    def _run(self, words: tuple[str, ...], recipe: Recipe, forbidden: bool = False) -> Ended | None:
        """Run a command in a copy of this process; None if it had to be killed."""
        sys.stdout.flush()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                ended = self._run_here(words, recipe, forbidden)
                with os.fdopen(write, "wb") as pipe:
                    pickle.dump(ended, pipe)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            if not select.select([pipe], [], [], SECONDS)[0]:
                os.kill(child, signal.SIGKILL)
            content = pipe.read()
        os.waitpid(child, 0)
        return pickle.loads(content) if content else None

    def _run_here(self, words: tuple[str, ...], recipe: Recipe, forbidden: bool) -> Ended:
        os.chdir(self.box)
        tempfile.tempdir = str(self.temporary)
        elsewhere: list[str] = []
        result, said, trace = None, Said(-1, "", ""), ""
        with limited_memory():
            if forbidden:
                give_up_rights()
            watching = [True]
            sys.addaudithook(lambda event, arguments: watching[0] and self._note(elsewhere, event, arguments))
            try:
                with warnings.catch_warnings():
                    said = command(*words)
            except BaseException:
                trace = traceback.format_exc()
            watching[0] = False
        if not trace and said.status == 0:
            try:
                result = read_result(recipe, said.out)
            except Exception:
                trace = "the result cannot be read: " + traceback.format_exc()
        return Ended(said, trace, tuple(elsewhere), result)

    def _note(self, elsewhere: list[str], event: str, arguments: tuple[Any, ...]) -> None:
        """Note where something is written outside the box and the folder of temporary files."""
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & WRITING:
                return
        elif event not in CHANGES:
            return
        if not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if not path.startswith((f"{self.fence}/", "/dev/null", "/proc/")) and not ELSEWHERE.search(path):
            elsewhere.append(f"{event} {path}")

    def _judge(self, case: Case, ended: Ended | None, before: Snapshot, good: Any) -> str:
        """Say why a case failed; empty if it did not."""
        if ended is None:
            return "hangs, or its process died"
        said, changed = ended.said, sorted(find_changes(before, take_snapshot(self.box)))
        if ended.trace:
            return ended.trace
        if said.status not in (0, 2):
            return f"exit status {said.status}: {said.text}"
        if ended.elsewhere:
            return f"writes elsewhere: {ended.elsewhere[:3]}"
        if left := sorted(path.name for path in self.temporary.iterdir()):
            return f"leaves temporary files: {left}"
        return (
            judge_refusal(case, said, changed) if said.status else judge_result(case, said, ended.result, changed, good)
        )


def judge_refusal(case: Case, said: Said, changed: list[str]) -> str:
    """Say what is wrong with a refusal."""
    if case.expected == "result":
        return f"is refused: {said.err}"
    if changed:
        return f"leaves {changed[:5]} after: {said.err}"
    lines = [line for line in said.err.splitlines() if not line.startswith(NOTICE)]
    if len(lines) != 1 or not lines[0].startswith("brio: "):
        return f"is not one line: {said.err[:1500]}"
    if len(said.err) > LONGEST_LINE + 2 * sum(map(len, case.words)):
        return f"a line of {len(said.err)} characters: {said.err[:200]}"
    if case.names and not any(name in said.err for name in case.names):
        return f"names none of {case.names}: {said.err}"
    return ""


def judge_result(case: Case, said: Said, result: Any, changed: list[str], good: Any) -> str:
    """Say what is wrong with a result."""
    if case.expected == "refused":
        return f"is accepted: {said.text[-300:]}"
    outputs = case.outputs
    if outside := [path for path in changed if not any(path == out or path.startswith(f"{out}/") for out in outputs)]:
        return f"changes {outside[:5]}, which is no output"
    if half := [path for path in changed if "partial" in path or path.endswith(".tmp")]:
        return f"leaves {half[:5]}"
    if case.expected == "same" and result != good:
        keys = [key for key in {**good, **result} if good.get(key) != result.get(key)]
        return f"another result than on good input: {keys[:5]}"
    return ""


def give_up_rights() -> None:
    """Let permissions of files hold for the superuser as well: give up the capabilities that override them."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 bits
    if libc.capget(header, sets) == 0:
        sets[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.capset(header, sets)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Let the address space grow by :data:`MEMORY` and no more."""
    with open("/proc/self/statm") as file:
        present = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (present + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def take_snapshot(folder: Path) -> Snapshot:
    """All that is in a folder: kind, size and time of the last change; times of folders change with what they hold."""
    snapshot = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(top, name)
            facts = os.lstat(path)
            is_folder = stat.S_ISDIR(facts.st_mode)
            content = (0, 0) if is_folder else (facts.st_size, facts.st_mtime_ns)
            snapshot[os.path.relpath(path, folder)] = (stat.S_IFMT(facts.st_mode), *content)
    return snapshot


def find_changes(before: Snapshot, after: Snapshot) -> set[str]:
    """Names of what is new, gone or changed."""
    return {name for name in {**before, **after} if before.get(name) != after.get(name)}


def _make_writable(folder: Path) -> None:
    for top, folders, _ in os.walk(folder):
        for name in folders:
            if not os.path.islink(os.path.join(top, name)):
                os.chmod(os.path.join(top, name), 0o755)


def read_result(recipe: Recipe, printed: str) -> dict[str, object]:
    """Read what a command gave: what it printed, or its files without times; folders of brio must verify."""
    from brio.cohort import Cohort
    from brio.models.sums import check_sums
    from brio.results import StoredJob

    result: dict[str, object] = {"printed": printed} if recipe.prints else {}
    for out in map(Path, recipe.outputs):
        if (out / "cohort.json").is_file():
            Cohort.load(out).verify()
        if (out / "summary.json").is_file():
            StoredJob.read(out)
        if (out / "model.json").is_file():
            check_sums(out)
        for path in sorted(p for p in out.rglob("*") if p.is_file()):
            result[str(path)] = read_content(path)
    return result


def read_content(path: Path) -> object:
    """The content of a file without times; of pages, pictures and hashes, only that it is there."""
    if path.suffix == ".csv":
        csv.field_size_limit(1 << 30)  # a participant may have a long name
        with path.open(newline="") as file:
            return [{k: v for k, v in row.items() if k not in VOLATILE} for row in csv.DictReader(file)]
    if path.suffix == ".json":
        return strip_times(json.loads(path.read_bytes()))
    if path.suffix in (".npy", ".safetensors", ".tsv"):
        return path.read_bytes()
    return None


def strip_times(value: Any) -> Any:
    """A document without what differs each time."""
    if isinstance(value, dict):
        return {key: strip_times(one) for key, one in value.items() if key not in VOLATILE}
    return [strip_times(one) for one in value] if isinstance(value, list) else value
