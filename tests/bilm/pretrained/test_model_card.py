from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bilm.errors import ConfigError
from bilm.pretrained.card_details import CardDetails, Source, SourcePerplexity, read_card_details
from bilm.pretrained.model_card import NOT_STATED, Card, TrainingFacts
from tests.bilm.pretrained.test_model_directory import pretrained_of

FACTS = TrainingFacts(
    settings={"model": {}, "train": {"output_dir": "/secret/run", "seed": 7}, "deepspeed": {}},
    steps=1200,
    words=3_072_000,
    hours=1.25,
    hardware="some processor, 2 cores",
    versions={"bilm": "1.0", "torch": "2.13"},
    corpus="f" * 64,
    heldout=SourcePerplexity(
        name="held-out split",
        perplexity=80.04,
        forward=78.0,
        backward=82.1,
        unknown_share=0.031,
        predictions=4000,
    ),
)


def rows(text: str) -> dict[str, list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {line[0]: line[1:] for line in cells}


def test_a_card_without_details_states_what_the_model_tells() -> None:
    pretrained = pretrained_of()
    text = Card(pretrained, "tiny").text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "bilm"
    assert "license" not in front
    table = rows(text)
    count = sum(parameter.numel() for parameter in pretrained.model.parameters())
    assert table["parameters"] == [f"{count:,}"]
    assert table["softmax"] == ["82 words"]
    assert "moses" in table["tokenizer"][0]
    assert text.count(NOT_STATED) == 3
    assert 'from_pretrained("tiny")' in text


def test_a_card_contains_the_facts_of_the_run() -> None:
    text = Card(pretrained_of(), "tiny", training=FACTS).text()
    table = rows(text)
    assert table["steps"] == ["1,200"]
    assert table["hardware"] == ["some processor, 2 cores"]
    assert table["held-out split"] == ["80.0", "78.0", "82.1", "3.1%", "4,000"]
    assert "f" * 64 in text
    assert "/secret/run" not in text  # paths of the author's machine
    assert '"seed": 7' in text


def test_details_of_the_author_are_quoted_safely() -> None:
    details = CardDetails(
        name="news-de",
        language=("de", 'x"\ny: z'),
        license="cc-by-4.0",
        sources=(Source(name="a | b", license="CC0", attribution="line\nbreak", words=12),),
        limits=("It knows no slang.",),
    )
    text = Card(pretrained_of(), "tiny", details, FACTS).text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["language"] == ["de", 'x"\ny: z']
    assert front["license"] == "cc-by-4.0"
    assert "# news-de" in text
    assert "| a \\| b | 12 | CC0 | line break |  |" in text
    assert "- It knows no slang." in text


def test_rejects_invalid_details(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"licence": "MIT", "sources": [{"name": ""}]}))
    with pytest.raises(ConfigError) as error:
        read_card_details(path)
    assert "licence: is not a known key" in str(error.value)
    assert "license" in str(error.value)
    assert "sources[0].attribution: is missing" in str(error.value)
