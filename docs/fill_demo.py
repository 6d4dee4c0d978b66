"""Write the output of the demonstration into the README, between its two markers.

    python docs/fill_demo.py [--readme README.md]

``make readme`` runs it. It takes under a minute on two cores. Tests compare the words of the README with those of the
program, and the long tests its numbers.
"""

import argparse
import os
import re
import tempfile
from pathlib import Path

from brio.demo import run_demo

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- demo:begin -->", "<!-- demo:end -->"


def main() -> None:
    """Run the demonstration in a temporary folder and write what it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", type=Path, default=README, help="file with the two markers")
    readme = parser.parse_args().readme.resolve()
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="brio-demo-") as folder:
        os.chdir(folder)  # so that paths in the output are those of 'make demo'
        run_demo(Path("demo"), say=lines.append)
        os.chdir(readme.parent)
    block = "\n".join([BEGIN, "", "```", *lines, "```", "", END])
    before = readme.read_text(encoding="utf-8")
    after, n_blocks = re.subn(f"{BEGIN}.*?{END}", lambda match: block, before, flags=re.DOTALL)
    if n_blocks != 1:
        raise SystemExit(f"{readme}: has {n_blocks} places between {BEGIN} and {END}; one is needed")
    readme.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
