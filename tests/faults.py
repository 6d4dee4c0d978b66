"""Let a step of writing fail, be interrupted, or be the last thing that a process does.

Every change of the disk goes through the functions of :mod:`brio.storage.disk`. A step is one call of one of them, and
steps are numbered from 0 in the order of the calls.

* ``list_steps(action)``: the steps of an action, such as a command.
* ``with failing(number)``: this step, and with ``lasting`` all later ones that need space, raise ``OSError``.
* ``with raising(number, error)``: this step raises an error before or after it is done, as Ctrl-C would.
* ``die_at(number, when, action)``: run an action in this process, in which nothing changes the disk any more right
  before or after this step, as if it were killed; returns whether it came so far. Takes no longer than the action.
* ``run_in_child(action)``: run an action in a child process, which needs no import, and return its exit status.
"""

import errno
import os
import secrets
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple
from unittest import mock

from brio import storage
from brio.storage import disk

NEED_SPACE = ("create_file", "make_folder", "sync", "sync_folder", "write")
"""Steps that fail on a full disk; what removes or renames does not."""

When = Literal["before", "after"]
Hook = Callable[[int, "Step", When], None]

CALLS = (
    *("create_file", "make_folder", "remove_file", "remove_folder", "remove_tree", "rename", "replace", "sync"),
    *("sync_folder", "write"),
)
"""Every call of :mod:`brio.storage.disk`."""


class Step(NamedTuple):
    """One call that changes the disk."""

    name: str
    target: str

    def __str__(self) -> str:
        return f"{self.name} {self.target}"


@contextmanager
def watching(hook: Hook) -> Iterator[list[Step]]:
    """Call a function before and after every step; yields the list of steps so far."""
    steps: list[Step] = []

    def wrap(name: str, call: Callable) -> Callable:
        def watched(*arguments, **named):
            number, last = len(steps), arguments[1] if name in ("rename", "replace") else arguments[0]
            steps.append(Step(name, Path(last).name if isinstance(last, Path) else ""))
            hook(number, steps[number], "before")
            try:
                return call(*arguments, **named)
            finally:  # also where there was nothing to remove
                hook(number, steps[number], "after")

        return watched

    with mock.patch.multiple(disk, **{name: wrap(name, getattr(disk, name)) for name in CALLS}):
        yield steps


def list_steps(action: Callable[[], object]) -> list[Step]:
    """Run an action and return its steps."""
    with watching(lambda number, step, when: None) as steps:
        action()
    return steps


@contextmanager
def failing(number: int, code: int = errno.ENOSPC, lasting: bool = True) -> Iterator[list[Step]]:
    """Let a step fail with an error of the system and, if it lasts, all later ones that need space."""

    def hook(k: int, step: Step, when: When) -> None:
        if when == "before" and (k == number or (lasting and k > number and step.name in NEED_SPACE)):
            raise OSError(code, os.strerror(code), step.target)

    with watching(hook) as steps:
        yield steps


@contextmanager
def raising(number: int, error: type[BaseException], when: When = "before") -> Iterator[list[Step]]:
    """Raise an error right before or after a step, once."""

    def hook(k: int, step: Step, moment: When) -> None:
        if k == number and moment == when:
            raise error

    with watching(hook) as steps:
        yield steps


class _Killed(BaseException):
    """A process that nothing can be said to."""


def die_at(number: int, when: When, action: Callable[[], object]) -> bool:
    """Run an action up to a step, after which it can neither write nor clean up; returns whether it came so far."""
    dead = False

    def hook(k: int, step: Step, moment: When) -> None:
        nonlocal dead
        if dead:
            raise OSError(errno.EIO, "the process is dead")
        if k == number and moment == when:
            dead = True
            raise _Killed

    try:
        with watching(hook):
            action()
    except _Killed:
        token = secrets.token_hex(4)
        storage._identify_process = lambda number: token  # what comes next is another process
    return dead


def run_in_child(action: Callable[[], int | None]) -> int:
    """Run an action in a copy of this process; returns its exit status, or minus the signal that ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = action() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
