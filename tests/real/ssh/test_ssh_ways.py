"""Ways to a host: the user's own connection, keys behind an agent, jump hosts, cut links, another machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

pytestmark = pytest.mark.real


def trained(study, *more):
    ran = study.potato("training", "run", "--trainer", "test-quick", *more)
    assert ran.returncode == 0, ran.stdout + ran.stderr + study.places.supervisor_log.read_text()
    study.nothing_is_left()
    return study.runs()[0], ran.stdout


def ssh(study, *arguments, **options):
    return subprocess.run([str(study.bin / "ssh"), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, **options)


@contextlib.contextmanager
def own_master(study, *more):
    """The user's own kept connection; afterwards no key would let anybody in again, as with a second factor."""
    lines = "\n  ".join([f"ControlPath /tmp/pt-%%-{os.getpid()}", *more])
    study.ssh_config(more=lines)
    done = ssh(study, "-M", "-N", "-f", "-o", "ControlPersist=yes", "gpu.example.org")
    assert done.returncode == 0, done.stderr
    study.ssh_config(more=f"{lines}\n  PubkeyAuthentication no")
    try:
        yield
    finally:
        ssh(study, "-O", "exit", "gpu.example.org")


def test_the_users_own_connection_serves(remote):
    study = remote()
    with own_master(study):
        logins = study.sshd.logins()
        study.ssh_processes = list      # the user's own stays
        trained(study)
        trained(study)
        assert study.sshd.logins() == logins
        assert ssh(study, "-O", "check", "gpu.example.org").returncode == 0, "it is still the user's"
        ran = study.potato("training", "check", "gpu-server", "--trainer", "test-quick")
        assert ran.returncode == 0, ran.stdout


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_what_the_users_config_forwards_is_neither_made_nor_taken_back(remote):
    """A notebook's port, as so many have: a run needs none of it, and the user's own session keeps it."""
    study = remote()
    here, there = free_port(), free_port()
    forwards = (f"LocalForward {here} 127.0.0.1:{study.sshd.port}", f"RemoteForward {there} 127.0.0.1:9")
    study.ssh_config(more="\n  ".join(forwards))
    process, run_id = study.train("test-slow", steps=20, step_seconds=0.05)
    study.reaches(run_id, "running")
    assert not listens(here)
    assert not listens(there)
    assert study.finish(process)[1] == 0
    study.nothing_is_left()
    with own_master(study, *forwards):
        study.ssh_processes = list
        trained(study)
        assert listens(here)
        assert listens(there)


def test_a_key_at_a_path_of_any_characters_and_a_config_that_keeps_ssh_quiet(remote, tmp_path):
    study = remote()
    key = tmp_path / "100%done" / 'my "key" %h'
    key.parent.mkdir()
    shutil.copy(study.lab.root / "key", key)
    study.ssh_config(more="LogLevel QUIET")
    text = (study.root / "ssh_config").read_text().replace(f"IdentityFile {study.lab.root}/key", "IdentityFile none")
    (study.root / "ssh_config").write_text(text)
    ran = study.potato("training", "check", "gpu-server", "--trainer", "test-quick")
    assert "ssh to gpu.example.org failed: Permission denied" in ran.stdout
    study.backend(identity_file=str(key))
    trained(study)


def test_a_config_that_was_written_for_sitting_at_a_terminal(remote, tmp_path):
    study = remote()
    lines = ("RequestTTY force", "RemoteCommand tmux attach", "PermitLocalCommand yes",
             f"LocalCommand touch {tmp_path}/x", "ForwardX11 yes",
             "ForwardAgent yes", "VisualHostKey yes", "ForkAfterAuthentication yes")
    study.ssh_config(more="\n  ".join(lines))
    trained(study)
    assert not (tmp_path / "x").exists()
    study.ssh_config(more="StdinNull yes")
    ran = study.potato("training", "check", "gpu-server", "--trainer", "test-quick")
    assert "ssh to gpu.example.org failed: no answer" in ran.stdout
    assert "StdinNull in ~/.ssh/config" in ran.stdout


def test_the_users_own_connection_is_found_again_at_once_although_the_host_refuses_us(remote):
    """A second factor: only the user can log in, and does so again."""
    study = remote()
    with own_master(study):
        process, run_id = study.train("test-slow", steps=400, step_seconds=0.05)
        study.reaches(run_id, "running")
        ssh(study, "-O", "exit", "gpu.example.org")
        study.wait_until(lambda: "a key that works without a prompt" in study.log(run_id), "the refusal")
        done = ssh(study, "-M", "-N", "-f", "-o", "ControlPersist=yes", "-o", "PubkeyAuthentication=yes",
                   "gpu.example.org")
        assert done.returncode == 0, done.stderr
        output, code = study.finish(process)
        assert code == 0, output
        assert "connected again after" in output
        study.ssh_processes = list
        study.nothing_is_left()


def test_a_supervisor_killed_over_the_users_own_connection(remote):
    study = remote()
    with own_master(study):
        study.ssh_processes = list
        process, run_id = study.train("test-slow", steps=60, step_seconds=0.05)
        study.reaches(run_id, "running")
        os.kill(study.supervisor(), signal.SIGKILL)
        output, code = study.finish(process)
        assert code == 0, output
        study.nothing_is_left()


def test_a_key_with_a_passphrase_that_ssh_agent_holds(remote, tmp_path):
    study = remote()
    key = tmp_path / "secret"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(key)], check=True)
    study.account.put(".ssh/authorized_keys", key.with_suffix(".pub").read_text())
    text = (study.root / "ssh_config").read_text().replace(f"{study.lab.root}/key", str(key))
    (study.root / "ssh_config").write_text(text)
    command = ["ssh-agent", "-s", "-a", str(tmp_path / "agent")]
    started = subprocess.run(command, capture_output=True, text=True, check=True)
    pid = started.stdout.split("SSH_AGENT_PID=")[1].split(";")[0]
    try:
        ran = study.potato("training", "check", "gpu-server", "--trainer", "test-quick")
        assert "ssh to gpu.example.org failed: Permission denied" in ran.stdout
        ask = tmp_path / "ask"
        ask.write_text("#!/bin/sh\necho 'a passphrase'\n")
        ask.chmod(0o755)
        env = {**os.environ, "SSH_AUTH_SOCK": str(tmp_path / "agent"), "SSH_ASKPASS": str(ask),
               "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True, stdin=subprocess.DEVNULL)
        study.env["SSH_AUTH_SOCK"] = str(tmp_path / "agent")
        trained(study)
    finally:
        os.kill(int(pid), signal.SIGTERM)


def test_a_jump_host(remote):
    study = remote()
    text = (study.root / "ssh_config").read_text()
    jump = text.replace("gpu.example.org", "jump.example.org")
    ssh_program = shutil.which("ssh")
    proxy = f"  ProxyCommand {ssh_program} -F {study.root}/ssh_config -W %h:%p jump.example.org\n"
    (study.root / "ssh_config").write_text(text.rstrip() + "\n" + proxy + jump)
    trained(study)


# --- dropped packets -------------------------------------------------------------------------------------


class Namespace:
    """A network namespace with an sshd in it, behind a link that can be made to drop everything."""

    def __init__(self, lab):
        self.name = f"pt{os.getpid()}"
        number = os.getpid() % 200 + 20
        self.here, self.there = f"10.213.{number}.1", f"10.213.{number}.2"
        self.outer, self.inner = f"pto{os.getpid()}", f"pti{os.getpid()}"
        for command in (f"netns add {self.name}", f"link add {self.outer} type veth peer name {self.inner}",
                        f"link set {self.inner} netns {self.name}", f"addr add {self.here}/24 dev {self.outer}",
                        f"link set {self.outer} up"):
            self._ip(*command.split())
        self._in("addr", "add", f"{self.there}/24", "dev", self.inner)
        self.restore()
        self.sshd = lab.serve(address=self.there, prefix=("ip", "netns", "exec", self.name))

    def _ip(self, *words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no network namespaces here: {done.stderr.strip()}")

    def _in(self, *words):
        self._ip("-n", self.name, *words)

    def cut(self):
        """From now on no packet arrives, and nobody says so."""
        self._in("link", "set", self.inner, "down")

    def restore(self):
        self._in("link", "set", self.inner, "up")

    def close(self):
        self.sshd.stop()
        subprocess.run(["ip", "link", "del", self.outer], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)


@pytest.fixture
def namespace(lab):
    made = Namespace(lab)
    yield made
    made.close()


@pytest.mark.slow
def test_a_link_that_drops_everything_for_a_while(remote, namespace):
    study = remote(server=namespace.sshd, heartbeat_timeout_s=24)
    study.bounds(ssh_connect_s=3)
    process, run_id = study.train("test-slow", steps=400, step_seconds=0.05)
    study.reaches(run_id, "running")
    namespace.cut()
    study.wait_until(lambda: study.run(run_id).facts.get("connection", {}).get("up") is False, "the trouble's note")
    namespace.restore()
    output, code = study.finish(process)
    assert code == 0, output + study.log(run_id)
    assert "connected again after" in output
    assert sum(e["event"] == "result" for e in study.events(run_id)) == 1
    study.nothing_is_left()


@pytest.mark.slow
def test_a_link_that_drops_everything_for_good(remote, namespace):
    study = remote(server=namespace.sshd, heartbeat_timeout_s=6)
    study.bounds(ssh_connect_s=2)
    process, run_id = study.train("test-slow", steps=100000, step_seconds=0.05)
    study.reaches(run_id, "running")
    namespace.cut()
    output, code = study.finish(process)
    assert code == 1
    assert "No word from the agent on gpu-server for 6 seconds" in output
    study.wait_until(lambda: not study.account.processes("potato_training"), "the end of agent and worker, alone")
    namespace.restore()
    study.ended(run_id)
    study.nothing_is_left()


@pytest.mark.slow
def test_a_name_that_leads_to_another_machine(remote, lab):
    """The same account and remote_dir, as on shared storage, and another hostname."""
    other = lab.serve(prefix=("unshare", "--uts", "sh", "-c", 'hostname another && exec "$@"', "sh"))
    study = remote()
    process, run_id = study.train("test-slow", steps=100000, step_seconds=0.05)
    study.reaches(run_id, "running")
    study.ssh_config(port=other.port)
    for pid in study.ssh_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    output, code = study.finish(process)
    assert code == 1
    host = os.uname().nodename
    assert f"gpu.example.org led to {host} before and leads to another now; this run is on {host}" in output
    study.wait_until(lambda: [r for r in study.store().releases() if r.tries], "a release that is not confirmed")
    assert "on " + host in study.store().releases()[0].last_error
    study.ssh_config()
    study.ended(run_id)
    study.nothing_is_left()


@pytest.mark.thorough("a minute of waiting")
def test_ssh_ends_by_itself_when_nobody_comes_back(remote):
    """The kept connection has an end of its own: a killed supervisor leaves no ssh for good."""
    study = remote(heartbeat_timeout_s=3)
    process, run_id = study.train("test-slow", steps=100000, step_seconds=0.05)
    study.reaches(run_id, "running")
    process.kill()
    os.kill(study.supervisor(), signal.SIGKILL)
    study.wait_until(lambda: not study.account.processes("potato_training"), "the end of agent and worker")
    give_up = time.monotonic() + 100
    study.wait_until(lambda: not study.ssh_processes() or time.monotonic() > give_up, "ssh's end", 120)
    assert not study.ssh_processes()
    study.potato("training", "supervise", check=True)
    study.nothing_is_left()
