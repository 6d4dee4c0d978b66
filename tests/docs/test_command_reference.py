"""The reference of the command line names what the help of every command names."""

import re

import pytest

from commands import command, walk_commands


@pytest.fixture
def reference():
    from command_reference import format_commands

    return format_commands()


COMMANDS = [words for words, one in walk_commands() if not hasattr(one, "commands")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_is_there_with_all_its_options(words, reference):
    section = reference.split(f"\n### `brio {' '.join(words)}`\n")[1].split("\n### ")[0]
    printed = re.findall(r"^│[ *]*(--[a-z-]+)", command(*words, "--help")[1], re.MULTILINE)
    documented = re.findall(r"^`(--[a-z-]+)", section, re.MULTILINE)
    assert sorted(documented) == sorted(set(printed) - {"--help"})


def test_defaults_required_options_and_marks_are_written(reference):
    run = reference.split("\n### `brio run`\n")[1].split("\n### ")[0]
    assert "\n`--out PATH`, required\n: " in run
    assert "\n`--protocol TEXT`, default `loso`\n: loso (leave one site out) or kfold.\n" in run
    assert "a whole number from 1 to 1,000." in run
    assert "\n`--seed INTEGER`, default `0`\n: Seed of the simulation;" in reference
    assert "(see `brio methods`); repeatable" in run
    assert r"\_" in reference
