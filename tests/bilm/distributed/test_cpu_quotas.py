"""The number of cores in containers with a CPU quota."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bilm.distributed.process import num_cores
from tests.conftest import ROOT

VERSION_1 = "7:memory:/\n4:cpu,cpuacct:{path}\n"
VERSION_2 = "0::{path}\n"
HYBRID = VERSION_1 + VERSION_2


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def system(root: Path, groups: str, files: dict[str, str]) -> Path:
    """Write /proc/self/cgroup and the files of control groups below `root`."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name if name.startswith("proc") else root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_control_groups(tmp_path: Path) -> None:
    assert num_cores(tmp_path) == 16
    assert num_cores(system(tmp_path, VERSION_2.format(path="/a"), {})) == 16


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", 16),
        ("100000 100000", 1),
        ("150000 100000", 2),
        ("200000 100000", 2),
        ("5000 100000", 1),
        ("0 100000", 1),
        ("6400000 100000", 16),
        ("20000000000000000000000 1", 16),
        ("100000 0", 16),
        ("-1 100000", 16),
        ("100000", 16),
        ("", 16),
        ("x y z", 16),
    ],
)
def test_version_2(tmp_path: Path, text: str, cores: int) -> None:
    files = {"a/b/cpu.max": text + "\n", "c/cpu.max": "100000 100000\n"}
    assert num_cores(system(tmp_path, VERSION_2.format(path="/a/b"), files)) == cores


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({"a/b": "300000 100000", "a": "200000 100000"}, 2),
        ({"a/b": "300000 100000", "a": "max 100000"}, 3),
        ({"a/b": "max 100000", "a": "400000 100000"}, 4),
        ({".": "500000 100000"}, 5),
    ],
)
def test_smallest_quota_of_all_parents_applies(
    tmp_path: Path, limits: dict[str, str], cores: int
) -> None:
    files = {f"{group}/cpu.max": text for group, text in limits.items()}
    assert num_cores(system(tmp_path, VERSION_2.format(path="/a/b"), files)) == cores


@pytest.mark.parametrize("path", ["/docker/0123", "/../..", "/"])
def test_container_sees_only_its_own_group(tmp_path: Path, path: str) -> None:
    groups = VERSION_2.format(path=path)
    assert num_cores(system(tmp_path, groups, {"cpu.max": "250000 100000"})) == 3


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "cores"), [("-1", 16), ("350000", 4), ("50000", 1)])
def test_version_1(tmp_path: Path, mount: str, quota: str, cores: int) -> None:
    files = {
        f"{mount}/a/cpu.cfs_quota_us": f"{quota}\n",
        f"{mount}/a/cpu.cfs_period_us": "100000\n",
        "memory/cpu.cfs_quota_us": "100000",  # of another controller
        "memory/cpu.cfs_period_us": "100000",
    }
    for groups in (VERSION_1, HYBRID):
        assert num_cores(system(tmp_path, groups.format(path="/a"), files)) == cores


def test_hybrid_with_the_quota_in_version_2(tmp_path: Path) -> None:
    groups = "4:cpuset:/\n" + VERSION_2.format(path="/a")
    assert num_cores(system(tmp_path, groups, {"unified/a/cpu.max": "200000 100000"})) == 2


def test_path_with_a_colon(tmp_path: Path) -> None:
    groups = VERSION_2.format(path="/a:b")
    assert num_cores(system(tmp_path, groups, {"a:b/cpu.max": "200000 100000"})) == 2


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """A real control group with a quota of one core."""
    for parent, files in {
        Path("/sys/fs/cgroup"): {"cpu.max": "100000 100000"},
        Path("/sys/fs/cgroup/cpu"): {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"},
    }.items():
        group = parent / f"bilm-test-{secrets.token_hex(4)}"
        if not (parent / "cgroup.procs").exists():
            continue  # not mounted
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, text in files.items():
                (group / name).write_text(text)
        except OSError:
            group.rmdir()
            continue
        yield group
        deadline = time.monotonic() + 60
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()
        return
    pytest.skip("no control group with a CPU quota can be created here")


@pytest.mark.skipif(sys.platform != "linux", reason="needs cgroups")
def test_real_quota(limited_group: Path) -> None:
    code = (
        f"open({str(limited_group / 'cgroup.procs')!r}, 'w').write('0')\n"
        "from bilm.distributed.process import num_cores\n"
        "print(num_cores())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "1\n", done.stderr
