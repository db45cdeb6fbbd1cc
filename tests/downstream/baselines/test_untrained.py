from __future__ import annotations

from pathlib import Path

import torch

from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.baselines.untrained import save_untrained
from tests.downstream.topic_task import golden_bilm


def test_untrained_model_has_the_same_shape_and_other_weights(tmp_path: Path) -> None:
    golden_bilm().save_pretrained(tmp_path / "model")
    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        save_untrained(tmp_path / "model", tmp_path / name, seed)
    trained, one, same, other = (
        PretrainedBiLm.from_pretrained(tmp_path / name)
        for name in ("model", "one", "same", "other")
    )
    assert one.model.config == trained.model.config
    assert one.tokenizer is not None
    weights = [dict(m.model.named_parameters()) for m in (trained, one, same, other)]
    assert weights[0].keys() == weights[1].keys()
    name = max(weights[0], key=lambda key: weights[0][key].numel())
    assert torch.equal(weights[1][name], weights[2][name])
    for different in (weights[0], weights[3]):
        assert (weights[1][name] - different[name]).abs().max() > 1e-3
