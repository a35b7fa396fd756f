"""A real Chromium on a real server. The browser talks to this machine only."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


def _module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_acceptance = _module(TESTS / "acceptance" / "conftest.py", "page_tests_study")
_server = _module(TESTS / "acceptance" / "server" / "conftest.py", "page_tests_server")
_hub = _module(TESTS / "acceptance" / "server" / "test_server_hub.py", "page_tests_hub")
study, server, KEY = _acceptance.study, _server.server, _server.KEY


class Window:
    """One window with cookies of its own. Everything that the browser complains about is in ``complaints``."""

    def __init__(self, browser, site, **options):
        options = {"viewport": {"width": 1200, "height": 900}, "locale": "en-GB", **options}
        self.context = browser.new_context(**options)
        self.site = site
        self.complaints, self.foreign = [], []
        self.page = self.tab()

    def tab(self):
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda r: r.url.startswith(self.own) or self.foreign.append(r.url))
        return page

    @property
    def own(self):
        return f"http://127.0.0.1:{self.site.port}/"

    def go(self, path="", page=None):
        (page or self.page).goto(self.own + "admin/training" + path)

    def sign_in(self, path=""):
        self.go(path)
        self.page.get_by_label("Admin key").fill(KEY)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name="Sign out").wait_for()
        return self.page

    def start(self, trainer, **params):
        """Starts a run by the form."""
        page = self.page
        page.get_by_label("Trainer").select_option(trainer)
        if params:
            page.get_by_text(f"Parameters of {trainer}").click()
        for name, value in params.items():
            page.locator(f"[id='p.{trainer}.{name}']").fill(str(value))
        page.get_by_role("button", name="Start run").click()
        page.get_by_text("The run is in the queue.").wait_for()
        return self.site.study.runs()[0].run_id

    def close(self):
        self.context.close()


@pytest.fixture
def window(browser, server):
    """``window(site=None, **options)``: a Window on a server; the first one starts it. None may complain."""
    opened = []

    def make(site=None, **options):
        opened.append(Window(browser, site or (opened[0].site if opened else server()), **options))
        return opened[-1]

    yield make
    for one in opened:
        complaints, foreign = one.complaints, one.foreign
        one.close()
        assert complaints == [], "the browser complains"
        assert foreign == [], "the page asked another host"


@pytest.fixture
def hub():
    """A stand-in for the Hub; ``env(folder)`` makes a server use it, ``token`` is the one that it takes."""
    made = _hub.Hub()
    made.env, made.token = (lambda folder: _hub.env_of(made, folder)), _hub.TOKEN
    yield made
    made.gate.set()
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="session")
def axe():
    """``axe(page)``: the accessibility violations of a page as lines of text."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        pytest.skip("NO AXE: pip install axe-playwright-python")
    source = Path(found.origin).with_name("axe.min.js").read_text("utf-8")
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

    def check(page):
        page.evaluate(source)  # by the debugger, which the page's content policy does not bind
        result = page.evaluate("tags => axe.run(document, {runOnly: tags})", tags)
        assert result["passes"], "axe looked at nothing"
        return [f"{v['id']}: {n['html']} {n['failureSummary']}" for v in result["violations"] for n in v["nodes"]]

    return check
