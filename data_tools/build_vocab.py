"""Count text and write only its vocabulary: `python -m data_tools.build_vocab --help`.

Next to `vocab.txt` (in the published format), the command writes `vocab.counts.tsv`, with one word
and its count per line, and for sentencepiece also `vocab.model`, which `build_shards` needs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import CorpusError, run_command
from bilm.files.writing import atomic_file, reject_existing
from bilm.text.characters import UNKNOWN_WORD
from bilm.text.tokenizers import SENTENCEPIECE_FILE
from bilm.text.vocabulary import Vocabulary
from data_tools import flags
from data_tools.reading.options import (
    OutputOptions,
    TextOptions,
    TokenizerOptions,
    VocabularyOptions,
)

if TYPE_CHECKING:
    from data_tools.building.counting import FinalOrder


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the flags, write the vocabulary and print a summary."""
    parser = argparse.ArgumentParser(
        description="Tokenize and count text, and write the vocabulary: <S> </S> <UNK>, then words "
        "by decreasing count in the training text.",
    )
    flags.add_text_flags(parser)
    flags.add_output_flags(parser)
    flags.add_tokenizer_flags(parser)
    flags.add_vocabulary_flags(parser)
    args = parser.parse_args(argv)
    text, output = flags.text_options(args), flags.output_options(args)
    output.reject_inputs_inside(text.inputs)
    build_vocab(text, flags.tokenizer_options(args), flags.vocabulary_options(args), output)
    return 0


def build_vocab(
    text: TextOptions,
    tokenizer: TokenizerOptions,
    vocabulary: VocabularyOptions,
    output: OutputOptions,
) -> None:
    """Write the vocabulary of the text and its counts, and print a summary."""
    from data_tools.building.first_pass import count_text
    from data_tools.building.tasks import TaskRunner
    from data_tools.building.workers import start_engine

    start = time.monotonic()
    _check_output(output)
    with (
        tempfile.TemporaryDirectory(prefix="bilm-") as directory,
        start_engine(text.num_workers) as engine,
    ):
        runner = TaskRunner(engine)
        order = count_text(text, tokenizer, Path(directory), runner)
        if not order.counts.sum():
            raise CorpusError("the input contains no words to train on")
        size = order.vocabulary_size(vocabulary.max_words, vocabulary.min_count)
        model = None
        if tokenizer.name == "sentencepiece":
            model = (Path(directory) / SENTENCEPIECE_FILE).read_bytes()
    try:
        _write(order, size, model, output.path)
    except OSError as e:
        raise CorpusError(f"cannot write {output.path}: {e.strerror}") from None
    words = int(order.counts.sum())
    unknown_id = order.types.index(UNKNOWN_WORD.encode())
    unknown = int(order.counts[size:].sum()) + int(order.counts[unknown_id])
    seconds = time.monotonic() - start
    print(
        f"{output.path}: {size:,} of {len(order.types):,} types, {words:,} training words, "
        f"{unknown / words:.2%} <UNK>"
    )
    print(
        f"{seconds:,.1f} s, {words / seconds:,.0f} words/s, peak memory "
        f"{runner.total_peak() / 2**20:,.0f} MiB"
    )


def _check_output(output: OutputOptions) -> None:
    path = output.path
    if path.is_dir():
        raise CorpusError(f"--output {path} is a directory; it must be the path of a file")
    for file in (path, path.with_suffix(".counts.tsv"), path.with_suffix(".model")):
        reject_existing(file, CorpusError, output.overwrite)


def _write(order: FinalOrder, size: int, model: bytes | None, path: Path) -> None:
    """Write the vocabulary last, so that the other files are complete once it exists."""
    if model is not None:
        with atomic_file(path.with_suffix(".model")) as temporary:
            temporary.write_bytes(model)
    counts_file = path.with_suffix(".counts.tsv")
    words = [word.decode() for word in order.types[:size]]
    with atomic_file(counts_file) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for word, count in zip(words, order.counts[:size].tolist(), strict=True):
            file.write(f"{word}\t{count}\n")
    Vocabulary(words).write(path)


if __name__ == "__main__":
    run_command(main)
