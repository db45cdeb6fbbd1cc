"""The model card and the introduction of the reports of all tasks on whole texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from downstream.heads.saved_head import Description
from downstream.settings.sections import Settings
from downstream.tasks.splits import SPLITS
from downstream.texts.counts import counted
from downstream.training.experiment import Results

MIX_NOTE = "the share of each layer (token encoder first), and gamma."


@dataclass(frozen=True)
class CardParts:
    """The parts of a model card that depend on the target."""

    title: str
    outputs: str  # the paragraph about what is predicted
    test: str  # the scores of the test split
    predictor: str  # the class that reads the head
    limits: str


def introduction(results: Results[Any], settings: Settings, outputs: str) -> str:
    """Return the first paragraph of a report; `outputs` states what is predicted."""
    task = results.task
    splits = task.splits
    sizes = ", ".join(f"{len(splits[split]):,} {split}" for split in SPLITS)
    known = results.known_words
    vectors = f"; {known:.1%} of word types have a vector" if known else ""
    return (
        f"{outputs}; {sizes} texts. Head `{settings.head.kind}`, "
        f"{counted(settings.train.num_seeds, 'seed')} per mix{vectors}. {task.num_seen('test'):,} "
        "test texts and "
        f"{task.num_seen('validation'):,} validation texts also occur in the training split."
    )


def num_texts(results: Results[Any]) -> dict[str, Any]:
    """Return fields of results.json: the numbers of texts, and of those also in training."""
    task = results.task
    return {
        "texts": _sizes(results),
        "validation_texts_in_training": task.num_seen("validation"),
        "test_texts_in_training": task.num_seen("test"),
    }


def _sizes(results: Results[Any]) -> dict[str, int]:
    return {split: len(results.task.splits[split]) for split in SPLITS}


def head_card(results: Results[Any], settings: Settings, parts: CardParts) -> list[str]:
    """Return the paragraphs of the model card of the best head."""
    chosen, sizes = results.chosen(), _sizes(results)
    best, description = chosen.outcome, chosen.description
    assert isinstance(description, Description)
    vectors = (
        f" and word vectors of {description.vector_dim} dimensions" if description.vectors else ""
    )
    files = "the biLM and the word vectors" if description.vectors else "the biLM"
    noun = parts.title.split()[-1]
    if description.long_texts == "cut":
        long_texts = f"Texts are truncated to {description.max_words} words."
    else:
        long_texts = f"Texts of more than {description.max_words} words are read in windows."
    return [
        f"# Model card: {parts.title}",
        f"**Model.** A `{settings.head.kind}` head with {chosen.num_weights:,} weights on a "
        f"frozen biLM with {description.num_layers} layers of {description.dim} "
        f"dimensions{vectors}; the layers are mixed by `{best.mix}`.",
        parts.outputs,
        f"**Training data.** `{Path(settings.data.train).name}`: {sizes['train']:,} texts, and "
        f"{sizes['validation']:,} more for early stopping; seed {best.seed}.",
        f"**Test data.** `{Path(settings.data.test).name}`, {sizes['test']:,} texts: {parts.test}.",
        f"**Use.** `downstream.{parts.predictor}.from_pretrained(directory).predict(texts)`, or "
        f"`python -m downstream.predict`. The {noun} needs {files} that it was trained with. "
        "They are found by path and verified by digest; the digest of the biLM starts with "
        f"`{description.bilm.digest[:12]}`.",
        f"**Limits.** {parts.limits} {long_texts} Biases of the training texts are reproduced.",
    ]
