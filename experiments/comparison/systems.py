"""The systems of the comparison, and the commands that train them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "experiments.comparison"


@dataclass(frozen=True)
class System:
    """A row of the tables."""

    name: str
    title: str
    is_trained_here: bool


SYSTEMS = {
    system.name: system
    for system in (
        System("bilm", "biLM (bilm)", True),
        System("masked_lm", "masked LM (transformers, BERT-style)", True),
        System("char_lms", "character LMs, both directions (flair)", True),
        System("fasttext", "fastText skip-gram (gensim)", True),
        System("word2vec", "word2vec skip-gram (gensim)", True),
        System("glove", "GloVe 50d (trained on 6 billion words)", False),
        System("untrained", "untrained biLM", False),
        System("english_small", "english-small (biLM, trained longer)", False),
    )
}


@dataclass(frozen=True)
class Command:
    """A stage that trains a part of a system."""

    name: str
    words: list[str]


@dataclass(frozen=True)
class Texts:
    """The corpus, and the directory with the forms of its text that other systems read."""

    corpus: Path
    work: Path


def training_commands(
    system: str, texts: Texts, output: Path, minutes: float, flags: Sequence[str]
) -> list[Command]:
    """Return the commands that train a system into `output` within `minutes`."""
    time = ["--minutes", f"{minutes:g}"]
    work = texts.work
    if system == "bilm":
        words = [*_module("bilm_training"), "--corpus", str(texts.corpus)]
        return [Command("", [*words, "--output", str(output), *time, *flags])]
    if system == "masked_lm":
        words = [*_module("masked_training"), "--pieces", str(work / "pieces")]
        return [Command("", [*words, "--output", str(output), *time, *flags])]
    if system in ("word2vec", "fasttext"):
        words = [*_module("skipgram"), "--kind", system, "--text", str(work / "text")]
        return [Command("", [*words, "--output", str(output), *time, *flags])]
    flags = ["--text", str(work / "text"), "--minutes", f"{minutes / 2:g}", *flags]
    commands = []
    for direction in ("forward", "backward"):
        words = [*_module("char_lms"), "--direction", direction]
        words += ["--output", str(output / direction), *flags]
        commands.append(Command(f"_{direction}", words))
    return [*commands, Command("_joined", [*_module("joined_lms"), "--output", str(output)])]


def _module(name: str) -> list[str]:
    return ["python", "-m", f"{PACKAGE}.{name}"]
