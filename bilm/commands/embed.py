"""Embed a text: `bilm embed --model MODEL --input TEXT --output OUT.hdf5`

MODEL is a run (its best model is used), a model directory, a directory with options.json and
weights.hdf5 (or model.hdf5), or a .zip file of such a directory; alternatively, pass the two files
as --options and --weights.

TEXT has one sentence per line, or per row or object of a .csv, .tsv, .jsonl, .json or .parquet file
(--field selects the column). All but .parquet may be compressed (.gz, .bz2, .xz, .zst).

The output has the published format: datasets "0", "1", ... by line number, each of shape
(layers + 1, words, 2 x dim), and sentence_to_index, which maps sentences to datasets. The attribute
tokens of a dataset is its words. An empty line has 0 words, or zeros if pooled.

If the command is interrupted, run it again to resume. Finished parts are kept in OUT.hdf5.partial/
until the end, and the model, the text and the options must be the same. The command needs twice the
disk space of the output until it finishes; its memory use does not grow with the text.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bilm.commands.embed_flags import Arguments, parse
from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, CorpusError, run_command
from bilm.model.devices import choose_device
from bilm.text.lines import require_decompressor
from bilm.text.records import TextInput
from bilm.text.tables import format_of
from bilm.text.tokenizers import require_tokenizer_package

if TYPE_CHECKING:
    from bilm.embedding.dump import EmbeddingDump
    from bilm.embedding.embedder import Embedder
    from bilm.embedding.output import Output
    from bilm.pretrained.model_directory import PretrainedBiLm


def main() -> int:
    """Embed a text and write its vectors."""
    arguments = parse(__doc__)
    require_decompressor(arguments.input)
    require_tokenizer_package(arguments.tokenizer or "")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()
    _embed(arguments, _text_input(arguments))
    return 0


def _text_input(arguments: Arguments) -> TextInput:
    """Check the input file and its flags."""
    path = arguments.input
    if not path.is_file():
        raise CorpusError(f"--input {path} does not exist")
    if path.stat().st_size == 0:
        raise CorpusError(f"--input {path} is empty")
    kind = arguments.format or format_of(path, "text")
    return TextInput.open(path, kind, arguments.field or ["text"], arguments.encoding)


def _embed(arguments: Arguments, text: TextInput) -> None:
    # These imports load torch; they are here so that --help is fast.
    from bilm.embedding.dump import open_dump
    from bilm.embedding.embedder import DEFAULT_LIMITS, Embedder
    from bilm.embedding.vector_file import describe
    from bilm.pretrained.digests import model_digest

    limits = DEFAULT_LIMITS
    if arguments.batch_words is not None:
        if arguments.batch_words < 1:
            raise ConfigError(f"--batch-words is {arguments.batch_words}; it must be at least 1")
        limits = replace(limits, batch_words=arguments.batch_words)
    output = _output(arguments)
    device = choose_device(arguments.device)
    embedder = Embedder(_model(arguments), limits, device, arguments.precision)
    try:
        output.check(embedder.num_layers)
    except ValueError as error:
        raise ConfigError(f"--layers {arguments.layers}: {error}") from None
    run = {
        "model": model_digest(embedder.pretrained),
        "input": _digest(arguments.input),
        "format": text.format,
        "field": None if text.format == "text" else text.field,
        "encoding": arguments.encoding,
        "layers": arguments.layers,
        "pool": arguments.pool,
        "dtype": arguments.dtype,
        "state": arguments.state,
        "compression": arguments.compression,
    }
    if arguments.precision != "float32":
        run["precision"] = arguments.precision
    with open_dump(arguments.output, run, arguments.overwrite) as dump:
        if dump is not None and not dump.is_joined:
            _write(arguments, text, embedder, output, dump)
        if dump is not None:
            dump.finish(arguments.compression)
    print(f"wrote {arguments.output}: {describe(arguments.output)}")


def _write(
    arguments: Arguments,
    text: TextInput,
    embedder: Embedder,
    output: Output,
    dump: EmbeddingDump,
) -> None:
    """Embed the lines that are not in the dump yet and append them, one part at a time."""
    from tqdm import tqdm

    from bilm.embedding.sentence_batches import windows
    from bilm.embedding.vector_file import Line

    if dump.num_lines:
        print(f"resuming at line {dump.num_lines}", file=sys.stderr)
    tokenizer = embedder.pretrained.tokenizer
    assert tokenizer is not None  # `_model` has checked it
    remaining = itertools.islice(text.texts(), dump.num_lines, None)
    lines = (Line(sentence, tokenizer.tokenize(sentence)) for sentence in remaining)
    is_shown = arguments.progress or sys.stderr.isatty()
    with tqdm(
        total=arguments.input.stat().st_size,
        disable=not is_shown,
        unit="B",
        unit_scale=True,
        file=sys.stderr,
    ) as bar:
        num_words = 0
        # Each part is one window, so that a resumed run computes the same batches, and hence the
        # same numbers, as an uninterrupted one.
        for part in windows(lines, embedder.limits.window_words):
            words = [line.words for line in part]
            dump.append(embedder.embed(words, arguments.state, output=output), part)
            num_words += sum(map(len, part))
            bar.update(text.reader.bytes_read - bar.n)
            seconds = max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"{num_words / seconds:,.0f} words/s", refresh=False)
    if dump.num_lines == 0:
        raise CorpusError(f"{arguments.input} is empty")


def _output(arguments: Arguments) -> Output:
    from bilm.embedding.output import Output

    layers: Any = arguments.layers
    try:
        if layers.startswith("mix:"):
            layers = _mix_weights(layers)
        return Output(layers, arguments.pool, arguments.dtype)
    except ValueError as error:
        raise ConfigError(f"--layers {arguments.layers}: {error}") from None


def _mix_weights(text: str) -> list[float]:
    try:
        return [float(weight) for weight in text.removeprefix("mix:").split(",")]
    except ValueError:
        raise ValueError("a mix must have one number per layer, as in mix:0.2,0.3,0.5") from None


def _model(arguments: Arguments) -> PretrainedBiLm:
    """Read the model and choose its tokenizer."""
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.text.tokenizers import TokenizerSpec, load_tokenizer, require_tokenizer

    options, weights = arguments.options, arguments.weights
    if arguments.model is not None and options is None and weights is None:
        if arguments.vocab is not None:
            raise ConfigError(
                "--vocab is for --options and --weights; --model includes its vocabulary"
            )
        pretrained = PretrainedBiLm.open(arguments.model)
    elif arguments.model is None and options is not None and weights is not None:
        pretrained = PretrainedBiLm.from_published(options, weights, arguments.vocab)
    else:
        raise ConfigError("pass either --model, or --options and --weights")
    if pretrained.model.config.characters is None and pretrained.vocabulary is None:
        raise ConfigError("this model reads word ids and needs its vocabulary; pass --vocab")
    if arguments.tokenizer is not None:
        tokenizer = load_tokenizer(TokenizerSpec(name=arguments.tokenizer), Path())
        return replace(pretrained, tokenizer=tokenizer)
    remedy = "use --tokenizer whitespace for tokenized text, or --tokenizer moses for raw text"
    require_tokenizer(pretrained.tokenizer, remedy, error=ConfigError)
    return pretrained


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main, tear_down=False)  # HDF5 can crash at exit after a failed write


if __name__ == "__main__":
    run()
