"""What is fuzzed, and how: valid things, mutated; only a `BilmError` may leave the reader.

Each `Target` makes one attempt of a mutation. Those that end in a library's own C code (HDF5,
sentencepiece) run in a process of their own, `python -m tests.chaos.fuzzing TARGET ...`, so that a
crash of the interpreter is counted, not suffered. Mutations are drawn by hypothesis, by seed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
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
from tests.chaos.hostile_files import read_corpus
from tests.chaos.hostile_place import sign_corpus
from tests.chaos.mutations import (
    CHANGES,
    CHARACTERS,
    EDITS,
    VALUES,
    changed,
    mutated,
    variant_of,
)

BATCH = 500  # examples of one run of hypothesis, which remembers them all
MAX_ADDRESS_SPACE = 16 << 30

Attempt = Callable[[Any, int], None]  # what was drawn, and which variant of it
VARIANTS = 8


class Target(NamedTuple):
    """A reader, and what is drawn for it."""

    strategy: st.SearchStrategy[Any]
    make: Callable[[Path, Path], Attempt]  # of the artefacts and a place to work in


def _put(path: Path, data: bytes) -> None:
    """Write a new file: the old one may still be mapped."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _refusing(act: Callable[[], object]) -> None:
    message = "read"
    try:
        act()
    except BilmError as error:
        message = str(error)
    assert message, "an error that says nothing"


# -- targets ---------------------------------------------------------------------------------------


def _config(artefacts: Path, work: Path) -> Attempt:
    data = (artefacts / "config.json").read_bytes()
    tree, path = json.loads(data), work / "config.json"
    leaves = [".".join(keys) for keys in _leaves(tree)]

    def attempt(drawn: tuple[Any, Any, list[tuple[int, Any, bool]]], variant: int) -> None:
        edits, changes, texts = drawn
        text = (
            data
            if changes is None
            else json.dumps(changed(tree, variant_of(changes, variant))).encode()
        )
        _put(path, text if edits is None else mutated(text, variant_of(edits, variant)))
        overrides = []
        for number, value, as_json in texts:
            number += 37 * variant
            key = leaves[number % len(leaves)] if number % 5 else str(value)
            overrides.append(f"{key}={json.dumps(value) if as_json else value}")
        _refusing(lambda: load_config(path, overrides).model_dump_json())

    return attempt


def _leaves(tree: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*prefix, key))
        yield (*prefix, key)


def _vocabulary(artefacts: Path, work: Path) -> Attempt:
    data, path = (artefacts / "corpus/vocab.txt").read_bytes(), work / "vocab.txt"

    def attempt(drawn: tuple[list[Any], str], variant: int) -> None:
        edits, more = drawn
        text = data + more[variant:].encode("utf-8", "surrogatepass")
        _put(path, mutated(text, variant_of(edits, variant)))
        _refusing(lambda: Vocabulary.read(path).digest)

    return attempt


def _corpus(artefacts: Path, work: Path) -> Attempt:
    source = artefacts / "corpus"
    files = {path.name: path.read_bytes() for path in sorted(source.iterdir())}
    tree = json.loads(files["corpus.json"])
    names = list(files)
    for name, data in files.items():
        _put(work / name, data)

    def attempt(drawn: tuple[int, Any, Any], variant: int) -> None:
        number, edits, changes = drawn
        name = names[(number + variant) % len(names)]
        if name == "corpus.json" and changes is not None:
            try:
                _put(work / name, json.dumps(changed(tree, variant_of(changes, variant))).encode())
            except RecursionError:
                return
        else:
            _put(work / name, mutated(files[name], variant_of(edits, variant)))
        try:
            if variant % 4:
                sign_corpus(work)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # nothing that could be signed
        try:
            _refusing(lambda: read_corpus(work))
        finally:
            for changed_name in {name, "corpus.json"}:
                _put(work / changed_name, files[changed_name])

    return attempt


def _options(artefacts: Path, work: Path) -> Attempt:
    data = (artefacts / "published/options.json").read_bytes()
    tree, path = json.loads(data), work / "options.json"
    weights = artefacts / "published/weights.hdf5"

    def attempt(drawn: tuple[Any, Any], variant: int) -> None:
        edits, changes = drawn
        text = (
            data
            if changes is None
            else json.dumps(changed(tree, variant_of(changes, variant))).encode()
        )
        _put(path, text if edits is None else mutated(text, variant_of(edits, variant)))
        _refusing(lambda: load_published(path, weights))

    return attempt


def _weights(artefacts: Path, work: Path) -> Attempt:
    options = artefacts / "published/options.json"
    data, path = (artefacts / "published/weights.hdf5").read_bytes(), work / "weights.hdf5"
    spots = list(range(256))
    for mark in (b"TREE", b"HEAP", b"SNOD", b"\x89HDF"):
        at = data.find(mark)
        while at >= 0:
            spots += range(at, at + 96)
            at = data.find(mark, at + 1)

    def attempt(edits: list[Any], variant: int) -> None:
        _put(path, mutated(data, variant_of(edits, variant), spots))
        _refusing(lambda: load_published(options, path))

    return attempt


def _pieces(artefacts: Path, work: Path) -> Attempt:
    data, path = (artefacts / "pieces.model").read_bytes(), work / "tokenizer.model"

    def attempt(drawn: tuple[list[Any], str], variant: int) -> None:
        edits, text = drawn
        _put(path, mutated(data, variant_of(edits, variant)))
        _refusing(lambda: SentencePieceTokenizer(path).tokenize(text))

    return attempt


def _texts(artefacts: Path, work: Path) -> Attempt:
    pretrained = PretrainedBiLm.from_pretrained(artefacts / "model")
    pieces = SentencePieceTokenizer(artefacts / "pieces.model", lowercase=True)
    tokenizers: list[Tokenizer] = [WhitespaceTokenizer(), MosesTokenizer(), pieces]
    embedders = [Embedder(PretrainedBiLm(pretrained.model, None, t)) for t in tokenizers]

    def attempt(drawn: tuple[int, list[str], int, Any], variant: int) -> None:
        number, texts, times, state = drawn
        number += variant
        texts = [text[variant:] + text[:variant] for text in texts]
        embedder = embedders[number % len(embedders)]
        sentences: list[Any] = [text * times for text in texts[:1]] + texts[1:]
        if number % 4 == 0:
            sentences = [list(text) for text in sentences]  # words of one character, or of none

        def embed() -> None:
            arrays = embedder.embed(sentences, state=state)
            assert len(arrays) == len(sentences)
            assert all(np.isfinite(array).all() for array in arrays)

        _refusing(embed)

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


def fuzz(
    target: Target, attempt: Attempt, count: int, first_seed: int
) -> Iterator[Exception | None]:
    """Make `count` attempts or a few more; yields what broke the rules in each, or None."""
    batch = 0
    while count > 0:
        examples = min(BATCH, -(-count // VARIANTS))
        outcomes = _run(target, attempt, examples, first_seed * 1000 + batch)
        yield from outcomes
        count -= len(outcomes)
        batch += 1


def _run(target: Target, attempt: Attempt, count: int, number: int) -> list[Exception | None]:
    outcomes: list[Exception | None] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.strategy)
    def run(drawn: Any) -> None:
        for variant in range(VARIANTS):
            try:
                attempt(drawn, variant)
                outcomes.append(None)
            except Exception as error:
                error.add_note(f"variant {variant} of {drawn!r:.500}")
                outcomes.append(error)

    run()
    return outcomes


def main() -> None:
    """TARGET COUNT SEED ARTEFACTS WORK: one JSON line per attempt that fell short, then the count.

    WORK/tried always holds the number of attempts so far, for the case that this process dies.
    """
    name, count, first_seed, artefacts, work = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    target = TARGETS[name]
    attempt = target.make(Path(artefacts), Path(work))
    tried = os.open(Path(work) / "tried", os.O_RDWR | os.O_CREAT)
    number = 0

    def counted(drawn: Any, variant: int) -> None:
        nonlocal number
        number += 1
        os.pwrite(tried, f"{number:10d}".encode(), 0)
        attempt(drawn, variant)

    for error in fuzz(target, counted, int(count), int(first_seed)):
        if error is not None:
            notes = " ".join(getattr(error, "__notes__", []))
            print(json.dumps(f"{type(error).__name__}: {error} {notes}"))
    print(number, flush=True)


if __name__ == "__main__":
    main()
