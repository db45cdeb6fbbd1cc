"""Tests of bilm/distributed/machines.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from bilm.distributed.machines import Machine, address_of_first, find_answering, read_hostfile
from bilm.errors import ConfigError

REMOTE = Machine("198.51.100.7", 8)  # reserved for documentation
HERE = Machine("localhost", 2)


def test_reads_hosts_and_slots(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# comment\n\nnode-1 slots=8\n  node-2\tslots=4  \n")
    assert read_hostfile(path) == (Machine("node-1", 8), Machine("node-2", 4))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "node-1\n",
        "node-1 slots=0\n",
        "node-1 slots=x\n",
        "a slots=1\na slots=2\n",
        "-oProxyCommand=x slots=1\n",
    ],
)
def test_rejects_invalid_hostfile(text: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(ConfigError, match="slots=8"):
        read_hostfile(path)


def test_rejects_missing_hostfile(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_hostfile(tmp_path / "missing")


def test_address_of_first_machine() -> None:
    assert address_of_first([HERE]) == "127.0.0.1"
    assert address_of_first([REMOTE, HERE]) == REMOTE.host


def test_finds_machines_that_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\ncase "$*" in *" up cd "*"import bilm"*) exit 0 ;; *) exit 255 ;; esac\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    machines = [Machine("down", 1), HERE, Machine("up", 1)]
    assert find_answering(machines) == (HERE, Machine("up", 1))
