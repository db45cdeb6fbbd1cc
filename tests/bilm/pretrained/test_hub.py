from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bilm.pretrained.hub import is_repository_id
from bilm.pretrained.model_directory import PretrainedBiLm
from tests.bilm.pretrained.loopback_hub import Hub, running_hub
from tests.bilm.pretrained.test_model_directory import pretrained_of
from tests.conftest import ROOT

pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


def run_python(
    code: str, home: Path, address: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process that uses the hub at `address`, and a cache below `home`."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(home / "hf"),
        "HF_TOKEN": "hf_test",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        **variables,
    }
    command = [sys.executable, "-c", f"from bilm import *\nfrom bilm.errors import *\n{code}"]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("owner/name", True),
        ("allenai/elmo-small.v1", True),
        ("name", False),
        ("/etc/passwd", False),
        ("../name", False),
        ("owner/../name", False),
        ("a/b/c", False),
        ("owner/.hidden", False),
        ("owner/name\n", False),
    ],
)
def test_recognizes_repositories(name: str, expected: bool) -> None:
    assert is_repository_id(name) == expected


def test_uploads_and_downloads_a_model(hub: Hub, tmp_path: Path) -> None:
    pretrained = pretrained_of()
    pretrained.save_pretrained(tmp_path / "model")
    saving = f"PretrainedBiLm.from_pretrained({str(tmp_path / 'model')!r}).save_pretrained("
    saving += f"{str(tmp_path / 'copy')!r}, push_to_hub='someone/tiny')"
    done = run_python(saving, tmp_path, hub.address)
    assert done.returncode == 0, done.stderr
    assert set(hub.repositories["someone/tiny"]) >= {
        "README.md",
        "checksums.json",
        "config.json",
        "model.safetensors",
        "vocab.txt",
    }
    hub.repositories["someone/tiny"]["setup.py"] = b"raise SystemExit('executed')"
    reading = "m = PretrainedBiLm.open('someone/tiny')\n"
    reading += f"m.save_files(__import__('pathlib').Path({str(tmp_path / 'read')!r}))"
    done = run_python(reading, tmp_path, hub.address)
    assert done.returncode == 0, done.stderr
    read = PretrainedBiLm.from_pretrained(tmp_path / "read").model
    for name, weight in pretrained.model.named_parameters():
        assert torch.equal(weight, read.get_parameter(name))
    assert not any("setup.py" in request for request in hub.requests)
    again = run_python(
        reading.replace("read'", "again'"), tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1"
    )
    assert again.returncode == 0, again.stderr  # from the cache


def message(name: str, home: Path, address: str, **variables: str) -> str:
    code = f"try:\n  PretrainedBiLm.open({name!r})\nexcept BilmError as e:\n  print(e)"
    done = run_python(code, home, address, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_explains_what_is_wrong(hub: Hub, tmp_path: Path) -> None:
    unknown = message("someone/unknown", tmp_path, hub.address)
    assert "someone/unknown does not exist on this machine" in unknown
    assert "it does not exist, or it is private" in unknown
    offline = message("someone/unknown", tmp_path, hub.address, HF_HUB_OFFLINE="1")
    assert "the hub cannot be reached, and the model is not in the local cache" in offline
    unreachable = message("someone/unknown", tmp_path, "http://127.0.0.1:9")
    assert "the hub cannot be reached" in unreachable


def test_a_path_below_a_local_directory_is_not_a_repository(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    code = f"import os\nos.chdir({str(tmp_path)!r})\n"
    code += "try:\n  PretrainedBiLm.open('runs/typo')\nexcept BilmError as e:\n  print(e)"
    done = run_python(code, tmp_path, hub.address, PYTHONPATH=str(ROOT))
    assert "runs/typo is neither a run" in done.stdout
    assert hub.requests == []
