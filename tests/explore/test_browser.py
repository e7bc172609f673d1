"""The pages in a real browser, headless: from the server, and from files without one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mmulator.matrix.explore import site
from mmulator.matrix.explore.server import Server
from mmulator.matrix.explore.view import Choices
from mmulator.matrix.inspect.layouts.layout import layout
from mmulator.matrix.inspect.views.tables import cells, label, run_of
from tests.support import browser
from tests.support.browser import Browser

pytestmark = pytest.mark.skipif(
    not browser.found(), reason="no Chromium: install the system's package chromium, or name a browser in CHROMIUM"
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@contextmanager
def served() -> Iterator[str]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as url:
        yield url


def table(page: Browser) -> list[list[str]]:
    """Texts of the cells of all tables, by row."""
    rows = "[...document.querySelectorAll('table.cells tbody tr')]"
    return page.do(f"{rows}.map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent))")


def choose(page: Browser, name: str, value: str) -> None:
    """What a hand does to a select or a text field."""
    page.do(f"window.at = document.getElementById('control-{name}') || document.getElementById('{name}'); 0")
    page.do(f"at.value = {json.dumps(value)}; at.dispatchEvent(new Event('input')); at.dispatchEvent(new Event('change'))")
    page.do("new Promise(done => setTimeout(done, 50))")
    page.wait(browser.READY)


def expected(words: str, operand: str) -> list[list[str]]:
    found = layout(words, operand)
    rows: dict[int, list[str]] = {}
    for row, _, holders in cells(found, 0, range(found.rows), range(found.columns)):
        rows.setdefault(row, []).append(", ".join(label(found, h, run_of(found).length, short=True) for h in holders))
    return [*rows.values()]


def test_what_is_shown_is_what_the_command_shows(opened: Browser, address: str) -> None:
    opened.open(address)
    assert table(opened) == expected("mma m16n8k16 f16", "a")
    choose(opened, "operand", "b")
    assert table(opened) == expected("mma m16n8k16 f16", "b") and "operand=b" in opened.do("location.hash")
    choose(opened, "family", "wgmma.mma_async")
    choose(opened, "find", "m64n64k16 bf16")
    assert opened.do("document.getElementById('control-instruction').options.length") == 1
    assert table(opened) == expected("wgmma m64n64 bf16", opened.do("document.getElementById('control-operand').value"))
    assert not opened.complaints()


def test_a_link_brings_everything_back(opened: Browser, address: str) -> None:
    opened.open(f"{address}#layout?family=mma&operand=d&by=lane&lane=3&chip=sm_75")
    assert opened.do("document.getElementById('chip').value") == "sm_75"
    assert opened.do("document.getElementById('control-operand').value") == "d"
    marked = opened.do("[...document.querySelectorAll('td.marked')].every(c => c.parentElement.rowIndex == 4)")
    assert marked and opened.do("document.querySelectorAll('td.marked').length") > 0
    assert "m16n8k16" not in opened.do("document.getElementById('control-instruction').textContent")  # sm_75 has none of f16


def test_sliders_mark_what_a_lane_and_a_register_hold(opened: Browser, address: str) -> None:
    opened.open(f"{address}#layout?lane=14")
    own = [text for row in expected("mma m16n8k16 f16", "a") for text in row if text.startswith("T14 ")]
    marked = "[...document.querySelectorAll('td.marked')].map(c => c.textContent)"
    assert opened.do(marked) == own
    opened.do("window.at = document.querySelectorAll('input[type=range]')[1]; 0")
    opened.do("at.value = 1; at.dispatchEvent(new Event('input'))")
    assert opened.do(marked) == [text for text in own if text == "T14 a2-3"] and "register=1" in opened.do("location.hash")


def test_keys_walk_through_a_table_and_say_what_lies_there(opened: Browser, address: str) -> None:
    opened.open(address)
    opened.do("document.querySelector('td[tabindex=\"0\"]').focus()")
    for key in ("ArrowDown", "ArrowRight", "End", "ArrowLeft"):
        opened.key(key)
    said = opened.do("document.getElementById('said').textContent")
    assert said == "row 1, column 12-13: lane 6, register 2, bits 0..15 (a4); lane 6, register 2, bits 16..31 (a5)"
    assert opened.do("document.querySelectorAll('td[tabindex=\"0\"]').length") == 1
    assert opened.do("document.activeElement.tagName") == "TD"


def test_screen_readers_find_names_and_headings(opened: Browser, address: str) -> None:
    opened.open(address)
    nodes = opened("Accessibility.getFullAXTree")["nodes"]
    by_role: dict[str, list[str]] = {}
    for node in nodes:
        by_role.setdefault(node.get("role", {}).get("value", ""), []).append(node.get("name", {}).get("value", ""))
    for role in ("combobox", "slider", "radio", "searchbox", "navigation", "grid", "form", "link"):
        assert by_role.get(role) and all(by_role[role]), role
    assert len(by_role["columnheader"]) >= 8 and len(by_role["rowheader"]) >= 16 and by_role["main"] is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(opened: Browser, address: str, scheme: str) -> None:
    other = {"light": "dark", "dark": "light"}[scheme]
    opened.size(800, 600, scheme)
    opened.open(address)
    ground = "getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 27)"}
    assert opened.do(ground) == colours[scheme]
    choose(opened, "theme", other)
    assert opened.do(ground) == colours[other]
    opened.open(address)
    assert opened.do(ground) == colours[other]  # it is remembered
    choose(opened, "theme", "")


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_no_page_is_wider_than_the_screen(opened: Browser, address: str, width: int) -> None:
    opened.size(width, 800)
    for view in site.VIEWS:
        opened.open(f"{address}#{view}")
        assert opened.do("document.documentElement.scrollWidth") <= width, view


def test_nothing_is_asked_of_anybody_else(opened: Browser, address: str) -> None:
    opened.open(address)
    foreign = [url for url in opened.requests() if not url.startswith((address, "about:", "file:", "data:", "http://127.0.0.1:"))]
    assert not foreign and not opened.complaints()


def first(choices: Choices) -> Choices:
    """The first choice of a tree, which a page begins with."""
    return {value: rest and first(rest) for value, rest in [*choices.items()][:1]}


def test_a_text_that_is_typed_replaces_the_lists(opened: Browser, address: str) -> None:
    opened.open(f"{address}#sum")
    choose(opened, "a", "1 2")
    choose(opened, "b", "3 4")
    assert "result\n11\n" in opened.do("document.getElementById('document').innerText")
    choose(opened, "a", "one")
    assert "is no number" in opened.do("document.querySelector('[role=alert]').textContent")
    opened.events.clear()  # the browser noted that the server refused it
    opened.open(f"{address}#sum?a=2&b=3")
    assert "result\n6\n" in opened.do("document.getElementById('document').innerText")


def test_files_need_no_server(opened: Browser, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = {name: replace(view, choices=lambda view=view: first(view.choices())) for name, view in site.VIEWS.items()}
    with monkeypatch.context() as context:
        context.setattr(site, "VIEWS", views)
        site.export(tmp_path)
    for view in views:
        opened.open(f"{address}#{view}")
        shown = opened.do("document.getElementById('document').innerText")
        opened.open(f"{(tmp_path / 'index.html').as_uri()}#{view}")
        assert opened.do("document.getElementById('document').innerText") == shown and len(shown) > 200
    assert not opened.complaints()
