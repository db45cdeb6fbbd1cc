from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, ConfigError, CorpusError
from downstream.features.store import Store, open_stores
from downstream.features.store_format import Kind
from downstream.features.texts_to_layers import TextReading
from tests.downstream.order_task import order_texts, tiny_bilm

TEXTS = [text for _, text in order_texts(40, seed=1)]


class CountingEmbedder(Embedder):
    """An embedder that counts the texts that it reads."""

    num_read = 0

    def stream(
        self, sentences: Iterable[Sequence[str] | str], *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        sentences = list(sentences)
        self.num_read += len(sentences)
        return super().stream(sentences, *args, **kwargs)


def open_store(
    cache: Path,
    kind: Kind,
    embedder: Embedder,
    texts: Sequence[str],
    reading: TextReading = TextReading(),  # noqa: B008
) -> Store:
    return open_stores(cache, kind, embedder, {"texts": texts}, reading)["texts"]


def make(cache: Path, kind: Kind = "pooled", **reading: Any) -> Store:
    embedder = CountingEmbedder(tiny_bilm())
    return open_store(cache, kind, embedder, TEXTS, TextReading(**reading))


def test_pooled_store_contains_pooled_layers(tmp_path: Path) -> None:
    store = make(tmp_path)
    expected = Embedder(tiny_bilm()).embed(TEXTS)
    rows = store.rows[np.arange(len(TEXTS))]
    assert rows.shape == (40, 2, 3, 12)
    for row, array in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row[0], array.mean(axis=1), atol=1e-6)
        np.testing.assert_allclose(row[1], array.max(axis=1), atol=1e-6)


def test_words_store_contains_words_in_float16(tmp_path: Path) -> None:
    store = make(tmp_path, "words")
    for i, array in enumerate(Embedder(tiny_bilm()).embed(TEXTS)):
        words = store.words_of(i)
        assert [store.types[j] for j in store.word_ids[words]] == TEXTS[i].split()
        rows = store.rows[words]
        assert rows.dtype == np.float16
        np.testing.assert_allclose(rows, array.transpose(1, 0, 2), atol=2e-3)


def test_bilm_reads_every_text_once(tmp_path: Path) -> None:
    embedder = CountingEmbedder(tiny_bilm())
    open_store(tmp_path, "words", embedder, TEXTS)
    assert embedder.num_read == 40
    open_store(tmp_path, "words", embedder, TEXTS)
    pooled = open_store(tmp_path, "pooled", embedder, TEXTS)  # written with the words
    assert embedder.num_read == 40
    alone = make(tmp_path / "other")
    np.testing.assert_allclose(pooled.rows[np.arange(40)], alone.rows[np.arange(40)], atol=1e-6)


def test_different_inputs_have_different_stores(tmp_path: Path) -> None:
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
        ("model", "0" * 64, "made with a different model"),
        ("texts", "0" * 64, "made from different texts"),
        ("num_texts", 39, "num_texts"),
        ("max_words", 3, "different --max-words"),
        ("kind", "words", "kind is 'words', expected 'pooled'"),
        ("version", 2, "version"),
        ("files", "no", "files"),
    ],
)
def test_rejects_store_with_mismatched_record(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    path = make(tmp_path).directory / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), key: value}), "utf-8")
    with pytest.raises(CheckpointError, match=message):
        make(tmp_path)


@pytest.mark.parametrize("name", ["layers.bin", "offsets.bin", "words.bin", "types.json"])
def test_rejects_changed_file(tmp_path: Path, name: str) -> None:
    path = make(tmp_path).directory / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name} has changed .* remove"):
        make(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"cannot read .*{name}"):
        make(tmp_path)


def test_failed_pass_leaves_no_files(tmp_path: Path) -> None:
    broken = tiny_bilm()
    next(iter(broken.model.parameters())).data.fill_(float("nan"))
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        open_store(tmp_path, "words", Embedder(broken), TEXTS)
    assert list(tmp_path.iterdir()) == []


def test_reads_equal_files_once_and_rejects_wordless_text_before_the_pass(tmp_path: Path) -> None:
    embedder = CountingEmbedder(tiny_bilm())
    first, second = open_stores(
        tmp_path, "pooled", embedder, {"test": TEXTS, "validation": TEXTS}
    ).values()
    assert first.directory == second.directory
    assert embedder.num_read == 40
    with pytest.raises(CorpusError, match="has no words"):
        open_stores(tmp_path, "pooled", embedder, {"train": TEXTS[:9], "test": ["one", " "]})
    assert embedder.num_read == 40


def record_digests(directory: Path) -> None:
    path = directory / "store.json"
    tree = json.loads(path.read_text("utf-8"))
    for name in tree["files"]:
        tree["files"][name] = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(tree), "utf-8")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("layers.bin", b"", "layers.bin has 0 bytes; expected"),
        ("offsets.bin", bytes(8), "offsets.bin has 8 bytes; expected 41 numbers"),
        ("offsets.bin", b"\xff" * 8 * 41, "do not agree"),
        ("words.bin", None, "do not agree"),
        ("types.json", b'{"a": 1}', "do not agree"),
        ("types.json", b"[1, 2]", "do not agree"),
        ("types.json", b"[]", "do not agree"),
    ],
)
def test_rejects_inconsistent_files_with_valid_digests(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    path = make(tmp_path).directory / name
    path.write_bytes(b"\xff" * path.stat().st_size if data is None else data)
    record_digests(path.parent)
    with pytest.raises(CheckpointError, match=message):
        make(tmp_path)


def test_rejects_files_outside_the_store(tmp_path: Path) -> None:
    path = make(tmp_path).directory / "store.json"
    tree = json.loads(path.read_text("utf-8"))
    tree["files"]["../../etc/passwd"] = "0" * 64
    path.write_text(json.dumps(tree), "utf-8")
    with pytest.raises(CheckpointError, match=r"must list layers\.bin, .*and nothing else"):
        make(tmp_path)


def test_rejects_a_cache_that_is_not_a_directory_before_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("x", "utf-8")
    embedder = Embedder(tiny_bilm())
    monkeypatch.setattr(embedder, "stream", None)
    for cache in (path, path / "below"):
        with pytest.raises(ConfigError, match=r"--cache .*/file is not a directory; choose"):
            open_stores(cache, "words", embedder, {"texts": TEXTS})
    assert path.read_text("utf-8") == "x"
