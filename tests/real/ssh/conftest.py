"""A real sshd for the tests: on 127.0.0.1, on a free port, with keys and accounts of its own.

Started once a session as root; skipped, saying why, where that cannot be. The accounts have other login shells
and startup files, and are removed at the end. The product calls ``ssh`` from PATH: there is one that reads the
tests' own config instead of root's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures"
PYTHON = "/usr/bin/python3"
#: Debian package of each program that the tests need.
PROGRAMS = {"sshd": "openssh-server", "ssh": "openssh-client", "fish": "fish", "tcsh": "tcsh"}
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

SSHD_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {root}/host_key
PidFile {root}/sshd.pid
AuthorizedKeysFile %h/.ssh/authorized_keys
AuthenticationMethods publickey
UsePAM no
StrictModes no
MaxStartups 100
MaxSessions 100
PrintMotd no
LogLevel VERBOSE
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
{more}
"""

SSH_CONFIG = """\
Host gpu.example.org
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {root}/key
  IdentitiesOnly yes
  UserKnownHostsFile {root}/known_hosts
  StrictHostKeyChecking yes
  {more}
"""


def acceptance():
    """The helpers of the acceptance tests."""
    spec = importlib.util.spec_from_file_location("acceptance_helpers", ROOT / "tests" / "acceptance" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Study = acceptance().Study


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Sshd:
    """One sshd. ``more`` are lines of its config; ``prefix`` goes before its command (ip netns exec ...)."""

    def __init__(self, root, accounts, more="", port=None, address="127.0.0.1", prefix=()):
        self.root, self.accounts, self.port = root, accounts, port or free_port()
        self.log = root / f"sshd-{self.port}.log"
        self.config = root / f"sshd_config-{self.port}"
        text = SSHD_CONFIG.format(port=self.port, root=root, more=more).replace("127.0.0.1", address)
        self.config.write_text(text.replace("sshd.pid", f"sshd-{self.port}.pid"))
        self.address, self.prefix = address, prefix
        self.process = None

    def start(self):
        Path("/run/sshd").mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, shutil.which("sshd", path=PATH), "-D", "-e", "-f", str(self.config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        give_up = time.monotonic() + 60
        while "Server listening" not in self.said():
            if self.process.poll() is not None or time.monotonic() > give_up:
                pytest.skip(f"sshd does not start: {self.said()[-500:]}")
            time.sleep(0.02)
        return self

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(60)

    def children(self):
        """pids of the processes that serve connections, the ones that accounts' sessions hang on included."""
        return [pid for pid in map(int, _pids()) if _title(pid).startswith("sshd: ")
                and self.process.pid in _ancestors(pid)]

    def commands(self):
        """How many commands were executed over connections so far."""
        return self.said().count("Starting session: command")

    def logins(self):
        return self.said().count("Accepted publickey")

    def said(self):
        return self.log.read_text("utf-8", "replace")


def _pids():
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _title(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _ancestors(pid):
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            break
        found.append(pid)
    return found


class Account:
    """A user on the far side."""

    def __init__(self, name, shell, key):
        subprocess.run(["useradd", "-m", "-s", shell, "-p", "*", name], check=True, capture_output=True)
        entry = pwd.getpwnam(name)
        self.name, self.uid, self.gid, self.home = name, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir)
        self.put(".ssh/authorized_keys", key)
        site = f".local/lib/python{_version()}/site-packages"
        for path in (FIXTURES / "trainers").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                self.put(f"{site}/{path.relative_to(FIXTURES / 'trainers')}", path.read_text())
        self.remember()

    def remember(self):
        """The home as it is now is what ``clean`` brings back."""
        self._home = {path: _content(path) for path in self.home.rglob("*")}

    def with_libraries(self):
        """scikit-learn and its kin, from the tests' own environment."""
        site = next((ROOT / ".venv" / "lib").glob("python*/site-packages"))
        self.put(f".local/lib/python{_version()}/site-packages/libraries.pth", f"{site}\n")

    def put(self, name, text, mode=0o644):
        """A file in the home directory, the account's own."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        while path != self.home:
            os.chown(path, self.uid, self.gid)
            path = path.parent
        return self.home / name

    def program(self, name, text):
        return self.put(name, text, 0o755)

    def processes(self, word=""):
        """pids of this account's processes whose command line holds ``word``; sshd's own are not its."""
        found = []
        for name in _pids():
            with contextlib.suppress(OSError, IndexError):
                title = _title(name)
                if word not in title or title.startswith("sshd: "):
                    continue
                status = Path(f"/proc/{name}/status").read_text("utf-8", "replace")
                uid = int(status.split("\nUid:")[1].split()[1])
                if uid == self.uid and "State:\tZ" not in status:
                    found.append(int(name))
        return found

    def sockets(self):
        """Directories of forwarded sockets."""
        return [p for p in Path("/tmp").glob("p-*") if _owner(p) == self.uid]

    def kill(self):
        """Ends all of them, those that are being started included."""
        give_up = time.monotonic() + 60
        while (pids := self.processes()) and time.monotonic() < give_up:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def clean(self):
        """As on the first day, whatever a test has left."""
        self.kill()
        for path in Path("/tmp").iterdir():
            if _owner(path) == self.uid:
                _remove(path)
        for path in sorted(self.home.rglob("*"), reverse=True):
            if path not in self._home:
                _remove(path)
        for path, content in self._home.items():
            if content is not None and _content(path) != content:
                _remove(path)
                self.put(str(path.relative_to(self.home)), content[0].decode(), content[1])

    def remove(self):
        self.clean()
        subprocess.run(["userdel", "-r", "-f", self.name], capture_output=True)


def _content(path):
    """What a file holds, and its mode; None for all else."""
    if path.is_symlink() or not path.is_file():
        return None
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _owner(path):
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _version():
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


SHELLS = {"bash": "/bin/bash", "dash": "/bin/dash", "fish": "/usr/bin/fish", "tcsh": "/usr/bin/tcsh"}


class Lab:
    """The sshd of the session, its accounts, and the keys."""

    def __init__(self, root):
        self.root = root
        self.accounts = {}
        self._servers = []
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "key")], check=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "host_key")], check=True)
        self.key = (root / "key.pub").read_text()
        self.sshd = self.serve()

    def serve(self, more="", **options):
        server = Sshd(self.root, self.accounts, more, **options).start()
        self._servers.append(server)
        host_key = (self.root / "host_key.pub").read_text().rsplit(" ", 1)[0]
        with (self.root / "known_hosts").open("a") as file:
            file.write(f"[{server.address}]:{server.port} {host_key}\n")
        return server

    def account(self, kind="bash"):
        """bash, dash, fish, tcsh; chatty (a .bashrc that prints); threads (a login shell with OMP_NUM_THREADS=1)."""
        if kind not in self.accounts:
            shell = SHELLS.get(kind, "/bin/bash")
            account = self.accounts[kind] = Account(f"pt{os.getpid()}{kind}", shell, self.key)
            if kind == "chatty":
                account.put(".bashrc", "echo 'Welcome! 3 jobs'\necho 4242\n")
            if kind == "threads":
                account.put(".bashrc", "export OMP_NUM_THREADS=1\n")
            account.remember()
        return self.accounts[kind]

    def close(self):
        for server in self._servers:
            server.stop()
        for account in self.accounts.values():
            account.remove()


@pytest.fixture(scope="session")
def lab():
    if os.geteuid() != 0:
        pytest.skip("no real sshd: it must be started as root, to log into accounts of other users")
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=PATH)})
    if missing:
        command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode != 0:
            pytest.skip(f"no real sshd: {' '.join(missing)} cannot be installed: {done.stderr.strip()[-300:]}")
    root = Path(tempfile.mkdtemp(prefix="potato-sshd-"))
    root.chmod(0o755)
    lab = Lab(root)
    try:
        yield lab
    finally:
        lab.close()
        shutil.rmtree(root, ignore_errors=True)


class Remote(Study):
    """A project whose default backend is ``gpu-server``, gpu.example.org, and the account there."""

    def __init__(self, root, wait_until, lab, account, server=None):
        super().__init__(root, wait_until)
        self.lab, self.account, self.sshd = lab, account, server or lab.sshd
        self.controls = set()
        self.bin = root / "bin"
        self.bin.mkdir()
        self.ssh_config()
        wrapper = self.bin / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {root}/ssh_config "$@"\n')
        wrapper.chmod(0o755)
        self.env["PATH"] = f"{self.bin}:{os.environ['PATH']}"
        self.backend()
        self.configure(backend="gpu-server", grace_seconds=3)

    def ssh_config(self, more="", **values):
        said = {"port": self.sshd.port, "user": self.account.name, "root": self.lab.root, "more": more, **values}
        (self.root / "ssh_config").write_text(SSH_CONFIG.format(**said).replace("127.0.0.1", self.sshd.address))

    def backend(self, **keys):
        import yaml

        config = yaml.safe_load(self.config.read_text())
        backends = config["model_training"].setdefault("backends", {})
        old = backends.get("gpu-server") or {
            "type": "ssh", "host": "gpu.example.org", "python": PYTHON, "remote_dir": "~/pt"}
        backends["gpu-server"] = {**old, **keys}
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))

    @property
    def jobs(self):
        return self.account.home / "pt" / "jobs"

    def far(self, word):
        """The one process of the account whose command line holds ``word``."""
        return self.wait_until(lambda: self.account.processes(word), word)[0]

    def ssh_processes(self):
        """pids of ssh that were started for this project: commands, and kept connections by their sockets."""
        store = self.store()
        for release in store.releases() if store else ():
            self.controls.update(release.target.get("controls") or ())
        kept = tuple(f"ssh: {directory}/c " for directory in self.controls)
        return [int(pid) for pid in _pids()
                if str(self.root / "ssh_config") in (title := _title(pid)) or (kept and title.startswith(kept))]

    def nothing_is_left(self):
        """On neither side."""
        self.wait_until(lambda: not self.processes(), "the end of all processes here")
        self.wait_until(lambda: not self.account.processes("potato_training"), "the end of all processes there")
        self.wait_until(lambda: not self.ssh_processes(), "the end of ssh")
        assert self.store().releases() == []
        assert not self.jobs.exists() or list(self.jobs.iterdir()) == []
        assert self.account.sockets() == []

    def close(self):
        super().close()
        for pid in self.ssh_processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def remote(lab, project, wait_until):
    """``remote("fish", heartbeat_timeout_s=...)``: a Remote whose host is reached as such an account."""
    made = []

    def make(kind="bash", server=None, **keys):
        account = lab.account(kind)
        account.clean()
        study = Remote(project("review-project"), wait_until, lab, account, server)
        study.backend(**keys)
        made.append(study)
        return study

    yield make
    for study in made:
        study.close()
        study.account.clean()


@pytest.fixture
def events_of():
    def read(path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    return read
