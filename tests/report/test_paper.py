"""The paragraph for a paper, and its references: true to what the job stored, and to the methods."""

import dataclasses
import re
from pathlib import Path

import pytest

from brio import run
from brio.methods import list_methods
from brio.report.evidence import read_evidence
from brio.report.html.paper import cite_use, list_references, read_references, write_paragraph
from brio.report.write import write_report
from brio.results.files import COHORT_FACTS
from stored import rehash

CITATION = Path(__file__).parents[2] / "CITATION.cff"


def test_entries_are_whole_and_what_brio_is_cited_as():
    references = read_references()
    bibtex = "".join(one.bibtex for one in references)
    assert len(set(re.findall(r"^@\w+\{(.+),$", bibtex, re.MULTILINE))) == len(references) > 40
    assert len({one.cited for one in references}) == len(references)
    assert not re.search(r"cited|used|(?<!\\)&", bibtex)
    for one in references:
        assert one.fields.keys() >= {"author"}, one.cited
        assert one.fields.keys() & {"year", "note"}, one.cited
        assert one.fields.get("year", "") in one.cited or not re.search(r" \d{4}$", one.cited)
    by_name = {one.cited: one.fields for one in references}
    citation, paper = CITATION.read_text(), by_name["Wang, Zhang et al., Beyond Site Agreement"]
    people = re.findall(r"family-names: (.+), given-names: (.+)}", citation)
    assert paper["author"].split(" and ") == [", ".join(names) for names in people]
    assert re.findall(r'title: "(.+)"', citation) == [by_name["The brio developers"]["title"], paper["title"]]


@pytest.mark.parametrize("entry", list_methods(), ids=lambda entry: entry.name)
def test_a_method_has_entries_for_all_that_it_cites(entry):
    assert list_references(entry.reference)
    rest = entry.reference
    for one in list_references(entry.reference):
        rest = rest.replace(one.cited, "")
    assert not re.search(r"\d{4}", rest), rest


@pytest.mark.parametrize(
    ("name", "cited"),
    [
        ("aal116", "Tzourio-Mazoyer et al. 2002"),
        ("schaefer400-17", "Schaefer et al. 2018"),
        ("pcp", "Di Martino et al. 2014; Craddock et al. 2013"),
        ("my atlas", ""),
        (None, ""),
    ],
)
def test_atlases_and_layouts_are_cited_where_they_are_known(name, cited):
    assert cite_use(name) == (f" ({cited})" if cited else "")


def test_the_paragraph_says_what_the_job_stored(finished):
    text = write_paragraph(read_evidence(finished))
    summary = read_evidence(finished).summary
    assert f"We analysed {summary.n_scans} scans of the cohort <em>cohort</em> & co from 5 sites" in text
    assert f"Before training, an audit excluded 1 of {summary.n_scans + 1} scans: 1 duplicating another scan." in text
    assert "in each fold, 2 sites were drawn at random for each seed and used for validation" in text
    assert "run with 3 seeds" in text
    assert "Methods: brio (Wang, Zhang et al., Beyond Site Agreement (BRIO); the paper's own" in text
    assert "epochs=4" in text, "settings that are not the defaults"
    assert "Confound baselines, which do not use connectomes: covariates-only (Cox 1958" in text
    assert "compared with ridge using a two-sided corrected t test over sites" in text
    assert "smoke" not in text
    assert summary.few_sites_note in text
    assert re.search(r"brio \d.*PyTorch \d.*Python 3\.\d+", text)
    cited = set(re.findall(r"[A-Z][\w-]+(?: et al\.| & [A-Z]\w+)? (?:19|20)\d\d", text))
    assert cited <= {one.cited for one in list_references(text)}


def test_smoke_runs_and_unlabelled_test_scans_are_named(cohort, tmp_path):
    settings = {"harmonise.kind": "combat", "harmonise.unseen": "unlabelled"}
    run(cohort, ["ridge"], seeds=1, out=tmp_path, settings=settings, device="cpu")
    text = write_paragraph(read_evidence(tmp_path))
    assert text.startswith("This is a smoke run (1 seed, 5 folds), which supports no claim.")
    assert "This harmonisation is transductive: it uses unlabelled scans of sites that it was not fitted to" in text
    assert "ComBat, unseen sites: unlabelled; Johnson et al. 2007" in text
    assert "t test" not in text


def test_denoising_of_images_is_described(cohort, tmp_path):
    stated = {"kind": "fmriprep", "options": {"denoise": "simple+gsr", "low_pass": 0.1, "space": "MNI"}}
    imported = dataclasses.replace(cohort, provenance=stated | {"denoising": {"nilearn": "0.12.0"}})
    run(imported, ["ridge"], seeds=1, folds=["plain"], out=tmp_path, device="cpu")
    text = write_paragraph(read_evidence(tmp_path))
    assert (
        "preprocessed with fMRIPrep (Esteban et al. 2019) and denoised with nilearn 0.12.0 (Abraham et al. 2014; "
        "simple+gsr, low-pass 0.1 Hz)." in text
    )
    assert text.count("Esteban") == 1


def test_the_files_hold_the_same_references_each_time(copy):
    page = write_report(copy)
    first = page.read_bytes(), page.with_suffix(".bib").read_bytes()
    keys = re.findall(r"^@\w+\{(.+),$", first[1].decode(), re.MULTILINE)
    assert {"brio-software", "brio-paper", "hoerl1970", "nadeau2003", "delong1988"} <= set(keys)
    assert first[0].decode().count("<li>The brio developers") == 1
    write_report(copy)
    assert first == (page.read_bytes(), page.with_suffix(".bib").read_bytes())
    page.with_suffix(".bib").write_text("% mine\n")
    with pytest.raises(Exception, match=r"report\.bib: exists and was not written by brio"):
        write_report(copy)


def test_without_a_description_of_the_cohort_nothing_is_said_of_its_connectomes(copy):
    assert "were converted to one connectome per scan" in write_paragraph(read_evidence(copy))
    (copy / COHORT_FACTS).unlink()
    text = write_paragraph(read_evidence(rehash(copy)))
    assert "were converted" not in text
    assert "were supplied" not in text
