"""Print the results of `make demo` next to the best possible ones."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import CheckpointError, run_command

DIRECTIONS = ("forward", "backward")

MAX_EXCESS = 0.15  # relative to the best possible perplexity


class Method(NamedTuple):
    """A row of the table of classifiers: the output directory and the name of its result."""

    directory: str
    name: str  # of a baseline or a mix
    title: str


TF_IDF = Method("baselines", "tfidf", "TF-IDF of words and word pairs, logistic regression")
LAYER_0 = Method("pooled", "layer:0", "mean and maximum of word vectors without context")
POOLED = Method("pooled", "trainable", "mean and maximum of word vectors in context")
UNTRAINED = Method("baselines", "untrained", "biLSTM on a biLM with random weights")
RECOMMENDED = Method("classifier", "trainable", "biLSTM on the trained biLM (recommended)")

EXPLANATION = """\
  In a quarter of the sentences, only the word order determines the topic: "the bank shifts the
  wave" is about money, "the wave shifts the bank" about nature. TF-IDF uses words and pairs of
  adjacent words. Rows 2 and 3 average over the words, which discards their order: layer 0 of the
  biLM describes words alone, the trained mix of all layers describes them in context. Rows 4 and 5
  are the set-up of the paper: an encoder reads a mix of the frozen layers with trained,
  regularized weights. They differ only in the weights of the biLM."""


def main() -> int:
    """Print the held-out perplexity, the senses of a word, and the accuracy of classifiers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("directory", type=Path, help="the output directory of make demo")
    directory = parser.parse_args().directory
    grammar = json.loads(_read(directory / "text" / "grammar.json"))
    lines = _read(directory / "run" / "metrics.jsonl").splitlines()
    heldout = [e for e in map(json.loads, lines) if e["event"] == "heldout"]
    if not heldout:
        raise CheckpointError(
            f"{directory / 'run'} has no held-out evaluation yet; run `make demo` to the end"
        )
    best = min(heldout, key=lambda event: float(event["perplexity"]))
    limit = grammar["heldout_limit_perplexity"]
    vocabulary = grammar["vocabulary"]
    print("\nHeld-out perplexity (full softmax)          above the limit")
    print(f"  a uniform guess           {vocabulary:8.2f}")
    for name in DIRECTIONS:
        value = best[f"perplexity_{name}"]
        print(f"  the biLM, {name:<15} {value:8.2f}          {value / limit - 1:8.1%}")
    print(f"  the best possible         {limit:8.2f}")
    _show_senses(directory / "run" / "best")
    is_ahead = _show_classifiers(directory)
    print("\nCurves:     .venv/bin/tensorboard --logdir", directory / "run")
    print(
        "The model:  bilm.Embedder.from_pretrained(" + repr(str(directory / "run" / "best")) + ")"
    )
    worst = max(best[f"perplexity_{name}"] for name in DIRECTIONS) / limit - 1
    if worst > MAX_EXCESS:
        print(f"\nThe perplexity is more than {MAX_EXCESS:.0%} above the limit, which is too high.")
        return 1
    if not is_ahead:
        print("\nThe recommended classifier is not ahead of the others, which is unexpected.")
        return 1
    print("\nTo explore the model and the classifier in a browser:")
    print(page_command(directory))
    return 0


def page_command(directory: Path) -> str:
    """Return the command that opens the page of the explorer on the results of the demo."""
    python = os.path.relpath(sys.executable)
    flags = {
        "--model": directory / "run",
        "--text": directory / "text" / "heldout.txt",
        "--classifier": directory / "classifier",
    }
    words = [python, "-m", "bilm", "explore", *(str(w) for pair in flags.items() for w in pair)]
    return shlex.join(words)


def _read(path: Path) -> str:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; run `make demo` first")
    return path.read_text(encoding="utf-8")


def _show_senses(model: Path) -> None:
    """Print the similarity of a word in sentences of one topic and of two topics."""
    from bilm.embedding.embedder import Embedder

    sentences = [
        "the bank sells this broker",
        "the bank funds many prices",
        "the bank shades one river",
    ]
    vectors = [
        layers[-1][sentence.split().index("bank")]
        for sentence, layers in zip(
            sentences, Embedder.from_pretrained(model).embed(sentences, state="warm"), strict=True
        )
    ]
    print('\n"bank" in context: cosine of its top-layer vectors')
    for i, j in ((0, 1), (0, 2)):
        a, b = vectors[i], vectors[j]
        cosine = float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
        print(f"  {cosine:5.2f}   {sentences[i]!r}, {sentences[j]!r}")


def _show_classifiers(directory: Path) -> bool:
    """Print the test accuracy of each method; return whether the recommended one is the best."""
    trees = {
        name: json.loads(_read(directory / name / "results.json"))
        for name in ("baselines", "pooled", "classifier")
    }
    methods = (TF_IDF, LAYER_0, POOLED, UNTRAINED, RECOMMENDED)
    accuracies = [_accuracy(trees[method.directory], method.name) for method in methods]
    texts = trees["classifier"]["texts"]
    print(
        f"\nTopic of a sentence: accuracy on {texts['test']:,} test texts ± standard error; "
        f"{texts['train']:,} training texts"
    )
    for number, (method, accuracy) in enumerate(zip(methods, accuracies, strict=True), 1):
        error = math.sqrt(accuracy * (1 - accuracy) / texts["test"])
        print(f"  {number}  {method.title:<52} {accuracy:6.1%} ± {error:.1%}")
    print(EXPLANATION)
    print(f"  report: {directory / 'classifier' / 'report.md'}")
    return accuracies[-1] > max(accuracies[:-1])


def _accuracy(tree: dict[str, Any], name: str) -> float:
    """Return the test accuracy of a baseline, or of the best head of a mix by validation."""
    if "baselines" in tree:
        found = next(b for b in tree["baselines"] if b["name"] == name)
        return float(found["scores"]["test"]["accuracy"])

    def merit(outcome: dict[str, Any]) -> tuple[float, float]:
        history = outcome["history"]
        loss = history["validation_loss"][history["best_epoch"] - 1]
        return outcome["scores"]["validation"]["accuracy"], -loss

    best = max((o for o in tree["outcomes"] if o["mix"] == name), key=merit)
    return float(best["scores"]["test"]["accuracy"])


if __name__ == "__main__":
    run_command(main)
