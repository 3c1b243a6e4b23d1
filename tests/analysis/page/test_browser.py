"""report.html in a real browser, from disk: charts are drawn, filters work, nothing is fetched."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from contamination.analysis.page.build import render_page

pytestmark = pytest.mark.browser
LINES = "return document.getElementById('occurrences').data.filter(t => t.meta === 'line')"
RANGES = "return ['factor', 'occurrences'].map(i => document.getElementById(i).layout.yaxis.range)"
NAMES = "return document.getElementById('occurrences').layout.annotations.map(a => a.name)"
PATHS = "return document.querySelectorAll('#occurrences .scatterlayer path.js-line').length"


@pytest.fixture(scope="module")
def report(driver, one_off, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(one_off, {"name": "trial"}))
    driver.get("about:blank")
    driver.get_log("performance")  # whatever the browser's own first tab did
    return opened(driver, path.as_uri())


def opened(driver, address):
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get("about:blank")  # else only the part behind the # would change
    driver.get(address)
    ready = "return document.body.dataset.ready"
    WebDriverWait(driver, 60).until(lambda d: d.execute_script(ready))
    return driver


def test_a_name_with_tags_is_no_link_in_a_chart(driver, findings, report, tmp_path):
    """Plotly makes links of the tags in its texts."""
    name = '<a href="https://a.b">m & c</a>'
    loss = findings.pooled[findings.pooled["method"] == "loss"]
    rows = loss.assign(method=name, benchmark=loss["benchmark"].replace("boolq", name))
    none = {"curves": findings.curves.head(0), "bins": findings.bins.head(0)}
    path = tmp_path / "tags.html"
    path.write_text(render_page(replace(findings, pooled=rows, **none), {}))
    address = report.current_url
    opened(driver, path.as_uri())
    links = "return document.querySelectorAll('.js-plotly-plot a').length"
    words = "return document.getElementById('occurrences').textContent"
    assert driver.execute_script(links) == 0
    assert name in driver.execute_script(words)
    opened(driver, address)


@pytest.fixture
def narrow(report):
    """The page on a phone."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    report.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield opened(report, report.current_url)
    report.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    opened(report, report.current_url)


@pytest.fixture
def many(driver, findings, report, tmp_path):
    """A page of ten methods; the better ones have the higher numbers."""
    loss = findings.pooled[findings.pooled["method"] == "loss"]
    rows = [loss.assign(method=f"m{i}", value=loss["value"] + i / 100) for i in range(10)]
    none = {"curves": findings.curves.head(0), "bins": findings.bins.head(0)}
    path = tmp_path / "many.html"
    path.write_text(render_page(replace(findings, pooled=pd.concat(rows), **none), {}))
    address = report.current_url
    yield opened(driver, path.as_uri())
    opened(driver, address)


def choose(driver, name, text):
    from selenium.webdriver.support.ui import Select

    Select(driver.find_element("id", f"choose-{name}")).select_by_visible_text(text)


def click(driver, group, value):
    selector = f"#{group} button[data-value='{value}']"
    button = driver.find_element("css selector", selector)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    return button


def heights(driver):
    return driver.execute_script(LINES + ".map(t => t.y)")


def test_every_chart_is_drawn(report):
    assert report.execute_script(PATHS) >= 4
    for chart in ("occurrences", "factor", "heat", "roc", "histogram", "loss"):
        assert report.find_elements("css selector", f"#{chart} svg.main-svg"), chart


def test_a_benchmark_filter_changes_the_lines(report, findings):
    before = heights(report)
    button = click(report, "benchmarks", "imdb")
    after = heights(report)
    assert button.get_attribute("aria-pressed") == "true"
    assert after != before
    shown = findings.pooled.query(
        "metric == 'auroc' and benchmark == 'imdb' and method == 'loss' and variant == ''"
        " and checkpoint == 'contaminated' and occurrences != 'any'"
    )
    first = shown[shown["condition"] == next(iter(findings.rows_by_condition))]
    assert after[0] == [float(f"{value:.4g}") for value in first["value"]]
    click(report, "benchmarks", "all")
    assert heights(report) == before


def test_a_method_that_is_not_chosen_is_grey(report):
    names = report.execute_script(LINES + ".map(t => t.name)")
    paths = report.execute_script(PATHS)
    click(report, "methods", "min_k")
    left = report.execute_script(LINES + ".map(t => t.name)")
    assert left == [name for name in names if name != "min_k"]
    assert report.execute_script(PATHS) < paths
    click(report, "methods", "min_k")
    assert report.execute_script(LINES + ".map(t => t.name)") == names


@pytest.mark.parametrize(("filtered", "at"), [("condition", 1), ("checkpoint", 1), ("metric", 3)])
def test_each_selection_changes_the_values(report, filtered, at):
    from selenium.webdriver.support.ui import Select

    before = heights(report)
    select = Select(report.find_element("id", f"choose-{filtered}"))
    select.select_by_index(at)
    assert heights(report) != before
    select.select_by_index(0)
    assert heights(report) == before


def test_a_control_that_is_off_is_said_above_the_charts_of_its_condition(report):
    from selenium.webdriver.support.ui import Select

    control_warning, select = (
        report.find_element("id", name) for name in ("stamp", "choose-condition")
    )
    assert not control_warning.is_displayed()
    Select(select).select_by_index(1)
    assert control_warning.is_displayed()
    assert control_warning.text.startswith("CONTROL OFF: The texts alone tell members")
    Select(select).select_by_index(0)
    assert not control_warning.is_displayed()


def test_conditions_are_chosen_by_what_tells_them_apart(report, findings):
    shown = "return [...document.querySelectorAll('#choose-condition option')].map(o => o.text)"
    rates = ("lr0.0001", "lr0.001")
    assert sorted(report.execute_script(shown)) == [f"… {rate}-tokens400000" for rate in rates]
    called = "return [ends(['a-b-c']), ends(['a-b-c', 'a-b']), ends(['a', 'b']), ends([])]"
    assert report.execute_script(called) == [["a-b-c"], ["… b-c", "… b"], ["a", "b"], []]


def test_the_heat_map_and_the_guess_follow_the_metric(report):
    drawn = (
        "return [document.getElementById('factor').layout.shapes[0].y0,"
        " document.getElementById('heat').data[0].colorscale,"
        " document.querySelector('#figure-heat figcaption').textContent]"
    )
    choose(report, "metric", "FPR at TPR ≥ 0.75")
    guess, scale, caption = report.execute_script(drawn)
    assert guess == 0.75
    assert [scale[0], scale[-1]] == [[0, "#b35806"], [1, "#f7f7f7"]]  # 0 is the best there is
    assert "a guess reaches 0.75" in caption
    choose(report, "metric", "AUROC")
    assert report.execute_script(drawn)[0] == 0.5


def test_where_nothing_can_be_drawn_it_says_why_and_what_to_do(report):
    choose(report, "metric", "TPR at FPR ≤ 0.001")
    for chart in ("factor", "occurrences", "heat"):
        said = report.find_element("css selector", f"#figure-{chart} .empty")
        assert said.is_displayed()
        assert "members, " in said.text
        assert "non-members) needs ≥ 5,000" in said.text
        assert said.text.endswith("Choose another condition, metric or benchmark above.")
        assert not report.find_element("id", chart).is_displayed()
    choose(report, "metric", "AUROC")
    assert not report.find_elements("css selector", ".empty:not([hidden])")
    assert report.find_element("id", "heat").is_displayed()


def test_the_charts_of_a_row_have_one_y_range_that_holds_all_that_they_draw(report):
    one, two = report.execute_script(RANGES)
    assert one == two
    drawn = "return ['factor', 'occurrences'].flatMap(i => document.getElementById(i).data)"
    values = [y for trace in report.execute_script(drawn) for y in trace["y"]]
    assert one[0] < min(values) < max(values) < one[1]


def test_the_lines_have_their_names_at_their_ends_and_none_covers_another(report):
    last = dict(report.execute_script(LINES + ".map(t => [t.name, t.y.at(-1)])"))
    assert report.execute_script(NAMES) == sorted(last, key=last.get)
    boxes = "return [...document.querySelectorAll('#occurrences .annotation')]"
    tops = sorted(report.execute_script(f"{boxes}.map(e => e.getBoundingClientRect().y)"))
    assert len(tops) == 4
    assert all(below - above >= 10 for above, below in zip(tops, tops[1:], strict=False))


@pytest.mark.parametrize("chart", ["factor", "occurrences"])
def test_the_controls_stand_beside_the_lines(report, chart):
    shown = f"return document.getElementById('{chart}').data.filter(t => t.meta === 'control')"
    found = report.execute_script(shown + ".map(t => [t.name, t.xaxis, t.y[0]])")
    blind = [0.52, 0.66] if chart == "factor" else [0.52]  # the second condition's is off
    names = ("loss", "min_k", "min_k_plus_plus")
    expected = [*([name, 0.52] for name in names), *(["blind (no model)", x] for x in blind)]
    assert found == [[name, "x2", value] for name, value in expected]


def test_six_methods_are_coloured_and_the_rest_is_grey_until_chosen(many):
    grey = "return document.getElementById('occurrences').data.filter(t => t.meta === 'rest')"
    names = "map(t => [t.name, t.line.color])"
    rest = dict(many.execute_script(f"{grey}.{names}"))
    assert set(rest) == {"m0", "m1", "m2", "m3"}
    assert len(set(rest.values())) == 1
    assert len(many.execute_script(NAMES)) == 6
    click(many, "methods", "m0")
    assert "m0" in dict(many.execute_script(f"{LINES}.{names}"))
    many.find_element("xpath", "//button[text()='best 6']").click()
    assert set(many.execute_script(NAMES)) == {f"m{i}" for i in range(4, 10)}


def test_the_address_holds_what_is_chosen(report):
    from selenium.webdriver.support.ui import WebDriverWait

    start = report.current_url.partition("#")[0]
    choose(report, "metric", "TPR at FPR ≤ 0.25")
    click(report, "benchmarks", "imdb")
    click(report, "methods", "loss")
    report.find_element("css selector", "nav a[href='#tables']").click()
    address, before = report.current_url, heights(report)
    assert address != start
    report.get(f"{start}#benchmark=boolq")  # without loading the page again
    boolq = "return document.querySelector('#benchmarks [aria-pressed=true]').textContent"
    WebDriverWait(report, 60).until(lambda d: d.execute_script(boolq) == "boolq")
    assert report.find_element("id", "choose-metric").get_attribute("value") == "auroc"
    opened(report, start)
    assert heights(report) != before
    opened(report, address)
    assert heights(report) == before
    assert report.find_element("id", "choose-metric").get_attribute("value") == "tpr_at_fpr_0.25"
    pressed = "return [...document.querySelectorAll('[aria-pressed=true]')].map(b => b.textContent)"
    assert report.execute_script(pressed) == ["imdb", "min_k", "min_k_plus_plus"]
    opened(report, f"{start}#metric=nonsense&benchmark=gone&methods=none")
    assert report.execute_script(NAMES) == ["blind (no model)"]
    opened(report, start)


def background(driver):
    script = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    return sum(driver.execute_script(script))


def test_dark_where_the_system_is_dark_until_the_reader_turns_it(report):
    font = "return document.getElementById('occurrences').layout.font.color.match(/\\d+/g)"
    assert background(report) > 700
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    report.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    opened(report, report.current_url)
    assert background(report) < 100
    assert sum(map(int, report.execute_script(font))) > 600
    report.find_element("id", "theme").click()
    assert background(report) > 700
    assert sum(map(int, report.execute_script(font))) < 100
    opened(report, report.current_url)
    assert background(report) > 700  # it is remembered
    refused = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no'); }})"
    found = report.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": refused})
    opened(report, report.current_url)
    assert background(report) < 100  # as the system has it, where the browser keeps nothing
    report.find_element("id", "theme").click()
    assert background(report) > 700
    report.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", found)
    report.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    opened(report, report.current_url)
    report.execute_script("localStorage.clear()")


def test_a_dark_page_is_printed_in_ink_on_white(report):
    ink = "return document.getElementById('occurrences').layout.font.color"
    light = report.execute_script(ink)
    report.find_element("id", "theme").click()
    dark = report.execute_script(ink)
    report.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert report.execute_script(ink) == light != dark
    report.execute_script("dispatchEvent(new Event('afterprint'))")
    assert report.execute_script(ink) == dark
    report.find_element("id", "theme").click()


def test_on_a_phone_nothing_is_cut_off(narrow):
    width = "return document.documentElement.scrollWidth"
    assert narrow.execute_script(width) == 390
    script = (
        "return [...document.querySelectorAll('.chart text')].map(e => [e.textContent,"
        " e.getBoundingClientRect()]).filter(([, box]) => box.width).map(([t, b]) =>"
        " [t, b.left, b.right])"
    )
    texts = narrow.execute_script(script)
    assert len(texts) > 20
    assert [text for text, left, right in texts if left < 0 or right > 390] == []


def test_every_point_has_its_interval_as_a_bar_beside_the_others(report, findings):
    bars = LINES + ".filter(t => t.error_y).map(t => [t.x[0], t.y[0], t.error_y.array[0],"
    x, value, above, below = zip(
        *report.execute_script(bars + " t.error_y.arrayminus[0]])"), strict=True
    )
    assert len(set(x)) == len(x) == 3
    assert max(x) - min(x) < 0.5  # of a doubling
    rows = findings.rows_by_condition[next(iter(findings.rows_by_condition))].query(
        "metric == 'auroc' and benchmark == 'all' and checkpoint == 'contaminated'"
        " and occurrences == '1'"
    )
    assert list(value) == pytest.approx(list(rows["value"]), abs=1e-4)
    assert list(above) == pytest.approx(list(rows["ci_high"] - rows["value"]), abs=2e-4)
    assert list(below) == pytest.approx(list(rows["value"] - rows["ci_low"]), abs=2e-4)


@pytest.mark.parametrize("chart", ["factor", "occurrences", "roc"])
def test_only_the_method_that_is_pointed_at_has_a_band_where_there_are_many(report, chart):
    shown = (
        f"return document.getElementById('{chart}').data.filter(t => t.meta === 'band' &&"
        " !/, ?0[)]$/.test(t.fillcolor)).map(t => t.name)"
    )
    blind = ["blind (no model)"] if chart != "roc" else []
    assert report.execute_script(shown) == blind
    chip = "document.querySelector(\"#methods button[data-value='min_k']\")"
    report.execute_script(f"{chip}.focus()")
    assert report.execute_script(shown) == ["min_k", *blind]
    report.execute_script(f"{chip}.blur()")
    assert report.execute_script(shown) == blind
    report.execute_script(
        "document.getElementById('occurrences').emit('plotly_hover', {points: [{data: {name:"
        " 'loss'}}]})"
    )
    assert report.execute_script(shown) == ["loss", *blind]
    report.execute_script("document.getElementById('occurrences').emit('plotly_unhover', {})")
    click(report, "methods", "min_k")
    report.execute_script(f"{chip}.blur()")
    assert report.execute_script(shown) == ["loss", "min_k_plus_plus", *blind]  # few enough
    click(report, "methods", "min_k")
    report.execute_script(f"{chip}.blur()")


def test_hovering_shows_value_and_interval(report):
    words = "return document.querySelector('#occurrences .hoverlayer').textContent"
    report.execute_script("Plotly.Fx.hover('occurrences', [{curveNumber: 1, pointNumber: 0}])")
    shown = report.execute_script(words)
    assert "loss" in shown
    assert "members" in shown
    assert "[0." in shown


def test_no_choice_at_all_is_no_error(report):
    before = report.execute_script(RANGES)
    report.find_element("xpath", "//button[text()='none']").click()
    assert report.execute_script(LINES + ".map(t => t.name)") == ["blind (no model)"]
    assert report.find_element("css selector", "#figure-roc .empty").is_displayed()
    (low, high), _ = report.execute_script(RANGES)
    assert before[0][0] <= low < high <= before[0][1]
    report.find_element("xpath", "//div[@id='methods']/button[text()='all']").click()
    assert report.execute_script(RANGES) == before


def test_nothing_was_fetched_and_nothing_went_wrong(report):
    """Runs last: after all the clicks."""
    assert [entry for entry in report.get_log("browser") if entry["level"] != "INFO"] == []
    messages = [json.loads(entry["message"])["message"] for entry in report.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    own = report.current_url.partition("#")[0]
    others = {url.partition("#")[0] for url in asked if not url.startswith("data:")}
    assert {url.rpartition("/")[2] for url in others} <= {"report.html", "many.html", "tags.html"}
    assert own in others
