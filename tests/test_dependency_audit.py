"""The audit of dependencies notices what it can see without a network."""

from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest

from stored import load_script

FILE = Path(__file__).parents[1] / "tools" / "audit_dependencies.py"


@pytest.fixture(scope="module")
def tool():
    return load_script(FILE)


def package(version="1.0", **fields):
    metadata = Message()
    metadata["Name"] = "thing"
    for name, value in fields.items():
        metadata[name.replace("_", "-")] = value
    return SimpleNamespace(metadata=metadata, version=version)


@pytest.mark.parametrize(
    ("fields", "licence", "kind"),
    [
        ({"License_Expression": "BSD-3-Clause"}, "BSD-3-Clause", "permissive"),
        ({"Classifier": "License :: OSI Approved :: MIT License"}, "MIT License", "permissive"),
        ({"License": "Apache 2.0\n\nThe whole text"}, "Apache 2.0", "permissive"),
        ({"License_Expression": "MPL-2.0 AND MIT"}, "MPL-2.0 AND MIT", "file copyleft"),
        ({"License_Expression": "MIT AND GPL-3.0-only"}, "MIT AND GPL-3.0-only", "copyleft"),
        ({"License_Expression": "LGPL-2.1-or-later OR MIT"}, "LGPL-2.1-or-later OR MIT", "permissive"),
        ({"License": "Proprietary"}, "Proprietary", "unknown"),
        ({}, "", "unknown"),
    ],
)
def test_a_licence_is_read_and_judged(tool, fields, licence, kind):
    assert tool.read_licence(package(**fields)) == licence
    assert tool.judge_licence(licence) == kind


def test_unknown_and_copyleft_licences_and_other_versions_are_defects(tool, capsys):
    fine, bare = package(License_Expression="MIT"), package()
    viral = package("2.0", License_Expression="GPL-3.0-only")
    assert tool.audit({"fine": fine}, {"viral": viral}, {"fine": "1.0"}) == []
    defects = tool.audit({"fine": fine, "viral": viral, "bare": bare}, {}, {"fine": "1.1"})
    assert defects == [
        "fine: version 1.0 is installed, 1.1 is pinned",
        "viral 2.0: its licence is copyleft (GPL-3.0-only)",
        "bare 1.0: its licence is unknown (none declared)",
    ]
    assert "not pinned, needed by pinned packages: viral, bare" in capsys.readouterr().out


def test_the_packages_that_brio_needs_are_found(tool):
    runtime = tool.list_closure("brio")
    assert {"numpy", "torch", "typer", "jinja2", "markupsafe"} <= runtime.keys()
    assert not {"brio", "pytest", "sphinx"} & runtime.keys()
    assert "pytest" in tool.list_closure("brio", ("dev",))
    assert tool.read_pins("# versions\nPOT==0.9.7  # transport\n") == {"pot": "0.9.7"}
