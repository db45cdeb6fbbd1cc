"""Precision, recall and F1 of word senses: of some answers, by part of speech, and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from downstream.texts.senses import SenseInstance


@dataclass(frozen=True)
class SenseScores:
    """The counts that precision, recall and F1 follow from."""

    num_instances: int
    num_answered: int
    num_correct: int

    @property
    def precision(self) -> float:
        """The share of correct answers among the answers."""
        return self.num_correct / self.num_answered if self.num_answered else 0.0

    @property
    def recall(self) -> float:
        """The share of correct answers among the instances."""
        return self.num_correct / self.num_instances if self.num_instances else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.num_answered + self.num_instances
        return 2 * self.num_correct / total if total else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {
            "instances": self.num_instances,
            "answered": self.num_answered,
            "correct": self.num_correct,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
        }


@dataclass(frozen=True)
class Answers:
    """The answers for some instances, by the name of the vectors; None without an answer.

    `backed_off` marks instances whose lemma is not in training, and `known` instances of which a
    correct sense is in training.
    """

    instances: Sequence[SenseInstance]
    keys: Mapping[str, Sequence[str | None]]
    backed_off: Sequence[bool]
    known: Sequence[bool]

    @classmethod
    def join(cls, parts: Sequence[Answers]) -> Answers:
        """Return the answers of several sets together."""
        return cls(
            [instance for part in parts for instance in part.instances],
            {name: [key for p in parts for key in p.keys[name]] for name in parts[0].keys},
            [flag for part in parts for flag in part.backed_off],
            [flag for part in parts for flag in part.known],
        )

    def of_pos(self, pos: str) -> Answers:
        """Return the answers for the instances of a part of speech."""
        places = [i for i, instance in enumerate(self.instances) if instance.lemma.pos == pos]
        return Answers(
            [self.instances[i] for i in places],
            {name: [keys[i] for i in places] for name, keys in self.keys.items()},
            [self.backed_off[i] for i in places],
            [self.known[i] for i in places],
        )

    def parts_of_speech(self) -> list[str]:
        """Return the parts of speech of the instances."""
        return sorted({instance.lemma.pos for instance in self.instances})

    def correct(self, name: str) -> list[bool]:
        """Return whether each answer is one of the senses of its instance."""
        return [
            key in instance.keys
            for key, instance in zip(self.keys[name], self.instances, strict=True)
        ]

    def scores(self) -> dict[str, SenseScores]:
        """Return the scores by the name of the vectors."""
        return {
            name: SenseScores(
                num_instances=len(self.instances),
                num_answered=sum(key is not None for key in keys),
                num_correct=sum(self.correct(name)),
            )
            for name, keys in self.keys.items()
        }

    def counts(self) -> dict[str, int]:
        """Return the numbers of instances, of those that backed off, and of those without answer.

        `sense_in_training` counts instances of which a correct sense is in training: the others
        cannot be answered correctly without a first sense.
        """
        answered = next(iter(self.keys.values()))
        return {
            "instances": len(self.instances),
            "lemma_in_training": self.backed_off.count(False),
            "sense_in_training": self.known.count(True),
            "first_sense": sum(
                off and key is not None for off, key in zip(self.backed_off, answered, strict=True)
            ),
            "without_answer": list(answered).count(None),
        }

    def only_correct(self) -> dict[str, dict[str, int]]:
        """Return, for each pair of vectors, how many answers only the first one has correct."""
        correct = {name: self.correct(name) for name in self.keys}
        return {
            first: {
                second: sum(a and not b for a, b in zip(mine, other, strict=True))
                for second, other in correct.items()
                if second != first
            }
            for first, mine in correct.items()
        }

    def summary(self) -> str:
        """Return the F1 of all vectors on one line."""
        return ", ".join(f"{name} {100 * s.f1:.2f} %" for name, s in self.scores().items())
