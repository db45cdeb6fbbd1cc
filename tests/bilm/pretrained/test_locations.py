from __future__ import annotations

from pathlib import Path

import pytest

from bilm.errors import ConfigError, MissingPackageError
from bilm.pretrained import named_models
from bilm.pretrained.locations import Location, locate
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.named_models import MODELS


def test_a_path_has_precedence_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(MODELS))
    assert locate(name) == Location(named_models.model_path(name), name, MODELS[name])
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    assert locate(name) == Location(Path(name), str(tmp_path / name))


def test_other_names_are_paths(tmp_path: Path) -> None:
    for name in ("unknown", str(tmp_path / "unknown"), "../unknown", "a/b/c"):
        assert locate(name) == Location(Path(name), str(Path(name).resolve()))
    with pytest.raises(ConfigError, match=r"nor one of the models of bilm \(english-small"):
        PretrainedBiLm.open("unknown")


def test_a_repository_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    message = r"someone/unknown does not exist on this machine; .* pip install 'bilm\[hub\]'"
    with pytest.raises(MissingPackageError, match=message):
        locate("someone/unknown")
