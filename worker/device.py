"""The device that a run gets, how many threads, and which versions of what are here."""

from __future__ import annotations

import os
import platform
import socket
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .failures import TrainerError

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
#: import name -> distribution name, where they differ.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "Pillow", "yaml": "PyYAML"}


def set_threads(number: Optional[int]) -> None:
    """Sets the thread variables, over what the login shell exported; before any numeric library is imported."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # Threads that wait for each other spin for a while first. Where another program has the core
        # they spin against it: seen on 2 shared cores, a small model's step 10 times as slow.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if number is not None:
        for name in THREAD_VARIABLES:
            os.environ[name] = str(number)


def threads(number: Optional[int] = None) -> int:
    """How many threads numeric libraries will use."""
    for text in (str(number or ""), os.environ.get("OMP_NUM_THREADS", "")):
        if text.isdigit() and int(text) > 0:
            return int(text)
    return processors()


def processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:              # macOS
        return os.cpu_count() or 1


def here() -> Dict[str, Any]:
    """Where this is: host, interpreter with its version, and process, for the first event. In a Slurm job the host goes
    by the name that Slurm has for it, which squeue shows as well."""
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    python = "%s (%s)" % (sys.executable, platform.python_version())
    return {"host": host, "python": python, "pid": os.getpid()}


def software(packages: Iterable[str]) -> Dict[str, str]:
    """{distribution: version} of the packages (import names) that are installed, and of this package."""
    from importlib.metadata import PackageNotFoundError, version

    from .. import __version__

    found = {"potato-training": __version__}
    for name in packages:
        name = DISTRIBUTIONS.get(name, name)
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def choose(wanted: str, warn: Callable[[str], None]) -> Tuple[str, List[Dict[str, Any]]]:
    """The torch device for ``wanted`` (auto, cpu, mps, cuda, cuda:N), proved by a real kernel, and its GPUs.

    -> (device name, [{"name", "uuid"}]). One that is asked for and missing falls back, in the order
    CUDA, Metal, CPU, with a warning. TrainerError when the GPUs are there and torch has no code for
    any of them: nobody wants to find that out from the speed.
    """
    import torch

    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = bool(getattr(torch.backends, "mps", None) and torch.backends.mps.is_available())
    if wanted.startswith("cuda"):
        index = int(wanted[5:]) if wanted[5:].isdigit() else None
        if index is not None and index < cuda:
            return _cuda([index], warn)
        if cuda and index is None:
            return _cuda(range(cuda), warn)
        why = "CUDA sees %d GPUs" % cuda if cuda else _why_no_cuda(torch)
        warn("%s was asked for and is not there (%s)" % (wanted, why))
    elif wanted == "mps" and not mps:
        warn("mps was asked for and is not there")
    elif wanted == "cpu":
        return "cpu", []
    elif wanted not in ("auto", "mps"):
        warn("device %r is not known; choosing one" % wanted)
    if wanted == "mps" and mps:
        return "mps", [{"name": "Apple Metal", "uuid": None}]
    if cuda:
        return _cuda(range(cuda), warn)
    if mps:
        return "mps", [{"name": "Apple Metal", "uuid": None}]
    if wanted == "auto" and torch.version.cuda is None and os.path.isdir("/proc/driver/nvidia/gpus"):
        warn("this host has an NVIDIA GPU and its torch is built without CUDA; training on the CPU")
    return "cpu", []


def _why_no_cuda(torch: Any) -> str:
    if torch.version.cuda is None and not getattr(torch.version, "hip", None):
        return "this torch is built without CUDA"
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "CUDA_VISIBLE_DEVICES is empty"
    return "torch finds no GPU"


def _cuda(indices: Iterable[int], warn: Callable[[str], None]) -> Tuple[str, List[Dict[str, Any]]]:
    import torch

    refused = []
    for index in indices:
        name = "cuda:%d" % index
        try:
            # torch.cuda.is_available() is true for a card that this build has no code for; the
            # first kernel then fails, minutes into a run. A list of architectures would not do
            # for the test: PTX and minor versions make cards work that are not on it.
            a = torch.ones(2, 2, device=name)
            (a @ a).sum().item()
            torch.cuda.synchronize(index)
        except RuntimeError as error:
            if "no kernel image" not in str(error):
                raise
            major, minor = torch.cuda.get_device_capability(index)
            refused.append("%s (sm_%d%d)" % (torch.cuda.get_device_name(index), major, minor))
            continue
        for skipped in refused:
            warn("this torch has no kernels for %s" % skipped)
        return name, [_describe_gpu(index)]
    raise TrainerError("This host's torch has no kernels for any of its GPUs: %s; it is built for %s"
                       % (", ".join(refused), " ".join(torch.cuda.get_arch_list())),
                       "a torch build for those GPUs, or another host", code="no_kernels")


def _describe_gpu(index: int) -> Dict[str, Any]:
    import torch

    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if uuid is not None:
        uuid = str(uuid) if str(uuid).startswith(("GPU-", "MIG-")) else "GPU-%s" % uuid
    return {"name": torch.cuda.get_device_name(index), "uuid": uuid}
