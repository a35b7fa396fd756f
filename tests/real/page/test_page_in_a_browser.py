"""The page in a real browser: everything that a person does with it."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.real
NAME_OF_FOCUSED = "document.activeElement.labels?.[0]?.innerText || document.activeElement.innerText || ''"


def test_signing_in_and_out(window):
    w = window()
    w.go("/runs/nothing")
    page = w.page
    page.get_by_label("Admin key").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("That is not the key.").wait_for()
    w.complaints.clear()  # the browser notes the 403
    page.get_by_label("Admin key").fill("the key of the tests")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="There is no run 'nothing'").wait_for()
    w.complaints.clear()  # and the 404
    page.get_by_role("link", name="All runs").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("You are signed out.").wait_for()
    w.go()
    page.get_by_label("Admin key").wait_for()


def test_start_and_watch_to_the_end(window):
    w = window()
    page = w.sign_in()
    run = w.start("test-curved", steps=40)
    now = page.locator("#region-now")
    now.get_by_role("link", name=run).click()
    # nothing is reloaded until the end: what changes below comes by itself
    page.evaluate("window.same = true")
    page.get_by_role("progressbar").wait_for()
    page.get_by_text("training 'sentiment'").first.wait_for()
    page.locator("#region-curves svg polyline.look-1").wait_for(state="attached")
    page.locator("#log").get_by_text("worker on").wait_for()
    page.wait_for_function("document.title.startsWith('running: ')")
    assert page.title() == f"running: {run} · Review Sentiment"
    assert page.evaluate("window.same") is True
    page.get_by_role("heading", name="Scores: sentiment").wait_for()
    assert page.evaluate("window.same") is None
    page.get_by_text("succeeded").first.wait_for()
    for heading in ("Write-back", "Model files", "Predictions: sentiment", "Where it comes from"):
        page.get_by_role("heading", name=heading).wait_for()
    page.get_by_text("job.json as executed").click()
    page.get_by_text('"trainer": "test-curved"').first.wait_for()
    with page.expect_download() as saved:
        page.get_by_role("link", name="sentiment/shares.json").click()
    assert saved.value.suggested_filename == "shares.json"
    page.get_by_label("Only lines with").fill("MODEL FILE")
    lines = page.locator("#log").inner_text().splitlines()
    assert lines
    assert all("model file" in line for line in lines)
    page.get_by_role("link", name="All runs").click()
    row = page.get_by_role("row", name=re.compile(run))
    row.filter(has_text="succeeded").filter(has_text="local (").wait_for()


def test_cancel_counts_down(window, study):
    w = window()
    page = w.sign_in()
    run = w.start("test-stubborn")
    study.wait_until(lambda: "deaf" in study.log(run), "a worker that hears nothing")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=re.compile("Cancel run")).click()
    page.locator("[data-until]").get_by_text(re.compile(r"^\d+ s$")).wait_for()
    page.locator("#region-runs").get_by_text("cancelled", exact=True).wait_for()
    assert study.ended(run).state == "cancelled"


def test_a_cancel_that_was_thought_better_of(window, study):
    w = window()
    page = w.sign_in()
    run = w.start("test-slow", steps=100_000)
    study.reaches(run, "running")
    page.on("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name=re.compile("Cancel run")).click()
    assert study.run(run).wish is None
    page.get_by_role("button", name="Stop and keep").click()
    page.locator("#region-runs").get_by_text("succeeded", exact=True).wait_for()
    assert study.ended(run).facts["result"]["kept"] is True


def test_a_button_stays_under_the_finger_while_the_page_changes(window, study):
    """Pressed, and let go after the region around it has changed: the click counts."""
    w = window()
    page = w.sign_in()
    run = w.start("test-slow", steps=100_000, step_seconds=0.05)
    study.reaches(run, "running")
    button = page.get_by_role("button", name="Stop and keep")
    button.scroll_into_view_if_needed()
    page.get_by_role("progressbar").wait_for()
    before = page.locator("#region-now").inner_html()
    button.hover()
    page.mouse.down()
    changed = lambda: page.locator("#region-now").inner_html() != before or page.wait_for_timeout(50)  # noqa: E731
    study.wait_until(changed, "a change")
    page.mouse.up()
    study.wait_until(lambda: study.run(run).wish == "keep" or page.wait_for_timeout(50), "the wish")
    study.wait_until(lambda: study.run(run).over or page.wait_for_timeout(50), "the end")
    page.locator("#region-runs").get_by_text("succeeded", exact=True).wait_for()


def test_the_queue_in_two_tabs_and_an_api_client_at_once(window, study):
    w = window()
    page = w.sign_in()
    first = w.start("test-slow", steps=100_000)
    other = w.tab()
    w.go("", other)
    second = w.site.start_run("test-slow", steps=100_000)
    third = w.start("test-slow", steps=100_000)
    for tab in (page, other):
        tab.locator(".queue li").nth(1).wait_for()
        places = tab.locator(".queue li").all_inner_texts()
        assert second in places[0]
        assert third in places[1]
    other.on("dialog", lambda dialog: dialog.accept())
    other.get_by_role("button", name=re.compile(f"Remove from the queue.*{second}")).click()
    page.locator(".queue li").nth(1).wait_for(state="detached")
    page.locator(".queue li").filter(has_text=third).wait_for()
    for run in (third, first):
        assert w.site.post(f"api/runs/{run}/cancel").status == 200
    page.get_by_text("Nothing is running.").wait_for()
    other.get_by_text("Nothing is running.").wait_for()


def test_check_keeps_what_was_chosen(window):
    w = window()
    page = w.sign_in()
    page.get_by_label("Trainer").select_option("sklearn-text")
    page.get_by_text("Parameters of sklearn-text").click()
    page.locator("[id='p.sklearn-text.C']").fill("3")
    page.get_by_role("button", name="Check").click()
    page.get_by_role("heading", name="local: a run could start there now").wait_for()
    page.get_by_text("local: this machine, ").first.wait_for()
    assert page.locator("[id='p.sklearn-text.C']").input_value() == "3"


def test_a_wrong_parameter_is_shown_at_its_field(window, study):
    w = window()
    page = w.sign_in()
    page.get_by_text("Parameters of sklearn-text").click()
    field = page.locator("[id='p.sklearn-text.C']")
    field.fill("-3")
    page.get_by_role("button", name="Start run").click()
    page.locator("[id='p.sklearn-text.C-wrong']").wait_for()
    w.complaints.clear()  # the browser notes the 400
    assert field.get_attribute("aria-invalid") == "true"
    assert field.input_value() == "-3"
    assert study.runs() == []


def test_retract(window, study):
    study.configure(writeback={"schemas": ["sentiment"], "include_unlabeled": True, "min_confidence": 0})
    w = window()
    w.sign_in()
    run = w.start("test-quick")
    study.ended(run)
    published = len(study.places.prelabels.read_text().splitlines())
    w.go(f"/runs/{run}")
    page = w.page
    page.get_by_text(f"{published} of ").wait_for()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Retract").click()
    page.get_by_text("The prelabels of this run were taken back.").wait_for()
    assert study.places.prelabels.read_text() == ""
    page.get_by_role("button", name="Retract").wait_for(state="detached")


def test_comparing_two_runs(window, study):
    w = window()
    page = w.sign_in()
    runs = [w.start("test-curved", steps=3), w.start("test-curved", steps=5)]
    for run in runs:
        study.ended(run)
    for run in runs:
        page.get_by_role("checkbox", name=f"Compare {run}").check()
    # the table is drawn anew when something changes; what was ticked stays
    third = w.site.start_run()
    page.locator("#region-runs").get_by_role("link", name=third).wait_for()
    page.get_by_role("button", name="Compare two").click()
    page.get_by_role("heading", name="Two runs side by side").wait_for()
    assert "steps" in page.get_by_role("row", name=re.compile("Parameter")).inner_text()
    page.locator("svg polyline").nth(3).wait_for(state="attached")
    assert page.locator("svg polyline").count() == 4


def test_by_keyboard_only(window, study):
    w = window()
    page = w.page
    w.go()
    page.wait_for_function("document.activeElement.type === 'password'")  # by itself
    page.keyboard.type("the key of the tests")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sign out").wait_for()

    def tab_to(wanted):
        for _ in range(80):
            page.keyboard.press("Tab")
            at = page.evaluate(NAME_OF_FOCUSED)
            if re.match(wanted, at.strip()):
                ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert ring != "none", f"{at}: one cannot see where the keyboard is"
                return
        pytest.fail(f"the Tab key does not lead to {wanted}")

    tab_to("Skip to the content")
    tab_to("Trainer")
    page.keyboard.type("test-slow")
    tab_to("Parameters of test-slow")
    page.keyboard.press("Enter")
    tab_to("steps")
    page.keyboard.press("Control+A")
    page.keyboard.type("100000")
    tab_to("Start run")
    page.keyboard.press("Enter")
    page.get_by_text("The run is in the queue.").wait_for()
    run = study.runs()[0].run_id
    study.reaches(run, "running")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=re.compile("Cancel run")).wait_for()
    tab_to("Cancel run")
    before = page.locator("#region-now").inner_html()
    page.wait_for_function("before => document.getElementById('region-now').innerHTML !== before", arg=before)
    at = page.evaluate("document.activeElement.innerText")
    assert "Cancel run" in at, "the focus outlives a change of the region"
    page.keyboard.press("Enter")
    page.locator("#region-runs").get_by_text("cancelled", exact=True).wait_for()


def test_without_javascript(window, study):
    w = window(java_script_enabled=False)
    page = w.sign_in()
    page.get_by_label("Trainer").select_option("test-slow")
    page.get_by_text("Parameters of test-slow").click()
    page.locator("[id='p.test-slow.steps']").fill("100000")
    page.get_by_role("button", name="Start run").click()
    page.get_by_text("The run is in the queue.").wait_for()
    run = study.runs()[0].run_id
    study.reaches(run, "running")
    page.get_by_role("link", name="Look again").click()
    page.locator("#region-now").get_by_role("link", name=run).click()
    page.get_by_role("heading", name=f"Run {run}").wait_for()
    page.get_by_role("button", name=re.compile("Cancel run")).click()
    study.ended(run)
    w.go(f"/runs/{run}")
    page.get_by_text("cancelled").first.wait_for()
    page.get_by_label("Only lines with").fill("bundle")
    page.get_by_role("button", name="Filter").click()
    lines = page.get_by_role("log").inner_text().strip().splitlines()
    assert lines
    assert all("bundle" in line for line in lines)
