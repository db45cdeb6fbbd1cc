"""The end of `make demo`: what was learned, beside what could be."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from bilm.errors import CheckpointError, run_command

DIRECTIONS = ("forward", "backward")

GOAL = 0.15  # above the best possible perplexity, at most


def main() -> int:
    """Print held-out perplexity beside its limit, senses of a word, and the classifiers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("directory", type=Path, help="where make demo has worked")
    directory = parser.parse_args().directory
    for needed in (directory / "text" / "grammar.json", directory / "run" / "metrics.jsonl"):
        if not needed.is_file():
            raise CheckpointError(f"there is no {needed}: make demo has not come so far")
    grammar = json.loads((directory / "text" / "grammar.json").read_text(encoding="utf-8"))
    lines = (directory / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    heldout = [e for e in map(json.loads, lines) if e["event"] == "heldout"]
    if not heldout:
        raise CheckpointError(f"{directory / 'run'} has no held-out evaluation yet")
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
    if worst > GOAL:
        print(f"\nThat is more than {GOAL:.0%} above the limit: something is wrong.")
        return 1
    return 0


def _show_senses(model: Path) -> None:
    """The same word in sentences of one topic, and of two."""
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
    """Test accuracy of heads on the frozen biLM, beside those that do without it."""
    found = {}
    for name in ("classifier", "baselines"):
        path = directory / name / "results.json"
        if not path.is_file():
            raise CheckpointError(f"there is no {path}: make demo has not come so far")
        found[name] = json.loads(path.read_text(encoding="utf-8"))
    print("\nTopic of a sentence, test accuracy (a quarter of them is decided by word order alone)")
    rows = [
        (baseline["title"], baseline["scores"]["test"]["accuracy"])
        for baseline in found["baselines"]["baselines"]
    ]
    rows += [
        (f"frozen biLM, {mix} mix", summary["test"]["accuracy"]["mean"])
        for mix, summary in found["classifier"]["summary"].items()
    ]
    for title, accuracy in rows:
        print(f"  {title:<50} {accuracy:6.1%}")
    print(f"  report: {directory / 'classifier' / 'report.md'}")


if __name__ == "__main__":
    run_command(main)
