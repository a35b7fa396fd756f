"""What the worker inherits: a short list of variables, the job's own, and a copy of this code."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional

from .jobdir import JobDir, make_private_dir, write_private

CODE_DIR = "code"
INHERIT = "POTATO_TRAINING_INHERIT"

#: Passed on from the agent's environment when they are there.
_NAMES = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV",
    "MODULEPATH", "MODULESHOME", "LOADEDMODULES",
    "HF_HOME", "HF_ENDPOINT", "HF_DATASETS_OFFLINE", "HF_DATASETS_CACHE", "TORCH_HOME",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "TOKENIZERS_PARALLELISM", "PYTORCH_CUDA_ALLOC_CONF",
    "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
))
_PREFIXES = (
    "LC_", "HF_HUB_", "TRANSFORMERS_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "MKL_", "OPENBLAS_", "SSL_CERT_",
)
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "_KEY")
#: What a server that is not trusted with this machine (an agent backend's) may set: how libraries find
#: models and devices, never what code runs.
_MODEST = (
    "HF_", "TRANSFORMERS_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NCCL_", "OMP_", "MKL_", "OPENBLAS_",
    "TOKENIZERS_", "LC_", "LANG", "TZ",
)


def worker_environment(
    inherited: Mapping[str, str], job: Mapping[str, str], code: str, *, trusted: bool = True
) -> Dict[str, str]:
    """The worker's whole environment. ``code`` goes first on PYTHONPATH; the job's PYTHONPATH follows it,
    the agent's own is not passed on. ``trusted``: the job's variables are taken as they are.

    A launch script that has made the environment for the worker (prelude, env, env_file) says so with
    POTATO_TRAINING_INHERIT: then all of it is passed on."""
    if trusted and inherited.get(INHERIT) == "yes":
        return _as_it_is(inherited, job, code)
    environment = {name: value for name, value in inherited.items() if _passes(name)}
    for name, value in job.items():
        if trusted or name.startswith(_MODEST):
            environment[name] = value
    environment.pop("PYTHONHOME", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [code, job.get("PYTHONPATH") if trusted else None]))
    return environment


def _as_it_is(inherited: Mapping[str, str], job: Mapping[str, str], code: str) -> Dict[str, str]:
    environment = {name: value for name, value in inherited.items() if not name.startswith("POTATO_TRAINING_")}
    environment.update(job)
    paths = [path for path in inherited.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", CODE_DIR, code)]
    environment["PYTHONPATH"] = os.pathsep.join([code, *paths])
    return environment


def _passes(name: str) -> bool:
    if any(word in name.upper() for word in _SECRET) and not name.startswith("TOKENIZERS_"):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def lay_code(jobdir: JobDir, source: Optional[str] = None) -> str:
    """The directory to put on PYTHONPATH. Where the launcher has laid no ``code/`` in the job directory, a
    copy of the running agent's own, so that an upgrade in the middle of a run changes nothing."""
    target = jobdir.path(CODE_DIR)
    if os.path.isdir(os.path.join(target, "potato_training", "worker")):
        return target
    worker = source or os.path.dirname(os.path.abspath(__file__))
    package = os.path.join(target, "potato_training")
    make_private_dir(package)
    write_private(os.path.join(package, "__init__.py"), '__version__ = "%s"\n' % own_version())
    temporary = os.path.join(package, "worker.%d.tmp" % os.getpid())
    _copy_tree(worker, temporary)
    os.rename(temporary, os.path.join(package, "worker"))
    return target


def _copy_tree(source: str, target: str) -> None:
    """Copies directories as 0700 and files as 0600, times kept: compiled code goes along and stays valid,
    and compiling it again would cost every run a quarter of a second."""
    make_private_dir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            path = os.path.join(target, entry.name)
            if entry.is_dir():
                _copy_tree(entry.path, path)
            elif entry.is_file() and not entry.name.endswith(".tmp"):
                with open(entry.path, "rb") as file:
                    data = file.read()
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "wb") as copy:
                    copy.write(data)
                found = entry.stat()
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def own_version() -> str:
    """The version of the package that this agent belongs to; it travels with the code."""
    try:
        from .. import __version__ as version
    except (ImportError, ValueError):
        return "unknown"
    return str(version)
