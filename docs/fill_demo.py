"""Write the output of the demonstration, a picture of its report and one of its predictions.

    python docs/fill_demo.py

``make readme`` runs it, in about a minute on two cores. The whole output goes to ``docs/demonstration.md``, the table
of the new hospital to the README, each between two markers. Tests compare the words with those of the program, and the
long tests the numbers.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from draw_figures import IMAGES, PREDICTION, draw_prediction

from brio.demo import run_demo
from brio.models import read_model
from brio.models.evidence import choose_rule
from brio.models.predict import DEFAULT_ACCURACY

REPOSITORY = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- demo:begin -->", "<!-- demo:end -->"
METHOD = "log-ridge"


def fill_markers(path: Path, lines: list[str]) -> None:
    """Write lines as a block between the two markers of a page."""
    block = "\n".join([BEGIN, "", "```", *lines, "```", "", END])
    text, n_blocks = re.subn(f"{BEGIN}.*?{END}", lambda match: block, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    if n_blocks != 1:
        raise SystemExit(f"{path}: has {n_blocks} places between {BEGIN} and {END}; one is needed")
    path.write_text(text, encoding="utf-8")


def shorten_output(lines: list[str]) -> list[str]:
    """Return the four lines of the table of the new hospital."""
    start = next(k for k, line in enumerate(lines) if line.startswith("4  "))
    return lines[start + 1 : start + 5]


def collect_prediction(demo: Path) -> dict[str, Any]:
    """Collect the numbers of the drawn predictions: one on one side of one half, one that crosses it, and no call."""
    folder = demo / "predictions" / METHOD
    table = pd.read_csv(folder / "predictions.csv")
    table["crosses"] = table["interval_crosses_half"] == "yes"
    called = table["predicted"] != "no call"
    kinds = (called & ~table["crosses"], called & table["crosses"], ~called & table["flag"].isna())
    columns = ["participant_id", "probability", "low", "high", "predicted", "crosses"]
    scans = [table.loc[kind, columns].iloc[0].to_dict() for kind in kinds]  # flagged scans are never called
    evidence = read_model(demo / "models" / METHOD).evidence
    rule = choose_rule(evidence.rules, DEFAULT_ACCURACY) if evidence else None
    if rule is None:
        raise SystemExit(f"{demo / 'models' / METHOD}: calls no class; nothing to draw")
    scores = json.loads((folder / "validation.json").read_text(encoding="utf-8"))
    shares = {
        "expected": scores["expected"]["accuracy_called"]["value"],
        "observed": scores["accuracy_called"]["value"],
    }
    numbers = {name: round(value, 4) for name, value in {"threshold": rule.threshold, **shares}.items()}
    rounded = [{key: round(v, 4) if isinstance(v, float) else v for key, v in scan.items()} for scan in scans]
    return {"scans": rounded, **numbers}


def photograph_report(report: Path, picture: Path) -> None:
    """Take a picture of the first screen of a report, where there is a browser."""
    names = (os.environ.get("BRIO_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    program = next((path for name in names if name and (path := shutil.which(name))), None)
    if program is None:
        print(f"{picture}: not made, since no Chromium was found; name one in BRIO_CHROMIUM")
        return
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,660", f"--screenshot={picture}"]
    subprocess.run([program, *options, report.resolve().as_uri()], check=True, capture_output=True, timeout=120)
    print(picture)


def main() -> None:
    """Run the demonstration in a temporary folder, and write what it says and shows."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="brio-demo-") as folder:
        os.chdir(folder)  # so that paths in the output are those of 'make demo'
        run_demo(Path("demo"), say=lines.append)
        (IMAGES / PREDICTION).write_text(draw_prediction(collect_prediction(Path("demo"))), encoding="utf-8")
        photograph_report(Path("demo") / "report.html", IMAGES / "report.png")
        os.chdir(REPOSITORY)
    fill_markers(REPOSITORY / "docs" / "demonstration.md", lines)
    fill_markers(REPOSITORY / "README.md", shorten_output(lines))


if __name__ == "__main__":
    main()
