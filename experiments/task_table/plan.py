"""The tasks of the table: their data, their heads, and the figures of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.adaptation import Domain

# How a head differs from its baseline. Everything else is the same.
VARIANTS = {
    "baseline": ("--mix", "none"),
    "input": ("--mix", "trainable", "--elmo-at", "input"),
    "output": ("--mix", "trainable", "--elmo-at", "output"),
    "both": ("--mix", "trainable", "--elmo-at", "both"),
}

# These are compared with all seeds and with shares of the data; the other places with one seed.
BASELINE, AT_INPUT = COMPARED = "baseline", "input"
AT_BOTH = "both"

# As at the input, but of a biLM whose training was continued on text of the task's domain.
ADAPTED = "adapted"

# The shares of the training data in the table of few labels, besides the whole. Heads with few
# labels take at least this many steps; otherwise, 1% of the labels would be a handful of steps.
SHARES = (0.01, 0.1)
MIN_STEPS = 500

TEXTS = "texts"


@dataclass(frozen=True)
class Paper:
    """The figures of the paper, of a larger biLM and the whole data sets, in percent."""

    data: str
    baseline: float
    elmo: float


@dataclass(frozen=True)
class TaskPlan:
    """How one task is measured."""

    name: str
    title: str
    score: str
    module: str
    files: tuple[str, str | None, str]  # train, validation, test
    flags: tuple[str, ...]
    seeds: int = 3
    paper: Paper | None = None
    domain: Domain | None = None  # of a second biLM

    def paths(self, data: Path, work: Path) -> list[Path | None]:
        """Return the files; those below `texts` are prepared in the working directory."""
        return [None if name is None else _place(name, data, work) for name in self.files]

    def test_path(self, data: Path, work: Path) -> Path:
        """Return the file of the test split."""
        return _place(self.files[-1], data, work)

    def command(self, data: Path, work: Path) -> list[str]:
        """Return the command without its variant and output."""
        command = ["python", "-m", self.module]
        splits = zip(("--train", "--validation", "--test"), self.paths(data, work), strict=True)
        for flag, path in splits:
            command += [] if path is None else [flag, str(path)]
        return [*command, *self.flags]


def _place(name: str, data: Path, work: Path) -> Path:
    return (work if name.startswith(TEXTS) else data) / name


def _files(directory: str, suffix: str) -> tuple[str, str, str]:
    train, validation, test = (f"tasks/{directory}/{s}{suffix}" for s in ("train", "dev", "test"))
    return train, validation, test


TASKS = (
    TaskPlan(
        "squad",
        "question answering, 8,000 questions of SQuADShifts",
        "F1",
        "downstream.span",
        _files("qa_squadshifts", ".jsonl.gz"),
        ("--train-questions", "8000"),
        paper=Paper("SQuAD", 81.1, 85.8),
    ),
    TaskPlan(
        "snli",
        "entailment, 20,000 pairs of SNLI",
        "accuracy",
        "downstream.pair",
        _files("nli_snli_20k", ".jsonl.gz"),
        (),
        paper=Paper("SNLI", 88.0, 88.7),
    ),
    TaskPlan(
        "srl",
        "semantic roles, EWT",
        "F1",
        "downstream.srl",
        _files("srl_ewt", ".jsonl.gz"),
        (
            "--characters",
            "--unknown-labels",
            "keep",
            "--no-crf",
            "--epochs",
            "5",
            "--dropout",
            "0.1",
        ),
        paper=Paper("OntoNotes", 81.4, 84.6),
    ),
    TaskPlan(
        "coref",
        "coreference, GUM",
        "mean F1",
        "downstream.coref",
        _files("coref_gum", ".jsonl.gz"),
        (),
        paper=Paper("OntoNotes", 67.2, 70.4),
    ),
    TaskPlan(
        "ner",
        "named entities, CoNLL-2003",
        "F1",
        "downstream.tag",
        _files("ner_conll2003", ".tsv.gz"),
        ("--characters", "--epochs", "15", "--dropout", "0.2", "--mix-dropout", "0.5"),
        seeds=5,
        paper=Paper("CoNLL-2003", 90.15, 92.22),
        domain=Domain("newswire", ("--lines", "documents"), max_steps=5000),
    ),
    TaskPlan(
        "sst5",
        "sentiment, SST-5",
        "accuracy",
        "downstream.classify",
        (f"{TEXTS}/sst5_train.csv", f"{TEXTS}/sst5_dev.csv", f"{TEXTS}/sst5_test.csv"),
        ("--tokenized", "--head", "bilstm", "--encoder-dim", "128"),
        seeds=5,
        paper=Paper("SST-5", 51.4, 54.7),
    ),
    TaskPlan(
        "chunk",
        "chunks, CoNLL-2000",
        "F1",
        "downstream.tag",
        ("tasks/chunk_conll2000/train.txt.gz", None, "tasks/chunk_conll2000/test.txt.gz"),
        ("--characters", "--epochs", "12", "--dropout", "0.1"),
    ),
)
