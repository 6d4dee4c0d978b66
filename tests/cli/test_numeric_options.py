"""Every numeric option of every command refuses absurd numbers before the command begins.

The options are read from the commands themselves, so that a new one is walked as well. Those of a file are in
``test_config_file.py``.
"""

import pytest

from brio.cli.config_file import find_kinds
from brio.errors import BrioError
from commands import walk_commands

ABSURD = {
    int: ("-1", "1" + "0" * 12, "1" + "0" * 30, "-" + "9" * 30),
    float: ("nan", "inf", "-inf", "1e400", "-1e-9", "-1", "1" + "0" * 30, "9" * 5000),
}
NO_NUMBERS = {
    int: ("nan", "inf", "true", "many", "", "1.5", "1,000", "0x10", "9" * 5000),
    float: ("true", "many", "", "1,000", "0x10"),
}


def list_numbers():
    """Each numeric option: its command, the words that the command needs besides, its name and kind."""
    for words, command in walk_commands():
        if command.callback is None:  # of a group
            continue
        kinds = find_kinds(command)
        numeric = [p for p in command.params if kinds.get(p.name, (None,))[0] in (int, float)]
        for param in numeric:
            others = [p for p in command.params if p.required and p is not param]
            needed = [word for p in others for word in _fill(p, "30" if p in numeric else "new")]
            yield words, command, needed, param.opts[-1], kinds[param.name][0]


def _fill(param, value):
    return (param.opts[-1], value) if param.param_type_name == "option" else ("nowhere",)


NUMBERS = list(list_numbers())


IDS = [f"{' '.join(words)} {option}" for words, _, _, option, _ in NUMBERS]
EVERY = pytest.mark.parametrize(("words", "command", "needed", "option", "kind"), NUMBERS, ids=IDS)


def test_the_walk_finds_the_options():
    assert {"run --seeds", "simulate --rois", "predict --accuracy", "fetch abide --n-subjects"} <= set(IDS)
    assert len(IDS) >= 25


def parse(command, needed, option, value):
    """Read the options of a command as it does before it begins."""
    with command.make_context("brio", [*needed, option, value]):
        pass


@EVERY
def test_absurd_numbers_are_refused_before_a_command_begins(words, command, needed, option, kind):
    parse(command, needed, option, "8" if option == "--rois" else "0.9" if kind is float else "30")
    for value in ABSURD[kind]:
        with pytest.raises(BrioError, match=f"^{option} .*: must be ") as told:
            parse(command, needed, option, value)
        assert len(str(told.value)) < 200
    for value in NO_NUMBERS[kind]:
        with pytest.raises(Exception, match="parse") as told:
            parse(command, needed, option, value)
        assert told.value.exit_code == 2
        assert option in told.value.format_message()
