"""Vectors of a text: `python launch/embed.py --model MODEL --input TEXT --output OUTPUT.hdf5`

MODEL is a run (its best model), a model directory, or a directory with options.json and
weights.hdf5; or give these two as --options and --weights. TEXT has a sentence a line (.gz, .bz2
and .xz too). The output is the published form: dataset "0", "1", ... by line, of shape
(layers + 1, words, 2 x dim); an empty line has 0 words, or pooled zeros.

It may be killed at any moment: the same command goes on where it stopped, in OUTPUT.partial/,
having made sure that model, text and options are the same. Until the end it needs twice the
output's disk space; memory does not grow with the text.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import logging
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, CorpusError, run_command
from bilm.text.lines import bounded_lines

if TYPE_CHECKING:
    from bilm.embedding.dump import EmbeddingDump
    from bilm.embedding.output import Output
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.text.tokenizers import Tokenizer


def main() -> int:
    """Read a model and a text, write the text's vectors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a run or a model")
    parser.add_argument("--options", type=Path, help="a published options.json, instead of --model")
    parser.add_argument("--weights", type=Path, help="its weights.hdf5")
    parser.add_argument("--vocab", type=Path, help="its vocabulary, for a model of word ids")
    parser.add_argument("--input", type=Path, required=True, help="text, a sentence a line")
    parser.add_argument("--output", type=Path, required=True, help="the HDF5 file to write")
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32")
    parser.add_argument(
        "--layers",
        default="all",
        help="all, average, top, or mix:w0,w1,... with a weight for each layer (default: all)",
    )
    parser.add_argument("--pool", choices=["none", "mean", "max", "mean_max"], default="none")
    parser.add_argument(
        "--tokenizer",
        choices=["whitespace", "moses"],
        help="default: the model's own; whitespace for text that is tokenised already",
    )
    parser.add_argument(
        "--state", choices=["reset", "warm"], default="reset", help="see docs/embedding.md"
    )
    parser.add_argument("--compression", choices=["gzip", "lzf"], help="of the HDF5 file")
    parser.add_argument("--batch-words", type=int, help="words computed together")
    parser.add_argument("--overwrite", action="store_true", help="replace the output")
    parser.add_argument("--progress", action="store_true", help="a bar even without a terminal")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()
    _embed(arguments)
    return 0


def _embed(arguments: argparse.Namespace) -> None:
    # torch only now, so that --help answers at once
    from bilm.embedding.dump import open_dump
    from bilm.pretrained.digests import model_digest

    if arguments.batch_words is not None and arguments.batch_words < 1:
        raise ConfigError(f"--batch-words {arguments.batch_words}: it must be at least 1")
    output = _output(arguments)
    digest = _digest(arguments.input)
    pretrained = _model(arguments)
    try:
        output.check(pretrained.model.config.lstm.num_layers + 1)
    except ValueError as error:
        raise ConfigError(f"--layers {arguments.layers}: {error}") from None
    tokenizer = _tokenizer(arguments, pretrained)
    run = {
        "model": model_digest(pretrained, tokenizer),
        "input": digest,
        "layers": arguments.layers,
        "pool": arguments.pool,
        "dtype": arguments.dtype,
        "state": arguments.state,
        "compression": arguments.compression,
    }
    with open_dump(arguments.output, run, arguments.overwrite) as dump:
        if dump is not None and not dump.is_joined:
            _write(arguments, pretrained, tokenizer, output, dump)
        if dump is not None:
            dump.finish(arguments.compression)
    print(f"wrote {arguments.output}")


def _write(
    arguments: argparse.Namespace,
    pretrained: PretrainedBiLm,
    tokenizer: Tokenizer,
    output: Output,
    dump: EmbeddingDump,
) -> None:
    """Embed the lines that are not in the dump yet, a part at a time."""
    from tqdm import tqdm

    from bilm.embedding.embedder import Embedder, Limits
    from bilm.embedding.sentence_batches import windows

    limits = Limits() if arguments.batch_words is None else Limits(arguments.batch_words)
    embedder = Embedder(pretrained, limits)
    if dump.num_lines:
        print(f"going on from line {dump.num_lines}", file=sys.stderr)
    reader = _Lines(arguments.input)
    sentences = (tokenizer.tokenize(line) for line in reader.lines(dump.num_lines))
    is_shown = arguments.progress or sys.stderr.isatty()
    with tqdm(
        total=arguments.input.stat().st_size,
        disable=not is_shown,
        unit="B",
        unit_scale=True,
        file=sys.stderr,
    ) as bar:
        num_words = 0
        # A part is one window, whichever line the work went on from: the same batches, and hence
        # the same numbers.
        for part in windows(sentences, limits.window_words):
            dump.append(embedder.embed(part, arguments.state, output=output))
            num_words += sum(len(sentence) for sentence in part)
            bar.update(reader.bytes_read - bar.n)
            seconds = max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"{num_words / seconds:,.0f} words/s", refresh=False)
    if dump.num_lines == 0:
        raise CorpusError(f"{arguments.input} is empty")


def _output(arguments: argparse.Namespace) -> Output:
    from bilm.embedding.output import Output

    layers = arguments.layers
    if layers.startswith("mix:"):
        try:
            layers = [float(weight) for weight in layers.removeprefix("mix:").split(",")]
        except ValueError:
            raise ConfigError(
                f"--layers {arguments.layers}: a mix is a number for each layer, as in "
                "mix:0.2,0.3,0.5"
            ) from None
    try:
        return Output(layers, arguments.pool, arguments.dtype)
    except ValueError as error:
        raise ConfigError(f"--layers {arguments.layers}: {error}") from None


def _model(arguments: argparse.Namespace) -> PretrainedBiLm:
    from bilm.pretrained.model_directory import PretrainedBiLm, load_source

    published = (arguments.options, arguments.weights)
    if (arguments.model is None) == (None in published) or (
        arguments.model is not None and any(published)
    ):
        raise ConfigError("give either --model, or --options and --weights")
    if arguments.model is not None and arguments.vocab is not None:
        raise ConfigError("--vocab goes with --options and --weights; --model has its own")
    if arguments.model is not None:
        pretrained = load_source(arguments.model)
    else:
        pretrained = PretrainedBiLm.from_published(*published, arguments.vocab)
    if pretrained.model.config.characters is None and pretrained.vocabulary is None:
        raise ConfigError("this model reads word ids: its vocabulary is needed too")
    return pretrained


def _tokenizer(arguments: argparse.Namespace, pretrained: PretrainedBiLm) -> Tokenizer:
    from bilm.text.tokenizers import TokenizerSpec, load_tokenizer, require_tokenizer

    if arguments.tokenizer is not None:
        return load_tokenizer(TokenizerSpec(name=arguments.tokenizer), Path())
    remedy = "use --tokenizer whitespace for tokenized text, or --tokenizer moses for raw text"
    return require_tokenizer(pretrained.tokenizer, remedy, error=ConfigError)


class _Lines:
    """The lines of a file, and how many of its bytes have been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes_read = 0

    def lines(self, start: int) -> Iterator[str]:
        """Those from number `start` on. Only line feeds break lines."""
        number = -1
        try:
            with open(self.path, "rb") as raw:
                for number, line in enumerate(
                    bounded_lines(_decompressed(raw, self.path), self.path)
                ):
                    if number >= start:
                        self.bytes_read = raw.tell()
                        yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as e:
            raise CorpusError(
                f"{self.path}, line {number + 1} is not UTF-8: byte {e.start + 1} of the line is "
                f"{e.object[e.start]:#04x}; convert the file"
            ) from None
        except EOFError:
            raise CorpusError(f"{self.path} is cut short: the compressed data ends early") from None
        except (OSError, zlib.error, lzma.LZMAError) as e:
            raise CorpusError(f"cannot read {self.path}: {e}") from None


def _decompressed(raw: BinaryIO, path: Path) -> BinaryIO:
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    opener = openers.get(path.suffix)
    return raw if opener is None else cast(BinaryIO, opener(raw))


def _digest(path: Path) -> str:
    if not path.is_file():
        raise CorpusError(f"--input {path}: there is no such file")
    if path.stat().st_size == 0:
        raise CorpusError(f"--input {path} is empty")
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main, tear_down=False)  # HDF5 can crash in its own end after a failed write


if __name__ == "__main__":
    run()
