"""What a paper needs from a job: a paragraph on its methods, from stored facts alone, and its references."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib import resources
from typing import NamedTuple

from ...methods import list_methods
from ...settings import format_setting
from ..evidence import Evidence
from . import make_environment


class Reference(NamedTuple):
    """An entry of ``references.bib``."""

    cited: str  # how texts cite it
    used: str  # pattern of the atlas or the layout that it belongs to; empty for others
    fields: dict[str, str]
    bibtex: str  # without the two fields above

    @property
    def text(self) -> str:
        """The entry in words, for a list."""
        authors = self.fields["author"].strip("{}").replace(" and others", " et al.").replace(" and ", "; ")
        place = map(self.fields.get, ("journal", "booktitle", "volume", "pages", "year", "note"))
        doi = f"doi:{self.fields['doi']}" if "doi" in self.fields else ""
        parts = authors.rstrip("."), self.fields.get("title"), ", ".join(filter(None, place)), doi
        return ". ".join(filter(None, parts)).replace("--", "-") + "."


@cache
def read_references() -> tuple[Reference, ...]:
    """Read all entries that brio knows."""
    text = resources.files("brio.report").joinpath("references.bib").read_text(encoding="utf-8")
    entries = []
    for entry in re.findall(r"^@.+?^}\n", text, flags=re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, flags=re.MULTILINE))
        bibtex = re.sub(r"^  (cited|used) = .*\n", "", entry, flags=re.MULTILINE)
        entries.append(Reference(fields.pop("cited"), fields.pop("used", ""), fields, bibtex.replace(" & ", r" \& ")))
    return tuple(entries)


def list_references(text: str) -> list[Reference]:
    """List the entries that a text cites."""
    return [reference for reference in read_references() if reference.cited in text]


def cite_use(name: str | None) -> str:
    """Cite what belongs to an atlas or a layout, in brackets; empty where nothing is known."""
    cited = [one.cited for one in read_references() if one.used and re.fullmatch(one.used, name or "")]
    return f" ({'; '.join(cited)})" if cited else ""


def write_paragraph(evidence: Evidence) -> str:
    """Write the paragraph of a report that can be pasted into a paper; empty where no method was evaluated."""
    if evidence.summary is None:
        return ""
    excluded = evidence.main[0].job.require_plan().excluded
    context = {
        "evidence": evidence,
        "reasons": Counter(code for reasons in excluded.values() for code in {one.code: one for one in reasons}),
        "cite": cite_use,
        "methods_cited": {entry.name: entry.reference for entry in list_methods()},
        "format_setting": format_setting,
    }
    text = make_environment(is_page=False).get_template("paragraph.txt.j2").render(context)
    return " ".join(text.split())


def write_bibliography(evidence: Evidence, version: str) -> str:
    """Write the references of the paragraph as BibTeX."""
    entries = [reference.bibtex for reference in list_references(write_paragraph(evidence))]
    return "\n".join([f"% Written by brio {version}\n", *entries])
