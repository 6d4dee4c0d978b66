"""What the documentation promises and a test can hold: places of equations, pages, and the README."""

import ast
import re
from pathlib import Path

import pytest

import brio
from brio.studies import study

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def _equation_table():
    page = (DOCS / "method.md").read_text(encoding="utf-8").split("## Where each equation lives")[1]
    for row in re.findall(r"^\| (.+) \|$", page, re.MULTILINE):
        equation, _, places = row.split(" | ")
        for path, names in re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", places):
            yield pytest.param(path, re.findall(r"`(\w+)`", names), id=f"{equation} {path}")


@pytest.mark.parametrize(("path", "names"), list(_equation_table()))
def test_an_equation_lives_where_the_method_page_says(path, names):
    tree = ast.parse((ROOT / "src" / "brio" / path).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert set(names) <= defined


def test_every_equation_of_the_paper_is_on_the_method_page():
    page = (DOCS / "method.md").read_text(encoding="utf-8")
    assert [int(n) for n in re.findall(r"\\tag\{(\d+)\}", page)] == list(range(1, 28))
    assert len(list(_equation_table())) >= 20


def test_every_study_has_a_section_with_its_command():
    page = (DOCS / "studies.md").read_text(encoding="utf-8")
    for name in (*study.PAPER, *study.BEYOND):
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert f"brio study {name} " in section


def test_the_readme_is_short_and_leads_to_pages_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert "make demo" in text
    assert "make test" in text
    assert text.index("<!-- results:begin -->") < text.index("<!-- results:end -->")
    links = re.findall(r"\]\(((?!http)[^)#]+)", text)
    assert len(links) > 10
    generated = {"docs/results/index.md"}  # made by a command from the stored results
    assert [link for link in links if link not in generated and not (ROOT / link).exists()] == []


def test_the_changelog_knows_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{brio.__version__}]" in text
    assert "## [Unreleased]" in text
