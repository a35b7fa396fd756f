"""The tests' own account: what one test leaves there is no other test's trouble."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.real


def test_an_account_is_as_on_its_first_day_whatever_a_test_has_left(lab, wait_until):
    account = lab.account("bash")
    account.clean()
    before = {path: path.read_bytes() for path in account.home.rglob("*") if path.is_file()}
    assert any(path.name == "authorized_keys" for path in before)
    account.program("bin/nvidia-smi", "#!/bin/sh\nexec sleep 600\n")
    account.put(".bashrc", "export PATH=$HOME/bin:$PATH\n")
    account.put(".ssh/authorized_keys", "")
    account.put("pt/code/abc/x.py", "")
    (account.home / "link").symlink_to("/etc")
    (account.home / ".profile").unlink(missing_ok=True)
    command = f"touch /tmp/{account.name}.lock; (sleep 600 & ) ; sleep 600"
    hanging = subprocess.Popen(["su", account.name, "-s", "/bin/sh", "-c", command], start_new_session=True)
    wait_until(lambda: len(account.processes("sleep 600")) >= 2, "processes of the account")
    account.clean()
    hanging.wait(60)
    assert {path: path.read_bytes() for path in account.home.rglob("*") if path.is_file()} == before
    assert not list(account.home.glob("pt"))
    assert not account.processes()
    assert not Path("/tmp", f"{account.name}.lock").exists()
    assert (account.home / ".ssh" / "authorized_keys").stat().st_uid == account.uid
