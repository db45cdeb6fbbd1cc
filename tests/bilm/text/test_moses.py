"""The cached tokenizer returns the words of sacremoses, for random and for ordinary text."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.text import moses
from bilm.text.moses import CachedMoses

DATA = Path(__file__).parents[4] / "shared" / "data"

sacremoses = pytest.importorskip("sacremoses")

LANGUAGES = ("en", "fr", "de", "zh", "fi")

CACHED = {language: CachedMoses(language) for language in LANGUAGES}
REFERENCE = {language: sacremoses.MosesTokenizer(lang=language) for language in LANGUAGES}

PIECES = st.sampled_from(
    [*"aAzÉßж日5٣,.'`-\"()@$/:;", " ", " ", " ", "\t", "\u2028", "\x01", "\x1c", "\u00a0", "..",
     "...", "Mr", "No", "U.S", "DOTMULTI", "DOTDOTMULTI", "n't", "'s", "l'", "I", "a.", "' '"]
)  # fmt: skip

SENTENCES = (
    "Mr. Smith didn't pay No. 5, or No. five... 'Why?' 'Because,' he said.'",
    "He (U.S. citizen) paid 5,300.50 in the U.S. In 1999, he left.",
    "'tis ,5 a, ,b 5, 'quoted' '90s 5' 6\" l'homme d' 'or etc. and . . . end.",
    "x.'",
    "...",
    "",
    " \u3000 ",
)


def check(text: str, language: str) -> None:
    expected = REFERENCE[language].tokenize(text, escape=False)
    assert CACHED[language].tokenize(text) == " ".join(expected).split()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("text", SENTENCES)
def test_equals_sacremoses_for_sentences(text: str, language: str) -> None:
    check(text, language)


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from(LANGUAGES))
def test_equals_sacremoses_for_pieces(text: str, language: str) -> None:
    check(text, language)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30), st.sampled_from(LANGUAGES))
def test_equals_sacremoses_for_any_characters(text: str, language: str) -> None:
    check(text, language)


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moses, "MAX_CACHED_CHUNKS", 3)
    cached = CachedMoses("en")
    words = [f"w{i}" for i in range(20)]
    assert cached.tokenize(" ".join(words)) == words
    assert len(cached._inner) <= 3


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the texts are not on this machine")
def test_equals_sacremoses_for_published_texts() -> None:
    files = [*(DATA / "open_text").glob("*.txt.gz"), *(DATA / "lm").glob("*.txt.gz")]
    assert files
    for path in files:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in itertools.islice(file, 100):
                check(line[:5000], "en")
