"""Memory and cores of this machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .errors import BrioError

if TYPE_CHECKING:
    import torch
    from threadpoolctl import ThreadpoolController


_CGROUP = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self")


def find_free_memory() -> int | None:
    """Find how many bytes of memory this process may still take; None if the system does not report it.

    This is the smallest of the memory available on the machine, in the container and within the limit of the process.
    Cached files count as free, because the system drops them when memory is needed.
    """
    bounds = [_read_meminfo(), _read_container(), _read_process_limit()]
    return min((bound for bound in bounds if bound is not None), default=None)


def _read_meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:  # not Linux
        return None
    available = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    return available[0] if available else None


def _read_container() -> int | None:
    try:
        limit, used = ((_CGROUP / f"memory.{name}").read_text("utf-8").strip() for name in ("max", "current"))
        lines = (_CGROUP / "memory.stat").read_text("utf-8").splitlines()
    except OSError:  # no container, or an older kind
        return None
    if limit == "max":
        return None
    stat = dict(line.split(maxsplit=1) for line in lines)
    held = int(used) - int(stat.get("inactive_file", 0))  # as `docker stats` counts
    return max(0, int(limit) - max(0, held))


def _read_process_limit() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    statm = _PROCESS / "statm"  # what it has reserved already, where the system says so
    pages = int(statm.read_text("utf-8").split()[0]) if statm.is_file() else 0
    return max(0, limit - pages * resource.getpagesize())


def find_free_disk(path: Path) -> int:
    """Find how many bytes are free on the disk of an existing or future path."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def require_memory(n_bytes: float, what: str, advice: str, free: int | None = None) -> None:
    """Raise an error if something does not fit into memory."""
    there = find_free_memory() if free is None else free
    if there is not None and n_bytes > there:
        raise BrioError(
            f"{what} about {format_bytes(n_bytes)} of memory, but only {format_bytes(there)} is free; {advice}"
        )


def require_disk(n_bytes: float, path: Path, what: str, advice: str) -> None:
    """Raise an error if something does not fit on the disk of a path."""
    free = find_free_disk(path)
    if n_bytes > free:
        needed = f"{what} about {format_bytes(n_bytes)} on disk"
        raise BrioError(f"{path}: {needed}, but only {format_bytes(free)} is free; {advice}")


def format_bytes(n_bytes: float) -> str:
    """Format a number of bytes with two significant digits."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            value = n_bytes / size
            return f"{value:.2g} {unit}" if value < 100 or value >= 1e5 else f"{value:.0f} {unit}"
    return f"{n_bytes:.0f} B"


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_cores(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    device: torch.device | None = None,
    report: Callable[[int], None] = lambda position: None,
    bytes_each: float = 0.0,
) -> list[Result]:
    """Apply a function to items in parallel, with as many threads as torch may use."""
    import torch

    if device is not None and device.type != "cpu":
        return [function(item) for item in _announce(items, report)]
    free = find_free_memory() if bytes_each else None
    fitting = len(items) if free is None else int(free // bytes_each)
    with _use_one_core() as cores:
        at_once = min(cores, fitting, len(items))
        if at_once <= 1:
            return [function(item) for item in _announce(items, report)]
        pool = ThreadPoolExecutor(at_once, initializer=torch.set_num_threads, initargs=(1,))
        try:
            return [future.result() for future in _announce([pool.submit(function, item) for item in items], report)]
        finally:
            pool.shutdown(cancel_futures=True)


def _announce(items: Sequence[Item], report: Callable[[int], None]) -> Iterator[Item]:
    """Iterate over items, and report the position of each before it is given out."""
    for position, item in enumerate(items):
        report(position)
        yield item


@contextmanager
def _use_one_core() -> Iterator[int]:
    """Let linear algebra use one core; give the number of cores that it used before."""
    import torch

    cores = torch.get_num_threads()
    if cores == 1:
        yield 1
        return
    try:
        with _find_libraries(len(sys.modules)).limit(limits=1):
            torch.set_num_threads(1)
            yield cores
    finally:
        torch.set_num_threads(cores)


@lru_cache(maxsize=1)
def _find_libraries(n_modules: int) -> ThreadpoolController:
    """Find the loaded libraries that have threads. It takes milliseconds; a new one comes with a new module."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
