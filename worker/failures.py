"""What went wrong, in one line: from an exception to an error event and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from typing import Optional

from . import protocol

MOST_SHOWN = 80         # characters of a label in a message
#: No space, no quota, over the file size limit. NFS reports the first two as late as at close.
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", 122), errno.EFBIG)


class WorkerError(Exception):
    """Something that the person who started the run can act on: one line, and what to do next."""

    code = "trainer_error"
    exit_code = protocol.EXIT_TRAINER_ERROR

    def __init__(self, message: str, hint: str = "", code: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code


class BadSpec(WorkerError):
    """The spec cannot be run: unreadable, a missing key, a parameter that the trainer does not know."""

    code = "bad_spec"
    exit_code = protocol.EXIT_BAD_SPEC


class BadBundle(WorkerError):
    """The bundle cannot be read, or is not what its manifest says."""

    code = "bad_bundle"
    exit_code = protocol.EXIT_BAD_SPEC


class TrainerError(WorkerError):
    """A trainer cannot train on this: one class only, a loss that became NaN, a model that is not there."""


class MissingDependency(WorkerError):
    """A library that the trainer needs is not there or does not load."""

    code = "missing_dependency"
    exit_code = protocol.EXIT_MISSING_DEPENDENCY


class OutOfMemory(WorkerError):
    """The host's or the GPU's memory is not enough."""

    code = "out_of_memory"
    exit_code = protocol.EXIT_OUT_OF_MEMORY


class Cancelled(BaseException):
    """The run was asked to stop. Not an Exception: a library's broad ``except`` must not swallow it."""


def explain(error: BaseException, trainer: Optional[str] = None, install_hint: str = "",
            directory: Optional[str] = None) -> WorkerError:
    """The WorkerError that says what ``error`` means to the person who started the run.

    ``trainer`` is the trainer's name; ``directory`` is named when the disk is full.
    """
    if isinstance(error, WorkerError):
        return error
    text = one_line(error)
    for test in (_full, _nvrtc, _kernels, _import, _memory):
        found = test(error, text, trainer, install_hint, directory)
        if found is not None:
            return found
    return TrainerError("%s: %s" % (type(error).__name__, text) if text else type(error).__name__)


def quoted(label: str) -> str:
    """A label as it stands in a message: in quotes, on one line, of bounded length."""
    text = label if len(label) <= MOST_SHOWN else label[:MOST_SHOWN - 1] + "\u2026"
    return json.dumps(text, ensure_ascii=False)


def one_line(error: BaseException) -> str:
    """The first line of an exception's text that says something."""
    for line in str(error).splitlines():
        if line.strip():
            return line.strip()[:2000]
    return ""


def _full(error: BaseException, text: str, trainer: Optional[str], install_hint: str,
          directory: Optional[str]) -> Optional[WorkerError]:
    if isinstance(error, OSError) and error.errno in FULL:
        place = os.path.abspath(directory or os.getcwd())
        if error.errno == errno.EFBIG:
            return TrainerError("a file grew over the file size limit (ulimit -f) in %s:%s"
                                % (socket.gethostname(), place), code="disk_full")
        return TrainerError("no space or quota left on %s:%s" % (socket.gethostname(), place),
                            "free some space there, or choose another remote_dir", code="disk_full")
    # safetensors and tokenizers write from Rust and wrap the same failure in errors of their own.
    found = re.search(r"\(?os error (28|122|27)\)?|No space left on device|Disk quota exceeded", str(error))
    if found:
        number = errno.EFBIG if found.group(1) == "27" else errno.ENOSPC
        return _full(OSError(number, "full"), text, trainer, install_hint, directory)
    return None


def _nvrtc(error: BaseException, text: str, trainer: Optional[str], install_hint: str,
           directory: Optional[str]) -> Optional[WorkerError]:
    found = re.search(r"nvrtc: error: failed to open (libnvrtc-builtins[^\s,;]*?)(?=[.]?(?:\s|$))", str(error))
    if not found:
        return None
    # Seen with torch wheels beside an nvidia-cuda-nvrtc package of another CUDA version.
    return TrainerError(found.group(0).rstrip("."), "install the nvidia-cuda-nvrtc that matches the torch build, or "
                        "use another interpreter", code="nvrtc")


def _kernels(error: BaseException, text: str, trainer: Optional[str], install_hint: str,
             directory: Optional[str]) -> Optional[WorkerError]:
    if "no kernel image is available" in str(error):
        return TrainerError("This host's torch has no kernels for any of its GPUs",
                            "a torch build for those GPUs, or another host", code="no_kernels")
    return None


def _import(error: BaseException, text: str, trainer: Optional[str], install_hint: str,
            directory: Optional[str]) -> Optional[WorkerError]:
    if isinstance(error, ImportError):
        return not_imported(trainer, text, install_hint)
    return None


def not_imported(trainer: Optional[str], why: str, install_hint: str) -> MissingDependency:
    """A trainer without its library."""
    return MissingDependency("Trainer '%s' could not be imported: %s" % (trainer, why), install_hint)


def _memory(error: BaseException, text: str, trainer: Optional[str], install_hint: str,
            directory: Optional[str]) -> Optional[WorkerError]:
    if re.search(r"DataLoader worker .*killed", str(error)):
        return OutOfMemory("host out of memory: a helper process was killed", "give the run more memory")
    if is_gpu_out_of_memory(error):
        return OutOfMemory("GPU out of memory: lower batch_size or max_length",
                           "or choose a GPU with more free memory", code="gpu_out_of_memory")
    if is_host_out_of_memory(error):
        return OutOfMemory("host out of memory: the worker could not get more", "train on fewer or shorter items, "
                           "lower batch_size or max_length, or give the run more memory")
    return None


def is_gpu_out_of_memory(error: BaseException) -> bool:
    """Whether an exception is a GPU's (CUDA, ROCm or Metal) out of memory, without importing torch."""
    if type(error).__name__ in ("OutOfMemoryError", "AcceleratorError") and "out of memory" in str(error):
        return True
    return isinstance(error, RuntimeError) and bool(re.search(
        r"(?:CUDA|HIP|MPS|cuda|CUBLAS)[^\n]*(?:out of memory|ALLOC_FAILED)", str(error)))


def is_host_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that the host's memory is at its end: Python's, numpy's or torch's."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search(
        r"DefaultCPUAllocator: (?:can't|not enough memory|can not)", str(error)))
