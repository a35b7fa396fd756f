#!/usr/bin/env python3
"""How one server bears many agents that ask for work, while a run goes on.

    python benchmarks/agents.py [--agents 1000] [--every 10] [--seconds 60]

Makes a project with so many agent backends, issues a token for each, starts a real server, and asks it as
agents do: each over a kept connection of its own, every so many seconds, spread evenly. One of them has a run
and sends ten events twice a second. Prints latency as the agents see it, and the processor time of the server.
A request with a wrong token, one at a time on an idle server, is the floor: the same way in, and nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from potato_training.runtime import tokens
from potato_training.runtime.places import Places
from potato_training.runtime.store import Store

TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        known = make(Path(folder), args.agents)
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, "-m", "potato_training.cli", "training"]
        server = subprocess.Popen(
            [*command, "serve", "-p", "0"], cwd=folder, stdout=subprocess.PIPE, text=True, env=env
        )
        run = subprocess.Popen(
            [*command, "run", "--trainer", "sklearn-text", "--backend", "b0"], cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
        )
        try:
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
            asyncio.run(measure(port, known, args, server.pid, supervisor(Path(folder))))
        finally:
            store = Store(Places(Path(folder)).store)
            for one in store.runs():
                store.wish(one.run_id, "cancel")
            run.wait(60)
            server.terminate()
            server.wait()
    return 0


def make(folder: Path, number: int) -> list[str]:
    """A project with agent backends b0, b1, ...; their tokens."""
    rows = [{"id": f"i{n}", "text": f"text {n}"} for n in range(40)]
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = {row["id"]: [[{"schema": "s", "name": x}, x]] for n, row in enumerate(rows) for x in ["yn"[n % 2]]}
    state = folder / "annotation_output" / "ada" / "user_state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"user_id": "ada", "instance_id_to_label_to_value": answers}))
    (folder / "config.yaml").write_text(json.dumps({
        "annotation_task_name": "benchmark", "task_dir": ".", "data_files": ["items.jsonl"], "admin_api_key": "k",
        "item_properties": {"id_key": "id", "text_key": "text"}, "output_annotation_dir": "annotation_output",
        "annotation_schemes": [{"annotation_type": "radio", "name": "s", "description": "?", "labels": ["y", "n"]}],
        "model_training": {"enabled": True, "backends": {f"b{n}": {"type": "agent"} for n in range(number)}},
    }, indent=0))
    places = Places(folder)
    places.root.mkdir(exist_ok=True)
    store = Store(places.store)
    return [tokens.issue(store, tokens.BACKEND, f"b{n}") for n in range(number)]


def supervisor(folder: Path) -> int:
    about = Places(folder).root / "supervisor.json"
    until = time.monotonic() + 60
    while not about.exists():
        if time.monotonic() > until:
            raise SystemExit("no supervisor")
        time.sleep(0.05)
    return int(json.loads(about.read_text())["pid"])


class Agent:
    """One kept connection. ``ask`` gives (status, body) and notes how long it took."""

    def __init__(self, port: int, token: str, times: list[float]):
        self._port, self._token, self._times = port, token, times
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, value: object) -> tuple[int, bytes]:
        body = json.dumps(value).encode()
        head = (f"POST /api/training/v1/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        began = time.perf_counter()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(head + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): word for name, _, word in (line.partition(": ") for line in lines[1:])}
        text = await reader.readexactly(int(headers.get("content-length", 0)))
        self._times.append(time.perf_counter() - began)
        if headers.get("connection", "").lower() == "close":
            writer.close()
            self._streams = None
        return int(lines[0].split()[1]), text


async def measure(port: int, known: list[str], args: argparse.Namespace, *pids: int) -> None:
    floor: list[float] = []
    stranger = Agent(port, "wrong", floor)
    for _ in range(200):
        await stranger.ask("claim", {})
    holder = Agent(port, known[0], [])
    until = time.monotonic() + 60
    status, text = 204, b""
    while status != 200:
        if time.monotonic() > until:
            raise SystemExit(f"no run to claim: {status} {text!r}")
        await asyncio.sleep(0.2)
        status, text = await holder.ask("claim", {"agent_id": "a0", "hostname": "h0"})
    run_id = json.loads(text)["run_id"]

    times: list[float] = []
    failed: list[str] = []
    end = time.monotonic() + args.every + args.seconds
    counting = time.monotonic() + args.every  # the first round opens the connections

    async def poll(number: int) -> None:
        await asyncio.sleep(args.every * number / len(known))
        own: list[float] = []
        agent = Agent(port, known[number], own)
        while time.monotonic() < end:
            due = time.monotonic() + args.every
            try:
                status, text = await agent.ask("claim", {"agent_id": f"a{number}", "hostname": f"h{number}"})
                if status != 204:
                    failed.append(f"{status} {text[:80]!r}")
            except (OSError, EOFError, ValueError) as error:
                failed.append(repr(error))
                agent._streams = None
            else:
                if time.monotonic() > counting:
                    times.append(own[-1])
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def train() -> None:
        seq = 0
        while time.monotonic() < end:
            events = [{"v": 1, "event": "progress", "t": time.time(), "attempt": 1, "phase": "fit", "current": seq + n,
                       "total": 10**6, "eta_s": 1} for n in range(10)]
            status, text = await holder.ask(f"jobs/{run_id}/events", {"stream": "worker", "seq": seq, "events": events})
            if status != 200:
                failed.append(f"events: {status} {text[:80]!r}")
            seq += 10
            await asyncio.sleep(0.5)

    async def clock() -> tuple[list[float], float]:
        await asyncio.sleep(counting - time.monotonic())
        before, began = [processor(pid) for pid in pids], time.monotonic()
        await asyncio.sleep(end - time.monotonic() - 0.2)
        return [processor(pid) - b for pid, b in zip(pids, before, strict=True)], time.monotonic() - began

    clocked, *_ = await asyncio.gather(clock(), train(), *(poll(n) for n in range(1, len(known))))
    used, took = clocked
    times.sort()
    print(f"{len(known)} agents, one question each in {args.every:g} s, for {took:.0f} s, a run going on")
    print(f"answers {len(times)} ({len(times) / took:.0f} a second), other than 204 or none: {len(failed)}")
    print(f"floor (wrong token, idle server): median {statistics.median(floor) * 1000:.1f} ms")
    print(f"latency: median {statistics.median(times) * 1000:.1f} ms, "
          f"p95 {times[int(len(times) * 0.95)] * 1000:.1f} ms, "
          f"p99 {times[int(len(times) * 0.99)] * 1000:.1f} ms, longest {times[-1] * 1000:.0f} ms")
    print(f"processor: server {used[0] / took:.1%} of a core, supervisor {used[1] / took:.1%}")
    for line in failed[:5]:
        print("  ", line)


def processor(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    sys.exit(main())
