"""The user-facing error of brio."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

REPEAT_JOB = "repeat the job that wrote it"
"""What to do about a file of a job that cannot be used."""
WHILE_TRAINING = "while training "
"""Start of the note added to an error that ends a stack; the method and the folds follow."""

_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Invisible characters that control a terminal or a page: C0, C1, line ends, directions, those without width."""


def find_control(text: str, allowed: str = "") -> str:
    r"""Find the first control character in a text, written as an escape; empty if there is none."""
    found = next((match[0] for match in _CONTROLS.finditer(text) if match[0] not in allowed), "")
    return escape_controls(found, keep="")


def escape_controls(text: str, keep: str = "\n\t") -> str:
    r"""Write control characters as escapes, so that untrusted text cannot control a terminal or a page."""
    return _CONTROLS.sub(lambda match: match[0] if match[0] in keep else _write_escape(ord(match[0])), text)


def _write_escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class BrioError(ValueError):
    """An error in the user's input; its message says what is wrong, where, and what to do.

    The command line prints the message as one line and ends with exit status 2. Text quoted from files contains no
    control characters. On the command line, messages name options; everywhere else, they name arguments.

    Examples
    --------
    >>> try:
    ...     raise BrioError("rois.tsv: has no column 'name'; add one")
    ... except BrioError as error:
    ...     print(error)
    rois.tsv: has no column 'name'; add one
    """

    names_options: ClassVar[bool] = False  # set by the command line

    def __str__(self) -> str:
        text = escape_controls(super().__str__())
        return text if BrioError.names_options else name_arguments(text)


_OPTION = re.compile(
    r"""
    (?P<command> '(?:brio|fmriprep)(?:\ '[^']*'|[^'])*')
    | (?<![\w-])--(?P<name> [a-z][a-z-]*)
      (?: \ (?P<key> [a-z][\w.]*)=(?P<set> '[^']*' | [^\s,;)]*[^\s,;).])
        | [ =](?P<value> '[^']*' | \w*\d[\w.]* | [A-Z]{4,} | [^\s:]+(?=:) | (?<=drop-roi\ )[^\s,;)]+
          | loso | kfold | first | join | average | all | correlation | fisher-z | concatenate | cpu | cuda)(?![\w-]) )?
    """,
    re.VERBOSE,
)
"""A command in quotes, which is kept, or an option with its value, if the text that follows cannot be anything else."""
_ARGUMENTS = dict.fromkeys(("evaluate", "frames-in-rows", "holds-scans", "records-only", "by-order"), "{}=True")
_ARGUMENTS |= {"fold": "folds=", "method": "methods=", "set": "settings=", "with": "companions="}
_ARGUMENTS |= {"keep-all": "exclude=False", "load": "brio.methods.load_methods()"}
_ARGUMENTS |= {"validation-site": "validation_sites="}
"""Arguments whose names differ from their options."""


def name_arguments(text: str) -> str:
    """Rewrite the options in a message as Python arguments; a command at the end is left out."""
    text = re.sub(": brio run .*$", "", text).replace("another --out", "another folder")
    return _OPTION.sub(_name_argument, text)


def _name_argument(option: re.Match[str]) -> str:
    if option["command"]:
        return option["command"]
    if option["key"]:
        return f"settings={{'{option['key']}': {_quote(option['set'])}}}"
    argument = _ARGUMENTS.get(option["name"], "{}=").format(option["name"].replace("-", "_"))
    return argument + _quote(option["value"] or "")


def _quote(value: str) -> str:
    """Quote a value that is neither a number nor quoted nor a placeholder."""
    plain = re.fullmatch(r"'.*'|[A-Z]*|[\d.]+", value)
    return value if plain else {"none": "None", "true": "True"}.get(value, f"'{value}'")


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that is closest to ``name``; None if none is close."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not close:  # capitals are what people get wrong most
        lowered = {one.lower(): one for one in names}
        close = [lowered[one] for one in difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)]
    return close[0] if close else None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that suggests the known name closest to ``name``, or lists all known names."""
    names = sorted(set(known))
    close = find_nearest(name, names)
    return f"known: {', '.join(names) or 'none'}" if close is None else f"did you mean '{close}'?"


def file_error(path: Path, problem: str, remedy: str = REPEAT_JOB) -> BrioError:
    """Make the error for a file that cannot be used."""
    return BrioError(f"{path}: {' '.join(problem.split())}; {remedy}")


def describe_error(error: BaseException) -> str:
    """Describe what went wrong: the message of an error, preceded by its type unless it is user-facing."""
    return str(error) if isinstance(error, BrioError) else escape_controls(f"{type(error).__name__}: {error}")


def explain_import(error: BaseException) -> str:
    """Explain that a library cannot be loaded, if an error arose in its import; empty for any other error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    owners = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    last = max((k for k, owner in enumerate(owners) if owner == "brio"), default=-1)
    importing = any(frame.f_code.co_name == "<module>" for frame in frames[last + 1 :])
    if not importing and not isinstance(error, ImportError | SyntaxError):
        return ""
    named = str(getattr(error, "name", None) or "a library").partition(".")[0]
    library = next((owner for owner in owners[last + 1 :] if owner not in ("importlib", "None")), named)
    while error.__cause__ is not None:  # numpy and others give advice instead of the reason
        error = error.__cause__
    reason = escape_controls(f"{type(error).__name__}: {take_first_line(str(error))}".rstrip(": "))
    remedy = "install it again or, if there is a limit of memory (ulimit -v), raise it"
    return f"{library} cannot be loaded ({reason}); {remedy}"


def take_first_line(text: str) -> str:
    r"""Return the first line of a text that is not blank, such as a reason without the traceback that follows it."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
