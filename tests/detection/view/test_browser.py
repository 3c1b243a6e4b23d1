"""view.html in a real browser, from disk: values on hover and by the keys, filters, dark mode."""

import json
import re

import pytest

from tests.detection.view.conftest import TEXTS, data_of

pytestmark = pytest.mark.browser
ARTICLES = "[...document.querySelectorAll('article')]"
SHOWN = f"return {ARTICLES}.map(a => a.querySelector('bdi').textContent)"
ARTICLE = f"{ARTICLES}.find(a => a.querySelector('bdi').textContent === '{{}}')"
DARK = "Emulation.setEmulatedMedia"


@pytest.fixture(scope="module")
def view(driver, written):
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get("about:blank")
    driver.get_log("performance")  # whatever the browser's own first tab did
    driver.get(written.as_uri())
    ready = "return document.body.dataset.ready"
    WebDriverWait(driver, 60).until(lambda d: d.execute_script(ready))
    return driver


@pytest.fixture(scope="module")
def shown(written):
    return {e["id"]: e for e in data_of(written)["examples"]}


def tokens(view, name):
    article = ARTICLE.format(name)
    return view.execute_script(f"return [...{article}.querySelectorAll('[role=option]')]")


def choose(view, name, word):
    from selenium.webdriver.support.ui import Select

    Select(view.find_element("id", name)).select_by_visible_text(word)


def press(view, *keys):
    from selenium.webdriver.common.keys import Keys

    for key in keys:
        view.switch_to.active_element.send_keys(getattr(Keys, key))
    return view.execute_script("return document.activeElement")


def written_as(value):
    return f"{value / 1000:.3f}".replace("-", "−")


def test_each_text_is_there_to_the_character(view):
    for name, (text, *_) in TEXTS.items():
        article = ARTICLE.format(name)
        found = view.execute_script(f"return {article}.querySelector('.text').textContent")
        assert found == text


def test_hover_shows_a_tokens_values(view, shown):
    from selenium.webdriver.common.action_chains import ActionChains

    tip = view.find_element("id", "tip")
    assert not tip.is_displayed()
    token = tokens(view, "n1")[4]
    ActionChains(view).move_to_element(token).perform()
    entry = int(token.get_attribute("data-token")) - 1
    assert shown["n1"]["tokens"][entry + 1].strip() in tip.text
    for values in shown["n1"]["numbers"].values():
        assert written_as(values[entry]) in tip.text
    ActionChains(view).move_to_element(view.find_element("tag name", "h1")).perform()
    assert not tip.is_displayed()


def test_the_keys_move_and_what_they_reach_is_read_out(view, shown):
    from selenium.webdriver.common.keys import Keys

    view.execute_script("document.getElementById('sort').focus()")
    view.switch_to.active_element.send_keys(Keys.TAB)
    first = view.execute_script("return document.activeElement")
    name = view.execute_script(
        "return arguments[0].closest('article').querySelector('bdi').textContent", first
    )
    own = tokens(view, name)
    assert first == own[0]
    assert name in view.execute_script("return arguments[0].parentElement", first).accessible_name
    assert press(view, "ARROW_RIGHT", "ARROW_RIGHT") == own[2]
    said = view.find_element("id", "said")
    assert said.get_attribute("aria-live") == "polite"
    entry = int(own[2].get_attribute("data-token")) - 1
    assert written_as(shown[name]["numbers"]["logprob"][entry]) in said.get_attribute("textContent")
    assert view.find_element("id", "tip").is_displayed()
    assert press(view, "ARROW_LEFT") == own[1]
    assert press(view, "END") == own[-1]
    assert press(view, "ARROW_RIGHT") == own[-1]
    assert press(view, "HOME") == own[0]
    press(view, "ESCAPE")
    assert not view.find_element("id", "tip").is_displayed()
    next_text = press(view, "TAB")  # one stop a text
    assert next_text not in own
    assert next_text.get_attribute("role") == "option"
    stops = "return document.querySelectorAll('article [tabindex=\"0\"]').length"
    assert view.execute_script(stops) == len(TEXTS)


def test_arrows_up_and_down_change_the_line(view):
    own = tokens(view, "m2")
    view.execute_script("arguments[0].focus()", own[0])
    below = press(view, "ARROW_DOWN")
    assert view.find_element("id", "tip").is_displayed()
    assert below.rect["y"] > own[0].rect["y"]
    assert press(view, "ARROW_UP").rect["y"] == own[0].rect["y"]


def test_filters_and_sorting_change_what_is_shown(view, shown):
    assert set(view.execute_script(SHOWN)) == set(TEXTS)
    choose(view, "kind", "member")
    assert set(view.execute_script(SHOWN)) == {"m1", "m2"}
    choose(view, "benchmark", "tea")
    assert view.execute_script(SHOWN) == ["m1"]
    assert "1 member" in view.find_element("id", "count").text
    assert "kind=member" in view.current_url
    choose(view, "kind", "no label")
    assert view.execute_script(SHOWN) == []
    assert "No example" in view.find_element("id", "count").text
    choose(view, "kind", "all")
    choose(view, "benchmark", "all")
    choose(view, "sort", "loss, lowest first")
    members = [name for name in view.execute_script(SHOWN) if name.startswith("m")]
    assert members == sorted(members, key=lambda name: shown[name]["scores"]["loss"])
    choose(view, "sort", "loss, highest first")
    assert [n for n in view.execute_script(SHOWN) if n.startswith("m")] == members[::-1]


def test_occurrences_choose_members_and_leave_the_others(view, written, shown, tmp_path):
    from contamination.detection.viewer.page import render_page

    data, occurrences = data_of(written), {"m1": 1, "m2": 4}
    examples = [{**e, "occurrences": occurrences.get(e["id"], 0)} for e in data["examples"]]
    path = tmp_path / "corpus.html"
    path.write_text(render_page({"model": "m"}, {**data, "examples": examples}))
    view.get(f"{path.as_uri()}#occurrences=4&number=z")  # the state is in the address
    assert set(view.execute_script(SHOWN)) == set(TEXTS) - {"m1"}
    assert view.find_element("id", "number").get_attribute("value") == "z"
    choose(view, "occurrences", "1")
    assert set(view.execute_script(SHOWN)) == set(TEXTS) - {"m2"}
    view.get(written.as_uri())


def test_the_shade_follows_the_number(view, shown):
    by = "return arguments[0].style.getPropertyValue('--by')"
    token = tokens(view, "n1")[3]
    entry = int(token.get_attribute("data-token")) - 1
    choose(view, "number", "model − reference")
    assert ("low" in token.get_attribute("class")) == (
        shown["n1"]["numbers"]["difference"][entry] < 0
    )
    assert view.execute_script(by, token) != "0%"
    choose(view, "number", "rank 0")
    assert view.execute_script(by, token) == ("100%" if shown["n1"]["top"][entry] == -1 else "0%")
    assert {view.execute_script(by, each) for each in tokens(view, "m1")[1:-1]} == {"100%"}


def luminance(colour):
    parts = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", ["dark", "light"])
def test_text_is_readable_on_every_shade(view, mode):
    """Contrast 4.5 and more, WCAG 2.2's level AA, on the page and on both full colours."""
    view.execute_cdp_cmd(DARK, {"features": [{"name": "prefers-color-scheme", "value": mode}]})
    script = """const probe = document.createElement('i'); document.body.append(probe);
        const found = ['--ink', '--page', '--low', '--high', '--grey'].map((name) => {
          probe.style.color = `var(${name})`; return getComputedStyle(probe).color; });
        probe.remove(); return found;"""
    ink, page, low, high, grey = map(luminance, view.execute_script(script))
    assert (page < 0.05) == (mode == "dark")
    for one, other in ((ink, page), (ink, low), (ink, high), (grey, page)):
        assert (max(one, other) + 0.05) / (min(one, other) + 0.05) >= 4.5


def test_a_narrow_page_does_not_scroll_sideways(view):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    view.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert view.execute_script("return document.documentElement.scrollWidth") <= 390
    view.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_nothing_was_fetched_and_nothing_went_wrong(view):
    """Runs last: after all the clicks."""
    assert [entry for entry in view.get_log("browser") if entry["level"] != "INFO"] == []
    messages = [json.loads(entry["message"])["message"] for entry in view.get_log("performance")]
    asked = [
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
