"""A method for tests of faults: ridge, to which a worker can succumb. What is to happen stands in a folder.

``BRIO_TEST_FATE`` names the folder. A file ``kill`` or ``full`` in it strikes one worker, and is removed by it;
``deadly`` and ``hungry`` strike every worker at the fold that is their content; ``slow`` holds every stack up for its
seconds.
"""

import errno
import os
import signal
import time
from pathlib import Path

import numpy as np

from brio.methods import Ridge, method
from brio.storage import disk

FATE = Path(os.environ["BRIO_TEST_FATE"])


def strike(name: str) -> bool:
    """Return whether this process is the one that a fate meant for one worker strikes."""
    try:
        (FATE / name).unlink()
    except FileNotFoundError:
        return False
    return True


def read(name: str) -> str:
    return (FATE / name).read_text() if (FATE / name).is_file() else ""


@method("mortal", family="linear", reference="none", provenance="own")
class Mortal(Ridge):
    """Ridge that may take its worker with it."""

    def fit(self, connectomes, runs, *further, **keywords):
        names = [run.fold.name for run in runs]
        time.sleep(float(read("slow") or 0))
        (FATE / f"trained-{names[0]}-{os.getpid()}").touch()
        if strike("kill") or read("deadly") in names:
            os.kill(os.getpid(), signal.SIGKILL)
        if read("hungry") in names:
            held = []
            for _ in range(60):  # until the limit of the worker ends it
                held.append(np.ones(8 << 20))
                time.sleep(0.1)
        fitted = super().fit(connectomes, runs, *further, **keywords)
        if strike("full"):

            def refuse(descriptor, content):
                disk.write = write
                raise OSError(errno.ENOSPC, "No space left on device")

            write, disk.write = disk.write, refuse
        return fitted
