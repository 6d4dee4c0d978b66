"""The page of predictions: its numbers are those of the table, names are escaped, and it works in a browser."""

import re
from dataclasses import replace

import numpy as np
import pytest
from browser import Browser, chromium
from pages import read_rows, read_section

from brio.jobs import JobSpec
from brio.models import adapt_model, fit_model, predict_scans
from brio.models.evidence import CallRule, Estimate
from brio.models.external import score_labelled_scans, write_predictions
from brio.report.predictions import render_prediction_page
from made_cohorts import rebuild
from stored import make_evidence

CUT = """all('#scans th, #scans td, #scans thead button').filter(e => e.checkVisibility())
  .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline'
    || e.getBoundingClientRect().right > e.closest('th, td').getBoundingClientRect().right + 1)
  .map(e => `${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`)"""


@pytest.fixture(scope="module")
def model(cohort):
    fitted = fit_model(JobSpec(cohort, ["ridge"], exclude=False, device="cpu"))
    logits = predict_scans(fitted, cohort, reestimates=2, device="cpu").logit
    rules = (CallRule(0.8, float(np.median(np.abs(logits))), 25, 20, 50),)
    counts = {"n_participants": 50, "n_sites": 5, "n_two_class_sites": 5}
    scores = {"auc": Estimate(0.7, 0.6, 0.8), "accuracy": 0.65, "brier": 0.21}
    return replace(fitted, evidence=make_evidence(rules, **counts, **scores))


@pytest.fixture(scope="module")
def strange(cohort):
    """The same connectomes, but the first scan is too short, and the model has seen the second; an id is code."""
    scans = [cohort.scan(i) * np.float32(1 if i == 1 else 2) for i in range(len(cohort))]
    scans[0] = scans[0][:20]
    names = ["<script>window.pwned=1</script>", *cohort.ids[1:]]
    return rebuild(cohort, scans, participant_id=names, name="<em>scans</em>")


@pytest.fixture(scope="module")
def predictions(model, strange):
    return predict_scans(model, strange, reestimates=4, device="cpu")


@pytest.fixture(scope="module")
def page(model, strange, predictions):
    return render_prediction_page(model, strange, predictions)


def test_every_scan_has_its_row_with_the_numbers_of_the_table(page, predictions, strange):
    rows, table = read_rows(page, "scans"), predictions.table
    assert len(rows) == len(table)
    labels = [strange.classes[label] for label in strange.labels]
    for row, scan, label in zip(rows, table.to_dict("records"), labels, strict=True):
        probability, agreement = (float(attributes["data-value"]) for attributes, _ in row.cells[3:5])
        assert probability == pytest.approx(scan["probability"], abs=1e-4)
        assert agreement == round(100 * scan["agreement"])
        marks = {"called": scan["predicted"] in strange.classes, "out": scan["flag"] != ""}
        marks["cross"] = scan["interval_crosses_half"] == "yes"
        marks["wrong"] = marks["called"] and scan["predicted"] != label
        assert set(row.attributes["class"].split()) - {"none"} == {mark for mark, is_set in marks.items() if is_set}
        assert scan["participant_id"] in row.text
    assert "short: 20 frames" in rows[0].text
    assert "Yes: known to the model" in rows[1].text
    rows_of_scans = page[page.index('id="scans"') :]
    places = [float(left) for left in re.findall(r'class="mark" style="left:([\d.]+)%"', rows_of_scans)]
    np.testing.assert_allclose(places, 100 * table["probability"], atol=0.06)
    bars = np.array(re.findall(r'<i style="left:([\d.]+)%;width:([\d.]+)%">', rows_of_scans), dtype=float)
    np.testing.assert_allclose(bars.sum(1), 100 * table["high"], atol=0.11)


def test_regions_that_speak_for_a_scan_add_most_to_its_side(page, model, strange, predictions):
    intercept = float(model.members[0].fitted.parameters["intercept"])
    np.testing.assert_allclose(predictions.regions.sum(1) + intercept, predictions.table["margin"], atol=1e-9)
    names = strange.atlas.rois["name"].to_numpy()
    for row, added, logit in zip(read_rows(page, "scans"), predictions.regions, predictions.logit, strict=True):
        largest = int(np.argmax(np.sign(logit) * added))
        assert f"{names[largest]} {added[largest]:+.2f}".replace("-", "−") in row.text.replace("-", "−")


def test_one_edge_gives_half_of_its_part_to_each_of_its_regions(model, strange):
    """Against the coefficients themselves: all of them zero but one."""
    member = model.members[0]
    coefficients = member.fitted.parameters["coefficients"].clone().zero_()
    coefficients[8] = 2.0  # of ROIs 1 and 3: seven edges of ROI 0 come first, then that to ROI 2
    parameters = {**member.fitted.parameters, "coefficients": coefficients}
    changed = replace(model, members=(replace(member, fitted=replace(member.fitted, parameters=parameters)),))
    found = predict_scans(changed, strange, reestimates=2, device="cpu")
    part = found.table["margin"] - float(parameters["intercept"])
    np.testing.assert_allclose(found.regions[:, 1], part / 2, atol=1e-12)
    np.testing.assert_allclose(found.regions[:, 3], part / 2, atol=1e-12)
    assert not found.regions[:, [0, 2, 4, 5, 6, 7]].any()


def test_what_the_interval_means_and_labels_are_on_the_page(page, model, strange, predictions):
    assert "other minutes of the same scan" in page
    assert "another day" in page
    assert page.index("Expected and observed") < page.index('id="predictions"')
    auc = page[page.index('<th scope="row">AUC, mean over sites</th>') :].split("</tr>")[0]
    observed = score_labelled_scans(strange, predictions).auc
    cells = [("Expected", "70", "60 to 80")]
    cells.append(("Observed", f"{100 * observed.value:.0f}", f"{100 * observed.low:.0f} to {100 * observed.high:.0f}"))
    for name, value, ends in cells:
        assert f'data-name="{name}"><strong>{value}%</strong><small>{ends}</small>' in auc
    assert (
        '<th scope="row">AUC, mean over sites, %</th><td class="num">70.0</td><td class="num">60.0 to 80.0</td>' in page
    )
    bare = replace(strange, participants=strange.participants.drop(columns=["label", "site"]))
    promise = read_section(render_prediction_page(model, bare, predictions), "validation")
    assert "No scan has a label" in promise
    assert '<td class="num" data-name="Expected"><strong>70%</strong>' in promise
    assert "Observed" not in promise
    local = replace(strange, frames=strange.frames * np.float32(2))  # new to the model, and the same to look at
    adapted = adapt_model(model, local.select(np.arange(2, 30)), device="cpu")
    assert "Adapted to 28 local participants" in render_prediction_page(adapted, strange, predictions)
    unknown = replace(model, evidence=None)
    page = render_prediction_page(unknown, strange, predict_scans(unknown, strange, reestimates=2, device="cpu"))
    assert "not evaluated, so never called" in page


def test_factors_speak_where_there_are_no_regions(cohort):
    settings = {"epochs": 2, "T_w": 1, "M": 2, "K": 2, "J": 2, "cell_batch": 2, "sinkhorn_iterations": 3}
    spec = JobSpec(cohort, ["brio"], settings=settings, seeds=2, exclude=False, device="cpu")
    model = fit_model(spec)
    found = predict_scans(model, cohort, reestimates=2, device="cpu")
    assert found.regions is None
    rows = read_rows(render_prediction_page(model, cohort, found), "scans")
    added = found.contributions[found.contributions["factor"] != "intercept"]
    for row, scan, logit in zip(rows, cohort.ids, found.logit, strict=True):
        own = added[added["participant_id"] == scan]
        best = own.loc[(np.sign(logit) * own["contribution"]).idxmax()]
        if np.sign(logit) * best["contribution"] > 0:
            assert f"factor {best['factor']} of seed {best['seed']} " in row.text


def test_the_page_sorts_filters_and_runs_no_name_as_code(model, strange, predictions, page, tmp_path):
    lines = write_predictions(model, strange, predictions, tmp_path / "there", page)
    path = tmp_path / "there" / "predictions.html"
    assert lines[-1] == f"wrote {path}"
    values = "all('#scans tbody tr').map(r => Number(r.cells[{k}].dataset.value))"
    shown = "all('#scans tbody tr').filter(r => r.offsetHeight > 0).length"
    with Browser(chromium()) as browser:
        browser.open(path)
        for k in (3, 4):
            browser.eval(f"all('#scans thead button')[{k}].click()")
            ordered = browser.eval(values.format(k=k))
            assert ordered == sorted(ordered, reverse=True)
        browser.enter("#show", "out")
        assert browser.eval(shown) == (predictions.table["flag"] != "").sum() > 0
        browser.enter("#show", "wrong")
        assert browser.eval(shown) == page.count(" wrong") > 0
        browser.enter("#show", "all")
        browser.enter("[data-filter]", "who007")
        assert browser.eval(shown) == 1
        assert browser.eval("one('#count').textContent") == f"1 of {len(strange)} shown"
        many = tmp_path / "many.html"
        row = page[page.index("    <tr class") : page.rindex("    </tbody>")]
        many.write_text(page.replace(row, row * 12), encoding="utf-8")
        browser.open(many)
        assert browser.eval(shown) == 200 < 12 * len(strange)
        browser.eval("all('#scans thead button')[3].click()")
        first = browser.eval(values.format(k=3))[:200]
        assert max(first) == max(predictions.table["probability"].round(4))
        browser.eval("one('#more').click()")
        assert browser.eval(shown) == 12 * len(strange)
        for width in (360, 1000, 1051):
            browser.open(path, width=width)
            assert browser.eval("document.documentElement.scrollWidth") <= width
            assert browser.eval(CUT) == [], width
        browser.check(path)
