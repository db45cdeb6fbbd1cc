from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bilm.errors import ConfigError
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.transfer import initialize_from
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.vocabulary import Vocabulary
from tests.conftest import tiny_model_config

OLD = Vocabulary([*SPECIAL_WORDS, "a", "b", "c"])
NEW = Vocabulary([*SPECIAL_WORDS, "c", "new", "a"])
SHARED_ROWS = {0: 0, 1: 1, 2: 2, 3: 5, 5: 3}  # new row: old row


def make_model(seed: int, vocabulary: Vocabulary, **changes: Any) -> BiLm:
    torch.manual_seed(seed)
    return BiLm(tiny_model_config(**changes), len(vocabulary))


@pytest.mark.parametrize("changes", [{}, {"characters": None}])
def test_copies_word_tables_by_word(changes: dict[str, Any], tmp_path: Path) -> None:
    source = make_model(0, OLD, **changes)
    PretrainedBiLm(source, OLD).save_pretrained(tmp_path / "model")
    model, fresh = make_model(1, NEW, **changes), make_model(1, NEW, **changes)
    initialize_from(model, NEW, tmp_path / "model")
    old, unchanged = dict(source.named_parameters()), dict(fresh.named_parameters())
    for name, parameter in model.named_parameters():
        if name.startswith(("softmax.", "encoder.weight")):
            for row in range(len(NEW)):
                expected = (
                    old[name][SHARED_ROWS[row]] if row in SHARED_ROWS else unchanged[name][row]
                )
                assert torch.equal(parameter[row], expected), name
        else:
            assert torch.equal(parameter, old[name]), name


def test_initializes_softmax_that_the_source_lacks(tmp_path: Path) -> None:
    source = make_model(0, OLD).without_softmax()
    PretrainedBiLm(source).save_pretrained(tmp_path / "model")
    model, fresh = make_model(1, NEW), make_model(1, NEW)
    initialize_from(model, NEW, tmp_path / "model")
    assert model.softmax is not None
    assert fresh.softmax is not None
    assert torch.equal(model.softmax.weight, fresh.softmax.weight)
    old = dict(source.named_parameters())
    assert all(torch.equal(p, old[n]) for n, p in model.named_parameters() if n in old)


def test_rejects_another_configuration(tmp_path: Path) -> None:
    PretrainedBiLm(make_model(0, OLD), OLD).save_pretrained(tmp_path / "model")
    with pytest.raises(
        ConfigError, match=r"a different configuration:\n  model\.lstm: .*'cell_clip'"
    ):
        initialize_from(make_model(1, NEW, lstm={"cell_clip": 2.0}), NEW, tmp_path / "model")
