"""The page in a browser: it opens without errors, sorts, filters and draws, and no name is executed as code."""

from unittest import mock

import pytest
from browser import Browser, chromium

from brio.report.evidence import read_evidence
from brio.report.html import figures
from brio.report.write import write_report


@pytest.fixture(scope="module")
def browser():
    with Browser(chromium()) as opened:
        yield opened


@pytest.fixture(scope="module")
def whole(renamed):
    """The page with all that is in it."""
    return write_report(renamed)


@pytest.fixture(scope="module")
def report(renamed, tmp_path_factory):
    """The page without the interactive brain, which takes long to load."""
    with mock.patch.object(figures, "render_brain_viewer", return_value=None):
        return write_report(renamed, tmp_path_factory.mktemp("light") / "report.html")


@pytest.fixture
def opened(browser, report):
    """The page with every section open."""
    browser.open(report)
    browser.eval("one('#open-all').click()")
    yield browser
    browser.check(report)


NAMES = "all('#results-table tbody tr').filter(r => !r.hidden).map(r => r.dataset.method)"
VALUES = "all('#results-table tbody tr').map(r => Number(r.cells[{k}].dataset.value))"
LANES = "[...new Set(all('#forest .lane:not([hidden])').map(l => l.dataset.arm))]"
SITES = "[...one('#forest').tBodies[1].rows].filter(r => !r.hidden).map(r => r.dataset.name)"


def test_names_are_shown_and_not_run(opened):
    assert "<img src=x onerror=window.pwned=1>" in opened.eval(NAMES)
    assert "<script>window.pwned=1</script>" in opened.eval("one('#cohort').innerText")
    assert opened.eval("one('h1').innerText") == "<em>cohort</em> & co"
    assert opened.eval("all('main img').length") == 0


def test_columns_sort_both_ways(opened):
    first = opened.eval(VALUES.format(k=1))
    assert first == sorted(first, reverse=True), "best first"
    for column in (5, 9):
        for expected in (True, False):
            opened.eval(f"all('#results-table thead th')[{column}].querySelector('button').click()")
            values = opened.eval(VALUES.format(k=column))
            assert values == sorted(values, reverse=expected)
        now = opened.eval(f"all('#results-table thead th')[{column}].getAttribute('aria-sort')")
        assert now == "ascending"
    assert opened.eval("all('#results-table [aria-sort]').length") == 1
    opened.eval("one('#results-table thead button').focus()")
    for kind in ("keyDown", "keyUp"):
        opened.send("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    names = opened.eval(NAMES)
    assert names == sorted(names), "sorting needs no mouse"


def test_methods_are_chosen_for_all_charts_at_once(opened):
    assert opened.eval(LANES) == ["0", "1", "2"]
    chip = "one('#sites [data-chip=\"1\"]')"
    opened.eval(f"{chip}.click()")
    assert opened.eval(f"{chip}.getAttribute('aria-pressed')") == "false"
    assert opened.eval(LANES) == ["0", "2"]
    for place in ("roc", "calibration"):
        shown = f"all('#{place} .panel:not([hidden])').map(p => p.dataset.arm)"
        assert opened.eval(shown) == ["0", "2"]
        assert opened.eval(f"one('#{place} [data-chip=\"1\"]').getAttribute('aria-pressed')") == "false"
    opened.eval(f"{chip}.click()")
    assert opened.eval(LANES) == ["0", "1", "2"]


def test_sites_are_filtered_and_ordered(opened):
    everything = opened.eval(SITES)
    assert len(everything) == 5
    opened.enter("[data-filter=forest]", "PLAIN")
    assert opened.eval(SITES) == ["plain"]
    opened.enter("[data-filter=forest]", "")
    assert opened.eval(SITES) == everything
    opened.enter("#forest-order", "n")
    sizes = opened.eval("[...one('#forest').tBodies[1].rows].map(r => Number(r.dataset.n))")
    assert sizes == sorted(sizes, reverse=True)


def test_pointing_at_a_site_tells_how_many_it_is(opened):
    where = "one('#forest tr[data-name=plain] .lane')"
    opened.eval(f"{where}.scrollIntoView({{block: 'center'}})")
    opened.wait(0.3)
    box = opened.eval(
        f"(() => {{ const b = {where}.getBoundingClientRect(); return [b.x + 50, b.y + b.height / 2] }})()"
    )
    opened.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert opened.until("!one('#tip').hidden", 5)
    tip = opened.eval("one('#tip').textContent")
    assert tip.startswith("plain: ")
    assert "participants" in tip
    assert "over 3 seeds" in tip


def test_qualification_is_drawn_for_the_fold_that_is_chosen(opened):
    maps = "all('#q-maps figcaption b').map(b => b.textContent)"
    assert opened.eval(maps) == ["Factor 1", "Factor 2", "Factor 3", "Factor 4", "Strength g", "Support q"]
    folds = opened.eval("all('#q-fold option').map(o => o.textContent)")
    assert len(folds) == 5
    assert "<script>window.pwned=1</script>" in folds
    seen = set()
    for fold in folds:
        opened.enter("#q-fold", fold)
        tips = opened.eval("all('#q-maps rect[data-tip]').map(r => r.dataset.tip)")
        assert tips
        assert not any(fold in tip for tip in tips), "a test site is no source site"
        assert fold in opened.eval("one('#q-title').textContent")
        seen.add(tuple(tips))
    assert len(seen) == len(folds)
    assert opened.eval("all('#q-table tbody tr').length") > 0


@pytest.mark.soak  # ten seconds of software WebGL
def test_the_brain_turns(browser, whole):
    browser.open(whole)
    assert browser.eval("one('iframe.brain').srcdoc") == "", "nothing is drawn in a folded section"
    browser.eval("one('#factors summary').click()")
    assert browser.eval("scrollY") == 0
    frame = "one('iframe.brain')"
    assert browser.until(f"!!{frame}.contentDocument?.querySelector('canvas')")
    scene = f"{frame}.contentDocument.querySelector('#connectome-plot')"
    assert browser.until(f"!!{scene}?._fullLayout?.scene?._scene"), "drawn without scrolling"
    markers = f"{scene}.data.filter(t => t.type === 'scatter3d')"
    assert browser.until(f"{markers}.every(t => t.mode === 'markers' && t.hoverinfo === 'text')")
    assert browser.eval(f"{markers}[0].x.length") == 8
    assert browser.eval(f"{frame}.contentWindow.pwned") is None
    browser.wait(0.5)
    browser.check(whole)


WIDTHS = (360, 768, 1280)
CLIPPED = """all('main table, main .scroll, main .panels, main pre, main .maps, main dl')
  .filter(e => e.checkVisibility())
  .filter(e => e.getBoundingClientRect().right > e.closest('section').getBoundingClientRect().right + 0.5
    || e.scrollWidth > e.clientWidth + 1)
  .filter(e => { const box = e.closest('.scroll.more'), hint = box?.nextElementSibling;
    return !(hint?.classList.contains('hint') && hint.checkVisibility()) })
  .map(e => `${e.tagName} ${e.id || e.className} ${e.scrollWidth} > ${e.clientWidth}`)"""
LAST_COLUMNS = """all('#results-table tbody tr')
  .map(r => r.cells[r.cells.length - 1].getBoundingClientRect())
  .filter(b => b.width > 0 && b.right <= innerWidth && b.left >= 0).length"""
CONTRAST = """(() => {
  const light = (c) => { const [r, g, b] = c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = (e) => { const ink = light(getComputedStyle(e).color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) };
  return ['.reply', '.lead', '.note', '.gist', '.wrong', 'nav a', '.lane > span', 'summary h2']
    .map(s => [s, ratio(one(s))]).filter(([, r]) => r < 4.5) })()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_clipped_at_any_width(browser, report, scheme):
    with browser.emulate(scheme):
        browser.open(report)
        for width in WIDTHS:
            browser.size(width, 800)
            assert browser.eval("one('.usable').getBoundingClientRect().bottom") < 800, width
            assert browser.eval("document.documentElement.scrollHeight") < 4_000, "folded"
        browser.eval("all('details').forEach(d => { d.open = true })")
        for width in WIDTHS:
            browser.size(width, 800)
            browser.eval("new Promise(done => requestAnimationFrame(() => setTimeout(done, 60)))")
            assert browser.eval("document.documentElement.scrollWidth") == width
            assert browser.eval(CLIPPED) == [], width
            assert browser.eval(LAST_COLUMNS) == 3, f"the last column at {width}"
            cut = browser.eval("all('.scroll.more').map(e => e.ariaLabel)")
            assert cut == [] or width == 768, f"a table is cut at {width}"
        browser.size(360, 800)
        unlabelled = "all('.cards tbody td').filter(c => !c.dataset.label && c.closest('table').tHead.textContent)"
        assert browser.eval(f"{unlabelled}.length") == 0, "a label above every number"
        paper = browser.eval("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        assert browser.eval(CONTRAST) == []
        browser.check(report)


def test_answers_follow_the_slider_by_bayes_rule(opened, renamed):
    answers = read_evidence(renamed).answers
    shown = "one('#meaning [data-out=\"{}\"]').textContent"
    for k, point in enumerate(answers.points):
        opened.enter("#answer-point", str(k))
        for share in (0.01, 0.5, 0.9):
            opened.enter("#prevalence", str(100 * share))
            values = point.predictive_values(share)
            for name, value in zip(("positive", "negative"), values, strict=True):
                assert opened.eval(shown.format(name)) == f"{100 * value:.1f}%"
            places = ("true_positive", "false_positive", "true_negative", "false_negative")
            tp, fp, tn, fn = (int(opened.eval(shown.format(place))) for place in places)
            assert tp + fn == 1000 * share
            assert tp + fp + tn + fn == 1000
            assert tp == pytest.approx(1000 * share * point.sensitivity.mean, abs=0.51)
    opened.eval("one('#prevalence-here').click()")
    assert opened.eval("one('#prevalence-value').textContent") == "50.0%"


def test_contents_open_a_section_and_follow_the_reader(browser, report):
    browser.open(report, width=390)
    folded = "!one('#training details').open"
    assert browser.eval(folded)
    browser.eval("one('nav a[href=\"#training\"]').click()")
    assert browser.until(f"!({folded})", 5)
    current = "one('nav a[aria-current]')"
    assert browser.until(f"{current}?.hash === '#training'", 5)
    inside = f"(() => {{ const b = {current}.getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth }})()"
    assert browser.until(inside, 5), "its link is in sight"
    assert browser.eval("one('nav').getBoundingClientRect().top") == 0
    browser.eval("one('#training summary').click()")
    browser.eval("one('nav a[href=\"#training\"]').click()")
    assert browser.until(f"!({folded})", 5), "also where the address does not change"


def test_paper_has_no_buttons_but_a_legend(opened):
    with opened.emulate("dark", media="print"):
        visible = "getComputedStyle(one('{}')).display"
        assert opened.eval(visible.format("nav")) == "none"
        assert opened.eval(visible.format("#sites .chip")) != "none"
        paper = "getComputedStyle(document.body).backgroundColor"
        assert opened.eval(paper) == "rgb(255, 255, 255)", "dark on paper wastes ink"
        opened.eval("dispatchEvent(new Event('beforeprint'))")
        assert opened.eval("all('details.printed').every(d => d.open)")
        opened.eval("dispatchEvent(new Event('afterprint'))")
        assert opened.eval("all('#configuration details.printed:not([open])').length") > 0
        assert opened.eval("all('details.part:not([open])').length") == 0, "as it was before"
