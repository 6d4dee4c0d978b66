"""Count the cases behind the promises, and write them as the table of ``docs/promises_counts.md``.

    python docs/count_cases.py

``make results`` runs it. The cases are counted where the tests declare them, so that no number is typed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE / "promises_counts.md"


def _find_tests() -> None:
    for folder in ("tests", "tests/cli", "tests/cohort", "tests/hardness"):
        sys.path.insert(0, str(HERE.parent / folder))


def list_counts() -> list[tuple[str, int, str]]:
    """List what is tried: the kind of case, how many there are, and the file of tests. Add a line for a new kind."""
    _find_tests()
    import matrix
    import test_mistakes
    import test_names
    import test_numeric_options

    import test_domains
    import test_privacy
    from brio.settings import find_numbers

    numbers, absurd = test_numeric_options.NUMBERS, test_numeric_options.ABSURD
    no_numbers = test_numeric_options.NO_NUMBERS
    settings = sum(len(find_numbers(cls)) for cls in test_domains.CLASSES)
    return [
        ("commands on bad input, see below", len(matrix.list_cases()), "tests/hardness/test_matrix.py"),
        ("mistakes by new users", len(test_mistakes.MISTAKES), "tests/cli/test_mistakes.py"),
        ("numeric options of commands", len(numbers), "tests/cli/test_numeric_options.py"),
        (
            "absurd values for these options",
            sum(len(absurd[kind]) + len(no_numbers[kind]) for *_, kind in numbers),
            "tests/cli/test_numeric_options.py",
        ),
        ("numeric settings", settings, "tests/test_domains.py"),
        ("absurd values for these settings", settings * len(test_domains.ABSURD), "tests/test_domains.py"),
        ("places where a formula could occur", len([*test_names.NAMES, "name"]), "tests/cohort/test_names.py"),
        ("commands run without a network", len(test_privacy.FAST) + len(test_privacy.SLOW), "tests/test_privacy.py"),
    ]


def format_counts() -> str:
    """Write the tables in Markdown: all kinds of cases, and commands on bad input by command and kind."""
    rows = [f"| {what} | {n:,} | `{file}` |" for what, n, file in list_counts()]
    from matrix import format_matrix

    lines = [
        "| tried | cases | where |",
        "| --- | ---: | --- |",
        *rows,
        "",
        "Commands on bad input, by command and kind:",
    ]
    return "\n".join([*lines, "", format_matrix()])


if __name__ == "__main__":
    TABLE.write_text(format_counts(), encoding="utf-8")
