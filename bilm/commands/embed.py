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

With several ranks (`deepspeed --module bilm.commands.embed ...`, torchrun or srun), which share the
text, the result is the same. OUT.hdf5 must be on a file system that all machines share. An
interrupted command may be resumed with any number of ranks. The exit code is 4 if a rank was lost.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import sys
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bilm.commands.embed_flags import Arguments, parse
from bilm.distributed.launchers import adopt_launcher
from bilm.distributed.port import check_port
from bilm.distributed.process import rank_numbers, share_cores
from bilm.embedding.shared_dump import SingleProcess, open_shared_dump
from bilm.errors import ConfigError, CorpusError, run_command
from bilm.model.devices import choose_device
from bilm.pretrained.locations import locate
from bilm.text.lines import require_decompressor
from bilm.text.records import TextInput
from bilm.text.tables import format_of
from bilm.text.tokenizers import require_tokenizer_package

if TYPE_CHECKING:
    import torch
    from tqdm import tqdm

    from bilm.distributed.ranks import Ranks
    from bilm.embedding.background import BackgroundWriter
    from bilm.embedding.dump import EmbeddingDump
    from bilm.embedding.embedder import Embedder
    from bilm.embedding.output import Output
    from bilm.embedding.vector_file import Line
    from bilm.pretrained.model_directory import PretrainedBiLm

TIMEOUT_SECONDS = 1800  # for a rank to join, to embed a window, or to show that it is alive


@dataclass(frozen=True)
class _Job:
    """What to embed and how; `run` is its description in the output."""

    text: TextInput
    embedder: Embedder
    output: Output
    run: dict[str, Any]


def main() -> int:
    """Embed a text and write its vectors."""
    arguments = parse(__doc__)
    adopt_launcher()
    level = logging.INFO if rank_numbers().rank == 0 else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    share_cores()
    with ExitStack() as locks:
        with _join_ranks() as ranks:
            with ranks.fail_together():
                job = _open(arguments)
            dump = locks.enter_context(
                open_shared_dump(arguments.output, job.run, arguments.overwrite, ranks)
            )
            if dump is not None and not dump.is_joined:
                _write(arguments, job, dump, ranks)
        # The other ranks do not wait while rank 0 joins the parts.
        if ranks.is_first:
            _finish(arguments, dump)
    return 0


def _join_ranks() -> AbstractContextManager[Ranks | SingleProcess]:
    """Join the other ranks; a single process needs no process group."""
    if rank_numbers().world == 1:
        return nullcontext(SingleProcess())
    check_port()
    from bilm.distributed.ranks import Timeouts, join_ranks

    timeouts = Timeouts(TIMEOUT_SECONDS, TIMEOUT_SECONDS)
    return join_ranks(timeouts, on_cpu=True, job="embed")  # ranks exchange only a few numbers


def _text_input(arguments: Arguments) -> TextInput:
    """Check the input file and its flags."""
    path = arguments.input
    require_decompressor(path)
    require_tokenizer_package(arguments.tokenizer or "")
    if not path.is_file():
        raise CorpusError(f"--input {path} does not exist")
    if path.stat().st_size == 0:
        raise CorpusError(f"--input {path} is empty")
    kind = arguments.format or format_of(path, "text")
    return TextInput.open(path, kind, arguments.field or ["text"], arguments.encoding)


def _open(arguments: Arguments) -> _Job:
    """Check the command line, and read the model."""
    text = _text_input(arguments)
    if arguments.model is not None:
        locate(arguments.model)  # download it, or report a missing package
    # These imports load torch; they are here so that --help and errors in the input are fast.
    from bilm.embedding.embedder import DEFAULT_LIMITS, Embedder
    from bilm.pretrained.digests import model_digest

    limits = DEFAULT_LIMITS
    if arguments.batch_words is not None:
        if arguments.batch_words < 1:
            raise ConfigError(f"--batch-words is {arguments.batch_words}; it must be at least 1")
        limits = replace(limits, batch_words=arguments.batch_words)
    output = _output(arguments)
    embedder = Embedder(_model(arguments), limits, _device(arguments), arguments.precision)
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
    return _Job(text, embedder, output, run)


def _device(arguments: Arguments) -> torch.device:
    """Return the chosen device; of several accelerators, that of this rank."""
    device, numbers = choose_device(arguments.device), rank_numbers()
    if numbers.world > 1 and device.index is None and device.type not in ("cpu", "mps"):
        return choose_device(f"{device.type}:{numbers.local_rank}")
    return device


def _write(
    arguments: Arguments, job: _Job, dump: EmbeddingDump, ranks: Ranks | SingleProcess
) -> None:
    """Embed the lines that are not in the dump yet; threads read the text and write the parts.

    Each part is one window, so that any number of ranks, resumed or not, computes the same batches,
    and hence the same numbers. In each round, every rank embeds one window.
    """
    from bilm.embedding.background import BackgroundWriter, read_ahead
    from bilm.embedding.text_windows import TextWindows

    if ranks.is_first and dump.finished:
        first = next(n for n in itertools.count() if n not in dump.finished)
        line = sum(dump.finished[n] for n in range(first))
        print(f"resuming at line {line}", file=sys.stderr)
    tokenizer, limits = job.embedder.pretrained.tokenizer, job.embedder.limits
    assert tokenizer is not None  # `_model` has checked it
    with ranks.fail_together():
        windows = TextWindows(
            job.text.texts(), tokenizer.tokenize, limits.window_words, dump.finished
        )
        job.embedder.pin_words(windows.first_words())
    unfinished, num_words = read_ahead(windows.unfinished(), ranks.world), 0
    with (
        _progress_bar(arguments, ranks) as bar,
        BackgroundWriter(dump, arguments.compression) as writer,
        closing(unfinished),
    ):
        for step in itertools.count(1):
            with ranks.fail_together():
                shares = list(itertools.islice(unfinished, ranks.world))
                if not shares and not dump.finished:
                    raise CorpusError(f"{arguments.input} is empty")
                _embed_share(arguments, job, writer, shares[ranks.rank : ranks.rank + 1])
            ranks.note_step(step)
            if ranks.is_first and shares:  # all ranks have written the windows before these
                writer.join(shares[0][0])
            dump.finished.update((number, len(lines)) for number, lines in shares)
            num_words += sum(len(line) for _, lines in shares for line in lines)
            bar.update(job.text.reader.bytes_read - bar.n)
            seconds = max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"{num_words / seconds:,.0f} words/s", refresh=False)
            if len(shares) < ranks.world:
                break
        with ranks.fail_together():
            writer.wait()


def _embed_share(
    arguments: Arguments, job: _Job, writer: BackgroundWriter, share: list[tuple[int, list[Line]]]
) -> None:
    """Embed this rank's window of a round, if there is one; the last one is on disk afterwards."""
    for number, lines in share:
        words = [line.words for line in lines]
        arrays = job.embedder.embed(words, arguments.state, output=job.output)
        writer.write(number, arrays, lines)
    if not share:
        writer.wait()


def _progress_bar(arguments: Arguments, ranks: Ranks | SingleProcess) -> tqdm[NoReturn]:
    from tqdm import tqdm

    return tqdm(
        total=arguments.input.stat().st_size,
        disable=not ranks.is_first or not (arguments.progress or sys.stderr.isatty()),
        unit="B",
        unit_scale=True,
        file=sys.stderr,
    )


def _finish(arguments: Arguments, dump: EmbeddingDump | None) -> None:
    from bilm.embedding.vector_file import describe

    if dump is not None:
        dump.finish(arguments.compression)
    print(f"wrote {arguments.output}: {describe(arguments.output)}")


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
