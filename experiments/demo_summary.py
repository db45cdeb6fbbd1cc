"""Print the results of `make demo` next to the best possible ones."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from bilm.errors import CheckpointError, run_command

DIRECTIONS = ("forward", "backward")

MAX_EXCESS = 0.15  # relative to the best possible perplexity


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
    _show_classifiers(directory)
    print("\nCurves:     .venv/bin/tensorboard --logdir", directory / "run")
    print(
        "The model:  bilm.Embedder.from_pretrained(" + repr(str(directory / "run" / "best")) + ")"
    )
    worst = max(best[f"perplexity_{name}"] for name in DIRECTIONS) / limit - 1
    if worst > MAX_EXCESS:
        print(f"\nThe perplexity is more than {MAX_EXCESS:.0%} above the limit, which is too high.")
        return 1
    return 0


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


def _show_classifiers(directory: Path) -> None:
    """Print the test accuracy of heads on the frozen biLM, and of baselines without it."""
    results = {
        name: json.loads(_read(directory / name / "results.json"))
        for name in ("classifier", "baselines")
    }
    print(
        "\nTopic of a sentence, test accuracy (a quarter of the topics depend on word order alone)"
    )
    rows = [
        (baseline["title"], baseline["scores"]["test"]["accuracy"])
        for baseline in results["baselines"]["baselines"]
    ]
    rows += [
        (f"frozen biLM, {mix} mix", summary["test"]["accuracy"]["mean"])
        for mix, summary in results["classifier"]["summary"].items()
    ]
    for title, accuracy in rows:
        print(f"  {title:<50} {accuracy:6.1%}")
    print(f"  report: {directory / 'classifier' / 'report.md'}")


if __name__ == "__main__":
    run_command(main)
