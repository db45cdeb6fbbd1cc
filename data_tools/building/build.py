"""From checked options to a vocabulary or a corpus: the pipeline behind the three commands.

    text --(workers: tokenise)--> spool of provisional ids + counts
         --(sort by count, cut)--> vocabulary and lexicon
         --(final ids, external shuffle)--> shards

One pass over the text. Everything is written into a hidden directory beside the output, which gets
its name only when it is whole. Memory grows with the number of word types alone; the disk must
hold about 9 bytes a word while the build runs.
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
from bilm.text.tokenizers import SENTENCEPIECE_FILE, SentencePieceTokenizer, TokenizerSpec
from bilm.text.vocabulary import Vocabulary
from data_tools.building.counting import FinalOrder, check_order, count_text
from data_tools.building.encode import EncodeOptions
from data_tools.building.shuffle import shuffle
from data_tools.building.spool import Sentences, Spool
from data_tools.reading.options import BuildOptions
from data_tools.reading.pieces import train_pieces
from data_tools.reading.progress import Progress

BATCH_WORDS = 1 << 21

_WORK = "work"  # the spool and the buckets, inside the unfinished output


@dataclass(frozen=True)
class Summary:
    """What a build made, and what it cost."""

    splits: dict[str, SplitInfo]
    num_types: int
    vocabulary_size: int
    seconds: float
    peak_bytes: int  # the sum of the peaks of all processes: an upper bound

    @property
    def num_words(self) -> int:
        """Words of all splits."""
        return sum(split.words for split in self.splits.values())


def prepare_tokenizer(options: BuildOptions, directory: Path) -> EncodeOptions:
    """Put what the tokeniser needs into `directory`; train a model if one is needed."""
    tree = {"name": options.tokenizer, "lowercase": options.lowercase}
    if options.tokenizer == "moses":
        tree["language"] = options.language
    if options.tokenizer == "sentencepiece":
        if options.sentencepiece_model is None:
            train_pieces(options, directory / SENTENCEPIECE_FILE)
        else:
            SentencePieceTokenizer(options.sentencepiece_model).save(directory)
    return EncodeOptions(
        tokenizer=TokenizerSpec.model_validate(tree),
        tokenizer_directory=directory,
        lines=options.lines,
        field=options.field,
        errors=options.errors,
        heldout_share=options.heldout_share,
        seed=options.seed,
    )


def build_corpus(options: BuildOptions) -> Summary:
    """Build the corpus that `options` describe at `options.output`."""
    start = time.monotonic()
    vocabulary = None if options.vocab is None else Vocabulary.read(options.vocab)
    check_replaceable(options.output, options.overwrite)
    with atomic_directory(options.output, CorpusError, options.overwrite) as directory:
        work = directory / _WORK
        work.mkdir()
        encode_options = prepare_tokenizer(options, directory)
        with ExitStack() as stack:
            spools = {split: stack.enter_context(Spool(work / split)) for split in SPLITS}
            counter, peaks = count_text(options.inputs, encode_options, options.num_workers, spools)
        check_counts(options, {split: spools[split].num_sentences for split in SPLITS})
        if vocabulary is not None and not options.allow_unsorted_vocab:
            check_order(vocabulary, counter, str(options.vocab))
        order = FinalOrder(counter, None if vocabulary is None else vocabulary.words)
        del counter
        if vocabulary is None:
            size = order.vocabulary_size(options.max_vocab, options.min_count)
            vocabulary = Vocabulary(order.types[:size])
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
    corpus = Corpus.open(options.output)
    return Summary(
        splits=corpus.splits,
        num_types=len(corpus.lexicon),
        vocabulary_size=len(vocabulary),
        seconds=time.monotonic() - start,
        peak_bytes=total_peak(peaks),
    )


def _write_split(
    split: str, spool: Spool, order: FinalOrder, options: BuildOptions, directory: Path
) -> SplitInfo:
    """Turn a spool into the shards of its split, and remove it."""
    batches = _final_batches(spool, order)
    if options.shuffle != "none":
        seed = (options.seed, SPLITS.index(split))
        batches = shuffle(batches, spool.num_words, options.shuffle, seed, directory / _WORK)
    with (
        Progress(f"write {split}", spool.num_words) as progress,
        SplitWriter(directory, split, options.shard_words) as writer,
    ):
        num_words = 0
        for batch in batches:
            writer.add(batch.ids, batch.lengths)
            num_words += len(batch.ids)
            progress.update(num_words, num_words)
        return writer.close()


def _final_batches(spool: Spool, order: FinalOrder) -> Iterator[Sentences]:
    """The sentences of a spool with their final ids; the spool is removed at its end."""
    for batch in spool.read(BATCH_WORDS):
        yield batch._replace(ids=order.final_ids[batch.ids])
    spool.path.unlink()


def total_peak(worker_peaks: dict[int, int]) -> int:
    """Peak memory of this process and its workers: the sum of their peaks, an upper bound."""
    peaks = worker_peaks | {os.getpid(): peak_memory_bytes()}
    return sum(peaks.values())


def check_replaceable(output: Path, overwrite: bool) -> None:
    """Refuse to replace anything that is not a corpus."""
    if not output.exists() or not overwrite:
        return
    if not output.is_dir() or (any(output.iterdir()) and not (output / MANIFEST_FILE).is_file()):
        raise CorpusError(
            f"{output} is no corpus (it has no {MANIFEST_FILE}), so --overwrite does not replace "
            "it; remove it yourself, or choose another place"
        )


def check_counts(options: BuildOptions, num_sentences: dict[str, int]) -> None:
    """Refuse an input without text, or a split that came out empty."""
    if not sum(num_sentences.values()):
        raise CorpusError("the input holds no words at all")
    wants_heldout = options.heldout_share > 0 or options.has_heldout_files
    for split in (TRAIN, HELDOUT) if wants_heldout else (TRAIN,):
        if not num_sentences[split]:
            raise CorpusError(
                f"no sentence falls into the split {split!r} (--heldout "
                f"{options.describe()['heldout']}, {sum(num_sentences.values())} sentences in "
                "all); choose another share, or --heldout 0"
            )


def print_summary(summary: Summary, output: Path) -> None:
    """Say what was built, on stdout."""
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
