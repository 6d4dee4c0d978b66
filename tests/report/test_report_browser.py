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


def check(browser, path):
    """Check that the console is empty, nothing but the page was requested, and no name was executed as code."""
    assert browser.complaints == []
    assert browser.requests == [path.resolve().as_uri()]
    assert browser.eval("window.pwned") is None


OPEN_ALL = "document.getElementById('open-all').click()"


@pytest.fixture
def opened(browser, report):
    """The page with every section open."""
    browser.open(report)
    browser.eval(OPEN_ALL)
    yield browser
    check(browser, report)


NAMES = "[...document.querySelectorAll('#results-table tbody tr')].filter(r => !r.hidden).map(r => r.dataset.method)"
VALUES = "[...document.querySelectorAll('#results-table tbody tr')].map(r => Number(r.cells[{k}].dataset.value))"
LANES = "[...new Set([...document.querySelectorAll('#forest .lane:not([hidden])')].map(l => l.dataset.arm))]"
SITES = "[...document.getElementById('forest').tBodies[1].rows].filter(r => !r.hidden).map(r => r.dataset.name)"


def typed(browser, selector, text):
    script = f"(() => {{ const i = document.querySelector('{selector}'); i.value = {text!r}; "
    browser.eval(script + "i.dispatchEvent(new Event('input', {bubbles: true})); })()")


def chosen(browser, name, value):
    script = f"(() => {{ const c = document.getElementById('{name}'); c.value = {value!r}; "
    browser.eval(script + "c.dispatchEvent(new Event('change')); })()")


def test_names_are_shown_and_not_run(opened):
    assert "<img src=x onerror=window.pwned=1>" in opened.eval(NAMES)
    assert "<script>window.pwned=1</script>" in opened.eval("document.querySelector('#cohort').innerText")
    assert opened.eval("document.querySelector('h1').innerText") == "<em>cohort</em> & co"
    assert opened.eval("document.querySelectorAll('main img').length") == 0


def test_columns_sort_both_ways(opened):
    first = opened.eval(VALUES.format(k=1))
    assert first == sorted(first, reverse=True), "best first"
    for column in (5, 9):
        for expected in (True, False):
            opened.eval(
                f"document.querySelectorAll('#results-table thead th')[{column}].querySelector('button').click()"
            )
            values = opened.eval(VALUES.format(k=column))
            assert values == sorted(values, reverse=expected)
        now = opened.eval(f"document.querySelectorAll('#results-table thead th')[{column}].getAttribute('aria-sort')")
        assert now == "ascending"
    assert opened.eval("document.querySelectorAll('#results-table [aria-sort]').length") == 1
    opened.eval("document.querySelector('#results-table thead button').click()")
    names = opened.eval(NAMES)
    assert names == sorted(names)


def test_sorting_needs_no_mouse(opened):
    opened.eval("document.querySelectorAll('#results-table thead th')[5].querySelector('button').focus()")
    for kind in ("keyDown", "keyUp"):
        opened.send("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    values = opened.eval(VALUES.format(k=5))
    assert values == sorted(values, reverse=True)


def test_methods_are_chosen_for_all_charts_at_once(opened):
    assert opened.eval(LANES) == ["0", "1", "2"]
    chip = "document.querySelector('#sites [data-chip=\"1\"]')"
    opened.eval(f"{chip}.click()")
    assert opened.eval(f"{chip}.getAttribute('aria-pressed')") == "false"
    assert opened.eval(LANES) == ["0", "2"]
    for place in ("roc", "calibration"):
        shown = f"[...document.querySelectorAll('#{place} .panel:not([hidden])')].map(p => p.dataset.arm)"
        assert opened.eval(shown) == ["0", "2"]
        assert (
            opened.eval(f"document.querySelector('#{place} [data-chip=\"1\"]').getAttribute('aria-pressed')") == "false"
        )
    opened.eval(f"{chip}.click()")
    assert opened.eval(LANES) == ["0", "1", "2"]


def test_sites_are_filtered_and_ordered(opened):
    everything = opened.eval(SITES)
    assert len(everything) == 5
    typed(opened, "[data-filter=forest]", "PLAIN")
    assert opened.eval(SITES) == ["plain"]
    typed(opened, "[data-filter=forest]", "")
    assert opened.eval(SITES) == everything
    chosen(opened, "forest-order", "n")
    sizes = opened.eval("[...document.getElementById('forest').tBodies[1].rows].map(r => Number(r.dataset.n))")
    assert sizes == sorted(sizes, reverse=True)


def test_pointing_at_a_site_tells_how_many_it_is(opened):
    where = "document.querySelector('#forest tr[data-name=plain] .lane')"
    opened.eval(f"{where}.scrollIntoView({{block: 'center'}})")
    opened.wait(0.3)
    box = opened.eval(
        f"(() => {{ const b = {where}.getBoundingClientRect(); return [b.x + 50, b.y + b.height / 2] }})()"
    )
    opened.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert opened.until("!document.getElementById('tip').hidden", 5)
    tip = opened.eval("document.getElementById('tip').textContent")
    assert tip.startswith("plain: ")
    assert "participants" in tip
    assert "over 3 seeds" in tip


def test_qualification_is_drawn_for_the_fold_that_is_chosen(opened):
    maps = "[...document.querySelectorAll('#q-maps figcaption b')].map(b => b.textContent)"
    assert opened.eval(maps) == ["Factor 1", "Factor 2", "Factor 3", "Factor 4", "Strength g", "Support q"]
    folds = opened.eval("[...document.querySelectorAll('#q-fold option')].map(o => o.textContent)")
    assert len(folds) == 5
    assert "<script>window.pwned=1</script>" in folds
    seen = set()
    for fold in folds:
        chosen(opened, "q-fold", fold)
        tips = opened.eval("[...document.querySelectorAll('#q-maps rect[data-tip]')].map(r => r.dataset.tip)")
        assert tips
        assert not any(fold in tip for tip in tips), "a test site is no source site"
        assert fold in opened.eval("document.getElementById('q-title').textContent")
        seen.add(tuple(tips))
    assert len(seen) == len(folds)
    assert opened.eval("document.querySelectorAll('#q-table tbody tr').length") > 0


@pytest.mark.soak  # ten seconds of software WebGL
def test_the_brain_turns(browser, whole):
    browser.open(whole)
    assert browser.eval("document.querySelector('iframe.brain').srcdoc") == "", "nothing is drawn in a folded section"
    browser.eval("document.querySelector('#factors summary').click()")
    assert browser.eval("scrollY") == 0
    frame = "document.querySelector('iframe.brain')"
    assert browser.until(f"!!{frame}.contentDocument?.querySelector('canvas')")
    scene = f"{frame}.contentDocument.querySelector('#connectome-plot')"
    assert browser.until(f"!!{scene}?._fullLayout?.scene?._scene"), "drawn without scrolling"
    markers = f"{scene}.data.filter(t => t.type === 'scatter3d')"
    assert browser.until(f"{markers}.every(t => t.mode === 'markers' && t.hoverinfo === 'text')")
    assert browser.eval(f"{markers}[0].x.length") == 8
    assert browser.eval(f"{frame}.contentWindow.pwned") is None
    browser.wait(0.5)
    check(browser, whole)


WIDTHS = (360, 768, 1280)
CLIPPED = """[...document.querySelectorAll('main table, main .scroll, main .panels, main pre, main .maps, main dl')]
  .filter(e => e.checkVisibility())
  .filter(e => e.getBoundingClientRect().right > e.closest('section').getBoundingClientRect().right + 0.5
    || e.scrollWidth > e.clientWidth + 1)
  .filter(e => { const box = e.closest('.scroll.more'), hint = box?.nextElementSibling;
    return !(hint?.classList.contains('hint') && hint.checkVisibility()) })
  .map(e => `${e.tagName} ${e.id || e.className} ${e.scrollWidth} > ${e.clientWidth}`)"""
LAST_COLUMNS = """[...document.querySelectorAll('#results-table tbody tr')]
  .map(r => r.cells[r.cells.length - 1].getBoundingClientRect())
  .filter(b => b.width > 0 && b.right <= innerWidth && b.left >= 0).length"""
CONTRAST = """(() => {
  const light = (c) => { const [r, g, b] = c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = (e) => { const ink = light(getComputedStyle(e).color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) };
  return ['.reply', '.lead', '.note', '.gist', '.wrong', 'nav a', '.lane > span', 'summary h2']
    .map(s => [s, ratio(document.querySelector(s))]).filter(([, r]) => r < 4.5) })()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_clipped_at_any_width(browser, report, scheme):
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    try:
        browser.open(report)
        for width in WIDTHS:
            browser.size(width, 800)
            assert browser.eval("document.querySelector('.usable').getBoundingClientRect().bottom") < 800, width
            assert browser.eval("document.documentElement.scrollHeight") < 4_000, "folded"
        browser.eval("document.querySelectorAll('details').forEach(d => { d.open = true })")
        for width in WIDTHS:
            browser.size(width, 800)
            browser.eval("new Promise(done => requestAnimationFrame(() => setTimeout(done, 60)))")
            assert browser.eval("document.documentElement.scrollWidth") == width
            assert browser.eval(CLIPPED) == [], width
            assert browser.eval(LAST_COLUMNS) == 3, f"the p column at {width}"
        assert browser.eval("document.querySelectorAll('.scroll.more').length") == 0, "no hint where all is in view"
        browser.size(360, 800)
        assert browser.until("document.querySelectorAll('.scroll.more + .hint:not([hidden])').length > 0", 5)
        paper = browser.eval("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        assert browser.eval(CONTRAST) == []
        check(browser, report)
    finally:
        browser.send("Emulation.setEmulatedMedia", features=[])


def test_answers_follow_the_slider_by_bayes_rule(opened, renamed):
    answers = read_evidence(renamed).answers
    shown = "document.querySelector('#meaning [data-out=\"{}\"]').textContent"
    for k, point in enumerate(answers.points):
        chosen(opened, "answer-point", str(k))
        for share in (0.01, 0.5, 0.9):
            typed(opened, "#prevalence", str(100 * share))
            values = point.predictive_values(share)
            for name, value in zip(("positive", "negative"), values, strict=True):
                assert opened.eval(shown.format(name)) == f"{100 * value:.1f} %"
            cells = [
                int(opened.eval(shown.format(f"{a}_{b}"))) for b in ("positive", "negative") for a in ("true", "false")
            ]
            tp, fp, tn, fn = cells
            assert tp + fn == 1000 * share
            assert tp + fp + tn + fn == 1000
            assert tp == pytest.approx(1000 * share * point.sensitivity.mean, abs=0.51)
    opened.eval("document.getElementById('prevalence-here').click()")
    assert opened.eval("document.getElementById('prevalence-value').textContent") == "50.0 %"


def test_contents_open_a_section_and_follow_the_reader(browser, report):
    browser.open(report, width=390)
    folded = "!document.querySelector('#training details').open"
    assert browser.eval(folded)
    browser.eval("document.querySelector('nav a[href=\"#training\"]').click()")
    assert browser.until(f"!({folded})", 5)
    current = "document.querySelector('nav a[aria-current]')"
    assert browser.until(f"{current}?.hash === '#training'", 5)
    inside = f"(() => {{ const b = {current}.getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth }})()"
    assert browser.until(inside, 5), "its link is in sight"
    assert browser.eval("document.querySelector('nav').getBoundingClientRect().top") == 0
    browser.eval("document.querySelector('#training summary').click()")
    browser.eval("document.querySelector('nav a[href=\"#training\"]').click()")
    assert browser.until(f"!({folded})", 5), "also where the address does not change"


def test_paper_has_no_buttons_but_a_legend(opened):
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.send("Emulation.setEmulatedMedia", media="print", features=dark)
    try:
        visible = "getComputedStyle(document.querySelector('{}')).display"
        assert opened.eval(visible.format("nav")) == "none"
        assert opened.eval(visible.format("#sites .chip")) != "none"
        paper = "getComputedStyle(document.body).backgroundColor"
        assert opened.eval(paper) == "rgb(255, 255, 255)", "dark on paper wastes ink"
        opened.eval("dispatchEvent(new Event('beforeprint'))")
        assert opened.eval("[...document.querySelectorAll('details.printed')].every(d => d.open)")
        opened.eval("dispatchEvent(new Event('afterprint'))")
        assert opened.eval("document.querySelectorAll('#configuration details.printed:not([open])').length") > 0
        assert opened.eval("document.querySelectorAll('details.part:not([open])').length") == 0, "as it was before"
    finally:
        opened.send("Emulation.setEmulatedMedia", media="", features=[])
