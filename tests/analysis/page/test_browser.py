"""report.html in a real browser, from disk: charts are drawn, filters work, nothing is fetched."""

from __future__ import annotations

import json

import pytest

from analysis.page.build import page

pytestmark = pytest.mark.browser
LINES = "return document.getElementById('occurrences').data.filter(t => t.meta === 'line')"
PATHS = "return document.querySelectorAll('#occurrences .scatterlayer path.js-line').length"


@pytest.fixture(scope="module")
def report(driver, one_off, tmp_path_factory):
    from selenium.webdriver.support.ui import WebDriverWait

    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(one_off, {"name": "trial"}))
    driver.get("about:blank")
    driver.get_log("performance")  # whatever the browser's own first tab did
    driver.get(path.as_uri())
    ready = "return document.body.dataset.ready"
    WebDriverWait(driver, 60).until(lambda d: d.execute_script(ready))
    return driver


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
    for chart in ("occurrences", "factor-chart", "heat", "roc", "histogram", "loss"):
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
    first = shown[shown["condition"] == next(iter(findings.conditions))]
    assert after[0] == [float(f"{value:.4g}") for value in first["value"]]
    click(report, "benchmarks", "all")
    assert heights(report) == before


def test_a_method_filter_takes_its_line_away(report):
    names = report.execute_script(LINES + ".map(t => t.name)")
    paths = report.execute_script(PATHS)
    click(report, "methods", "min_k")
    left = report.execute_script(LINES + ".map(t => t.name)")
    assert left == [name for name in names if name != "min_k"]
    assert report.execute_script(PATHS) < paths
    click(report, "methods", "min_k")
    assert report.execute_script(LINES + ".map(t => t.name)") == names


@pytest.mark.parametrize("filtered", ["condition", "checkpoint", "metric"])
def test_each_selection_changes_the_values(report, filtered):
    from selenium.webdriver.support.ui import Select

    before = heights(report)
    select = Select(report.find_element("id", filtered))
    select.select_by_index(1)
    assert heights(report) != before
    select.select_by_index(0)
    assert heights(report) == before


def test_a_control_that_is_off_is_said_above_the_charts_of_its_condition(report):
    from selenium.webdriver.support.ui import Select

    stamp, select = (report.find_element("id", name) for name in ("stamp", "condition"))
    assert not stamp.is_displayed()
    Select(select).select_by_index(1)
    assert stamp.is_displayed()
    assert stamp.text.startswith("CONTROL OFF: The texts alone tell members")
    Select(select).select_by_index(0)
    assert not stamp.is_displayed()


def test_the_heat_map_and_the_guess_follow_the_metric(report):
    from selenium.webdriver.support.ui import Select

    select = Select(report.find_element("id", "metric"))
    drawn = (
        "return [document.getElementById('occurrences').layout.shapes[0].y0,"
        " document.getElementById('heat').data[0].colorscale,"
        " document.querySelector('#figure-heat figcaption').textContent]"
    )
    select.select_by_visible_text("FPR at TPR ≥ 0.95")
    guess, scale, caption = report.execute_script(drawn)
    assert guess == 0.95
    assert [value for value, colour in scale if colour == "#f7f7f7"] == [0.95]
    assert scale[0] == [0, "#b35806"]  # no false alarm: the best there is
    assert "White is a guess (0.95)" in caption
    select.select_by_visible_text("AUROC")
    assert report.execute_script(drawn)[0] == 0.5


def test_a_rate_that_is_not_carried_is_not_drawn_and_says_what_it_needs(report):
    from selenium.webdriver.support.ui import Select

    select = Select(report.find_element("id", "metric"))
    select.select_by_visible_text("TPR at FPR ≤ 0.001")
    drawn = "return document.getElementById('heat').data[0].z.flat().length"
    words = "return document.querySelector('#figure-heat figcaption').textContent"
    assert report.execute_script(drawn) == 0
    assert "imdb (32 members, 32 non-members) needs ≥ 5,000" in report.execute_script(words)
    select.select_by_visible_text("AUROC")
    assert report.execute_script(drawn) > 0
    assert "Not shown" not in report.execute_script(words)


def test_hovering_shows_value_and_interval(report):
    words = "return document.querySelector('#occurrences .hoverlayer').textContent"
    report.execute_script("Plotly.Fx.hover('occurrences', [{curveNumber: 1, pointNumber: 0}])")
    shown = report.execute_script(words)
    assert "loss" in shown
    assert "members" in shown
    assert "[0." in shown


def test_no_choice_at_all_is_no_error(report):
    click(report, "methods", "none")
    assert heights(report) == []
    click(report, "methods", "all methods")
    assert heights(report)


def test_nothing_was_fetched_and_nothing_went_wrong(report):
    """Runs last: after all the clicks."""
    assert [entry for entry in report.get_log("browser") if entry["level"] != "INFO"] == []
    messages = [json.loads(entry["message"])["message"] for entry in report.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1
