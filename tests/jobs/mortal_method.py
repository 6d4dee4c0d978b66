"""A method for tests of faults: ridge, to which a worker can succumb. What is to happen stands in a folder.

``BRIO_TEST_FATE`` names the folder. A file ``kill`` in it strikes one worker, and is removed by it; ``deadly`` strikes
every worker at the fold that is its content; ``slow`` holds every stack up for its seconds.
"""

import os
import signal
import time
from pathlib import Path

from brio.methods import Ridge, method

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
        return super().fit(connectomes, runs, *further, **keywords)
