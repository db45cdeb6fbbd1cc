from __future__ import annotations

import collections
import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from data_tools.demo.demo_grammar import CONTRASTS, demo_grammar
from data_tools.demo.grammar import Grammar, Template
from data_tools.generate_demo import generate
from tests.data_tools.corpus_reading import digests, run


@pytest.mark.parametrize("max_words", [1, 2])
def test_closed_form_equals_brute_force(max_words: int) -> None:
    grammar = demo_grammar(max_words)
    surfaces: collections.Counter[tuple[str, ...]] = collections.Counter()
    entropy = expected_words = total = 0.0
    for sentence in grammar.enumerate():
        surfaces[sentence.words] += 1
        probability = math.exp(sentence.log_probability)
        total += probability
        entropy -= probability * sentence.log_probability
        expected_words += probability * len(sentence.words)
    assert total == pytest.approx(1, abs=1e-12)
    assert entropy == pytest.approx(grammar.entropy, rel=1e-12)
    assert expected_words == pytest.approx(grammar.expected_words, rel=1e-12)
    assert max(surfaces.values()) == 1
    assert grammar.find_ambiguity() is None


def test_demo_grammar_is_unambiguous() -> None:
    assert demo_grammar().find_ambiguity() is None


@pytest.mark.parametrize(
    ("templates", "shared"),
    [
        # Two topics have a sentence in common.
        (
            [
                Template("x", 0.5, ({"a": 1.0}, {"b": 0.5, "c": 0.5})),
                Template("y", 0.5, ({"a": 1.0}, {"c": 0.5, "d": 0.5})),
            ],
            ("a", "c"),
        ),
        # A word can fill either of two slots of a template.
        ([Template("x", 1.0, ({"": 0.5, "a": 0.5}, {"": 0.5, "a": 0.5}))], ("a",)),
        ([Template("x", 1.0, ({"": 0.5, "a": 0.5}, {"a": 0.5, "b": 0.5}))], None),
    ],
)
def test_finds_ambiguity(templates: list[Template], shared: tuple[str, ...] | None) -> None:
    grammar = Grammar(templates)
    assert grammar.find_ambiguity() == shared
    surfaces = collections.Counter(sentence.words for sentence in grammar.enumerate())
    assert (max(surfaces.values()) > 1) == (shared is not None)


def test_samples_have_the_stated_probability_and_topic() -> None:
    grammar = demo_grammar()
    for sentence in grammar.sample(300, np.random.default_rng(1)):
        [(topic, probability)] = grammar.derivations(sentence.words)
        assert topic == sentence.topic
        assert math.log(probability) == pytest.approx(sentence.log_probability, rel=1e-12)


def test_sample_mean_approaches_the_entropy() -> None:
    grammar = demo_grammar()
    surprises = [-s.log_probability for s in grammar.sample(20_000, np.random.default_rng(2))]
    error = abs(np.mean(surprises) - grammar.entropy)
    assert error < 4 * np.std(surprises) / math.sqrt(len(surprises))


def test_demo_has_the_intended_difficulty() -> None:
    grammar = demo_grammar()
    assert 8 < grammar.limit_perplexity < 20
    assert 300 < len(grammar.vocabulary) < 1000
    assert len(grammar.topics) == 4


def test_contrast_sentence_and_its_reverse_have_different_topics() -> None:
    grammar = demo_grammar()
    for (first, second), verbs in CONTRASTS.items():
        forward = ["the", "banks", verbs[0], "the", "bats"]
        backward = ["the", "bats", verbs[0], "the", "banks"]
        assert [topic for topic, _ in grammar.derivations(forward)] == [first]
        assert [topic for topic, _ in grammar.derivations(backward)] == [second]


def test_generate_depends_on_the_seed(tmp_path: Path) -> None:
    facts = generate(tmp_path / "a", 3, 500, overwrite=False)
    generate(tmp_path / "b", 3, 500, overwrite=False)
    generate(tmp_path / "c", 4, 500, overwrite=False)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert digests(tmp_path / "a")["train.txt"] != digests(tmp_path / "c")["train.txt"]
    assert json.loads((tmp_path / "a/grammar.json").read_text()) == facts
    grammar = demo_grammar()
    lines = (tmp_path / "a/heldout.txt").read_text().splitlines()
    probabilities = [grammar.derivations(line.split())[0][1] for line in lines]
    predictions = sum(len(line.split()) + 1 for line in lines)
    limit = math.exp(-sum(map(math.log, probabilities)) / predictions)
    assert facts["heldout_limit_perplexity"] == pytest.approx(limit, rel=1e-12)
    with open(tmp_path / "a/test.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["label"] for row in rows} == set(facts["topics"])
    assert all(grammar.derivations(r["text"].split())[0][0] == r["label"] for r in rows[:100])


def test_command_replaces_only_a_demo_text(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for flags in ([], ["--overwrite"]):
        result = run("generate_demo", "--output", tmp_path, "--sentences", 10, *flags)
        assert result.returncode == 2
        assert str(tmp_path) in result.stderr
        assert "Traceback" not in result.stderr
    assert (tmp_path / "thesis.txt").exists()
    assert run("generate_demo", "--output", tmp_path / "x", "--sentences", 0).returncode == 2
