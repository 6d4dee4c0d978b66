"""What only some systems have is used in a few places, each of which asks first or does without."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "brio"
MODULES = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {"fork", "forkpty", "geteuid", "getpgid", "getuid", "kill", "killpg", "mkfifo", "nice", "posix_spawn"}
NAMES |= {"chown", "readlink", "sched_getaffinity", "setitimer", "setsid", "statvfs", "symlink", "symlink_to"}
NAMES |= {"sysconf", "uname", "wait", "waitpid"}
NAMES |= {"SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1"}
TEXTS = re.compile(r"^/(proc|dev|sys|tmp|bin|etc)\b|\b(sha256sum|bash|source \S+/activate)\b")
GUARDED = {
    "__main__.py": {"SIGHUP"},  # by hasattr
    "cli/app.py": {"SIGHUP", "SIGALRM", "setitimer"},  # by getattr and hasattr
    "cli/data.py": {"sha256sum"},  # names a format
    "cohort/readers/releases.py": {"sha256sum"},  # names a format
    "machine.py": {"/proc", "/sys", "resource"},  # by OSError and ImportError
    "results/store.py": {"kill"},  # by os.name
    "storage/__init__.py": {"/proc", "readlink", "getuid", "kill"},  # by OSError and os.name
}


def find_unportable(code: str) -> set[str]:
    """Names, modules and texts of a module that not every system knows; a docstring is no text of it."""
    found, tree = set(), ast.parse(code)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [getattr(node, "module", None), *(alias.name for alias in node.names)]
            found |= MODULES & set(modules)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("os", "signal"):
            found |= NAMES & {node.attr}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            found |= {node.value} & NAMES | {match[0] for match in TEXTS.finditer(node.value)}
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            found.add("shell")
    return found


def test_names_that_some_systems_lack_are_in_guarded_places_alone():
    paths = SOURCE.rglob("*.py")
    found = {p.relative_to(SOURCE).as_posix(): find_unportable(p.read_text(encoding="utf-8")) for p in paths}
    assert {path: names for path, names in found.items() if names} == GUARDED


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import fcntl", "fcntl"),
        ("signal.SIGKILL", "SIGKILL"),
        ("getattr(signal, 'SIGALRM')", "SIGALRM"),
        ("Path('/dev/shm')", "/dev"),
        ("subprocess.run(x, shell=True)", "shell"),
        ("say('source .venv/bin/activate')", "source .venv/bin/activate"),
    ],
)
def test_it_would_be_found(code, name):
    assert find_unportable(code) == {name}
