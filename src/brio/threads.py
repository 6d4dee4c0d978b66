"""Independent pieces of work on several cores: each piece in one thread, its linear algebra on one core.

Matrices of a hundred to a thousand rows keep cores busier this way than by threads inside each decomposition. A piece
is computed alike, bit for bit, whatever the number of pieces and cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from .memory import find_free_memory

if TYPE_CHECKING:
    import torch
    from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_cores(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    device: torch.device | None = None,
    report: Callable[[int], None] = lambda position: None,
    bytes_each: float = 0.0,
) -> list[Result]:
    """Apply a function to items, as many at once as torch may use threads."""
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
