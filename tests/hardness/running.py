"""Try a case in a process of its own, under limits, and look at all that it did.

The process is a copy of this one, so that nothing has to be imported again; it runs in a folder that holds the input
and nothing else. A case fails where the command

* ends in a stack trace, another exit status than 0 or 2 (1 where ``verify`` names a difference), or not in time;
* needs more memory than a limit;
* is refused in more than one line, or in a line that names nothing that the case expects;
* is refused and leaves anything changed, or succeeds and changes more than its output;
* opens a file for writing anywhere else, or leaves a temporary file;
* accepts what must be refused, or prints and writes another result than it does on good input.
"""

import csv
import ctypes
import json
import multiprocessing
import os
import re
import resource
import shutil
import stat
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from matrix import Case
from workplace import Recipe, copy_parts

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
    """What became of a case: ``refused``, ``result`` or ``failed``, and why it failed."""

    case: Case
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.case}: {self.reason}"


class Ended(NamedTuple):
    """How a command ended, what it wrote elsewhere, and what it left in its output."""

    said: Said
    trace: str
    elsewhere: tuple[str, ...] = ()
    result: Any = None


FAILED = Said(-1, "", "")


class Runner:
    """Tries cases on copies of the parts that they need, in an empty folder."""

    def __init__(self, root: Path) -> None:
        self.parts, self.fence = root / "parts", root / "fence"
        self.parts.mkdir(parents=True)
        self.box, self.temporary = self.fence / "box", self.fence / "tmp"
        self._good: dict[Recipe, Any] = {}

    def try_case(self, case: Case) -> Trial:
        """Try one case."""
        good = self.find_good_result(case.recipe) if case.expected == "same" else None
        self._prepare(case.recipe)
        case.spoil(self.box)
        before = take_snapshot(self.box)
        ended = self._run(case.recipe, case.forbidden)
        try:
            self._judge(case, ended, before, good)
        except AssertionError as reason:
            return Trial(case, "failed", str(reason))
        return Trial(case, "refused" if ended.said.status else "result")

    def find_good_result(self, recipe: Recipe) -> Any:
        """Return the result of a command on good input; it is computed once."""
        if recipe not in self._good:
            self._prepare(recipe)
            ended = self._run(recipe)
            assert ended.said.status == 0, f"{recipe} does not work on good input: {ended}"
            self._good[recipe] = ended.result
        return self._good[recipe]

    def _prepare(self, recipe: Recipe) -> None:
        if self.fence.exists():
            self.box.chmod(0o755)
            shutil.rmtree(self.fence)
        self.box.mkdir(parents=True)
        self.temporary.mkdir()
        self.temporary.chmod(0o777)
        copy_parts(self.parts, recipe.parts, self.box)

    def _run(self, recipe: Recipe, forbidden: bool = False) -> Ended:
        """Run a command in a copy of this process."""
        fork = multiprocessing.get_context("fork")
        here, there = fork.Pipe(duplex=False)
        child = fork.Process(target=lambda: there.send(self._run_here(recipe, forbidden)))
        child.start()
        there.close()
        try:
            return here.recv() if here.poll(SECONDS) else Ended(FAILED, "hangs")
        except EOFError:
            return Ended(FAILED, "the process died")
        finally:
            child.kill()
            child.join()

    def _run_here(self, recipe: Recipe, forbidden: bool) -> Ended:
        os.chdir(self.box)
        tempfile.tempdir = str(self.temporary)
        elsewhere: list[str] = []
        limit_memory()
        if forbidden:
            give_up_rights()
        sys.addaudithook(lambda event, arguments: self._note(elsewhere, event, arguments))
        try:
            with warnings.catch_warnings():
                said = command(*recipe.words)
            result = read_result(recipe, said.out) if said.status == 0 else None
        except BaseException:
            return Ended(FAILED, traceback.format_exc())
        return Ended(said, "", tuple(elsewhere), result)

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

    def _judge(self, case: Case, ended: Ended, before: Snapshot, good: Any) -> None:
        """Require that a command ended as it must."""
        said, after = ended.said, take_snapshot(self.box)
        changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
        left = sorted(path.name for path in self.temporary.iterdir())
        assert not ended.trace, ended.trace
        differs = case.recipe.command == "verify" and said.status == 1
        assert said.status in (0, 2) or differs, f"exit status {said.status}: {said.text}"
        assert not ended.elsewhere, f"writes elsewhere: {ended.elsewhere[:3]}"
        assert not left, f"leaves temporary files: {left}"
        if differs:
            assert case.expected != "refused", f"is accepted: {said.text[-300:]}"
            assert not changed, f"leaves {changed[:5]}"
            assert "\n\nDiffer: " in said.out, f"names no difference: {said.text}"
        elif said.status:
            judge_refusal(case, said, changed)
        else:
            judge_result(case, said, ended.result, changed, good)


def judge_refusal(case: Case, said: Said, changed: list[str]) -> None:
    """Require that a refusal is due, in one line that names what is bad, and leaves nothing."""
    lines = [line for line in said.err.splitlines() if not line.startswith(NOTICE)]
    longest = LONGEST_LINE + 2 * sum(map(len, case.recipe.words))
    assert case.expected != "result", f"is refused: {said.err}"
    assert not changed, f"leaves {changed[:5]} after: {said.err}"
    assert [line[:6] for line in lines] == ["brio: "], f"is not one line: {said.err[:1500]}"
    assert len(said.err) <= longest, f"a line of {len(said.err)} characters: {said.err[:200]}"
    assert not case.names or any(name in said.err for name in case.names), f"names none of {case.names}: {said.err}"


def judge_result(case: Case, said: Said, result: Any, changed: list[str], good: Any) -> None:
    """Require that a result may be, changes nothing but the output, and is that of good input where it must be."""
    outside = [path for path in changed if not any(f"{path}/".startswith(f"{output}/") for output in case.outputs)]
    half = [path for path in changed if "partial" in path or path.endswith(".tmp")]
    assert case.expected != "refused", f"is accepted: {said.text[-300:]}"
    assert not outside, f"changes {outside[:5]}, which is no output"
    assert not half, f"leaves {half[:5]}"
    if case.expected == "same":
        keys = [key for key in {**good, **result} if good.get(key) != result.get(key)]
        assert not keys, f"another result than on good input: {keys[:5]}"


def give_up_rights() -> None:
    """Let permissions of files hold for the superuser as well: give up the capabilities that override them."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 bits
    if libc.capget(header, sets) == 0:
        sets[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.capset(header, sets)


def limit_memory() -> None:
    """Let the address space grow by :data:`MEMORY` and no more."""
    present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (present + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def take_snapshot(folder: Path) -> Snapshot:
    """All that is in a folder: kind, size and time of the last change; times of folders change with what they hold."""
    snapshot = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        content = (0, 0) if stat.S_ISDIR(facts.st_mode) else (facts.st_size, facts.st_mtime_ns)
        snapshot[str(path.relative_to(folder))] = (stat.S_IFMT(facts.st_mode), *content)
    return snapshot


def read_result(recipe: Recipe, printed: str) -> dict[str, object]:
    """Read what a command gave: what it printed, or its files without times; folders of brio must verify."""
    from brio.cohort import Cohort
    from brio.models.sums import check_sums
    from brio.results import StoredJob

    result: dict[str, object] = {} if recipe.outputs else {"printed": printed}
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
