"""The scripts that go through a login, executed as a login executes them, under the shells that hosts have."""

from __future__ import annotations

import sys

import pytest

CODE = "0123abcdef"


@pytest.fixture
def host(tmp_path):
    """A home directory and an environment as a login has it; ``program`` puts an executable on its PATH."""

    class Host:
        home = tmp_path / "home of me"
        programs = tmp_path / "programs"
        env: dict

        def program(self, name, text):
            path = self.programs / name
            path.write_text(text)
            path.chmod(0o755)
            return path

    made = Host()
    made.home.mkdir()
    made.programs.mkdir()
    made.env = {"HOME": str(made.home), "PATH": f"{made.programs}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    made.root = made.home / ".cache" / "potato-training"
    return made


@pytest.fixture
def listed():
    """What the last member of a copy of the code holds."""
    return lambda files: "".join(f"{len(data)} {name}\n" for name, data in sorted(files.items())).encode()


@pytest.fixture
def store(host, listed):
    """``store({name: bytes}, "0123abcdef")``: a whole copy in the host's store of code; its path."""

    def put(files, name=CODE):
        for path, data in {**files, name: listed(files)}.items():
            target = host.root / "code" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return host.root / "code" / name

    return put


@pytest.fixture
def ssh(compiled):
    """The scripts of an ssh backend, with this interpreter."""
    return lambda **keys: compiled("ssh", **{"python": sys.executable, **keys}).files
