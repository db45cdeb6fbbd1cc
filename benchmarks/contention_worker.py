"""The process of one contender of benchmarks/contention.py: WORKLOAD CORPUS SECONDS

torch is imported only after the settings of the process are made.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bilm.distributed.process import configure_process

ROOT = Path(__file__).resolve().parents[1]
# The work of one sample: a fraction of a second on two idle cores.
ROWS, SENTENCES = {"small": 16, "news": 64}, 20


def main(workload: str, corpus: Path, seconds: float) -> None:
    """For each line of input, work for at least `seconds`, and print the words per second."""
    configure_process()
    unit = embedding(ROOT / "configs/small.json") if workload == "embed" else step(workload, corpus)
    unit()  # warm-up
    print("ready", flush=True)
    for _ in sys.stdin:
        words, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            words += unit()
        print(words / (time.perf_counter() - begun), flush=True)


def step(workload: str, corpus: Path) -> Callable[[], int]:
    """Return a function that takes one training step and returns its number of words."""
    from step import Parts

    from bilm.corpus.reader import Corpus
    from bilm.training.config import load_config

    config = load_config(ROOT / "configs" / f"{workload}.json")
    parts, numbers = Parts(config, Corpus.open(corpus), ROWS[workload]), itertools.count()

    def take_step() -> int:
        parts.step(next(numbers))
        return ROWS[workload] * config.data.unroll_steps

    return take_step


def embedding(path: Path) -> Callable[[], int]:
    """Return a function that embeds some sentences and returns their number of words."""
    import torch
    from inference import zipf_sentences

    from bilm.embedding.embedder import Embedder
    from bilm.model.language_model import BiLm
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.training.config import load_config

    torch.manual_seed(0)
    model = PretrainedBiLm(BiLm(load_config(path).model, None).eval())
    sentences = zipf_sentences(SENTENCES)

    def embed() -> int:
        return sum(layers.shape[1] for layers in Embedder(model).stream(sentences))

    return embed


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
