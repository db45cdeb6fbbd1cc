"""The second edition of docs/results.md: heads on `english-small`, frozen and adapted to a domain.

`english-small` is adapted by continued training on the text of the task's domain: the AG News
training texts and Reuters for AG News, film reviews in lower case for SST-5. Perplexity before and
after is measured on held-out text with the vocabulary of `english-small`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.adaptation import MODEL, Adaptation, Domain
from experiments.stages import Stages

MIXES = "trainable,frozen,learned"


DOMAINS = {
    "ag": Domain("news", (), max_steps=3000),
    "sst5": Domain("films", ("--lowercase", "--lines", "documents"), max_steps=1000),
}


class EnglishResults:
    """The stages, in the order in which they depend on each other."""

    def __init__(self, data: Path, work: Path) -> None:
        self.work, self.texts = work, work / "texts"
        self.stages = Stages(work)
        self.vectors = ["--vectors", str(data / "glove/glove.6B.50d.top60k.txt.gz")]
        self.tasks = {
            "ag": self._texts("ag_train.csv", "ag_test.csv"),
            "sst5": self._texts("sst5_train.csv", "sst5_test.csv"),
        }
        self.tasks["sst5"] += ["--validation", str(self.texts / "sst5_dev.csv"), "--tokenized"]

    def adapt(self, task: str) -> None:
        """Continue the training of english-small on the domain of a task."""
        self._adaptation(task).run()

    def frozen_heads(self, task: str) -> None:
        """Train heads on english-small as it is."""
        self._all_heads("english", task, MODEL)

    def adapted_heads(self, task: str) -> None:
        """Train the same heads on the adapted model."""
        self._all_heads("adapted", task, str(self._adaptation(task).model))

    def _all_heads(self, prefix: str, task: str, model: str) -> None:
        recurrent = ["--head", "bilstm", "--mix", "learned", "--encoder-dim", "128"]
        if task == "ag":
            recurrent += ["--epochs", "4", "--batch-size", "128", "--learning-rate", "0.003"]
        self._heads(f"{prefix}_{task}_bilstm", task, model, recurrent)
        pooled = ["--head", "mean_max", "--mix", MIXES]
        self._heads(f"{prefix}_{task}_mean_max", task, model, pooled)
        if task == "sst5":
            attention = ["--head", "attention", "--mix", "learned"]
            self._heads(f"{prefix}_sst5_attention", task, model, attention)

    def _heads(self, name: str, task: str, model: str, flags: Sequence[str]) -> None:
        command = ["python", "-m", "downstream.classify", "--model", model, *self.tasks[task]]
        command += [*flags, "--seeds", "3", *self.vectors, "--output", str(self.work / name)]
        self.stages.run(name, command)

    def _texts(self, train: str, test: str) -> list[str]:
        flags = ["--train", str(self.texts / train), "--test", str(self.texts / test)]
        return [*flags, "--cache", str(self.work / "cache"), "--overwrite"]

    def _adaptation(self, task: str) -> Adaptation:
        domain = DOMAINS[task]
        return Adaptation(domain, self.texts / f"{domain.name}.txt", self.work)
