"""Count the bytes a training step sends: `deepspeed --num_gpus 2 benchmarks/traffic.py --config F`

Runs one real step (like `launch/pretrain.py --dry-run`) and counts the bytes of PyTorch's
collectives. Prints, for rank 0, the bytes passed to all-reduce (dense gradients) and to all-gather
(the rows of the sampled softmax, and a few numbers), and their ratio to the dense softmax table.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch.distributed
from torch import Tensor

from bilm.corpus.reader import Corpus
from bilm.distributed.process import rank_numbers
from bilm.errors import run_command
from bilm.training.config import load_config

_sent: Counter[str] = Counter()


def _counted(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` so that it also counts the bytes of the tensors passed to it."""

    def counting(*args: Any, **kwargs: Any) -> Any:
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        _sent[kind] += sum(t.numel() * t.element_size() for t in tensors)
        return function(*args, **kwargs)

    return counting


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="configuration file")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("override", nargs="*", help="section.key=value")
    arguments = parser.parse_intermixed_args()
    config = load_config(arguments.config, arguments.override)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    from bilm.training import setup

    take_step = setup.take_step

    def counted_step(*args: Any) -> Any:
        torch.distributed.all_reduce = _counted("all_reduce", torch.distributed.all_reduce)
        torch.distributed.all_gather = _counted("all_gather", torch.distributed.all_gather)
        return take_step(*args)

    setup.take_step = counted_step
    setup.dry_run(config)
    if rank_numbers().rank == 0:
        size = Corpus.open(config.data.corpus).vocabulary_size
        table = size * (config.model.lstm.projection_dim + 1) * 4
        figures = {"dense_bytes": _sent["all_reduce"], "sparse_bytes": _sent["all_gather"]}
        figures |= {"dense_table_bytes": table}
        share = _sent["all_gather"] / table
        print(json.dumps({**figures, "sparse_share_of_dense_table": round(share, 5)}))
    return 0


if __name__ == "__main__":
    run_command(main, tear_down=False)
