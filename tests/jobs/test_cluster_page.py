"""The scripts for a job array, as they stand on the page, under a stand-in for SLURM."""

import os
import re
import subprocess
import sys
from pathlib import Path

from brio.cohort.simulate import Simulation, simulate

ROOT = Path(__file__).parents[2]
SBATCH = """#!/usr/bin/env bash
# stands in for SLURM: runs the tasks of an array one after the other, then what waits for it
set -eu
tasks=1 array= status=0
for word in "$@"; do
  case $word in
    --array=1-*) array=yes tasks=${word#--array=1-} ;;
    --dependency=afterok:*) [ "$(cat "$JOBS/${word#*:}")" = 0 ] || exit 9 ;;
    *.sh) script=$word ;;
  esac
done
for task in $(seq "$tasks"); do
  env ${array:+SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$tasks} bash "$script" >> "$JOBS/log" 2>&1 || status=1
done
echo $status > "$JOBS/$$"
echo $$
"""
ACTIVATE = """export PATH="$HOME/tools:$PATH" JOBS="$HOME/jobs"
"""
BRIO = f"""#!/bin/sh
# linear methods alone, which train in a moment, in two stacks
set -- $(echo "$@" | sed 's/--method brio/--method log-ridge/')
exec {sys.executable} -m brio "$@" --device cpu --runs-per-stack 15
"""


def test_the_scripts_of_the_page_plan_train_and_write_the_tables(tmp_path):
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    files = {name: next(block for block in blocks if f"# {name}:" in block) for name in ("job.sh", "submit.sh")}
    files |= {"brio/bin/activate": ACTIVATE, "tools/brio": BRIO, "tools/sbatch": SBATCH, "jobs/log": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60)).save(tmp_path / "cohort")
    own = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}"}
    own |= {"JOBS": str(tmp_path / "jobs"), "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        ["bash", "submit.sh"], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=False
    )
    log = (tmp_path / "jobs" / "log").read_text()
    assert ended.returncode == 0, (ended.stderr, log)
    assert re.findall(r"^shard (\d/\d) of the job is finished", log, re.MULTILINE) == ["1/2", "2/2"]
    assert "resuming: 30 of 30 runs are finished" in log  # the tables were begun after all tasks
    assert (tmp_path / "results" / "summary.json").is_file()
