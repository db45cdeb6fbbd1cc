"""Train on several numbers of ranks, which are forked from one process that has imported torch.

`python -m tests.launch.forked_ranks CONFIG OUTPUT 1,8 [section.key=value ...]` writes OUTPUT/1 and
OUTPUT/8. A launcher would import PyTorch and DeepSpeed once per rank, which takes most of its time.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence

import bilm.training.setup  # noqa: F401
from bilm.training.config import load_config
from bilm.training.train import train
from tests.launch.launching import free_port


def train_rank(variables: dict[str, str], config: str, overrides: Sequence[str]) -> None:
    os.environ.update(variables)
    train(load_config(config, overrides))


def main(config: str, output: str, worlds: str, *overrides: str) -> None:
    context = multiprocessing.get_context("fork")
    for world in worlds.split(","):
        shared = {"WORLD_SIZE": world, "LOCAL_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
        shared["MASTER_PORT"] = str(free_port())
        arguments = (config, (*overrides, f"train.output_dir={output}/{world}"))
        ranks = [
            context.Process(
                target=train_rank,
                args=({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, *arguments),
            )
            for rank in range(int(world))
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        codes = [rank.exitcode for rank in ranks]
        assert not any(codes), f"the exit codes of {world} ranks are {codes}"


if __name__ == "__main__":
    main(*sys.argv[1:])
