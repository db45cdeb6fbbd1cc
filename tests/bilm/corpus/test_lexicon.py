from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bilm.corpus import lexicon
from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError
from bilm.text.characters import char_ids
from tests.bilm.corpus.corpus_editing import forge
from tests.bilm.small_corpus import write_corpus

words = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sets(words | st.sampled_from(["w" * 47, "w" * 48, "w" * 49, "é" * 24, "€" * 17])),
    st.integers(3, 60),
    st.sampled_from([1, 4, 1 << 18]),
)
def test_spells_words_with_and_without_the_table(
    drawn: set[str], max_characters: int, table_types: int
) -> None:
    types = ["<S>", "</S>", "<UNK>", *sorted(drawn - {"<S>", "</S>", "<UNK>"})]
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexicon, "_MAX_TABLE_TYPES", table_types)
        patch.setattr(lexicon, "_TABLE_STEP_TYPES", 3)
        corpus = write_corpus(Path(directory), {"train": [[w] for w in types[2:]]}, types)
        ids = np.random.default_rng(0).integers(len(types), size=50)
        expected = char_ids([types[i] for i in ids], max_characters)
        spelled = corpus.lexicon.char_ids(ids, max_characters)
        assert spelled.dtype == np.int16
        assert np.array_equal(spelled, expected)
        assert [corpus.lexicon.word(i) for i in range(len(types))] == types


def test_rejects_word_ids_out_of_range(corpus: Corpus) -> None:
    size = len(corpus.lexicon)
    for bad in (-1, size):
        with pytest.raises(IndexError, match=f"word id {bad} is not in 0..{size - 1}"):
            corpus.lexicon.word(bad)
        with pytest.raises(IndexError, match="are not in"):
            corpus.lexicon.char_ids(np.array([0, bad]))
    assert corpus.lexicon.char_ids(np.array([], dtype=np.int32)).shape == (0, 50)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


OFFSETS = np.cumsum([0, 3, 4, 5] + [1] * 8)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("lexicon.offsets.npy", b"", r"offsets\.npy is not a one-dimensional .npy file"),
        ("lexicon.offsets.npy", b"\x93NUMPY\x01\x00\xff\xff", "is not a one-dimensional .npy file"),
        ("lexicon.offsets.npy", npy(np.array([{}] * 12)), r"\|O \(12,\)"),
        ("lexicon.offsets.npy", npy(OFFSETS.astype(np.int32)), "<i4"),
        ("lexicon.offsets.npy", npy(OFFSETS[:-1]), r"<i8 \(11,\)"),
        ("lexicon.offsets.npy", npy(OFFSETS[None]), "is not a one-dimensional .npy file"),
        ("lexicon.offsets.npy", npy(OFFSETS)[:-8], "header"),
        ("lexicon.offsets.npy", npy(OFFSETS), "must increase from 0"),
        ("lexicon.counts.npy", npy(OFFSETS), r"<i8 \(12,\)"),
        ("lexicon.bin", b"<S></S><UNK>the", "must increase from 0 to 15"),
        ("vocab.txt", b"<S>\n</S>\n<UNK>\nthe\n", "differs from the first words of the lexicon"),
        ("vocab.txt", b"the\n", "must be <S> </S> <UNK>"),
        ("vocab.txt", b"\xff\n", "is not UTF-8"),
    ],
)
def test_rejects_forged_files(corpus: Corpus, name: str, data: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        forge(corpus, name, data).verify()


def test_error_names_word_that_is_not_utf8(corpus: Corpus) -> None:
    data = (corpus.path / "lexicon.bin").read_bytes()
    forged = forge(corpus, "lexicon.bin", data[:-1] + b"\xff")
    with pytest.raises(CorpusError, match=r"word 10 of .*lexicon\.bin is not UTF-8"):
        forged.lexicon.word(10)
    with pytest.raises(CorpusError, match="must begin with <S>"):
        forge(corpus, "lexicon.bin", b"<s>" + data[3:])
