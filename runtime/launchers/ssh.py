"""A host that we reach by a login: connect, look, copy the code, start the agent there.

Each step's scripts were rendered when the run left the queue. Whatever a step takes hold of is in the ledger
before it does; a login that is broken off anywhere is told again from the top by the next one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .. import places
from ..bounds import bounds
from ..ssh import agent_log, artifacts, code, lines
from ..ssh.connection import Ssh, remote_command
from ..ssh.explain import failure
from ..ssh.held import Held
from ..ssh.line import Line, hang_up, new_private_name, stop_forward
from ..ssh.plan import read_place, script, wanted_modules
from ..ssh.probe import Probe, clock_note, read_probe
from ..ssh.talk import Chatter, Result, SshError, Talk, new_mark, opening, run_script
from . import ConnectionLost, Desk, LaunchError, Unwelcome

#: Below this a host has no room for a run whatever its size.
_LEAST_FREE_MB = 20
#: So often the code may be gone again before a launch, which happens where many versions share a host.
_PRUNED_TIMES = 3


class _CodeGone(LaunchError):
    """The code is not where the probe has seen it."""


class SshLauncher:
    def __init__(self, run_id: str, desk: Desk, target: Mapping[str, Any]):
        self._run_id, self._desk = run_id, desk
        self._facts = read_place(desk.run_dir)
        self.place, self.address = str(self._facts["backend"]), str(self._facts["host"])
        self._held = Held.of(target)
        self._started = self._held.touched
        self._line: Line | None = None
        self._talk: Talk | None = None
        self._attached = False
        self._avoid_theirs = False
        self._refusal: Unwelcome | None = None      # of the last login, while the host is left in peace
        self._refusals = 0
        self._knock_at = 0.0

    def started(self) -> bool:
        """Whether an earlier login got as far as the host; what it left there, the next one sees."""
        return self._started

    # --- a login -----------------------------------------------------------------------------------

    def launch(self, socket: str, new_token: Callable[[], str], *, known: bool = False) -> bool:
        self._hang_up()
        line = self._log_in()
        try:
            there = new_private_name()
            self._hold(self._held.and_door(there, socket))
            probe = self._look(line, there, known)
            line.forward(f"{there}/s", socket)
            if probe is not None and probe.needs_venv:
                self._install(line)
            if probe is not None and not probe.has_code:
                self._copy_code(line)
            for _ in range(_PRUNED_TIMES):
                try:
                    return self._start_agent(line, f"{there}/s", new_token, probe)
                except _CodeGone:   # another server has dropped it since we looked
                    self._copy_code(line)
            return self._start_agent(line, f"{there}/s", new_token, probe)
        except SshError as error:
            self._hang_up()
            if isinstance(error, Chatter) and not self._held.host:  # no script of ours ever ran there
                self._hold(Held())
            raise failure(line.ssh, error) from None
        except BaseException:
            self._hang_up()
            raise

    def _log_in(self) -> Line:
        if self._refusal and time.monotonic() < self._knock_at and not Line(self._facts, "").is_theirs():
            raise self._refusal
        self._desk.step(f"connecting to {self.address}")
        directory = new_private_name()
        self._hold(self._held.and_control(directory))
        line = self._line = Line(self._facts, directory, self._desk.check)
        lines.keep(self._run_id, line)
        try:
            line.up(avoid_theirs=self._avoid_theirs)
        except SshError as error:
            self._avoid_theirs = False
            self._hang_up()
            why = failure(line.ssh, error)
            if isinstance(why, Unwelcome):
                pause = min(bounds().unwelcome_first_s * 2 ** min(self._refusals, 20), bounds().unwelcome_most_s)
                self._refusal, self._knock_at = why, time.monotonic() + pause
                self._refusals += 1
            raise why from None
        self._refusal, self._refusals = None, 0
        return line

    def _look(self, line: Line, there: str, known: bool) -> Probe | None:
        """What the host says of itself; None where a worker was started already. Raises LaunchError."""
        self._desk.step(f"looking at {self.address}")
        said = self._run(line, "probe.sh", code.code_hash(), there, wanted_modules(self._facts),
                         seconds=bounds().ssh_probe_s)
        now = time.time()
        if said.all("error"):
            raise LaunchError(said.one("error"), "mend it on the host, or the key of the config that names it")
        host = said.one("host")
        if self._held.host and host != self._held.host:
            raise LaunchError(
                f"{self.address} led to {self._held.host} before and leads to {host} now; this run is on "
                f"{self._held.host}", "use a name that always leads to the same machine",
            )
        if known and not said.all("job"):
            raise LaunchError("The server stopped during this run",
                              f"nothing of it could be found again on {self.address}: start it again")
        self._hold(replace(self._held, host=host))
        if said.all("worker"):
            return None
        probe = read_probe(said, self._facts)
        if probe.free_mb is not None and probe.free_mb < _LEAST_FREE_MB:
            raise LaunchError(f"no space left on {self.address}: {probe.free_mb} MB free in {probe.root}",
                              "make room there, or point remote_dir at another file system")
        self._desk.log(f"{self.address} is {probe.host}, Python {probe.python}", f"GPU: {probe.choice.words}")
        self._desk.log(*filter(None, [clock_note(said, self.address, now)]))
        self._desk.note(chosen_gpu=probe.choice.card.to_json() if probe.choice.card else None)
        return probe

    def _install(self, line: Line) -> None:
        self._desk.step(f"installing packages on {self.address}")
        said = self._run(line, "venv.sh", seconds=bounds().ssh_venv_s, hold_stdin=True,
                         on_value=lambda key, value: self._desk.log(f"pip: {value}") if key == "pip" else None)
        if said.all("error") or not said.all("python"):
            raise LaunchError(said.one("error", f"the packages could not be installed on {self.address}"),
                              "the run log has pip's output")
        self._desk.log(f"packages are in {said.one('python')}")

    def _copy_code(self, line: Line) -> None:
        self._desk.step(f"copying Potato's code to {self.address}")
        said = self._run(line, "receive_code.sh", code.code_hash(), seconds=bounds().ssh_code_s, tail=code.archive())
        if said.all("error") or said.code != 0:
            raise LaunchError(said.one("error", f"the code could not be copied to {self.address}"))
        self._desk.log(f"copied the code to {said.one('code')}")

    def _start_agent(self, line: Line, there: str, new_token: Callable[[], str], probe: Probe | None) -> bool:
        self._desk.step(f"starting the agent on {self.address}")
        text = script(self._desk.run_dir, "launch.sh")
        mark, until = new_mark(), time.monotonic() + bounds().ssh_call_s
        hello: dict[str, Any] = {"socket": there, "token": new_token(), "forwarded": True}
        if probe is not None and probe.choice.candidates:
            hello["gpus"] = list(probe.choice.candidates)
        feed = [*opening(text, mark, [code.code_hash()]), json.dumps(hello).encode() + b"\n"]
        with agent_log.into(self._desk.run_dir / places.AGENT_LOG) as errors:
            talk = self._talk = line.session = Talk(
                line.ssh.argv(command=remote_command(len(text.encode("utf-8")))), line.ssh.environment(), feed,
                hold_stdin=True, stderr=errors, check=self._desk.check,
            )
        talk.expect(mark, until)
        said = talk.answer(mark, until)
        if said.one("code") == "missing":
            talk.close()
            raise _CodeGone(said.one("error"))
        if said.code != 0:
            raise LaunchError(said.one("error", f"The agent could not be started on {self.address}"))
        first = (talk.line(until) or b"").decode("utf-8", "replace")
        if not first.startswith(("agent ", "attached")):
            raise LaunchError(f"The agent could not be started on {self.address}", "agent.log has its last output")
        self._attached = first.startswith("attached")
        return not self._attached

    # --- while it runs ---------------------------------------------------------------------------------

    def trouble(self) -> str:
        ended = self._ended()
        if ended is None or self._attached:
            return ""
        if ended < 0 or (ended == 255 and not (self._line is not None and self._line.stands())):
            return ""  # not the agent, but the way to it
        return f"the agent on {self.address} ended" + (f" (exit code {ended})" if ended != 255 else "")

    def lost(self, silent_s: float) -> str:
        if self._line is None:
            return "not connected"
        if not self._attached and self._ended() is not None:
            return f"ssh to {self.address} ended"
        timeout = float(self._facts["timeout_s"])
        # An agent that was told of this login by another one ends no ssh of ours when it ends. It may still sit
        # in a request over the old way; it needs longer to come than that can take (15 s).
        if silent_s > min(timeout / 2, 20.0 if self._attached else timeout):
            self._avoid_theirs = self._line is not None and not self._line.is_ours and not self._avoid_theirs
            return f"no word from the agent for {silent_s:.0f} s"
        return ""

    def _ended(self) -> int | None:
        return None if self._talk is None else self._talk.process.poll()

    # --- the end ---------------------------------------------------------------------------------------

    def fetch(self) -> list[str]:
        if not self._facts["fetch_artifacts"]:
            self._spare()
            self._desk.log(f"the model files stay on {self.address} (fetch_artifacts: false)")
            return []
        tries = 3
        while True:
            tries -= 1
            try:
                got = artifacts.fetch(self._line or self._log_in(), self._desk, self._facts)
            except ConnectionLost as error:
                self._hang_up()
                if tries:
                    self._desk.log(f"{error}; copying again")
                    continue
                got = artifacts.Got([f"{error}: the model files stay on {self.address}"], whole=False)
            if not got.whole:
                self._spare()
            else:
                self._desk.note(artifact_uri=places.ARTIFACTS)
            return got.warnings

    def _spare(self) -> None:
        self._hold(replace(self._held, spare=True))

    def leave(self) -> None:
        self._hang_up()

    # --- small things ----------------------------------------------------------------------------------

    def _run(self, line: Line, name: str, *said: str, **how: Any) -> Result:
        return run_script(line.ssh, name, script(self._desk.run_dir, name), *said, check=self._desk.check, **how)

    def _hold(self, held: Held) -> None:
        self._held = held
        self._desk.owe(held.to_json())

    def _hang_up(self) -> None:
        """Ends this login, and those of a supervisor that was killed."""
        line, self._line, self._talk = self._line, None, None
        lines.take(self._run_id)
        if line is not None:
            line.close(at_once=True)
            self._held = replace(
                self._held, controls=tuple(c for c in self._held.controls if c != str(line.directory))
            )
        elif self._held.controls:
            ssh = Ssh.of(self._facts)
            for directory in self._held.controls:
                hang_up(ssh, directory)
            for there, here in self._held.doors:
                stop_forward(ssh, f"{there}/s:{here}")
            self._held = self._held.without_controls()
