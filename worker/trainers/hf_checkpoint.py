"""Checkpoints: what a job that is started again goes on from.

Each is a directory ``step-00000200`` with tensors in safetensors, everything else in JSON, and a marker that is
written last; it gets its name by rename. No pickle. One that is not whole, or is of another training, is passed
over with a word, and the one before it is taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..files import write_whole

if TYPE_CHECKING:
    from ..bundle import Example
    from .base import Handle, Task

TENSORS, STATE, MARKER = "state.safetensors", "state.json", "COMPLETE"
KEEP = 2
SHARE = 20          # so many times what writing one took must pass before the next
BLOCKS, BLOCK = 32, 1 << 15     # of a model's file, by which it is known again
Found = Tuple[Dict[str, Any], Dict[str, Any]]


def fingerprint(task: Task, directory: str, train: Sequence[Example], val: Sequence[Example]) -> str:
    """What a checkpoint must have been made from to be gone on with: labels, parameters, model and items."""
    params = {k: v for k, v in task.params.items() if k not in ("checkpoint_minutes", "processes")}
    model = sorted((n, _sampled(os.path.join(directory, n))) for n in os.listdir(directory)
                   if n.endswith((".safetensors", ".json")))
    digest = hashlib.sha256(json.dumps([task.kind, task.labels, params, task.seed, model], sort_keys=True).encode())
    for split in (train, val):
        digest.update(b"\0")
        for example in split:
            row = json.dumps([example.id, example.text, example.target])
            digest.update(row.encode("ascii") + b"\n")
    return digest.hexdigest()


def _sampled(path: str) -> str:
    """A digest of a file's size and of blocks all over it: quick for many gigabytes, and a newer version of a model,
    whose files are as long as before, has other ones."""
    size = os.path.getsize(path)
    digest = hashlib.sha256(b"%d" % size)
    with open(path, "rb") as f:
        for n in range(BLOCKS):
            f.seek(max(0, size - BLOCK) * n // (BLOCKS - 1))
            digest.update(f.read(BLOCK))
    return digest.hexdigest()


class Checkpoints:
    """The checkpoints in one directory. ``minutes`` lie between two of them; 0 for one after every step."""

    def __init__(self, directory: str, mark: str, minutes: float, run: Handle) -> None:
        self.directory = directory
        self.mark = mark
        self.minutes = minutes
        self.run = run
        self._at = time.monotonic()
        self._took = 0.0
        self._broken = False

    def due(self) -> bool:
        """Whether it is time for the next one."""
        if self._broken:
            return False
        passed = time.monotonic() - self._at
        return not self.minutes or passed >= max(60.0 * self.minutes, SHARE * self._took)

    def worth_it_at_the_end(self) -> bool:
        """Whether a training that is stopped may be gone on with: a scheduler may start its job again."""
        return not self._broken and "SLURM_JOB_ID" in os.environ

    def save(self, step: int, state: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        """Writes one, and removes those before the last two. What cannot be written is a warning, not the end."""
        began = time.monotonic()
        fresh = os.path.join(self.directory, ".new")
        target = os.path.join(self.directory, _name(step))
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            os.makedirs(fresh)
            self._write(fresh, state, tensors)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(fresh, target)
            _sync(self.directory)
            for old in self._steps()[KEEP:]:
                shutil.rmtree(os.path.join(self.directory, _name(old)), ignore_errors=True)
        except Exception as error:          # safetensors wraps a full disk in an error of its own
            self._broken = True
            shutil.rmtree(fresh, ignore_errors=True)
            self.run.warn("no checkpoint could be written, and none will be: %s" % error)
        self._at = time.monotonic()
        self._took = self._at - began

    def _write(self, directory: str, state: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        from safetensors.torch import save_file

        path = os.path.join(directory, TENSORS)
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path)
        _sync(path)
        write_whole(os.path.join(directory, STATE), json.dumps(dict(state, mark=self.mark)))
        sizes = {name: os.path.getsize(os.path.join(directory, name)) for name in (TENSORS, STATE)}
        write_whole(os.path.join(directory, MARKER), json.dumps(sizes))

    def latest(self) -> Optional[Found]:
        """(state, tensors) of the newest whole one of this training, or None."""
        passed: List[str] = []
        for step in self._steps():
            found = self._read(os.path.join(self.directory, _name(step)))
            if isinstance(found, str):
                passed.append("step %d %s" % (step, found))
                continue
            self.run.log("; ".join(["resumed from step %d" % step, *passed]))
            return found
        if passed:
            self.run.log("; ".join(["starting from the beginning", *passed]))
        return None

    def _read(self, directory: str) -> Any:
        """One checkpoint, or in a few words why it is none."""
        try:
            with open(os.path.join(directory, MARKER), encoding="ascii") as f:
                sizes = json.load(f)
            if any(os.path.getsize(os.path.join(directory, name)) != size for name, size in sizes.items()):
                return "was incomplete"
            with open(os.path.join(directory, STATE), encoding="ascii") as f:
                state = json.load(f)
            if state.get("mark") != self.mark:
                return "is of another training"
            from safetensors.torch import load_file

            return state, load_file(os.path.join(directory, TENSORS))
        except Exception:
            return "was incomplete"

    def _steps(self) -> List[int]:
        """The steps that have a directory, newest first."""
        with contextlib.suppress(OSError):
            found = (re.match(r"step-(\d{8,})\Z", name) for name in os.listdir(self.directory))
            return sorted((int(m.group(1)) for m in found if m), reverse=True)
        return []


def _name(step: int) -> str:
    return "step-%08d" % step


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- the state of a training loop ---------------------------------------------------------------


def trained_names(model: Any) -> List[str]:
    """Names in the state dict that training changes: trained parameters, and buffers (running statistics)."""
    kept = set(model.state_dict())
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    return [n for n in [*names, *(n for n, _ in model.named_buffers())] if n in kept]


def collect(model: Any, optimizer: Any, scaler: Any, best: Any, random: Any) -> Found:
    """Everything that the next step depends on, as JSON values and tensors."""
    weights = model.state_dict()
    tensors = {"model." + n: weights[n] for n in trained_names(model)}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors.update(("optimizer.%d.%s" % (index, k), v) for k, v in moments.items())
    tensors.update(("random.%d" % n, state) for n, state in enumerate(random))
    if best is not None:
        tensors.update(("best." + n, p) for n, p in best[2].items())
    state = {"best": None if best is None else [list(best[0]), best[1]],
             "scaler": scaler.state_dict() if scaler else None}
    return state, tensors


def put_back(found: Found, model: Any, optimizer: Any, scaler: Any) -> Any:
    """Sets model, optimizer and scaler to what was collected. -> (best, random states)."""
    state, tensors = found
    parts: Dict[str, Dict[str, Any]] = {"model": {}, "optimizer": {}, "best": {}, "random": {}}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        parts[kind][rest] = tensor
    model.load_state_dict(parts["model"], strict=False)
    moments: Dict[int, Dict[str, Any]] = {}
    for name, tensor in parts["optimizer"].items():
        index, _, key = name.partition(".")
        moments.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    if scaler and state["scaler"]:
        scaler.load_state_dict(state["scaler"])
    best = None if state["best"] is None else (tuple(state["best"][0]), state["best"][1], parts["best"])
    return best, [parts["random"][str(n)] for n in range(len(parts["random"]))]


def random_states(device: str) -> List[Any]:
    """The states of the generators that dropout draws from."""
    import torch

    states = [torch.get_rng_state()]
    if str(device).startswith("cuda"):
        states.append(torch.cuda.get_rng_state(device))
    return states


def set_random(states: Sequence[Any], device: str) -> None:
    import torch

    torch.set_rng_state(states[0])
    if len(states) > 1 and str(device).startswith("cuda"):
        torch.cuda.set_rng_state(states[1], device)
