"""What the documentation promises and a test can hold: places of equations, pages, and the README."""

import ast
import re
from pathlib import Path

import pytest
from packaging.version import Version

import brio
from brio.studies import study

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "brio"


def _places(page, heading):
    """The modules and the names in them that the last column of a table gives."""
    section = (DOCS / page).read_text(encoding="utf-8").split(heading)[1].split("\n## ")[0]
    for row in re.findall(r"^\| (.+) \|$", section, re.MULTILINE):
        first, *_, places = row.split(" | ")
        for path, names in re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", places):
            yield pytest.param(path, re.findall(r"`(\w+)`", names), id=f"{first} {path}")


def _equation_table():
    return _places("method.md", "## Where each equation lives")


@pytest.mark.parametrize(("path", "names"), list(_equation_table()))
def test_a_name_is_defined_where_the_page_says(path, names):
    tree = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert set(names) <= defined


def test_the_architecture_page_names_every_room_and_only_what_exists():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?|\w+\.py)`", page)
    bases = (SOURCE, *(path.parent for path in SOURCE.glob("*/__init__.py")), ROOT)
    missing = [p for p in paths if not any((base / p).exists() for base in bases)]
    assert set(missing) <= {"arms/", "search/"}  # folders that jobs make
    rooms = {path.parent.name + "/" for path in SOURCE.glob("*/__init__.py")}
    assert rooms <= set(paths)
    assert len(page.splitlines()) <= 90


def test_dir_shows_the_names_for_users_and_the_start_page_explains_them():
    assert dir(brio) == sorted(brio.__all__)
    page = (DOCS / "start.md").read_text(encoding="utf-8")
    for name in brio.__all__:
        assert getattr(brio, name) is not None
        assert name == "__version__" or f"`brio.{name}`" in page


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
    assert len(text.splitlines()) <= 130
    assert "make demo" in text
    assert "make test" in text
    assert text.index("<!-- results:begin -->") < text.index("<!-- results:end -->")
    links = re.findall(r"\]\(((?!http)[^)#]+)", text)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_changelog_knows_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(\S+)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    released = [Version(name) for name, date in headings[1:] if date]
    assert len(released) == len(headings) - 1
    assert released == sorted(released, reverse=True)
    version = Version(brio.__version__)
    last = released[0] if released else version
    assert version >= last if version.is_devrelease else version == last
    assert f"version: {last}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
