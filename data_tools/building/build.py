"""Build a corpus: the pipeline of the build commands.

    text --(workers: tokenize)--> spool of provisional ids, and counts
         --(sort by count, cut)--> vocabulary and lexicon
         --(final ids, external shuffle)--> shards

The text is read once. Everything is written into a hidden directory beside the output, which is
renamed when it is complete. Memory grows only with the number of word types; the disk needs about
9 bytes per word during the build.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bilm.corpus.manifest import HELDOUT, MANIFEST_FILE, SPLITS, TRAIN, VOCABULARY_FILE, SplitInfo
from bilm.corpus.reader import Corpus
from bilm.corpus.writer import SplitWriter, write_lexicon, write_manifest
from bilm.distributed.process import peak_memory_bytes
from bilm.errors import CorpusError
from bilm.files.writing import atomic_directory
from bilm.text.tokenizers import SENTENCEPIECE_FILE, SentencePieceTokenizer
from bilm.text.vocabulary import Vocabulary
from data_tools.building.counting import FinalOrder, TypeCounter, check_order, count_text
from data_tools.building.encode import EncodeOptions
from data_tools.building.shuffle import shuffle
from data_tools.building.spool import Sentences, Spool
from data_tools.reading.options import (
    CorpusOptions,
    GivenVocabulary,
    OutputOptions,
    TextOptions,
    TokenizerOptions,
    VocabularyOptions,
)
from data_tools.reading.pieces import train_pieces
from data_tools.reading.progress import Progress

BATCH_WORDS = 1 << 21

# Holds the spools and the buckets, inside the unfinished output.
_WORK_DIRECTORY = "work"


@dataclass(frozen=True)
class Summary:
    """The contents of a corpus, and the cost of building it."""

    splits: dict[str, SplitInfo]
    num_types: int
    vocabulary_size: int
    seconds: float
    peak_bytes: int  # the sum of the peaks of all processes: an upper bound

    @property
    def num_words(self) -> int:
        """The number of words in all splits."""
        return sum(split.words for split in self.splits.values())


def prepare_tokenizer(
    text: TextOptions, tokenizer: TokenizerOptions, directory: Path
) -> EncodeOptions:
    """Write the tokenizer's files to `directory`, after training a model if necessary."""
    if tokenizer.name == "sentencepiece":
        if tokenizer.sentencepiece_model is None:
            train_pieces(text, tokenizer, directory / SENTENCEPIECE_FILE)
        else:
            SentencePieceTokenizer(tokenizer.sentencepiece_model).save(directory)
    return EncodeOptions(text, tokenizer.spec(), directory)


def build_corpus(options: CorpusOptions) -> Summary:
    """Build the corpus that `options` describe at `options.output.path`."""
    start = time.monotonic()
    given = _read_vocabulary(options.vocabulary)
    output = options.output
    check_replaceable(output)
    with atomic_directory(output.path, CorpusError, output.overwrite) as directory:
        work = directory / _WORK_DIRECTORY
        work.mkdir()
        encode_options = prepare_tokenizer(options.text, options.tokenizer, directory)
        with ExitStack() as stack:
            spools = {split: stack.enter_context(Spool(work / split)) for split in SPLITS}
            counter, peaks = count_text(encode_options, spools)
        check_counts(options.text, {split: spools[split].num_sentences for split in SPLITS})
        order, vocabulary = _final_order(counter, options.vocabulary, given)
        del counter
        vocabulary.write(directory / VOCABULARY_FILE)
        write_lexicon(directory, (word.encode() for word in order.types), order.counts)
        splits = {
            split: _write_split(split, spool, order, options, directory)
            for split, spool in spools.items()
            if spool.num_words
        }
        shutil.rmtree(work)
        write_manifest(
            directory,
            tokenizer=encode_options.tokenizer,
            options=options.describe(),
            vocabulary_size=len(vocabulary),
            splits=splits,
        )
    corpus = Corpus.open(output.path)
    return Summary(
        splits=corpus.splits,
        num_types=len(corpus.lexicon),
        vocabulary_size=len(vocabulary),
        seconds=time.monotonic() - start,
        peak_bytes=total_peak(peaks),
    )


def _read_vocabulary(options: VocabularyOptions | GivenVocabulary) -> Vocabulary | None:
    return Vocabulary.read(options.file) if isinstance(options, GivenVocabulary) else None


def _final_order(
    counter: TypeCounter, options: VocabularyOptions | GivenVocabulary, given: Vocabulary | None
) -> tuple[FinalOrder, Vocabulary]:
    """Return the final order of all types, and the vocabulary, which comes first in it."""
    if isinstance(options, GivenVocabulary):
        assert given is not None
        if not options.allow_unsorted:
            check_order(given, counter, str(options.file))
        return FinalOrder(counter, given.words), given
    order = FinalOrder(counter, None)
    size = order.vocabulary_size(options.max_words, options.min_count)
    return order, Vocabulary(order.types[:size])


def _write_split(
    split: str, spool: Spool, order: FinalOrder, options: CorpusOptions, directory: Path
) -> SplitInfo:
    """Write the shards of a split from its spool, and remove the spool."""
    batches = _final_batches(spool, order)
    by = options.shards.shuffle
    if by != "none":
        seed = (options.text.seed, SPLITS.index(split))
        batches = shuffle(batches, spool.num_words, by, seed, directory / _WORK_DIRECTORY)
    with (
        Progress(f"write {split}", spool.num_words) as progress,
        SplitWriter(directory, split, options.shards.shard_words) as writer,
    ):
        num_words = 0
        for batch in batches:
            writer.add(batch.ids, batch.lengths)
            num_words += len(batch.ids)
            progress.update(num_words, num_words)
        return writer.close()


def _final_batches(spool: Spool, order: FinalOrder) -> Iterator[Sentences]:
    """Yield the sentences of a spool with their final ids, then remove the spool."""
    for batch in spool.read(BATCH_WORDS):
        yield batch._replace(ids=order.final_ids[batch.ids])
    spool.path.unlink()


def total_peak(worker_peaks: dict[int, int]) -> int:
    """Return the sum of the peak memory of this process and its workers, an upper bound."""
    peaks = worker_peaks | {os.getpid(): peak_memory_bytes()}
    return sum(peaks.values())


def check_replaceable(output: OutputOptions) -> None:
    """Reject overwriting anything that is not a corpus."""
    path = output.path
    if not path.exists() or not output.overwrite:
        return
    if not path.is_dir() or (any(path.iterdir()) and not (path / MANIFEST_FILE).is_file()):
        raise CorpusError(
            f"{path} is not a corpus (it has no {MANIFEST_FILE}), so --overwrite does not replace "
            "it; remove it yourself, or choose another path"
        )


def check_counts(text: TextOptions, num_sentences: dict[str, int]) -> None:
    """Reject an input without text, or a split without sentences."""
    total = sum(num_sentences.values())
    if not total:
        raise CorpusError("the input contains no words")
    for split in (TRAIN, HELDOUT) if text.heldout else (TRAIN,):
        if not num_sentences[split]:
            raise CorpusError(
                f"the split {split!r} would be empty (--heldout {text.heldout}, {total} sentences "
                "in total); choose another share, or use --heldout 0"
            )


def print_summary(summary: Summary, output: Path) -> None:
    """Print the contents and the cost of a corpus."""
    print(
        f"{output}: {summary.num_words:,} words, {summary.num_types:,} types, vocabulary of "
        f"{summary.vocabulary_size:,}"
    )
    for name, split in summary.splits.items():
        rate = split.unknown_words / max(split.words, 1)
        print(
            f"{name}: {split.words:,} words in {split.sentences:,} sentences, "
            f"{len(split.shards)} shards, {rate:.2%} <UNK>"
        )
    print(
        f"{summary.seconds:,.1f} s, {summary.num_words / summary.seconds:,.0f} words/s, peak "
        f"memory {summary.peak_bytes / 2**20:,.0f} MiB"
    )
