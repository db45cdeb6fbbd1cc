"""Measure held-out perplexity: `bilm evaluate --model MODEL --corpus CORPUS`

MODEL is a run (its best model), a model directory, or a directory with options.json, weights.hdf5
with a softmax, and vocab.txt. CORPUS is any corpus with the same vocabulary. The command
uses the full softmax, no dropout, and states that start at zero and are carried over. It prints the
forward perplexity, the backward perplexity, and their geometric mean. With several ranks
(`deepspeed --module bilm.commands.evaluate ...`), which share the rows, the result is the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, get_args

from bilm.distributed.launchers import adopt_launcher
from bilm.distributed.port import check_port
from bilm.distributed.process import rank_numbers, share_cores
from bilm.errors import CheckpointError, ConfigError, CorpusError, run_command
from bilm.model.devices import AUTO, DEVICE_HELP, choose_device
from bilm.model.precision import PRECISION_HELP, Precision
from bilm.pretrained.locations import locate

if TYPE_CHECKING:
    from bilm.corpus.reader import Corpus
    from bilm.distributed.ranks import Ranks
    from bilm.model.config import CharacterConfig
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.training.perplexity import EvaluatedText, Perplexity

TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Options:
    """The command line."""

    model: Path
    corpus: Path
    split: str
    rows: int
    unroll: int
    max_words: int | None
    json: bool
    device: str
    precision: Precision


def main() -> int:
    """Read a model and a corpus, and print the perplexity."""
    options = _parse()
    if options.max_words is not None and options.max_words < 1:
        raise ConfigError(f"--max-words is {options.max_words}; it must be at least 1")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    locate(options.model)  # download it, or report a missing package
    adopt_launcher()
    check_port()
    share_cores()
    perplexity = _evaluate(options)
    if rank_numbers().rank == 0:
        print(_json_line(perplexity) if options.json else _text(perplexity))
    return 0


def _parse() -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="a run, a model, or its name")
    parser.add_argument("--corpus", type=Path, required=True, help="a corpus directory")
    parser.add_argument("--split", default="heldout", help="split to evaluate (default: heldout)")
    parser.add_argument(
        "--rows",
        type=int,
        default=32,
        help="number of rows that the text is cut into (default: 32)",
    )
    parser.add_argument(
        "--unroll", type=int, default=20, help="words per row and step (default: 20)"
    )
    parser.add_argument(
        "--max-words",
        type=int,
        help="evaluate a fixed subset of this many words, counting sentence ends (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of text")
    parser.add_argument("--device", default=AUTO, help=DEVICE_HELP)
    parser.add_argument(
        "--precision", choices=get_args(Precision), default="float32", help=PRECISION_HELP
    )
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    arguments = parser.parse_args()
    return Options(
        model=arguments.model,
        corpus=arguments.corpus,
        split=arguments.split,
        rows=arguments.rows,
        unroll=arguments.unroll,
        max_words=arguments.max_words,
        json=arguments.json,
        device=arguments.device,
        precision=arguments.precision,
    )


def _evaluate(options: Options) -> Perplexity:
    # torch is imported late, so that --help is fast
    from bilm.corpus.reader import Corpus
    from bilm.distributed.ranks import Timeouts, join_ranks
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.training.perplexity import loss_totals

    device = choose_device(options.device)
    timeouts = Timeouts(TIMEOUT_SECONDS, TIMEOUT_SECONDS)
    with join_ranks(timeouts, on_cpu=device.type == "cpu", job="evaluate") as ranks:
        if options.device == AUTO and ranks.world > 1:
            device = ranks.device
        with ranks.fail_together():
            corpus = Corpus.open(options.corpus)
            source = PretrainedBiLm.open(options.model)
            _check_fit(source, corpus, options)
            text = _open_text(corpus, options, ranks, source.model.config.characters)
            source.model.evaluation_precision = options.precision
            totals = loss_totals(source.model.to(device), text, device)
        totals = totals.sum_over_ranks(ranks)
    return totals.perplexity(text)


def _open_text(
    corpus: Corpus, options: Options, ranks: Ranks, characters: CharacterConfig | None
) -> EvaluatedText:
    from bilm.corpus.batches import BatchStream
    from bilm.corpus.global_batch import GlobalBatch, RankShare
    from bilm.text.characters import MIN_CHARACTERS
    from bilm.training.perplexity import EvaluatedText, evaluation_order

    batch = GlobalBatch(options.rows, options.unroll, rows_setting="--rows")
    batch, num_steps = evaluation_order(corpus.split(options.split), batch, options.max_words)
    stream = BatchStream(
        corpus,
        options.split,
        batch,
        RankShare(ranks.rank, ranks.world),
        max_characters=characters.max_characters if characters is not None else MIN_CHARACTERS,
    )
    if stream.num_predictions == 0:
        raise CorpusError(f"the split {options.split!r} of {corpus.path} has no sentences")
    return EvaluatedText(stream, num_steps)


def _check_fit(source: PretrainedBiLm, corpus: Corpus, options: Options) -> None:
    if source.model.softmax is None or source.vocabulary is None:
        missing = "softmax" if source.model.softmax is None else "vocabulary (vocab.txt)"
        raise CheckpointError(
            f"{options.model} has no {missing}, so its perplexity cannot be computed"
        )
    if source.vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"{options.model} and {options.corpus} have different vocabularies "
            f"({len(source.vocabulary):,} and {corpus.vocabulary_size:,} words); build the corpus "
            "with the vocabulary of the model: bilm data build-shards --vocab ..."
        )


def _json_line(perplexity: Perplexity) -> str:
    return json.dumps(
        {
            "perplexity": perplexity.mean,
            **perplexity.by_direction,
            "unknown_share": perplexity.unknown_share,
            "predictions": perplexity.num_predictions,
            "available_predictions": perplexity.num_available,
        }
    )


def _text(perplexity: Perplexity) -> str:
    lines = [f"{name:<10}{value:10.3f}" for name, value in perplexity.by_direction.items()]
    lines += [
        f"{'mean':<10}{perplexity.mean:10.3f}",
        f"full softmax over {perplexity.text} per direction, "
        f"{perplexity.unknown_share:.2%} unknown words",
    ]
    return "\n".join(lines)


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main, tear_down=False)


if __name__ == "__main__":
    run()
