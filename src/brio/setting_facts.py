"""What is known of the fields of settings: default, values and meaning, read from their class and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from typing import Annotated, Any, Literal, NamedTuple

from .domains import Domain

_KINDS = {int: "whole number", float: "number", str: "text", bool: "true, false"}


class SettingFacts(NamedTuple):
    """What is known of a setting."""

    name: str
    default: Any
    values: str  # which values it takes, in words
    tuned_over: str  # which of them a search tries; empty where it is not tuned
    meaning: str  # the first sentence of its documentation


def list_setting_facts(settings: type) -> list[SettingFacts]:
    """List what is known of the fields of settings."""
    hints = typing.get_type_hints(settings, include_extras=True)
    meanings: dict[str, str] = {}
    for cls in settings.__mro__:
        meanings = _read_attributes(cls) | meanings
    facts = []
    for f in dataclasses.fields(settings):
        space = f.metadata.get("space")
        meaning = meanings.get(f.name, "")
        facts.append(SettingFacts(f.name, f.default, _describe_type(hints[f.name]), str(space or ""), meaning))
    return facts


def _describe_type(hint: Any) -> str:
    """Values of a type in words, with the domain of a number."""
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        return ", ".join([_describe_type(kind), *(str(note) for note in notes if isinstance(note, Domain))])
    if typing.get_origin(hint) is Literal:
        return ", ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [_describe_type(one) for one in typing.get_args(hint) if one is not type(None)]
        return " or ".join([*kinds, *(["none"] if type(None) in typing.get_args(hint) else [])])
    return _KINDS.get(hint, getattr(hint, "__name__", str(hint)))


def _read_attributes(cls: type) -> dict[str, str]:
    """Read the first sentence about each attribute from the docstring of a class."""
    text = inspect.cleandoc(cls.__doc__ or "")
    section = re.search(r"^Attributes\n-+\n(.*?)(?=\n\S[^\n]*\n-{3,}\n|\Z)", text, re.M | re.S)
    if section is None:
        return {}
    meanings: dict[str, str] = {}
    for names, text in re.findall(r"^(\S[^\n]*)\n((?:[ ]+[^\n]*\n?|\n)+)", section[1] + "\n", re.M):
        # not at the full stop of "Eq. (5)"
        sentence = re.split(r"\.(?=\s+[A-Z]|$)", " ".join(text.split()).replace("``", ""), maxsplit=1)[0]
        meanings |= dict.fromkeys((name.strip() for name in names.split(" : ")[0].split(",")), sentence)
    return meanings
