"""Fuzz targets: readers, the mutations drawn for them, and a function that makes one attempt.

A reader of a mutated file may raise only a `BilmError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from bilm.embedding.embedder import Embedder
from bilm.errors import BilmError
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.published_weights import load_published
from bilm.text.tokenizers import (
    MosesTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
)
from bilm.text.vocabulary import Vocabulary
from bilm.training.config import load_config
from tests.chaos.mutations import (
    CHANGES,
    CHARACTERS,
    EDITS,
    VALUES,
    changed,
    mutated,
    variant_of,
)
from tests.chaos.readable_files import read_corpus
from tests.chaos.sandbox import sign_corpus

Attempt = Callable[[Any, int], None]  # takes a drawn value and the number of its variant


class Target(NamedTuple):
    """A reader, and the strategy that draws values for it."""

    strategy: st.SearchStrategy[Any]
    make: Callable[[Path, Path], Attempt]  # from the artifacts and a working directory


def _replace(path: Path, data: bytes) -> None:
    """Write a new file, since the old one may still be mapped."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _check_errors(read: Callable[[], object]) -> None:
    """Read a file; only a `BilmError` with a message is accepted."""
    message = "no error"
    try:
        read()
    except BilmError as error:
        message = str(error)
    assert message, "the error has no message"


def _config(artifacts: Path, work: Path) -> Attempt:
    data = (artifacts / "config.json").read_bytes()
    tree, path = json.loads(data), work / "config.json"
    leaves = [".".join(keys) for keys in _leaves(tree)]

    def attempt(drawn: tuple[Any, Any, list[tuple[int, Any, bool]]], variant: int) -> None:
        edits, changes, texts = drawn
        text = (
            data
            if changes is None
            else json.dumps(changed(tree, variant_of(changes, variant))).encode()
        )
        _replace(path, text if edits is None else mutated(text, variant_of(edits, variant)))
        overrides = []
        for number, value, as_json in texts:
            number += 37 * variant
            key = leaves[number % len(leaves)] if number % 5 else str(value)
            overrides.append(f"{key}={json.dumps(value) if as_json else value}")
        _check_errors(lambda: load_config(path, overrides).model_dump_json())

    return attempt


def _leaves(tree: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*prefix, key))
        yield (*prefix, key)


def _vocabulary(artifacts: Path, work: Path) -> Attempt:
    data, path = (artifacts / "corpus/vocab.txt").read_bytes(), work / "vocab.txt"

    def attempt(drawn: tuple[list[Any], str], variant: int) -> None:
        edits, more = drawn
        text = data + more[variant:].encode("utf-8", "surrogatepass")
        _replace(path, mutated(text, variant_of(edits, variant)))
        _check_errors(lambda: Vocabulary.read(path).digest)

    return attempt


def _corpus(artifacts: Path, work: Path) -> Attempt:
    source = artifacts / "corpus"
    files = {path.name: path.read_bytes() for path in sorted(source.iterdir())}
    tree = json.loads(files["corpus.json"])
    names = list(files)
    for name, data in files.items():
        _replace(work / name, data)

    def attempt(drawn: tuple[int, Any, Any], variant: int) -> None:
        number, edits, changes = drawn
        name = names[(number + variant) % len(names)]
        if name == "corpus.json" and changes is not None:
            try:
                _replace(
                    work / name, json.dumps(changed(tree, variant_of(changes, variant))).encode()
                )
            except RecursionError:
                return
        else:
            _replace(work / name, mutated(files[name], variant_of(edits, variant)))
        try:
            if variant % 4:
                sign_corpus(work)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # it cannot be signed
        try:
            _check_errors(lambda: read_corpus(work))
        finally:
            for changed_name in {name, "corpus.json"}:
                _replace(work / changed_name, files[changed_name])

    return attempt


def _options(artifacts: Path, work: Path) -> Attempt:
    data = (artifacts / "published/options.json").read_bytes()
    tree, path = json.loads(data), work / "options.json"
    weights = artifacts / "published/weights.hdf5"

    def attempt(drawn: tuple[Any, Any], variant: int) -> None:
        edits, changes = drawn
        text = (
            data
            if changes is None
            else json.dumps(changed(tree, variant_of(changes, variant))).encode()
        )
        _replace(path, text if edits is None else mutated(text, variant_of(edits, variant)))
        _check_errors(lambda: load_published(path, weights))

    return attempt


def _weights(artifacts: Path, work: Path) -> Attempt:
    options = artifacts / "published/options.json"
    data, path = (artifacts / "published/weights.hdf5").read_bytes(), work / "weights.hdf5"
    positions = list(range(256))
    for mark in (b"TREE", b"HEAP", b"SNOD", b"\x89HDF"):
        at = data.find(mark)
        while at >= 0:
            positions += range(at, at + 96)
            at = data.find(mark, at + 1)

    def attempt(edits: list[Any], variant: int) -> None:
        _replace(path, mutated(data, variant_of(edits, variant), positions))
        _check_errors(lambda: load_published(options, path))

    return attempt


def _pieces(artifacts: Path, work: Path) -> Attempt:
    data, path = (artifacts / "pieces.model").read_bytes(), work / "tokenizer.model"

    def attempt(drawn: tuple[list[Any], str], variant: int) -> None:
        edits, text = drawn
        _replace(path, mutated(data, variant_of(edits, variant)))
        _check_errors(lambda: SentencePieceTokenizer(path).tokenize(text))

    return attempt


def _texts(artifacts: Path, work: Path) -> Attempt:
    pretrained = PretrainedBiLm.from_pretrained(artifacts / "model")
    pieces = SentencePieceTokenizer(artifacts / "pieces.model", lowercase=True)
    tokenizers: list[Tokenizer] = [WhitespaceTokenizer(), MosesTokenizer(), pieces]
    embedders = [Embedder(PretrainedBiLm(pretrained.model, None, t)) for t in tokenizers]

    def attempt(drawn: tuple[int, list[str], int, Any], variant: int) -> None:
        number, texts, times, state = drawn
        number += variant
        texts = [text[variant:] + text[:variant] for text in texts]
        embedder = embedders[number % len(embedders)]
        sentences: list[Any] = [text * times for text in texts[:1]] + texts[1:]
        if number % 4 == 0:
            sentences = [list(text) for text in sentences]  # words of one character

        def embed() -> None:
            arrays = embedder.embed(sentences, state=state)
            assert len(arrays) == len(sentences)
            assert all(np.isfinite(array).all() for array in arrays)

        _check_errors(embed)

    return attempt


_OR_NONE_CHANGES = st.one_of(st.none(), CHANGES, CHANGES)
_TEXT = st.text(CHARACTERS, max_size=40)
TARGETS: dict[str, Target] = {
    "config": Target(
        st.tuples(
            st.one_of(st.none(), st.none(), EDITS),
            _OR_NONE_CHANGES,
            st.lists(st.tuples(st.integers(0, 999), VALUES, st.booleans()), max_size=2),
        ),
        _config,
    ),
    "vocabulary": Target(st.tuples(EDITS, _TEXT), _vocabulary),
    "corpus": Target(st.tuples(st.integers(0, 999), EDITS, _OR_NONE_CHANGES), _corpus),
    "options": Target(
        st.tuples(st.one_of(st.none(), st.none(), EDITS), _OR_NONE_CHANGES), _options
    ),
    "weights": Target(EDITS, _weights),
    "pieces": Target(st.tuples(EDITS, _TEXT), _pieces),
    "texts": Target(
        st.tuples(
            st.integers(0, 999),
            st.lists(_TEXT, max_size=3),
            st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2, 50]),
            st.sampled_from(["reset", "warm"]),
        ),
        _texts,
    ),
}
