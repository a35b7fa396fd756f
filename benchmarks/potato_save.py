#!/usr/bin/env python3
"""What the plugin costs a save in a real Potato server, while a run executes and automatic runs are watched.

    python benchmarks/potato_save.py [--python PATH] [--items 2000] [--saves 300]

``--python`` is an interpreter that has potato-annotation 2.12 and this package; default: this one. Three servers of the
same project, one with `plugins: [training-backends]` and a run going on, one with Potato's own training switched on,
one with none, are saved to in turn, so that whatever else this machine does slows all of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
KEY = "benchmark"
LABELS = ("positive", "negative")


class Server:
    """A Potato on a fresh project, with an annotator who is signed in."""

    def __init__(self, python: str, folder: Path, items: int, kind: str):
        self.folder = folder
        folder.mkdir()
        rows = [{"id": f"i{n}", "text": f"text number {n}"} for n in range(items)]
        (folder / "items.json").write_text(json.dumps(rows))
        config = {
            "annotation_task_name": "save", "task_dir": ".", "data_files": ["items.json"], "admin_api_key": KEY,
            "item_properties": {"id_key": "id", "text_key": "text"}, "output_annotation_dir": "annotation_output",
            "annotation_schemes": [
                {"annotation_type": "radio", "name": "sentiment", "description": "?", "labels": list(LABELS)}],
            "model_training": {
                "enabled": kind != "off", "auto_retrain": {
                    "enabled": True, "trainer": "sklearn-text", "schemas": ["sentiment"], "update_frequency": 10**6}},
            **({"plugins": ["training-backends"]} if kind == "plugin" else {}),
        }
        (folder / "config.yaml").write_text(json.dumps(config))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        trainers = str(ROOT / "tests" / "fixtures" / "trainers")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), trainers]))}
        code = "import sys; sys.argv[0] = 'potato'; from potato.flask_server import main; main()"
        with (folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [python, "-c", code, "start", "config.yaml", "-p", str(self.port), "--host", "127.0.0.1"],
                cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        self.cookie = ""
        self._wait()
        self.ask("POST", "/register", urlencode({"email": "ann", "pass": "a password 1"}),
                 "application/x-www-form-urlencoded")
        self.ask("GET", "/annotate")

    def _wait(self) -> None:
        give_up = time.monotonic() + 120
        while True:
            try:
                self.ask("GET", "/health")
                return
            except OSError:
                self.connection.close()
                if self.process.poll() is not None or time.monotonic() > give_up:
                    sys.exit((self.folder / "out").read_text()[-2000:])
                time.sleep(0.1)

    def ask(
        self, method: str, path: str, body: str | None = None, kind: str = "application/json", key: str = ""
    ) -> bytes:
        headers = {"Cookie": self.cookie, "X-API-Key": key, "Content-Type": kind if body else ""}
        headers = {name: value for name, value in headers.items() if value}
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            sys.exit(f"{method} {path}: {answer.status} {data[:300]!r}")
        if cookie := answer.headers["Set-Cookie"]:
            self.cookie = cookie.partition(";")[0]
        return data

    def save(self, n: int) -> float:
        label = LABELS[n % 2]
        body = json.dumps({
            "instance_id": f"i{n}", "annotations": {f"sentiment:{label}": label}, "cleared_schemas": [],
            "span_annotations": [], "client_timestamp": None, "response_time_seconds": 1})
        began = time.perf_counter()
        self.ask("POST", "/updateinstance", body)
        return time.perf_counter() - began

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--saves", type=int, default=300)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        servers = {kind: Server(args.python, Path(folder, kind), args.items, kind)
                   for kind in ("off", "own", "plugin")}
        try:
            for server in servers.values():
                for n in range(40):
                    server.save(n)
            ours = servers["plugin"]
            asked = {"trainer": "test-slow", "schemas": ["sentiment"], "params": {"steps": 10**6, "step_seconds": 0.1}}
            run = json.loads(ours.ask("POST", "/admin/training/api/runs", json.dumps(asked), key=KEY))["run_id"]
            where = f"/admin/training/api/runs/{run}"
            while (state := json.loads(ours.ask("GET", where, key=KEY))["status"]) != "running":
                if state in ("failed", "cancelled", "succeeded"):
                    sys.exit(f"the run is {state}: {ours.ask('GET', where + '/log', key=KEY).decode()}")
                time.sleep(0.2)
            took: dict[str, list[float]] = {kind: [] for kind in servers}
            for n in range(40, 40 + args.saves):
                for kind in sorted(servers, reverse=bool(n % 2)):
                    took[kind].append(servers[kind].save(n % args.items))
            still = json.loads(ours.ask("GET", where, key=KEY))["status"]
            ours.ask("POST", f"{where}/cancel", "{}", key=KEY)
            while not json.loads(ours.ask("GET", where, key=KEY))["settled"]:
                time.sleep(0.2)
        finally:
            for server in servers.values():
                server.stop()
    print(f"{args.saves} saves on each of three servers in turn, {args.items} items; the run was {still} to the end")
    for name, figure in (("median", statistics.median), ("p95", lambda t: sorted(t)[int(len(t) * 0.95)])):
        off, own, plugin = (figure(took[kind]) for kind in ("off", "own", "plugin"))
        print(f"save, {name}: {off * 1000:.1f} ms without training, {own * 1000:.1f} ms with Potato's own, "
              f"{plugin * 1000:.1f} ms with the plugin: {plugin / off:.2f} and {plugin / own:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
