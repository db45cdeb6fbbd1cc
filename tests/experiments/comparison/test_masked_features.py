from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.comparison.masked_features import (
    CONTEXT_PIECES,
    WINDOW_PIECES,
    MaskedFeatures,
    pooled_pieces,
    windows_of,
)
from experiments.comparison.pieces import ROW_PIECES, Pieces, packed_rows, trained_tokenizer

REASON = "the masked LM needs experiments/comparison/requirements.txt"
WORDS = ["the", "believe", "bank", "floods", "."]


@pytest.mark.parametrize("counts", [[1] * 5, [3] * 200, [1, 120, 5, 126, 126, 1, 60, 60, 60]])
def test_windows_keep_every_word_once(counts: list[int]) -> None:
    kept: list[int] = []
    for window in windows_of(counts):
        assert window.start <= window.keep_start < window.keep_stop <= window.stop
        assert sum(counts[window.start : window.stop]) <= WINDOW_PIECES
        kept += range(window.keep_start, window.keep_stop)
    assert kept == list(range(len(counts)))


def test_words_inside_a_long_text_have_context() -> None:
    for window in list(windows_of([1] * 1000))[1:-1]:
        assert window.keep_start - window.start == CONTEXT_PIECES
        assert window.stop - window.keep_stop == CONTEXT_PIECES


def test_pieces_of_a_word_are_pooled() -> None:
    pieces = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    assert pooled_pieces(pieces, [1, 3], "mean").tolist() == [[[0, 1], [4, 5]]]
    assert pooled_pieces(pieces, [1, 3], "first").tolist() == [[[0, 1], [2, 3]]]


def test_packed_rows_begin_with_cls() -> None:
    stream = (np.arange(i, i + 100) for i in range(0, 300, 100))
    rows = packed_rows(iter(stream), cls_id=2)
    assert rows.shape == (2, ROW_PIECES)
    assert rows[:, 0].tolist() == [2, 2]
    assert rows[:, 1:].ravel().tolist() == list(range(254))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    pytest.importorskip("tokenizers", reason=REASON)
    text: Path = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("the bank lends money .\nthe believable river floods the bank .\n" * 50)
    return Pieces(trained_tokenizer(text, 60))


def test_words_are_aligned_with_pieces(pieces: Pieces) -> None:
    assert len(pieces.of_word("believe")) > 1
    assert pieces.of_word("\u200b") == [pieces.unknown]  # normalization removes it
    assert pieces.of_word("bank") == pieces.of_word("bank")


def test_features_have_a_vector_per_word(pieces: Pieces) -> None:
    pytest.importorskip("transformers", reason=REASON)
    from experiments.comparison.masked_model import Settings, new_model

    model = new_model(Settings(hidden_dim=16, num_layers=2), pieces.size)
    features = MaskedFeatures(model, pieces, "mean")
    sentences = [WORDS, WORDS[:1], WORDS * 60]
    together = features.words(sentences)
    assert [array.shape for array in together] == [(3, len(words), 16) for words in sentences]
    for words, array in zip(sentences, together, strict=True):
        np.testing.assert_allclose(features.words([words])[0], array, atol=1e-5)


def test_training_resumes(tmp_path: Path, pieces: Pieces) -> None:
    pytest.importorskip("transformers", reason=REASON)
    import torch

    from experiments.comparison.masked_model import (
        Settings,
        load_tensors,
        new_model,
        new_optimizer,
        tensors_of,
    )

    settings = Settings(hidden_dim=16, num_layers=1)
    model = new_model(settings, pieces.size)
    optimizer = new_optimizer(model, settings)
    sum(p.square().sum() for p in model.parameters()).backward()
    optimizer.step()
    saved = {name: value.clone() for name, value in tensors_of(model, optimizer).items()}
    other = new_model(Settings(hidden_dim=16, num_layers=1, seed=1), pieces.size)
    restored = new_optimizer(other, settings)
    load_tensors(other, restored, saved)
    for name, value in tensors_of(other, restored).items():
        assert torch.equal(value, saved[name])
