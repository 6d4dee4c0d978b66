"""The wheel and the sdist: what they contain, and that they work where the sources are not."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = (".j2", ".css", ".js", ".csv", "py.typed")

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build both from a copy of what git tracks: nothing is left beside the sources, nothing untracked gets in."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed += ["src", "pyproject.toml", "README.md", "LICENSE"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def test_both_contain_every_module_and_every_data_file(built):
    files = [p for p in (ROOT / "src" / "brio").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    wanted = {p.relative_to(ROOT / "src").as_posix() for p in files if p.name.endswith((".py", *DATA))}
    assert {Path(name).suffix or Path(name).name for name in wanted} >= {".py", ".j2", ".css", ".js", ".csv", ".typed"}
    assert wanted <= set(zipfile.ZipFile(built["wheel"]).namelist())
    with tarfile.open(built["sdist"]) as archive:
        packed = {name.split("/", 2)[2] for name in archive.getnames() if "/src/" in name}
    assert wanted <= packed


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_installs_into_a_fresh_environment_and_runs(built, kind, tmp_path):
    venv = tmp_path / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", venv)
    python, scripts = venv / "bin" / "python", venv / "bin"
    installer = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
    _lend_dependencies(python, tmp_path)
    _run(*installer, "--no-deps", "--no-index", "--no-build-isolation", built[kind])

    where = _run(python, "-c", "import brio, sys; print(brio.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(venv)
    assert "0." in _run(scripts / "brio", "version", cwd=tmp_path)
    code = (
        "import brio\n"
        "cohort = brio.simulate(brio.Simulation(n_sites=5, per_class=5, n_rois=8, frames=60))\n"
        "result = brio.run(cohort, ['ridge'], device='cpu', out='job')\n"
        "print(len(result.rows))\n"
    )
    assert _run(python, "-c", code, cwd=tmp_path).strip() == "5"
    _run(scripts / "brio", "report", "job", cwd=tmp_path)
    assert "<html" in (tmp_path / "job" / "report.html").read_text(encoding="utf-8")


def _lend_dependencies(python: Path, folder: Path) -> None:
    """Let a fresh environment see the installed dependencies, but not this project's own sources.

    A .pth file names a folder of links: torch and others are large, and nothing is downloaded.
    """
    lent = folder / "lent"
    lent.mkdir()
    for key in {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}:
        for entry in Path(key).iterdir():
            if not entry.name.startswith(("brio", "__editable__")) and not (lent / entry.name).exists():
                (lent / entry.name).symlink_to(entry)
    site = _run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    (Path(site) / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")


def _run(*command, cwd=None) -> str:
    """Run a command without the sources on its path, and return what it prints."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
