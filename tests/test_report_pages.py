"""The report in a real browser: headless Chromium, driven by Playwright, with the page opened from disk and served."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psutil
import pytest

from astra.report.writing import write_all
from tests.report_run import HUGE, write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None and os.environ.get("CI") != "true":
    pytest.skip("no chromium here: apt-get install chromium", allow_module_level=True)
playwright = pytest.importorskip(
    "playwright.sync_api", reason="pip install playwright (it needs no browser of its own)"
)

MANY = 50_000
# the browser's own address bar, which is a renderer of 75 MiB and no part of what is looked at
NO_ADDRESS_BAR = ["--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"]


class Looked:
    """A page that is looked at; everything that it complains of or asks the network for is kept."""

    def __init__(self, browser, address: str, width: int = 1280, scheme: str = "light") -> None:
        self.address = address
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda one: self.complaints.append(f"{one.type}: {one.text}"))
        self.page.on("pageerror", lambda one: self.complaints.append(f"error: {one}"))
        self.page.on("request", lambda one: self.asked.append(one.url))

    def open(self, place: str = "", wait: str = "#overview:not([hidden]), #view h2, #view .error") -> None:
        self.page.goto("about:blank")
        self.page.goto(self.address + place)
        self.page.wait_for_selector(wait)

    def text(self, selector: str = "main") -> str:
        return self.page.inner_text(selector)

    def listed(self) -> str:
        """What the line above a list says once it is there."""
        self.page.wait_for_selector("#view [role=status]:not(:has-text('Reading'))")
        return self.text("#view [role=status]")

    def until(self, status: str) -> None:
        """Wait until the line above a list says so."""
        self.page.wait_for_selector(f"#view [role=status]:has-text('{status}')")

    def wider_than_the_screen(self) -> bool:
        return self.page.evaluate("document.documentElement.scrollWidth > innerWidth")


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with playwright.sync_playwright() as started:
        one = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *NO_ADDRESS_BAR])
        yield one
        one.close()


def made(folder: Path, *args, **kwargs) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(write_run(folder, *args, **kwargs))
    try:
        write_all(iter)
    finally:
        os.chdir(before)
    return folder / "reports" / "index.html"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """A run of few records, all of whose texts try to be more than text."""
    return made(tmp_path_factory.mktemp("report") / "hostile", 120, 2500)


@pytest.fixture
def look(browser, hostile):
    seen = []

    def opened(place: str = "", **options) -> Looked:
        one = Looked(browser, hostile.as_uri(), **options)
        seen.append(one)
        one.open(place)
        return one

    yield opened
    for one in seen:
        hacked = one.page.evaluate("window.hacked")
        one.context.close()
        assert one.complaints == []
        assert hacked is None
        assert [url for url in one.asked if not url.startswith(("file:", "data:", "about:"))] == []


def test_the_overview_draws_every_picture_and_counts_every_stage(look):
    one = look()
    assert "120 out" in one.text("#pipeline")
    assert one.page.title() == "Astra Pipeline report"
    charts = one.page.locator(".chart")
    for n in range(charts.count()):
        charts.nth(n).scroll_into_view_if_needed()
        charts.nth(n).locator("svg").wait_for()
    assert charts.count() >= 9
    assert "chains: 2,501 walks → 1" in one.text("#yields")
    assert "voted_down" in one.text("#rejects")
    assert "0.50" in one.text("#costs tfoot")


@pytest.mark.parametrize(("kind", "id", "words"), [
    ("graph", "server-000000000000", "invoices[].no → invoice_no (name 0.6, similarity 0.5)"),
    ("graph", "graph-000000000000", "City Bikes/get_document"),
    ("graph", "server-000000000001", "has no graph"),
    ("chain", "chain-000000000000", "find_client (0): no"),
    ("task", "task-000000000000", "question_quality"),
    ("trajectory", "trajectory-000000000003", "fault: stale"),
    ("trajectory", "trajectory-000000000003", '{"__proto__": {"n": 12345678901234567890}}'),
    ("trajectory", "trajectory-000000000003", "arguments are not JSON"),
    ("trajectory", "trajectory-000000000003", "invented:"),
    ("arena", "environment-train", "✗ no_leak"),
    ("arena", "environment-train", "find_client({\"__proto__\":"),
    ("rollout", "environment-train:0:0", "1 of 2"),
    ("sample", "base:heldout:environment-heldout:greedy:0", "the endpoint was away"),
    ("reject", "chains:7", "voted_down"),
])  # fmt: skip
def test_a_record_is_reached_by_its_address_and_shows_what_it_holds(look, kind, id, words):
    one = look(f"#/{kind}/{id.replace(':', '%3A')}")
    assert words in one.text()
    assert id in one.page.title()
    assert "onerror=" in one.page.inner_text("#view") or kind == "chain"  # the hostile text stands there as text
    assert not one.wider_than_the_screen()


def test_a_trajectory_has_its_seven_scores_with_reasons(look):
    found = look("#/trajectory/trajectory-000000000004").text(".scores")
    assert all(f"{name}\n" in found or f"{name} <" in found for name in ("QU", "QP", "TCU", "TCP", "TCS", "TC", "FA"))
    assert found.count("window.hacked = 1") == 7


def test_what_is_not_there_is_said(look):
    assert "There is no trajectory trajectory-x in this report." in look("#/trajectory/trajectory-x").text()
    assert "This report has no page nowhere." in look("#/nowhere").text()


def test_rejects_are_filtered_by_stage_reason_and_words_and_the_address_holds_the_filter(look):
    one = look("#/list/reject")
    assert one.listed() == "1 to 50 of 2,500"
    one.page.select_option("select[name=reason]", "voted_down")
    one.until("1,666")
    one.page.fill("input[type=search]", "chain-0000000009c2 ONERROR")
    one.until("1 to 1 of 1")
    assert "reason=voted_down" in one.page.url
    one.page.reload()
    assert one.listed() == "1 to 1 of 1"
    assert one.page.input_value("input[type=search]") == "chain-0000000009c2 ONERROR"
    one.page.fill("input[type=search]", "no such words")
    one.until("Nothing fits.")


def test_lists_are_turned_page_by_page_and_sorted(look):
    one = look("#/list/reject")
    one.listed()
    one.page.click("text=Last")
    one.until("2,451")
    one.open("#/list/trajectory?sort=overall&down=1")
    one.listed()
    scores = [float(text) for text in one.page.locator("td.number[data-label=Score]").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 50


def test_faults_are_a_filter_of_trajectories(look):
    one = look("#/list/trajectory?faults=timeout")
    assert one.listed() == "1 to 17 of 17"
    assert set(one.page.locator("td.tags").all_inner_texts()) == {"timeout"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["", "#/list/trajectory", "#/list/reject", "#/trajectory/trajectory-000000000001",
                                   "#/arena/environment-train", "#/graph/server-000000000000", "#/task/task-000000000000",
                                   "#/chain/chain-000000000000"])  # fmt: skip
def test_a_phone_shows_every_page_without_scrolling_sideways(look, place, scheme):
    one = look(place, width=390, scheme=scheme)
    if "list" in place:
        one.listed()
    assert not one.wider_than_the_screen()
    size = one.page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
    assert size >= 14
    light, dark = "rgb(255, 255, 255)", "rgb(20, 24, 31)"
    assert one.page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        light if scheme == "light" else dark
    )


def test_the_keyboard_reaches_the_lists(look):
    one = look()
    one.page.keyboard.press("Tab")
    assert one.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(4):
        one.page.keyboard.press("Tab")
    one.page.keyboard.press("Enter")
    one.page.wait_for_selector("#view h2")
    assert one.text("#view h2") in ("Tool graphs", "Chains")


def test_a_script_that_got_into_the_page_does_not_run(browser, hostile, tmp_path):
    folder = shutil.copytree(hostile.parent, tmp_path / "reports")
    page = folder / "index.html"
    page.write_text(page.read_text().replace("<main", "<script>window.hacked = 9</script><main", 1))
    one = Looked(browser, page.as_uri())
    one.open()
    assert one.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in text for text in one.complaints)
    one.context.close()


def test_without_its_data_folder_the_page_says_so(browser, hostile, tmp_path):
    page = shutil.copy(hostile, tmp_path)
    one = Looked(browser, Path(page).as_uri())
    one.open()
    assert "120" in one.text(".tiles")
    one.open("#/list/trajectory", "#view .error")
    assert "The folder data must lie beside this page." in one.text()
    one.context.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


def test_a_static_server_does_too(browser, hostile):
    handler = functools.partial(Quiet, directory=str(hostile.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        one = Looked(browser, f"http://127.0.0.1:{server.server_port}/index.html")
        one.open("#/trajectory/trajectory-000000000003")
        assert "fault: stale" in one.text()
        complaints = [text for text in one.complaints if "favicon" not in text and "404" not in text]
        one.context.close()
        server.shutdown()
    assert complaints == []


def test_a_text_of_millions_of_characters_is_shown_when_asked_for(browser, tmp_path):
    one = Looked(browser, made(tmp_path / "huge", 2, 1, words="w" * HUGE).as_uri())
    one.open("#/trajectory/trajectory-000000000001")
    assert len(one.text()) < 200_000
    assert not one.wider_than_the_screen()
    one.page.locator(".turn.user button").click()
    assert len(one.text(".turn.user")) > HUGE
    one.context.close()
    assert one.complaints == []


def of_browser() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if "chrom" in one.name()]


def memory_mib() -> float:
    """What the browser's processes hold together, shared pages counted once."""
    return sum(one.memory_full_info().pss for one in of_browser()) / 2**20


@pytest.mark.slow
def test_fifty_thousand_trajectories_open_within_two_seconds_and_500_mib(browser, tmp_path):
    words = "I need you to find a client by name, then use that result to issue an invoice. " * 4
    address = made(tmp_path / "many", MANY, 20_000, words=words).as_uri()
    took: dict[str, list[float]] = {}
    for _ in range(4):  # the last one is measured for its memory too
        one = Looked(browser, address)
        for name, place, shown in (("overview", "", ".tile"), ("list", "#/list/trajectory", "td.first a"),
                                   ("record", f"#/trajectory/trajectory-{MANY - 1:012x}", ".turn.user")):  # fmt: skip
            one.page.goto("about:blank")
            one.page.goto(address + place, wait_until="commit")
            one.page.wait_for_selector(f"{shown} >> visible=true")
            took.setdefault(name, []).append(one.page.evaluate("performance.now()") / 1000)  # s since it began
        if len(took["record"]) < 4:
            one.context.close()
    one.open("#/list/trajectory?q=find&faults=stale&sort=overall")
    assert one.listed().endswith("of 7,143")
    one.open("#/list/reject?reason=voted_down")
    assert one.listed().endswith("of 13,333")
    held = memory_mib()
    one.context.close()
    assert one.complaints == []
    first = {name: round(median(seconds), 2) for name, seconds in took.items()}
    print(f"first views {first} s, {held:.0f} MiB")
    assert max(first.values()) < 2, took
    assert 50 < held < 500
