"""Several processes of one host that train one model: the worker is rank 0 and starts the others itself.

Each computes its share of every batch; the gradients are added up, so that a step is the step that one process
would have made. Rank 0 alone is asked whether to go on, measures the val items, writes checkpoints and speaks. A rank
that ends takes the run with it; one whose rank 0 is gone ends at once: its standard input tells.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from ..bundle import Example
from ..device import processors
from ..failures import OutOfMemory, TrainerError, WorkerError, explain
from .base import Handle, Task, Trainer

if TYPE_CHECKING:
    from torch.distributed import Work

PATIENCE_S = 10.0           # for the others to end by themselves once the training is over
SPINS = 2000                # looks before a wait begins to sleep between them
PARAM = {"type": ["integer", "null"], "minimum": 1, "maximum": 64, "default": None,
         "description": "processes that train together; not given: one for each GPU that the run was given"}


class Solo:
    """One process alone."""

    rank, size = 0, 1
    directory: Optional[str] = None     #: of the model, where rank 0 has found it already

    def share(self, batch: List[int]) -> List[int]:
        """This rank's part of a batch."""
        return batch

    def add_up(self, parameters: Sequence[Any], loss: float) -> float:
        """Adds the ranks' gradients and losses. -> the loss."""
        return loss

    def tell(self, values: List[float]) -> List[float]:
        """Rank 0's values, on every rank."""
        return values

    def join(self, run: Handle, seed: int) -> None:
        """The model is loaded, and training begins once all have come so far."""

    def close(self) -> None:
        """The training is over."""


class Team(Solo):
    """One of several processes."""

    def __init__(self, rank: int, size: int, device: str, store: Any, run: Handle) -> None:
        self.rank, self.size, self.device, self.store, self.run = rank, size, device, store, run
        self.others: List[subprocess.Popen[bytes]] = []
        self.files: List[str] = []

    def share(self, batch: List[int]) -> List[int]:
        return batch[self.rank::self.size]

    def join(self, run: Handle, seed: int) -> None:
        import torch
        import torch.distributed as dist

        self.store.set("here-%d" % self.rank, "1")
        if self.rank == 0:
            while not self.store.check(["here-%d" % n for n in range(self.size)]):
                self._look()
                time.sleep(0.02)
        else:
            torch.manual_seed(seed * 1000 + self.rank)          # another dropout than the others'
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")       # or gloo looks for an address of the host's name
        backend = "nccl" if self.device.startswith("cuda") else "gloo"
        if self.device.startswith("cuda"):
            torch.cuda.set_device(self.device)
        # Measuring may take long, and the dead are noticed otherwise: no time-out.
        dist.init_process_group(backend, store=self.store, rank=self.rank, world_size=self.size,
                                timeout=timedelta(days=7))

    def add_up(self, parameters: Sequence[Any], loss: float) -> float:
        import torch
        import torch.distributed as dist

        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).float() for p in parameters]
        parts.append(torch.tensor([loss], dtype=torch.float32, device=self.device))
        flat = torch.cat(parts)
        self._wait(dist.all_reduce(flat, async_op=True))
        at = 0
        for p in parameters:
            p.grad = flat[at:at + p.numel()].view_as(p).to(p.dtype)
            at += p.numel()
        return float(flat[-1])

    def tell(self, values: List[float]) -> List[float]:
        import torch
        import torch.distributed as dist

        told = torch.tensor(values, dtype=torch.float64, device=self.device)
        self._wait(dist.broadcast(told, 0, async_op=True))
        found: List[float] = told.tolist()
        return found

    def _wait(self, work: Optional[Work]) -> None:
        """Waits for all ranks, and meanwhile looks whether they live and the run may go on."""
        assert work is not None
        looks = 0
        while not work.is_completed():
            looks += 1
            if looks > SPINS:
                self._look()
                time.sleep(0.0005)
        try:
            work.wait()
        except RuntimeError:
            until = time.monotonic() + PATIENCE_S               # the connection tells sooner than the process
            while self.rank == 0 and time.monotonic() < until:
                self._look()
                time.sleep(0.02)
            raise

    def _look(self) -> None:
        self.run.check()
        for n, other in enumerate(self.others):
            if other.poll():            # 0: it came through the last step before this one noticed
                raise _lost(n + 1, other, self.files[n] + ".error")

    def close(self) -> None:
        until = time.monotonic() + (PATIENCE_S if sys.exc_info()[0] is None else 0.0)
        for other in self.others:
            try:
                other.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                other.kill()
                other.wait()
            assert other.stdin is not None
            other.stdin.close()
        if self.rank == 0:
            import torch.distributed as dist

            if dist.is_initialized():
                dist.destroy_process_group()
        for path in self.files:
            for name in (path, path + ".error"):
                with contextlib.suppress(OSError):
                    os.unlink(name)
        self.others, self.files = [], []


def _lost(rank: int, process: subprocess.Popen[bytes], path: str) -> WorkerError:
    """What rank ``rank`` left behind as its reason."""
    try:
        with open(path, encoding="utf-8") as f:
            told = json.load(f)
    except (OSError, ValueError):
        return TrainerError("training process %d of this run ended (exit %s)" % (rank, process.returncode),
                            "stderr.log has its last words; a system short of memory kills the largest process")
    kind = OutOfMemory if told["exit_code"] == OutOfMemory.exit_code else TrainerError
    return kind(told["message"], told["hint"], told["code"])


# --- rank 0 -------------------------------------------------------------------------------------


def how_many(wanted: Optional[int], device: str, given: Optional[str], present: int, batch_size: int) -> int:
    """Processes for the device; ``given`` is CUDA_VISIBLE_DEVICES, ``present`` how many GPUs torch sees, or how many
    processors there are."""
    on_gpu = device.startswith("cuda")
    if wanted is None:
        # Where nobody said which GPUs are this run's, it takes one.
        return min(present, batch_size) if on_gpu and given and device == "cuda:0" else 1
    # Two on one processor are slow and do no harm, and show whether several work.
    if wanted > (present if on_gpu else max(2, present)):
        what, hint = (("GPUs", "give the run more GPUs, or leave processes out") if on_gpu
                      else ("processors", "each process wants one of its own"))
        raise TrainerError("processes: %d were asked for and there are %d %s" % (wanted, present, what), hint)
    if wanted > batch_size:
        raise TrainerError("processes: %d were asked for and batch_size is %d" % (wanted, batch_size),
                           "each process takes its share of every batch: give a larger batch_size or fewer processes")
    return wanted


def gather(trainer: Trainer, directory: str, train: Sequence[Example], val: Sequence[Example]) -> Solo:
    """Starts the other ranks, when there are to be any. They load the model while this process does."""
    import torch

    run = trainer.run
    on_gpu = run.device.startswith("cuda")
    size = how_many(trainer.task.params["processes"], run.device, os.environ.get("CUDA_VISIBLE_DEVICES"),
                    torch.cuda.device_count() if on_gpu else processors(), trainer.task.params["batch_size"])
    if size == 1:
        return Solo()
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
    team = Team(0, size, run.device, store, run)
    threads = max(1, (run.threads or torch.get_num_threads()) // size)
    if not on_gpu:
        torch.set_num_threads(threads)
    folder = trainer.task.scratch or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    first = int(run.device[5:] or 0) if on_gpu else 0
    devices = ["cuda:%d" % ((first + n) % torch.cuda.device_count()) if on_gpu else run.device for n in range(size)]
    path = [entry for entry in sys.path if entry]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(path), **({} if on_gpu else {"OMP_NUM_THREADS": str(threads)}))
    for rank in range(1, size):
        file = os.path.abspath(os.path.join(folder, "rank-%d.json" % rank))
        with open(file, "w", encoding="utf-8") as f:
            json.dump({"trainer": trainer.info.name, "task": vars(trainer.task), "directory": directory, "rank": rank,
                       "size": size, "device": devices[rank], "threads": threads, "port": store.port,
                       "train": list(train), "val": list(val)}, f)
        with contextlib.suppress(OSError):
            os.unlink(file + ".error")
        team.files.append(file)
        team.others.append(subprocess.Popen([sys.executable, "-m", __name__, file], stdin=subprocess.PIPE, env=env))
    run.log("%d processes train together" % size)
    return team


# --- the other ranks ----------------------------------------------------------------------------


class Quiet(Handle):
    """Rank 0 speaks for all; what another rank warns of is in stderr.log."""

    def __init__(self, device: str, threads: int) -> None:
        self.device, self.threads = device, threads

    def warn(self, msg: str) -> None:
        print(msg, file=sys.stderr)


def _end_with_rank_0() -> None:
    """Ends this process when the pipe that is its standard input does."""
    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)
    threading.Thread(target=wait, daemon=True).start()


def _examples(rows: Sequence[Sequence[Any]]) -> List[Example]:
    return [Example(i, text, tuple(t) if isinstance(t, list) else t) for i, text, t in rows]


def main(path: str) -> None:
    from . import load

    _end_with_rank_0()
    with open(path, encoding="utf-8") as f:
        told: Dict[str, Any] = json.load(f)
    code = 0
    try:
        import torch.distributed as dist

        told["task"]["labels"] = tuple(told["task"]["labels"])
        run = Quiet(told["device"], told["threads"])
        trainer: Any = load(told["trainer"])(Task(**told["task"]), run)
        store = dist.TCPStore("127.0.0.1", told["port"], told["size"], False)
        trainer.crew = Team(told["rank"], told["size"], told["device"], store, run)
        trainer.crew.directory = told["directory"]
        trainer.fit(_examples(told["train"]), _examples(told["val"]))
    except BaseException as error:
        traceback.print_exc(file=sys.stderr)
        reason = explain(error, told["trainer"])
        code = reason.exit_code
        with open(path + ".tmp", "w", encoding="utf-8") as f:
            json.dump({"message": reason.message, "hint": reason.hint, "code": reason.code, "exit_code": code}, f)
        os.rename(path + ".tmp", path + ".error")
    sys.stderr.flush()
    os._exit(code)          # not by way of exit handlers that would wait for the others


if __name__ == "__main__":
    main(sys.argv[1])
