"""Count text and write its vocabulary alone: `python -m data_tools.build_vocab --help`.

Beside `vocab.txt` (the published format) stands `vocab.counts.tsv`, word and count a line, and with
sentencepiece `vocab.model`, which `build_shards` needs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import CorpusError, run_command
from bilm.files.writing import atomic_file
from bilm.text.tokenizers import SENTENCEPIECE_FILE
from bilm.text.vocabulary import Vocabulary
from data_tools.flags import add_text_flags, add_vocabulary_flags, read_options
from data_tools.reading.options import BuildOptions


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m data_tools.build_vocab",
        description="Tokenise and count text, and write the vocabulary: <S> </S> <UNK>, then words "
        "by falling count in the training text.",
    )
    add_text_flags(parser)
    add_vocabulary_flags(parser)
    build_vocab(read_options(parser.parse_args(argv)))
    return 0


def build_vocab(options: BuildOptions) -> None:
    """Write the vocabulary that `options` describe, and its counts beside it."""
    from data_tools.building.build import prepare_tokenizer, total_peak
    from data_tools.building.counting import FinalOrder, count_text

    start = time.monotonic()
    output = options.output
    counts_file, model_file = output.with_suffix(".counts.tsv"), output.with_suffix(".model")
    if output.is_dir():
        raise CorpusError(f"--output {output} is a directory; name the vocabulary file to write")
    for path in (output, counts_file, model_file):
        if path.exists() and not options.overwrite:
            raise CorpusError(f"{path} exists already; choose another name, or say --overwrite")
    with tempfile.TemporaryDirectory(prefix="bilm-") as directory:
        encode_options = prepare_tokenizer(options, Path(directory))
        counter, peaks = count_text(options.inputs, encode_options, options.num_workers)
        if not counter.counts.sum():
            raise CorpusError("the input holds no words to train on")
        order = FinalOrder(counter, None)
        size = order.vocabulary_size(options.max_vocab, options.min_count)
        model = None
        if options.tokenizer == "sentencepiece":
            model = (Path(directory) / SENTENCEPIECE_FILE).read_bytes()
    try:
        if model is not None:
            with atomic_file(model_file) as temporary:
                temporary.write_bytes(model)
        with atomic_file(counts_file) as temporary, open(temporary, "w", encoding="utf-8") as file:
            for word, count in zip(order.types[:size], order.counts[:size].tolist(), strict=True):
                file.write(f"{word}\t{count}\n")
        Vocabulary(order.types[:size]).write(output)
    except OSError as e:
        raise CorpusError(f"cannot write {output}: {e.strerror}") from None
    words = int(order.counts.sum())
    unknown = int(order.counts[size:].sum()) + int(order.counts[2])
    seconds = time.monotonic() - start
    print(
        f"{output}: {size:,} of {len(order.types):,} types, {words:,} training words, "
        f"{unknown / words:.2%} <UNK>"
    )
    print(
        f"{seconds:,.1f} s, {words / seconds:,.0f} words/s, peak memory "
        f"{total_peak(peaks) / 2**20:,.0f} MiB"
    )


if __name__ == "__main__":
    run_command(main)
