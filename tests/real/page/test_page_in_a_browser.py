"""The page in a real browser: everything that a person does with it."""

from __future__ import annotations

import re
import socket

import pytest

pytestmark = pytest.mark.real
NAME_OF_FOCUSED = "document.activeElement.labels?.[0]?.innerText || document.activeElement.innerText || ''"
PHONE = {"viewport": {"width": 390, "height": 844}}


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
    assert page.evaluate("window.same") is True
    page.get_by_role("heading", name="Scores: sentiment").wait_for()
    assert page.evaluate("window.same") is None
    assert page.get_by_text("succeeded").first.is_visible()
    for heading in ("Write-back", "Model files", "Predictions: sentiment", "Where it comes from"):
        assert page.get_by_role("heading", name=heading).is_visible()
    page.get_by_text("job.json as executed").click()
    assert page.get_by_text('"trainer": "test-curved"').first.is_visible()
    with page.expect_download() as saved:
        page.get_by_role("link", name="sentiment/shares.json").click()
    assert saved.value.suggested_filename == "shares.json"
    page.get_by_label("Only lines with").fill("MODEL FILE")
    lines = page.locator("#log").inner_text().splitlines()
    assert lines
    assert all("model file" in line for line in lines)
    page.get_by_role("link", name="All runs").click()
    row = page.get_by_role("row", name=re.compile(run))
    assert "succeeded" in row.inner_text()
    assert "local (" in row.inner_text()


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
    assert third in page.locator(".queue li").inner_text()
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
    assert page.get_by_text("local: this machine, ").first.is_visible()
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
    assert not page.get_by_role("button", name="Retract").is_visible()


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
    assert page.locator("svg polyline").count() == 4


def test_by_keyboard_only(window, study):
    w = window()
    page = w.page
    w.go()
    page.keyboard.type("the key of the tests")  # the field has the focus
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
    assert page.get_by_text("worker on").first.is_visible() or page.get_by_text("starting").first.is_visible()
    page.get_by_role("button", name=re.compile("Cancel run")).click()
    study.ended(run)
    w.go(f"/runs/{run}")
    assert page.get_by_text("cancelled").first.is_visible()
    page.get_by_label("Only lines with").fill("bundle")
    page.get_by_role("button", name="Filter").click()
    lines = page.get_by_role("log").inner_text().strip().splitlines()
    assert lines
    assert all("bundle" in line for line in lines)


LOOKS = {"wide": {}, "phone": PHONE, "dark": {"color_scheme": "dark"}, "both": {**PHONE, "color_scheme": "dark"}}


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
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert wide == {}


HOSTILE = '"><img src=x onerror="window.hurt=1"><script>window.hurt=1</script>\'{{7*7}}</svg>&amp;'


def test_nothing_from_outside_becomes_html(window, study, write_project):
    """Item texts, labels, annotators' names, log lines, host names, metrics, reasons: shown as they are."""
    import json

    labels = [f"a{HOSTILE}", f"b{HOSTILE}"]
    items = [{"id": f"{n}{HOSTILE}", "text": f"text {n} {HOSTILE}"} for n in range(60)]
    answers = {"ann": {item["id"]: {"sent": labels[n % 2]} for n, item in enumerate(items[:40])}}
    scheme = {"annotation_type": "radio", "name": "sent", "description": HOSTILE, "labels": labels}
    for folder in ("annotation_output", "data"):
        import shutil

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
    assert w.site.get(f"api/runs/{run}").json["facts"]["machine"]["host"] == HOSTILE
    assert w.site.get(f"api/runs/{run}").headers["Content-Type"] == "application/json"
    assert w.site.get(f"runs/{run}/log").headers["Content-Type"].startswith("text/plain")


def test_a_server_that_goes_away_is_told_and_comes_back(window, study, server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    w = window(server("-p", str(port)))
    page = w.sign_in()
    w.site.process.kill()
    w.site.ended()
    page.get_by_text("The server does not answer.").wait_for()
    again = study.start("training", "serve", "-p", str(port))
    page.get_by_text("The server does not answer.").wait_for(state="detached")
    w.complaints.clear()  # refused connections
    again.terminate()


def test_a_server_killed_in_each_state_with_two_tabs_and_an_api_client(window, study, server):
    """queued, running, stopping and keeping, cancelling: each time the server dies and comes back at its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    w = window(server("-p", str(port)))
    page = w.sign_in()
    other = w.tab()
    running = w.start("test-slow", steps=100_000, step_seconds=0.05)
    study.reaches(running, "running")
    queued = w.site.start_run("test-stubborn")
    w.go("", other)
    tabs = (page, other)

    def strike():
        w.site.process.kill()
        w.site.ended()
        for tab in tabs:
            tab.get_by_text("The server does not answer.").wait_for()
        w.site = server("-p", str(port))
        for tab in tabs:
            tab.get_by_text("The server does not answer.").wait_for(state="detached")

    strike()
    for tab in tabs:
        tab.locator("#region-now").get_by_role("link", name=running).wait_for()
        assert queued in tab.locator(".queue li").inner_text()
    told = w.site.get("api/status").json
    assert told["running"]["run_id"] == running and [run["run_id"] for run in told["queue"]] == [queued]
    page.get_by_role("button", name="Stop and keep").click()
    study.wait_until(lambda: study.run(running).wish == "keep", "the wish")
    strike()
    study.wait_until(lambda: study.run(running).over, "the end of what was kept")
    for tab in tabs:
        tab.locator("#region-runs").get_by_text("succeeded", exact=True).wait_for()
    study.wait_until(lambda: "deaf" in study.log(queued), "a worker that hears nothing")
    other.on("dialog", lambda dialog: dialog.accept())
    other.get_by_role("button", name=re.compile("Cancel run")).click()
    study.wait_until(lambda: study.run(queued).state in ("cancelling", "cancelled"), "the cancel")
    strike()
    assert study.ended(queued).state == "cancelled"
    for tab in tabs:
        tab.get_by_text("Nothing is running.").wait_for()
        tab.locator("#region-runs").get_by_text("cancelled", exact=True).wait_for()
    assert [run["status"] for run in w.site.get("api/runs").json["runs"]] == ["cancelled", "succeeded"]
    study.nothing_is_left()
    w.complaints.clear()  # refused connections


def test_a_push_goes_on_without_its_tab(window, study, server, hub, tmp_path):
    w = window(server(env=hub.env(tmp_path)))
    w.sign_in()
    run = w.start("test-quick")
    study.ended(run)
    hub.gate.clear()
    w.go(f"/runs/{run}")
    w.page.get_by_text("Push to the Hugging Face Hub").click()
    w.page.get_by_label("Repository").fill("me/reviews")
    w.page.get_by_label("Token").fill(hub.token)
    w.page.get_by_role("button", name="Push", exact=True).click()
    w.page.get_by_text("Pushing to me/reviews").wait_for()
    w.page.close()
    page = w.tab()
    w.go(f"/runs/{run}", page)
    page.get_by_text("Pushing to me/reviews").wait_for()
    assert page.get_by_text("Push to the Hugging Face Hub").count() == 0
    hub.gate.set()
    page.get_by_role("link", name="me/reviews").wait_for()
    assert "Pushed to me/reviews" in page.locator("#region-push").inner_text()
    page.get_by_text("Push to the Hugging Face Hub").wait_for()
    assert set(hub.files) == {"README.md", "potato.json", "shares.json"}
