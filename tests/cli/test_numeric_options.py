"""Every numeric option of every command refuses absurd numbers before the command begins.

The options are read from the commands themselves, so that a new one is walked as well.
"""

import pytest
import typer

from brio.cli import app
from brio.cli.config_file import find_kinds

ABSURD = ("-1", "1" + "0" * 12, "1" + "0" * 30, "9" * 5000)
ABSURD_FLOATS = ("nan", "inf", "-inf", "1e400", "-1e-9")
NO_NUMBERS = ("true", "many", "", "1,000", "0x10")


def walk(command, words=()):
    """All commands that have parameters of their own, with the words that call them."""
    for name, one in getattr(command, "commands", {}).items():
        yield from walk(one, (*words, name))
    if words and not hasattr(command, "commands"):
        yield words, command


def list_numbers():
    """Words that call each command with one numeric option left open, its name and kind."""
    for words, command in walk(typer.main.get_command(app)):
        kinds = find_kinds(command)
        numeric = [p for p in command.params if kinds.get(p.name, (None,))[0] in (int, float)]
        needed = [w for p in command.params if p.required and p not in numeric for w in _fill(p)]
        for param in numeric:
            yield (*words, *needed), param.opts[-1], kinds[param.name][0]


def _fill(param):
    return (param.opts[-1], "new") if param.param_type_name == "option" else ("nowhere",)


NUMBERS = list(list_numbers())


def test_the_walk_finds_the_options():
    found = {(words[0], option) for words, option, _ in NUMBERS}
    assert {("run", "--seeds"), ("simulate", "--rois"), ("predict", "--accuracy"), ("fetch", "--n-subjects")} <= found
    assert len(found) >= 25


@pytest.mark.parametrize(("words", "option", "kind"), NUMBERS, ids=[f"{w[0]} {o}" for w, o, _ in NUMBERS])
def test_absurd_numbers_are_refused_by_the_name_of_the_option(words, option, kind, tmp_path, monkeypatch, brio):
    monkeypatch.chdir(tmp_path)
    for value in ABSURD[:3] if kind is int else ABSURD + ABSURD_FLOATS:
        said = brio(*words, option, value)
        assert said.status == 2, (value, said)
        assert said.out == ""
        assert said.err.startswith(f"brio: {option} "), (value, said)
        assert "must be" in said.err
        assert said.err.count("\n") == 1
        assert len(said.err) < 200
    for value in NO_NUMBERS + (() if kind is float else ("nan", "1.5", ABSURD[3])):
        said = brio(*words, option, value)
        assert said.status == 2, (value, said)
        assert option in said.err
        assert "Traceback" not in said.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "-1", "1000000000000", "true"])
def test_absurd_numbers_of_a_file_are_refused_as_well(value, tmp_path, monkeypatch, brio):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "options.toml").write_text(f'cohort = "nowhere"\nout = "new"\nseeds = {value}\n')
    said = brio("run", "--config", "options.toml")
    assert said.status == 2
    assert said.err.count("\n") == 1
    assert "seeds" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["options.toml"]
