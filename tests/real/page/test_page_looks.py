"""How the page looks, to eyes and to screen readers, and what never becomes a part of it."""

from __future__ import annotations

import json
import os
import shutil

import pytest

pytestmark = pytest.mark.real
PHONE = {"viewport": {"width": 375, "height": 800}}
#: Each width and each scheme of colours; all four pairs of them with ``make test-all``.
LOOKS = {"wide": {}, "dark phone": {**PHONE, "color_scheme": "dark"}}
if "POTATO_TEST_ALL" in os.environ:
    LOOKS.update({"phone": PHONE, "dark": {"color_scheme": "dark"}})


def test_no_accessibility_violation_and_no_sideways_scrolling(window, study, axe):
    """Wide and on a phone, in light and dark: every kind of page, with one run at work and one in line."""
    first_window = window()
    first_window.sign_in()
    first, second = first_window.start("test-curved", steps=3), first_window.start("test-quick")
    for run in (first, second):
        study.ended(run)
    live = first_window.start("test-curved", steps=100_000)
    waiting = first_window.start("test-slow", steps=100_000)
    found, wide = {}, {}
    for how, options in LOOKS.items():
        w = window(**options)
        page = w.page

        def look(name, how=how, page=page):
            found[how, name] = axe(page)
            width = page.evaluate("document.scrollingElement.scrollWidth")
            if width > page.viewport_size["width"]:
                wide[how, name] = width

        w.go()
        look("login")
        w.sign_in()
        page.locator("#region-now svg").first.wait_for()
        page.locator(".queue li").wait_for()
        page.get_by_text("Parameters of sklearn-text").click()
        look("page")
        page.get_by_role("button", name="Check").click()
        page.get_by_role("heading", name="local: a run could start there now").wait_for()
        look("check")
        for name, path in (("run", f"/runs/{first}"), ("running", f"/runs/{live}"), ("queued", f"/runs/{waiting}"),
                           ("compare", f"/compare?run={first}&run={second}")):
            w.go(path)
            look(name)
        page.close()
    for run in (waiting, live):
        first_window.site.post(f"api/runs/{run}/cancel")
    assert len(found) == 7 * len(LOOKS)
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert wide == {}


HOSTILE = '"><img src=x onerror="window.hurt=1"><script>window.hurt=1</script>\'{{7*7}}</svg>&amp;'


def test_nothing_from_outside_becomes_html(window, study, write_project):
    """Item texts, labels, annotators' names, log lines, host names, metrics, reasons: shown as they are."""
    labels = [f"a{HOSTILE}", f"b{HOSTILE}" + "long" * 40]
    items = [{"id": f"{n}{HOSTILE}", "text": f"text {n} {HOSTILE}"} for n in range(60)]
    answers = {"ann": {item["id"]: {"sent": labels[n % 2]} for n, item in enumerate(items[:40])}}
    scheme = {"annotation_type": "radio", "name": "sent", "description": HOSTILE, "labels": labels}
    for folder in ("annotation_output", "data"):
        shutil.rmtree(study.root / folder)
    write_project(study.root, items, answers, schemes=(scheme,), annotation_task_name=f"study {HOSTILE}", training={
        "writeback": {"schemas": ["sent"], "include_unlabeled": True}})
    w = window()
    page = w.sign_in()
    run = w.start("test-curved", steps=3)
    study.ended(run)
    facts = study.run(run).facts
    store, run_dir = study.store(), study.places.run_dir(run)
    store.record(run, facts={"machine": {**facts["machine"], "host": HOSTILE, "software": {HOSTILE: HOSTILE}}},
                 warnings=[HOSTILE])
    with (run_dir / "run.log").open("a") as log:
        log.write(f"2026-01-01T00:00:00Z {HOSTILE}\n")
    with (run_dir / "events.jsonl").open("a") as events:
        metric = {"event": "metric", "t": 1.0, "name": HOSTILE, "split": HOSTILE, "value": 1, "step": 1}
        events.write(json.dumps(metric) + "\n")
    (run_dir / "artifacts" / "sent" / f"x{HOSTILE.replace('/', '')}").write_text("x")
    other = w.start("test-crash")
    study.ended(other)
    for path in ("", f"/runs/{run}", f"/runs/{run}?q=img", f"/compare?run={run}&run={other}"):
        w.go(path)
        page.wait_for_timeout(1500)  # long enough for what is polled to have been put in
        assert page.evaluate("window.hurt") is None
        assert page.locator("img").count() == 0
        shown = page.locator("body").inner_text()
        assert "<script>window.hurt=1</script>" in shown, path
        assert "{{7*7}}" in shown
        assert page.locator("script").count() == 1
        page.set_viewport_size({"width": 320, "height": 640})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 320, path
        page.set_viewport_size({"width": 1200, "height": 900})
    assert w.site.get(f"api/runs/{run}").json["facts"]["machine"]["host"] == HOSTILE
    assert w.site.get(f"api/runs/{run}").headers["Content-Type"] == "application/json"
    assert w.site.get(f"runs/{run}/log").headers["Content-Type"].startswith("text/plain")
