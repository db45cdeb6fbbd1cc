"""Held-out perplexity: `python launch/evaluate.py --model MODEL --corpus CORPUS`

MODEL is a run (its best model), a model directory, or a directory with options.json, weights.hdf5
with a softmax, and vocab.txt. CORPUS is any corpus of the same vocabulary. Full softmax, no
dropout, states carried from zero: forward, backward, and their geometric mean. Under
`deepspeed launch/evaluate.py ...` the ranks share the rows, and the figure is the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.distributed.process import share_cores
from bilm.errors import CheckpointError, ConfigError, CorpusError, run_command

if TYPE_CHECKING:
    from bilm.corpus.reader import Corpus
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.training.perplexity import Perplexity


def main() -> int:
    """Read a model and a corpus, print their perplexity."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="a run or a model")
    parser.add_argument("--corpus", type=Path, required=True, help="a corpus directory")
    parser.add_argument("--split", default="heldout", help="default: heldout")
    parser.add_argument(
        "--rows", type=int, default=32, help="rows that the text is cut into (default: 32)"
    )
    parser.add_argument("--unroll", type=int, default=20, help="words a step (default: 20)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    share_cores()
    perplexity = _evaluate(arguments)
    if os.environ.get("RANK", "0") != "0":
        return 0
    if arguments.json:
        print(
            json.dumps(
                {
                    "perplexity": perplexity.mean,
                    **perplexity.by_direction,
                    "unknown_share": perplexity.unknown_share,
                    "predictions": perplexity.num_predictions,
                }
            )
        )
        return 0
    for name, value in perplexity.by_direction.items():
        print(f"{name:<10}{value:10.3f}")
    print(f"{'mean':<10}{perplexity.mean:10.3f}")
    print(
        f"full softmax over {perplexity.num_predictions:,} predictions each way, "
        f"{perplexity.unknown_share:.2%} unknown words"
    )
    return 0


def _evaluate(arguments: argparse.Namespace) -> Perplexity:
    # torch and deepspeed only now, so that --help answers at once
    from bilm.corpus.batches import BatchStream
    from bilm.corpus.global_batch import GlobalBatch, RankShare
    from bilm.corpus.reader import Corpus
    from bilm.distributed.ranks import Cluster
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.text.characters import MIN_CHARACTERS
    from bilm.training.perplexity import loss_sums, perplexity_of

    cluster = Cluster(timeout_seconds=1800)
    with cluster.naming_lost_ranks():
        with cluster.together():
            corpus = Corpus.open(arguments.corpus)
            source = PretrainedBiLm.open(arguments.model)
            _check_fit(source, corpus, arguments)
            characters = source.model.config.characters
            stream = BatchStream(
                corpus,
                arguments.split,
                GlobalBatch(arguments.rows, arguments.unroll, shuffle=False, rows_setting="--rows"),
                RankShare(cluster.rank, cluster.world),
                max_characters=characters.max_characters
                if characters is not None
                else MIN_CHARACTERS,
            )
            if stream.num_predictions == 0:
                raise CorpusError(
                    f"the split {arguments.split!r} of {corpus.path} has no sentences"
                )
            sums = loss_sums(source.model.to(cluster.device), stream, cluster.device)
        totals = cluster.gather(sums).cpu().sum(dim=0)
    cluster.close()
    return perplexity_of(totals, corpus, arguments.split)


def _check_fit(source: PretrainedBiLm, corpus: Corpus, arguments: argparse.Namespace) -> None:
    if source.model.softmax is None or source.vocabulary is None:
        missing = "softmax" if source.model.softmax is None else "vocabulary (vocab.txt)"
        raise CheckpointError(f"{arguments.model} has no {missing}, so it has no perplexity")
    if source.vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"{arguments.model} and {arguments.corpus} have different vocabularies "
            f"({len(source.vocabulary):,} and {corpus.vocabulary_size:,} words); build the corpus "
            "with the model's: python -m data_tools.build_shards --vocab ..."
        )


if __name__ == "__main__":
    run_command(main, tear_down=False)
