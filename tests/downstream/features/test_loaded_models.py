from __future__ import annotations

from pathlib import Path

from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features.loaded_models import digest_at, embedder_at
from tests.downstream.order_task import tiny_bilm


def save(directory: Path, seed: int) -> PretrainedBiLm:
    model = tiny_bilm(seed)
    model.save_pretrained(directory, overwrite=True)
    return model


def test_model_is_loaded_once_and_again_if_it_changes(tmp_path: Path) -> None:
    save(tmp_path / "model", 0)
    first, digest = embedder_at(tmp_path / "model"), digest_at(tmp_path / "model")
    assert embedder_at(str(tmp_path / "model")) is first
    save(tmp_path / "model", 1)
    assert embedder_at(tmp_path / "model") is not first
    assert digest_at(tmp_path / "model") != digest


def test_best_model_of_a_run_is_watched(tmp_path: Path) -> None:
    save(tmp_path / "run" / "best", 0)
    digest = digest_at(tmp_path / "run")
    save(tmp_path / "run" / "best", 1)
    assert digest_at(tmp_path / "run") != digest
