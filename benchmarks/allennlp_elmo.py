"""AllenNLP's ELMo as a contender of benchmarks/inference.py, in a process of another environment.

AllenNLP is archived, and its releases require old versions of PyTorch, but its ELMo runs with
current ones. To prepare an environment with the same PyTorch as this one:

    python -m venv allennlp_env
    allennlp_env/bin/pip install torch h5py 'transformers<4.40' spacy cached-path boto3
    allennlp_env/bin/pip install google-cloud-storage lmdb nltk dill tensorboardX base58 termcolor
    allennlp_env/bin/pip install --no-deps allennlp==2.10.1
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.embedding.embedder import Embedder
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.published_weights import save_published

WORKER = Path(__file__).with_name("allennlp_worker.py")


class AllenNlp:
    """A process that embeds the sentences with AllenNLP when it is asked to."""

    def __init__(
        self, python: str, model: BiLm, sentences: Sequence[Sequence[str]], directory: Path
    ) -> None:
        save_published(model, directory / "options.json", directory / "weights.hdf5")
        words = [list(sentence) for sentence in sentences]
        (directory / "sentences.json").write_text(json.dumps(words), encoding="utf-8")
        threads = os.environ["OMP_NUM_THREADS"]
        self.process = subprocess.Popen(
            [python, str(WORKER), str(directory), threads],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        self.versions: dict[str, str] = self._answer()
        vectors = np.load(
            directory / "vectors.npy", allow_pickle=False
        )  # (sentences, words, dim), the mean of layers
        first = sorted(words, key=len)[: len(vectors)]
        ours = Embedder(PretrainedBiLm(model)).embed(first)
        self.difference = max(
            float(np.abs(own.mean(axis=0) - other[: own.shape[1]]).max())
            for own, other in zip(ours, vectors, strict=True)
        )

    def seconds(self) -> tuple[float, float]:
        """Return the seconds of one pass, in total and without computing character ids."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        total, alone = self._answer()
        return total, alone

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{WORKER.name} failed with exit code {self.process.wait()}")
        return json.loads(line)
