"""The page while its server goes away, comes back, or knows its reader no more; and uploads that need no page."""

from __future__ import annotations

import contextlib
import re
import socket
import sqlite3

import pytest

pytestmark = pytest.mark.real


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
        tab.locator(".queue li").filter(has_text=queued).wait_for()
    told = w.site.get("api/status").json
    assert told["running"]["run_id"] == running and [run["run_id"] for run in told["queue"]] == [queued]
    with page.expect_navigation():  # a browser whose answer is cut off shows a page of its own
        page.get_by_role("button", name="Stop and keep").click()
    study.wait_until(lambda: study.run(running).wish == "keep", "the wish")
    strike()
    study.wait_until(lambda: study.run(running).over, "the end of what was kept")
    for tab in tabs:
        tab.locator("#region-runs").get_by_text("succeeded", exact=True).wait_for()
    study.wait_until(lambda: "deaf" in study.log(queued), "a worker that hears nothing")
    other.on("dialog", lambda dialog: dialog.accept())
    with other.expect_navigation():
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


def test_a_server_with_an_error_is_not_said_to_be_away(window, study):
    """And what somebody has marked in the log stays marked while lines are added."""
    w = window()
    page = w.sign_in()
    run = w.start("test-slow", steps=100_000)
    study.reaches(run, "running")
    w.go(f"/runs/{run}")
    page.locator("#log").get_by_text("worker on").wait_for()
    page.evaluate("getSelection().selectAllChildren(document.getElementById('log'))")
    marked = page.evaluate("String(getSelection())")
    with (study.places.run_dir(run) / "run.log").open("a") as log:
        log.write("a line more\n")
    page.locator("#log").get_by_text("a line more").wait_for()
    assert page.evaluate("String(getSelection())").startswith(marked)
    with contextlib.closing(sqlite3.connect(study.places.store)) as db:
        db.execute("ALTER TABLE runs RENAME TO gone")
        page.get_by_text("The server answers with an error (503).").wait_for()
        assert page.get_by_text("The server does not answer.").count() == 0
        db.execute("ALTER TABLE gone RENAME TO runs")
    page.get_by_text("The server answers with an error").wait_for(state="detached")
    w.site.post(f"api/runs/{run}/cancel")
    study.wait_until(lambda: study.run(run).over, "the end")
    w.complaints.clear()  # the browser notes the 503


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
    page.locator("#region-push").get_by_text("Pushed to me/reviews").wait_for()
    page.get_by_text("Push to the Hugging Face Hub").wait_for()
    assert set(hub.files) == {"README.md", "potato.json", "shares.json"}


def test_a_reader_who_is_signed_out_elsewhere_is_told_and_comes_back(window, study):
    """The server answers well: it only knows this reader no more."""
    w = window()
    page = w.sign_in()
    run = w.start("test-slow", steps=100_000)
    study.reaches(run, "running")
    w.go(f"/runs/{run}")
    page.get_by_role("progressbar").wait_for()
    w.context.clear_cookies()
    page.get_by_text("You are signed out here.").wait_for()
    assert page.get_by_text("The server does not answer.").count() == 0
    page.get_by_role("link", name="Sign in").click()
    page.get_by_label("Admin key").fill("the key of the tests")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Run {run}").wait_for()
    page.get_by_role("progressbar").wait_for()
    assert page.locator("#away").count() == 0
    w.site.post(f"api/runs/{run}/cancel")
    study.ended(run)
    w.complaints.clear()  # the browser notes a 401 for the log
