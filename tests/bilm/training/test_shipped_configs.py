"""Configurations by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bilm.errors import ConfigError
from bilm.training.config import load_config
from bilm.training.shipped_configs import find_config
from tests.conftest import ROOT

NAMES = sorted(path.stem for path in (ROOT / "configs").glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_finds_shipped_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()  # a directory of the same name does not matter
    assert load_config(name) == load_config(ROOT / "configs" / f"{name}.json")


def test_prefers_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big").write_text("{}")
    assert find_config("big") == Path("big")
    with pytest.raises(ConfigError, match=r"^big: "):
        load_config("big")


@pytest.mark.parametrize("path", ["big.json", "./big", "configs/big", "/big"])
def test_does_not_replace_paths(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        load_config(path)


def test_lists_names() -> None:
    with pytest.raises(ConfigError, match=f"use one of {', '.join(NAMES)}, or the path of a JSON"):
        load_config("huge")
