"""A million items, a tenth of them annotated: the bundle is built in less than 200 MB."""

import json
import subprocess
import sys

import pytest

N = 1_000_000
SCHEME = {"annotation_type": "radio", "name": "kind", "description": "?", "labels": ["a", "b", "c"]}

BUILD = """
import sys
from pathlib import Path
from potato_training.project import build_bundle
from potato_training.schema.config import load_or_raise

bundle = build_bundle(load_or_raise(sys.argv[1]), ["kind"], Path(sys.argv[2]))
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak) / 1024, sum(part["n"] for part in bundle.manifest["splits"].values()))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
def test_a_million_items(tmp_path, write_project):
    """Half of them in lines, half in one array: either held as a whole would be too much."""
    path = write_project(tmp_path, 0, {}, schemes=(SCHEME,), data="data/items.jsonl")
    path.write_text(json.dumps({**json.loads(path.read_text()), "data_files": ["data/items.jsonl", "data/more.json"]}))
    with (tmp_path / "data/items.jsonl").open("w") as lines, (tmp_path / "data/more.json").open("w") as array:
        for n in range(N):  # ids as long as UUIDs
            row = f'{{"id": "0e5f5c1e-8d1c-4c46-9c27-{n:012}", "text": "a text that is number {n} of many"}}'
            if n % 2:
                array.write(("[" if n == 1 else ",\n") + row)
            else:
                lines.write(f"{row}\n")
        array.write("]")
    for k, who in enumerate(("ann", "bob", "cat")):
        target = tmp_path / "annotation_output" / who / "user_state.json"
        target.parent.mkdir(parents=True)
        with target.open("w") as file:
            file.write('{"user_id": "x", "instance_id_to_label_to_value": {')
            for n in range(0, N, 10):
                label = "abc"[(n // 10 + (k == n % 7)) % 3]
                item = f"0e5f5c1e-8d1c-4c46-9c27-{n:012}"
                pair = json.dumps([[{"schema": "kind", "name": label}, label]])
                file.write(f'{"," * (n > 0)}\n"{item}": {pair}')
            file.write('}, "origin": {}}')
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(path), str(tmp_path / "bundle.tar.gz")],
        capture_output=True, text=True, check=True, timeout=600,
    )
    peak, items = done.stdout.split()
    assert int(items) == N
    assert float(peak) < 200
    print(f"peak {peak} MB")
