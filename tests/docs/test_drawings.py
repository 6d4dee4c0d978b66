"""The drawings: what is committed is what code and evidence draw, and a telephone can show it."""

import importlib
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
NUMBER = r"-?\d+(?:\.\d+)?"
RERUN = "run `make readme` and commit the drawings"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(IMAGES.parent)
        return importlib.import_module("draw_figures").draw_figures()


def test_committed_drawings_are_those_of_code_and_evidence(drawn):
    for name, text in drawn.items():
        committed = (IMAGES / name).read_text(encoding="utf-8")
        assert re.sub(NUMBER, "#", committed) == re.sub(NUMBER, "#", text), f"{name}: {RERUN}"
        ours, theirs = ([float(number) for number in re.findall(NUMBER, file)] for file in (text, committed))
        np.testing.assert_allclose(ours, theirs, atol=0.15, err_msg=f"{name}: {RERUN}")  # last digits of a machine


def test_every_drawing_has_a_title_no_font_of_its_own_and_texts_that_a_telephone_shows_in_11_pixels(drawn):
    for name, text in drawn.items():
        root = ElementTree.fromstring(text)
        width, height = (float(number) for number in root.get("viewBox").split()[2:])
        assert root.findtext(f"{SVG}title"), name
        assert "http" not in text.replace(SVG.strip("{}"), ""), name
        for element in root.iter(f"{SVG}text"):
            assert float(element.get("font-size")) * 350 / width >= 11, (name, "".join(element.itertext()))
            assert 0 < float(element.get("x")) < width, name
            assert 0 < float(element.get("y")) < height, name


def test_the_readme_claims_what_the_evidence_says(drawn):
    """Its sentences hold no numbers, so that these conditions are all that they need."""
    unseen_sites, brio_plus, pages = (
        importlib.import_module(f"result_pages{n}") for n in (".unseen_sites", ".brio_plus", "")
    )
    atlases = unseen_sites.ATLASES
    for atlas in atlases:
        mean = unseen_sites.mean_scores(atlas)
        linear = [name for name in mean.index if unseen_sites.family_of(name) == "linear"]
        assert len(linear) > 4
        assert mean["brio"] < mean[linear].min()
        assert brio_plus.gains(atlas).loc["log-ridge", "p_holm"] > 0.05
    assert sum(unseen_sites.ridge_minus_brio(atlas).p_holm <= 0.05 for atlas in atlases) == 1
    verdicts = Counter(words[-1] for name in pages.WITH_VERDICTS for words in pages.load_page(name).judge_claims())
    assert verdicts["agrees"] + verdicts["in part"] < verdicts.total() / 2
