"""The matrix of commands and bad input: no stack trace, no hang, nothing accepted that is bad, nothing left behind."""

import random
from collections import Counter

import pytest
from matrix import list_cases
from running import Runner, Trial

pytestmark = pytest.mark.xdist_group("hardness")

COMMANDS = list(dict.fromkeys(case.recipe.command for case in list_cases()))
QUICK = ("import", "audit", "table", "compare", "config", "settings", "atlas", "select", "simulate", "run")
FAST = 30


@pytest.fixture(scope="session")
def runner(tmp_path_factory) -> Runner:
    """Tries cases; good input is made when it is first needed."""
    return Runner(tmp_path_factory.mktemp("hardness"))


def draw_fast() -> list:
    """Some cases that must be refused, of commands that take no time and need no model; not of every kind."""
    draw = random.Random("fast")
    quick = [case for case in list_cases() if case.recipe.words[0] in QUICK and case.expected == "refused"]
    by_kind = {kind: [case for case in quick if case.kind == kind] for kind in dict.fromkeys(c.kind for c in quick)}
    return [case for cases in by_kind.values() for case in draw.sample(cases, min(FAST // len(by_kind), len(cases)))]


def check(trials: list[Trial]) -> None:
    failed = [str(trial) for trial in trials if trial.outcome == "failed"]
    assert not failed, f"{len(failed)} of {len(trials)} cases fail:\n" + "\n".join(failed)


def test_some_cases_that_must_be_refused(runner):
    check([runner.try_case(case) for case in draw_fast()])


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS)
def test_all_cases_of_a_command(command, runner):
    trials = [runner.try_case(case) for case in list_cases() if case.recipe.command == command]
    counts = Counter(trial.outcome for trial in trials)
    print(f"brio {command}: {len(trials)} cases, {dict(counts)}")
    check(trials)


def test_the_matrix_is_large_and_has_every_command_and_kind():
    assert len(list_cases()) >= 2000
    assert len({case.recipe.command for case in list_cases()}) >= 20
