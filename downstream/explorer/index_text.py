"""The text of an index: a file with one sentence per record, or a corpus directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.corpus.manifest import MANIFEST_FILE
from bilm.errors import CorpusError
from bilm.files.reading import sha256_of
from bilm.files.writing import cache_directory
from bilm.text.lines import require_decompressor
from bilm.text.records import TextInput
from bilm.text.tables import format_of
from bilm.text.tokenizers import require_tokenizer
from downstream.explorer.index_format import IndexKey

if TYPE_CHECKING:
    from bilm.corpus.reader import Corpus
    from bilm.embedding.embedder import Embedder
    from downstream.explorer.index import OccurrenceIndex
    from downstream.explorer.index_writer import IndexText


def check_text(path: Path) -> None:
    """Reject a path that is neither a text file nor a corpus."""
    if path.is_dir():
        if not (path / MANIFEST_FILE).is_file():
            raise CorpusError(
                f"--text is {path}, a directory without {MANIFEST_FILE}; pass a text file or a "
                "corpus"
            )
        return
    if not path.is_file():
        raise CorpusError(f"--text {path} does not exist; pass a text file or a corpus")
    if path.stat().st_size == 0:
        raise CorpusError(f"--text {path} is empty; pass a file with one sentence per line")
    require_decompressor(path)


def open_index(
    path: Path,
    embedder: Embedder,
    max_words: int,
    cache: Path | None = None,
    report: Callable[[int], object] = lambda num_words: None,
) -> OccurrenceIndex:
    """Open the index of a text below `cache`; make it first if it does not exist."""
    from bilm.pretrained.digests import model_digest
    from downstream.explorer.index import OccurrenceIndex
    from downstream.explorer.index_writer import write_index

    check_text(path)
    text, digest = _read(path, embedder)
    key = IndexKey(model_digest(embedder.pretrained), digest, max_words)
    directory = key.directory(cache or cache_directory() / "indexes")
    if not directory.exists():
        write_index(directory, key, text, embedder, report)
    return OccurrenceIndex.open(directory, key.model)


def _read(path: Path, embedder: Embedder) -> tuple[IndexText, str]:
    """Return the text at `path` and its digest."""
    from downstream.explorer.index_writer import IndexText

    if path.is_dir():
        from bilm.corpus.reader import Corpus

        corpus = Corpus.open(path)
        num_words = sum(split.words for split in corpus.splits.values())
        sentences = partial(_corpus_sentences, corpus)
        text = IndexText(str(path), sentences, str.split, lambda maximum: min(num_words, maximum))
        return text, corpus.fingerprint
    remedy = "use a model with a tokenizer, or a corpus as --text"
    tokenizer = require_tokenizer(embedder.pretrained.tokenizer, remedy)
    source = TextInput.open(path, format_of(path, "text"), ["text"], None)
    count = partial(_count_words, source)
    text = IndexText(str(path), source.texts, tokenizer.tokenize, count)
    return text, sha256_of(path, CorpusError)


def _count_words(source: TextInput, maximum: int) -> int:
    """Return the number of words at spaces, up to a maximum."""
    count = 0
    for text in source.texts():
        count += len(text.split())
        if count >= maximum:
            return maximum
    return count


def _corpus_sentences(corpus: Corpus) -> Iterator[str]:
    """Yield the sentences of all splits, with words separated by spaces."""
    for split in corpus.splits:
        for block in range(len(corpus.blocks(split))):
            ids, lengths = corpus.block(split, block)
            words = iter(ids.tolist())
            for length in lengths.tolist():
                yield " ".join(corpus.lexicon.word(next(words)) for _ in range(length))
