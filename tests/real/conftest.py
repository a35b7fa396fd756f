"""A real Slurm for the tests: one controller and two virtual nodes on this machine.

Everything runs from a fresh directory, on free ports, with a munged of its own, and nothing of the
machine's own Slurm (if it has one) is read or touched. `slurm_cluster` is started once a session and
is skipped, saying why, where Slurm is not installed or cannot be started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "munged")

SLURM_CONF = """\
ClusterName=potato
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=200000,batch_sched_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={kill_wait}
MinJobAge={min_job_age}
OverTimeLimit=0
InactiveLimit=0
SlurmctldTimeout=60
SlurmdTimeout=60
MessageTimeout=10
ReturnToService=2
GresTypes=gpu
NodeName=DEFAULT CPUs=8 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1_port} Feature=big,fast
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2_port}
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=short Nodes=n[1-2] MaxTime=00:30:00 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=scavenge Nodes=n2 MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=n2 MaxTime=INFINITE State=UP PriorityTier=50 PreemptMode=OFF
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class CannotStart(Exception):
    """Why there is no Slurm for these tests."""


class SlurmCluster:
    """One slurmctld, slurmd n1 and n2 with two make-believe GPUs each, and four partitions.

    ``main`` (the default), ``short`` (MaxTime 30 minutes), ``scavenge`` on n2 (its jobs are preempted)
    by ``urgent``, on n2 too. No accounting. ``env`` is what Slurm's commands need to reach it.
    """

    def __init__(self, root: Path, *, kill_wait: int = 5, min_job_age: int = 300):
        self.root = root
        self.conf = root / "slurm.conf"
        self.daemons: dict[str, subprocess.Popen] = {}
        self._requeued: dict[str, float] = {}
        self.ports = {name: free_port() for name in ("ctld", "n1", "n2")}
        self._settings = {"kill_wait": kill_wait, "min_job_age": min_job_age}
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_", "SLURM_"))}
        self.env.update(SLURM_CONF=str(self.conf), LC_ALL="C.UTF-8")
        #: Another Slurm than the installed one: its programs and what its configuration needs (slurm_versions/run.py).
        self.home = Path(os.environ["POTATO_SLURM_HOME"]) if "POTATO_SLURM_HOME" in os.environ else None
        if self.home:
            self.env["PATH"] = f"{self.home}/bin:{self.env['PATH']}"

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        missing = [p for p in PROGRAMS if shutil.which(p, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None]
        if missing:
            raise CannotStart(f"not installed: {', '.join(missing)} (Debian: slurm-wlm and munge)")
        if os.geteuid() != 0:
            raise CannotStart("slurmd must be started as root")
        self._start_munge()
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool-n1", "spool-n2"):
            (self.root / name).mkdir()
        self.conf.write_text(SLURM_CONF.format(
            root=self.root, host=host, ctld_port=self.ports["ctld"], n1_port=self.ports["n1"],
            n2_port=self.ports["n2"], **self._settings) + self._more("more.conf", ""))
        (self.root / "gres.conf").write_text("NodeName=n[1-2] Name=gpu File=/dev/tty[0-1]\n")
        (self.root / "cgroup.conf").write_text(self._more("cgroup.conf", "CgroupAutomount=no\n"))
        self.start_daemon("slurmctld")
        self.start_daemon("n1")
        self.start_daemon("n2")
        self.wait_nodes()

    def _start_munge(self) -> None:
        home = self.root / "munge"
        home.mkdir(mode=0o755)
        key = home / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for path in (home, key):
            shutil.chown(path, "munge", "munge")
        self.daemons["munged"] = subprocess.Popen(
            ["/usr/sbin/munged", "-F", f"--socket={home}/socket", f"--key-file={key}", f"--pid-file={home}/pid",
             f"--log-file={home}/log", f"--seed-file={home}/seed", "--num-threads=2"],
            user="munge", group="munge", extra_groups=[], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self._until(lambda: (home / "socket").exists(), 60, "munged made no socket")

    def start_daemon(self, name: str, view=()) -> None:
        """Starts slurmctld, or the slurmd of a node; ``view``: words before its command."""
        programs = self.home / "bin" if self.home else Path("/usr/sbin")
        argv = [programs / "slurmctld", "-D", "-i"] if name == "slurmctld" else [programs / "slurmd", "-D", "-N", name]
        log = (self.root / f"{name}.out").open("ab")
        with log:
            self.daemons[name] = subprocess.Popen(
                [*view, *argv, "-f", str(self.conf)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.env, start_new_session=True)

    def _more(self, name: str, default: str) -> str:
        return (self.home / name).read_text() if self.home else default

    def kill_daemon(self, name: str, signum: int = signal.SIGKILL) -> None:
        """Ends a daemon that ``start_daemon`` started (slurmctld, n1, n2)."""
        daemon = self.daemons.pop(name)
        daemon.send_signal(signum)
        daemon.wait(60)

    def wait_nodes(self, seconds: float = 90) -> None:
        def ready() -> bool:
            self._alive()
            out = self.run(["sinfo", "-h", "-N", "-o", "%N %T"], check=False).stdout
            return {line.split()[1] for line in out.splitlines()} == {"idle"}
        self._until(ready, seconds, "the nodes did not become idle")

    def stop(self) -> None:
        if self.conf.exists() and "slurmctld" in self.daemons:
            with contextlib.suppress(CannotStart):
                self.cancel_all()
        for name in ("slurmctld", "n1", "n2", "munged"):
            daemon = self.daemons.pop(name, None)
            if daemon is None:
                continue
            daemon.send_signal(signal.SIGCONT)
            daemon.terminate()
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(15)

    def _alive(self) -> None:
        for name, daemon in self.daemons.items():
            if daemon.poll() is not None:
                tail = self._tail(name)
                raise CannotStart(f"{name} ended with {daemon.returncode}: {tail}")

    def _tail(self, name: str) -> str:
        path = self.root / ("munge/log" if name == "munged" else f"{name}.out")
        return path.read_text(errors="replace")[-600:].strip() if path.exists() else "(no log)"

    @staticmethod
    def _until(condition, seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise CannotStart(f"{what} within {seconds:g} s")
            time.sleep(0.05)

    # --- use ----------------------------------------------------------------------------------

    def run(self, argv, *, check: bool = True, **more) -> subprocess.CompletedProcess:
        """Runs one of Slurm's commands against this cluster; text in, text out."""
        more = {"timeout": 60, "text": True, "capture_output": True, "env": self.env, **more}
        if "input" not in more:
            more.setdefault("stdin", subprocess.DEVNULL)
        result = subprocess.run([str(a) for a in argv], **more)
        if check and result.returncode != 0:
            raise AssertionError(f"{argv} -> {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def sbatch(self, script: Path, *args: str) -> str:
        """Submits ``script`` from its own directory; the job's id."""
        return self.run(["sbatch", "--parsable", *args, script.name], cwd=script.parent).stdout.strip()

    def job(self, job_id: str) -> dict[str, str]:
        """What `scontrol show job` says of a job, by key; empty when it knows the job no more."""
        shown = self.run(["scontrol", "show", "job", "-o", job_id], check=False)
        if shown.returncode != 0:
            return {}
        return dict(part.split("=", 1) for part in shown.stdout.strip().split(" ") if "=" in part)

    def fresh(self) -> Path:
        """A fresh directory that every account of the cluster can reach."""
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self.root))
        folder.chmod(0o755)
        return folder

    def cancel_all(self) -> None:
        """Ends every job, and waits until none is left."""
        for how in ([], ["--full", "--signal=KILL", "--state=RUNNING"]):
            self.run(["scancel", *how, "--user=root"], check=False)
        self._until(lambda: not self.run(["squeue", "-h"], check=False).stdout.strip(), 60, "jobs remain")

    def wait_empty(self, job_id: str, seconds: float = 90) -> None:
        """Waits until the queue knows the job no more: nothing of it is completing."""
        self._until(lambda: not self.run(["squeue", "-h", "-j", job_id], check=False).stdout.strip(), seconds,
                    f"job {job_id} remains")

    def hurry(self, job_id: str) -> bool:
        """A requeued job waits for two minutes by itself; this says now. True, for use in a condition.

        Not before three seconds after its first call: until then slurmd takes the new launch for the old one and
        refuses ("already killed").
        """
        if time.monotonic() - self._requeued.setdefault(job_id, time.monotonic()) > 3:
            self.run(["scontrol", "update", f"jobid={job_id}", "starttime=now"], check=False)
        return True

    def wait_job(self, job_id: str, *states: str, seconds: float = 90) -> dict[str, str]:
        """Waits until the job is in one of ``states`` (RUNNING, COMPLETED, ...) and shows it."""
        end = time.monotonic() + seconds
        while True:
            shown = self.job(job_id)
            if shown.get("JobState") in states:
                return shown
            seen = f"{shown.get('JobState')} ({shown.get('Reason')})"
            assert time.monotonic() < end, f"job {job_id} is {seen}, not {states}"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def slurm_cluster():
    root = Path(tempfile.mkdtemp(prefix="potato-slurm-"))
    root.chmod(0o755)
    cluster = SlurmCluster(root)
    try:
        try:
            cluster.start()
        except (CannotStart, OSError, LookupError) as problem:
            pytest.skip(f"no real Slurm: {problem}")
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)


POTATO = "potato-annotation>=2.12,<2.13"


@pytest.fixture(scope="session")
def potato_python():
    """The interpreter of an environment that has Potato; the test is skipped where it cannot be had.

    Potato comes from PyPI into a virtual environment in the user's cache directory, made once.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "potato-training-tests"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"potato-2.12-py{sys.version_info[0]}{sys.version_info[1]}"
    with (cache / "potato.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "COMPLETE").exists():
            shutil.rmtree(home, ignore_errors=True)
            for command in (
                [sys.executable, "-m", "venv", str(home)],
                [str(home / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", POTATO],
            ):
                done = subprocess.run(command, capture_output=True, text=True, timeout=900)
                if done.returncode:
                    pytest.skip(f"{POTATO} could not be installed: {done.stderr.strip()[-500:]}")
            (home / "COMPLETE").write_text(POTATO)
    return home / "bin/python"


# --- a browser: one for the session, whoever asks ------------------------------------------------------

CHROMIUM = ("chromium-headless-shell", "chromium")
#: No sandbox as root in a container; nothing of its own that asks other hosts.
CHROMIUM_ARGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-default-apps",
]


@pytest.fixture(scope="session")
def chromium():
    """The browser's program: one that is here, else from apt-get where that is allowed. Skips saying why.

    The shell without a window first: the whole browser, also a headless one, draws a window that nobody sees.
    """
    for name in (*CHROMIUM, "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-qy", "--no-install-recommends"]
        for command in (["apt-get", "update", "-q"], [*install, CHROMIUM[0]], [*install, CHROMIUM[1]]):
            done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            for name in CHROMIUM:
                if found := shutil.which(name):
                    return found
        pytest.skip(f"NO BROWSER: apt-get could not install chromium: {(done.stdout + done.stderr)[-300:]}")
    pytest.skip("NO BROWSER: chromium is not installed, and only root may install it: apt-get install chromium")


@pytest.fixture(scope="session")
def browser(chromium):
    """Started anew for the session, with an empty profile."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="NO BROWSER: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        yield browser
        browser.close()
