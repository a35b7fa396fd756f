"""One run, from the queue to its end. The story of ``Drive._story`` is the life of chapter one of the docs.

Every stage looks first at what is there already: the same story is told again, from where it was,
by the next supervisor when this one is killed.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from ..schema.errors import UserError
from ..worker.jobdir import make_private_dir, write_private
from ..worker.protocol import (
    BUILDING,
    CANCELLED,
    CANCELLING,
    CONNECTING,
    FAILED,
    FETCHING,
    PREPARING,
    SUCCEEDED,
)
from . import claims, launchers, places, runlog, tokens, verdict
from .bounds import bounds
from .clocks import Clocks, Switchboard
from .jobs import job_message, read_job, write_job
from .known import facts_of
from .launchers.agent import await_claim
from .places import Places
from .settle import settle
from .store import Run, Store
from .tether import Interrupted, Tether


class _Cancelled(Exception):
    """Somebody cancelled before anything was started elsewhere."""


class Drive:
    """Takes one run as far as it goes. ``run`` never raises."""

    def __init__(
        self, run_id: str, store: Store, where: Places, switchboard: Switchboard, socket: str,
        on_broken: Callable[[], None],
    ):
        self._run_id = run_id
        self._on_broken = on_broken
        self._store = store
        self._places = where
        self._run_dir = where.run_dir(run_id)
        self._switchboard = switchboard
        self._socket = socket
        self._launcher: launchers.Launcher | None = None
        self._step = ""                     # the last that a launcher told
        self._reason_to_stop: Callable[[], None] = self._check
        self._desk = launchers.Desk(
            run_dir=self._run_dir, step=self._tell_step, log=self._log,
            note=lambda **facts: store.note(run_id, **facts),
            owe=lambda target: store.owe(run_id, self._kind(), target), check=lambda: self._reason_to_stop(),
        )

    def leave(self) -> None:
        """The supervisor ends, and the run goes on without it."""
        if self._launcher is not None:
            self._launcher.leave()

    def run(self) -> None:
        try:
            end = self._story()
        except _Cancelled:
            end = verdict.Verdict(CANCELLED, "cancelled")
        except UserError as error:
            end = verdict.Verdict(FAILED, error.message, error.hint)
        except launchers.LaunchError as error:
            end = verdict.Verdict(FAILED, str(error), error.hint)
        except Exception as error:  # a fault of ours must not leave a run that says running for ever
            traceback.print_exc(file=sys.stderr)
            end = verdict.Verdict(
                FAILED, f"internal error: {type(error).__name__}: {error}", "training/supervisor.log has the details"
            )
        try:
            self._end(end)
            settle(self._store, self._places, self._run_id)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            self._on_broken()
        self._switchboard.wake()

    def _story(self) -> verdict.Verdict:
        run = self._get()
        if run.over:
            return verdict.Verdict(run.state, run.reason, run.hint)
        if not (self._run_dir / places.JOB).exists():
            self._build()
        job = read_job(self._run_dir)
        if self._kind() == claims.KIND and self._get().state == "queued":
            run = self._await_claim(run)
        launcher = self._launcher = launchers.make(
            self._kind(), self._places, self._run_id, self._desk, self._store.owed(self._run_id)
        )
        known = run.state not in (BUILDING, CONNECTING, "queued")
        if known and not launcher.started():
            return self._judge(job, launcher, lost=True) or verdict.Verdict(FAILED)
        if not known:
            self._launch(launcher)
        end = self._follow(job, launcher, known)
        if end.status == SUCCEEDED:
            self._store.advance(self._run_id, FETCHING, step="moving the model files")
            self._reason_to_stop = self._check
            for warning in launcher.fetch():
                self._store.record(self._run_id, warnings=[warning])
                self._log(f"warning: {warning}")
        return end

    # --- the stages ------------------------------------------------------------------------------

    def _build(self) -> None:
        from ..project.bundle import build_bundle
        from ..schema.config import load_or_raise
        from .ssh.code import code_hash
        from .trainers import Nameable

        run = self._get()
        make_private_dir(str(self._run_dir))
        if self._kind() == claims.KIND:
            self._store.note(self._run_id, step="reading the annotations")  # and stays queued until it is claimed
        else:
            self._store.advance(self._run_id, BUILDING, step="reading the annotations")
        self._log(f"run {run.run_id}: {run.trainer} on {run.backend}, schemas {', '.join(run.schemas)}")
        config = load_or_raise(self._places.task_dir / run.config, trainers=Nameable())
        if run.backend not in config.backends:
            raise UserError(f"backend {run.backend!r} is no longer in {run.config}", "start the run on another backend")
        bundle = build_bundle(config, run.schemas, self._run_dir / places.BUNDLE, check=self._check)
        write_private(
            str(self._run_dir / places.MANIFEST), json.dumps(bundle.manifest, indent=1, ensure_ascii=False) + "\n"
        )
        self._store.record(
            self._run_id,
            facts={
                "backend_type": config.backends[run.backend].type,
                "config_sha256": config.sha256,
                # an agent that asks for work brings its own
                "code_hash": None if self._kind() == claims.KIND else code_hash(),
                "bundle": {"size": bundle.size, "sha256": bundle.sha256, "digest": bundle.manifest["digest"]},
                "splits": {name: split["n"] for name, split in bundle.manifest["splits"].items()},
                "max_predictions_mb": config.training["max_predictions_mb"],
                "queue_timeout_s": config.backends[run.backend].keys.get("queue_timeout_s"),
                "heartbeat_timeout_s": config.backends[run.backend].keys.get("heartbeat_timeout_s"),
            },
            warnings=bundle.warnings,
        )
        self._log(*(f"warning: {warning}" for warning in bundle.warnings))
        counts = ", ".join(f"{split['n']} {name}" for name, split in bundle.manifest["splits"].items())
        self._log(f"bundle of {max(bundle.size // 1000, 1):,} kB: {counts}")
        more = launchers.prepare(config.backends[run.backend].type, config, run, self._run_dir)
        write_job(self._run_dir, {**job_message(run, config, bundle), **more})

    def _await_claim(self, run: Run) -> Run:
        await_claim(
            self._store, self._run_id, run.backend, self._get().facts.get("queue_timeout_s"),
            lambda: self._switchboard.wait(bounds().tick_s),
        )
        self._check()
        return self._get()

    def _check(self) -> None:
        if self._get().wish == "cancel":
            raise _Cancelled

    def _launch(self, launcher: launchers.Launcher) -> None:
        # The intent is written before anything is taken hold of: whoever comes next can let go of it.
        if not launcher.started():
            self._check()
            self._store.owe(self._run_id, self._kind(), {})
        self._store.advance(self._run_id, CONNECTING, step=f"starting the agent on {launcher.address}")
        launcher.launch(self._socket, self._new_token)
        self._store.advance(self._run_id, PREPARING, step=f"waiting for the agent on {launcher.address}")

    def _launch_again(self, launcher: launchers.Launcher) -> bool:
        """For a run that is going on: the line that says what it is doing comes back after those of the login."""
        before = self._get().step
        try:
            return launcher.launch(self._socket, self._new_token, known=True)
        finally:
            if self._get().step == self._step:
                self._store.note(self._run_id, step=before)

    def _tell_step(self, text: str) -> None:
        self._step = text
        self._store.note(self._run_id, step=text)

    def _follow(self, job: dict[str, Any], launcher: launchers.Launcher, taken_up: bool) -> verdict.Verdict:
        """Watches until the run is decided. Looks at the ledger ten times a second, and at every word."""
        watch = Clocks(job, lambda: self._switchboard.heard(self._run_id))
        tether = Tether(launcher, lambda: self._launch_again(launcher), self._desk, apart=taken_up)
        patient = job["on_disconnect"] == "finish"
        self._reason_to_stop = lambda: self._look_up(job, launcher, watch)
        self._switchboard.heard(self._run_id)
        while True:
            watch.tick()
            run = self._get()
            if run.words != watch.words:  # the agent spoke to a server, which is not this process
                watch.words = run.words
                self._switchboard.heard(self._run_id)
            if run.wish == "cancel" and watch.cancelled_at is None:
                watch.cancelled_at = time.monotonic()
                until = time.time() + watch.grace_s
                self._store.advance(self._run_id, CANCELLING, step="cancelling")
                self._store.note(self._run_id, cancel_until=until)
                self._log("cancelling" if not run.facts.get("cancel_until") else "cancelling, as before the restart")
            trouble = ""
            if "report" not in run.facts and (watch.cancelled_at is None or not tether.reached):
                trouble = tether.tend(self._switchboard.silence(self._run_id))
                if patient and tether.lost:
                    self._switchboard.heard(self._run_id)
            end = self._judge(job, launcher, watch=watch, trouble=trouble)
            if end is not None:
                return end
            self._switchboard.wait(bounds().tick_s)

    def _look_up(self, job: dict[str, Any], launcher: launchers.Launcher, watch: Clocks) -> None:
        """Ends a login that is going on when there is something more urgent."""
        watch.tick()
        if self._get().wish == "cancel" and watch.cancelled_at is None:
            raise Interrupted
        if self._judge(job, launcher, watch=watch) is not None:
            raise Interrupted

    def _judge(
        self, job: dict[str, Any], launcher: launchers.Launcher, *, watch: Clocks | None = None, trouble: str = "",
        lost: bool = False,
    ) -> verdict.Verdict | None:
        watch = watch or Clocks(job, lambda: None)
        return verdict.judge(facts_of(
            self._get(), job, watch, place=launcher.place, silent_s=self._switchboard.silence(self._run_id),
            unreachable=f"{trouble[:1].upper()}{trouble[1:]}" if trouble else "", lost=lost,
        ))

    def _end(self, end: verdict.Verdict) -> None:
        # A cancel that came while the model files were moved still counts: nothing is published yet.
        unless = "cancel" if end.status == SUCCEEDED else None
        moved = self._store.advance(
            self._run_id, end.status, unless_wish=unless, reason=end.reason, hint=end.hint, step=""
        )
        if not moved and unless:
            moved = self._store.advance(self._run_id, CANCELLED, reason="cancelled", step="")
        if moved:
            run = self._get()
            why = "" if run.reason in ("", run.state) else f": {run.reason}"
            self._log(f"{run.state}{why}", *([run.hint] if run.hint else []))

    # --- small things ----------------------------------------------------------------------------

    def _get(self) -> Run:
        run = self._store.get(self._run_id)
        if run is None:
            raise UserError(f"run {self._run_id} is no longer in the ledger")
        return run

    def _kind(self) -> str:
        return str(self._get().facts.get("backend_type", "local"))

    def _new_token(self) -> str:
        return tokens.issue(self._store, tokens.RUN, self._run_id)

    def _log(self, *lines: str) -> None:
        runlog.log(self._run_dir, *lines)
