from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, CorpusError
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features import mapped_rows, texts_to_layers
from downstream.features.store import Kind, Store, open_store
from downstream.features.texts_to_layers import tokenize, windows_of
from tests.downstream.order_task import order_texts, tiny_bilm

TEXTS = [text for _, text in order_texts(40, seed=1)]


class CountingEmbedder(Embedder):
    """The real one, which also counts the texts that it has read."""

    num_read = 0

    def embed(self, sentences: Sequence[Sequence[str] | str], *args: Any, **kwargs: Any) -> Any:
        self.num_read += len(sentences)
        return super().embed(sentences, *args, **kwargs)


def make(cache: Path, kind: Kind = "pooled", **changes: Any) -> Store:
    return open_store(cache, kind, CountingEmbedder(tiny_bilm()), TEXTS, **changes)


def test_pooled_layers_are_those_of_the_embedder(tmp_path: Path) -> None:
    store = make(tmp_path)
    expected = Embedder(tiny_bilm()).embed(TEXTS)
    rows = store.rows.take(np.arange(len(TEXTS)))
    assert rows.shape == (40, 2, 3, 12)
    for row, array in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row[0], array.mean(axis=1), atol=1e-6)
        np.testing.assert_allclose(row[1], array.max(axis=1), atol=1e-6)


def test_words_are_in_half_precision_and_in_order(tmp_path: Path) -> None:
    store = make(tmp_path, "words")
    for i, array in enumerate(Embedder(tiny_bilm()).embed(TEXTS)):
        start, end = store.offsets[i], store.offsets[i + 1]
        assert [store.types[j] for j in store.word_ids[start:end]] == TEXTS[i].split()
        rows = store.rows.slice(start, end)
        assert rows.dtype == np.float16
        np.testing.assert_allclose(rows, array.transpose(1, 0, 2), atol=2e-3)


def test_the_bilm_reads_every_text_once(tmp_path: Path) -> None:
    embedder = CountingEmbedder(tiny_bilm())
    open_store(tmp_path, "words", embedder, TEXTS)
    assert embedder.num_read == 40
    open_store(tmp_path, "words", embedder, TEXTS)
    pooled = open_store(tmp_path, "pooled", embedder, TEXTS)  # came with the words
    assert embedder.num_read == 40
    np.testing.assert_array_equal(
        pooled.rows.take(np.arange(40)), make(tmp_path / "other").rows.take(np.arange(40))
    )


def test_other_texts_model_and_cut_have_stores_of_their_own(tmp_path: Path) -> None:
    embedder = CountingEmbedder(tiny_bilm())
    made = {
        make(tmp_path).directory,
        make(tmp_path, max_words=2).directory,
        make(tmp_path, tokenized=True).directory,
        open_store(tmp_path, "pooled", embedder, TEXTS[:5]).directory,
        open_store(tmp_path, "pooled", CountingEmbedder(tiny_bilm(seed=1)), TEXTS).directory,
    }
    assert len(made) == 5


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "0" * 64, "made by another model"),
        ("texts", "0" * 64, "made of other texts"),
        ("num_texts", 39, "num_texts"),
        ("version", 2, "version"),
        ("files", "no", "files"),
    ],
)
def test_a_store_that_says_otherwise_is_refused(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    path = make(tmp_path).directory / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), key: value}), "utf-8")
    with pytest.raises(CheckpointError, match=message):
        make(tmp_path)


@pytest.mark.parametrize("name", ["layers.bin", "offsets.bin", "words.bin", "types.json"])
def test_a_changed_byte_is_refused(tmp_path: Path, name: str) -> None:
    path = make(tmp_path).directory / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name} has changed .* remove"):
        make(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"cannot read .*{name}"):
        make(tmp_path)


def test_a_failed_pass_leaves_nothing(tmp_path: Path) -> None:
    broken = tiny_bilm()
    next(iter(broken.model.parameters())).data.fill_(float("nan"))
    with pytest.raises(CheckpointError, match="not finite"):
        open_store(tmp_path, "words", Embedder(broken), TEXTS)
    assert list(tmp_path.iterdir()) == []


def test_digest_is_of_what_decides_representations() -> None:
    digest = model_digest(tiny_bilm())
    assert model_digest(tiny_bilm()) == digest
    changed = tiny_bilm()
    assert changed.model.softmax is not None
    next(changed.model.softmax.parameters()).data.add_(1.0)
    assert model_digest(changed) == digest
    next(changed.model.encoder.parameters()).data[0, 0] += 1e-3
    assert model_digest(changed) != digest
    model = tiny_bilm()
    assert model_digest(PretrainedBiLm(model.model, model.vocabulary, None)) != digest


def test_raw_text_needs_a_tokenizer() -> None:
    model = tiny_bilm()
    bare = PretrainedBiLm(model.model, model.vocabulary, None)
    assert tokenize(bare, ["a b c"], tokenized=True, max_words=2) == [["a", "b"]]
    with pytest.raises(CheckpointError, match="--tokenized"):
        tokenize(bare, ["a b c"], tokenized=False, max_words=2)
    with pytest.raises(CorpusError, match=r"text 2 \(' '\) has no word"):
        tokenize(model, ["a", " "], tokenized=False, max_words=2)


def test_windows_hold_every_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_to_layers, "_WINDOW_WORDS", 7)
    texts = [["w"] * n for n in (3, 5, 1, 9, 2, 2)]
    windows = list(windows_of(texts))
    assert [len(window) for window in windows] == [2, 2, 2]
    assert [words for window in windows for words in window] == texts


def test_memory_is_given_back_and_rows_stay_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(tmp_path)
    monkeypatch.setattr(mapped_rows, "_RESIDENT_BYTES", 1000)
    before = store.rows.take(np.arange(40))
    for i in range(40):
        np.testing.assert_array_equal(store.rows.slice(i, i + 1)[0], before[i])


def sign(directory: Path) -> None:
    path = directory / "store.json"
    tree = json.loads(path.read_text("utf-8"))
    for name in tree["files"]:
        tree["files"][name] = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(tree), "utf-8")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("layers.bin", b"", "layers.bin must have"),
        ("offsets.bin", bytes(8), "offsets.bin has 8 bytes; 41 numbers"),
        ("offsets.bin", b"\xff" * 8 * 41, "do not agree"),
        ("words.bin", None, "do not agree"),
        ("types.json", b'{"a": 1}', "do not agree"),
        ("types.json", b"[1, 2]", "do not agree"),
        ("types.json", b"[]", "do not agree"),
    ],
)
def test_files_that_are_signed_but_wrong(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    path = make(tmp_path).directory / name
    path.write_bytes(b"\xff" * path.stat().st_size if data is None else data)
    sign(path.parent)
    with pytest.raises(CheckpointError, match=message):
        make(tmp_path)


def test_files_elsewhere_are_not_read(tmp_path: Path) -> None:
    path = make(tmp_path).directory / "store.json"
    tree = json.loads(path.read_text("utf-8"))
    tree["files"]["../../etc/passwd"] = "0" * 64
    path.write_text(json.dumps(tree), "utf-8")
    with pytest.raises(CheckpointError, match=r"must list layers\.bin, .*and nothing else"):
        make(tmp_path)
