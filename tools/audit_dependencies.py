"""Check licences and versions of the installed dependencies, and known vulnerabilities where that is possible.

``make audit`` runs it. Without a network it reads what the installed packages say of themselves: the licence that each
declares, and whether its version is the pinned one. It sees neither vulnerabilities nor licences of code that a package
carries inside, such as compiled libraries. Where pip-audit is installed and a network is there, that looks for known
vulnerabilities too; otherwise the last line says that nobody looked.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|PSFL|Python Software Foundation|PYTHON SOFTWARE FOUNDATION|HPND|Zlib|"
    r"Unlicense|CNRI|CC0|NCSA)\b|\bPython-2"
)
FILE_COPYLEFT = re.compile(r"\bMPL|Mozilla")
"""Licences that ask for the source of changed files of their own, and of nothing else."""
COPYLEFT = re.compile(r"\b[AL]?GPL|General Public License")


def read_licence(package: Distribution) -> str:
    """Read the licence that a package declares: an expression, classifiers, or the first line of a text."""
    meta = package.metadata
    if meta.get("License-Expression"):
        return meta["License-Expression"]
    classifiers = [c.rpartition(" :: ")[2] for c in meta.get_all("Classifier") or [] if c.startswith("License ::")]
    named = [c for c in classifiers if c != "OSI Approved"]
    if named:
        return "; ".join(named)
    lines = (meta.get("License") or "").strip().splitlines()
    return lines[0][:60] if lines else ""


def judge_licence(licence: str) -> str:
    """Say what a licence is: permissive, file copyleft, copyleft or unknown; the freest where one may choose.

    Examples
    --------
    >>> [judge_licence(one) for one in ("BSD-3-Clause", "MPL-2.0", "GPL-3.0-only", "MIT OR GPL-3.0-only", "")]
    ['permissive', 'file copyleft', 'copyleft', 'permissive', 'unknown']
    """
    kinds = []
    for part in re.split(r"\s+OR\s+", licence):
        copyleft, files = COPYLEFT.search(part), FILE_COPYLEFT.search(part)
        permissive = PERMISSIVE.search(part)
        kinds.append(
            "copyleft" if copyleft else "file copyleft" if files else "permissive" if permissive else "unknown"
        )
    return min(kinds, key=["permissive", "file copyleft", "unknown", "copyleft"].index)


def list_closure(name: str, extras: Iterable[str] = ()) -> dict[str, Distribution]:
    """List the installed packages that one needs, and those that they need, by name; itself is left out."""
    found: dict[str, Distribution] = {}
    waiting = [(name, frozenset(extras))]
    while waiting:
        current, wanted = waiting.pop()
        try:
            package = distribution(current)
        except PackageNotFoundError:  # for another system or Python
            continue
        key = canonicalize_name(package.metadata["Name"])
        if key in found:
            continue
        found[key] = package
        for line in package.requires or ():
            requirement = Requirement(line)
            environments = [{"extra": extra} for extra in (wanted or {""})] + [{"extra": ""}]
            if requirement.marker is None or any(requirement.marker.evaluate(one) for one in environments):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return {key: found[key] for key in sorted(found) if key != canonicalize_name(name)}


def read_pins(text: str) -> dict[str, str]:
    """Read the pinned versions of a constraints file, by name.

    Examples
    --------
    >>> read_pins("# versions\\nPOT==0.9.7  # transport\\n")
    {'pot': '0.9.7'}
    """
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): version for name, version in pairs}


def audit(runtime: dict[str, Distribution], further: dict[str, Distribution], pins: dict[str, str]) -> list[str]:
    """Print what is known of each package, and return what is wrong.

    Parameters
    ----------
    runtime : dict of Distribution
        What a user installs.
    further : dict of Distribution
        What tests and documentation need besides.
    pins : dict of str
        Pinned versions by name.

    Returns
    -------
    list of str
        One sentence for each defect.
    """
    defects = []
    for heading, packages in (("runtime", runtime), ("tests and documentation", further)):
        print(f"{heading}: {len(packages)} packages")
        for name, package in packages.items():
            licence = read_licence(package)
            kind = judge_licence(licence)
            print(f"  {name} {package.version}: {licence or 'declares no licence'} ({kind})")
            if packages is runtime and kind in ("unknown", "copyleft"):
                defects.append(f"{name} {package.version}: its licence is {kind} ({licence or 'none declared'})")
            pinned = pins.get(name)
            if pinned is not None and package.version.partition("+")[0] != pinned:
                defects.append(f"{name}: version {package.version} is installed, {pinned} is pinned")
    unpinned = [name for name in runtime if name not in pins]
    print(f"not pinned, needed by pinned packages: {', '.join(unpinned) or 'none'}")
    return defects


def main() -> int:
    """Audit the packages of this environment; return the exit status."""
    runtime = list_closure("brio")
    further = {k: v for k, v in list_closure("brio", ("dev", "docs")).items() if k not in runtime}
    defects = audit(runtime, further, read_pins((ROOT / "constraints.txt").read_text("utf-8")))
    for defect in defects:
        print(f"defect: {defect}")
    if importlib.util.find_spec("pip_audit") is None:
        print("known vulnerabilities: nobody looked; install pip-audit and run again with a network")
    else:
        looked = subprocess.run([sys.executable, "-m", "pip_audit", "--progress-spinner", "off"], check=False)
        defects += ["pip-audit found known vulnerabilities, or could not look"] if looked.returncode else []
    print(f"{len(runtime) + len(further)} packages, {len(defects)} defects")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
