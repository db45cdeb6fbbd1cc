"""The configuration: shipped files are valid, and errors name the key."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bilm.errors import ConfigError
from bilm.model.language_model import BiLm
from bilm.training.config import Config, load_config
from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"
NUM_MUTATIONS = 200
PUBLISHED_VOCABULARY = 793_471


def tree() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(BIG.read_text(encoding="utf-8"))
    return result


@pytest.mark.parametrize("name", ["big", "medium", "small", "demo"])
def test_accepts_shipped_configs(name: str) -> None:
    assert isinstance(load_config(ROOT / "configs" / f"{name}.json"), Config)


@pytest.mark.parametrize(
    ("name", "expected"), [("big", 93_600_848), ("medium", 28_027_728), ("small", 13_593_296)]
)
def test_published_parameter_counts(name: str, expected: int) -> None:
    config = load_config(ROOT / "configs" / f"{name}.json")
    with torch.device("meta"):
        model = BiLm(config.model, PUBLISHED_VOCABULARY)
    assert model.softmax is not None
    softmax = sum(p.numel() for p in model.softmax.parameters())
    assert sum(p.numel() for p in model.parameters()) - softmax == expected
    if name == "big":
        assert softmax == 407_050_623


def test_big_config_equals_published_training() -> None:
    config = load_config(BIG)
    assert config.train.optimizer.learning_rate == 0.2
    assert config.train.optimizer.initial_accumulator == 1.0
    assert config.train.max_gradient_norm == 10.0
    assert config.train.num_epochs == 10
    assert config.data.unroll_steps == 20
    assert config.deepspeed.train_batch_size == 3 * 128
    assert config.model.softmax.num_negatives == 8192
    assert not config.model.softmax.shared_negatives
    assert config.model.dropout == 0.1


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    else:
        yield path


def parent_of(node: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        node = node[key]
    return node


REQUIRED = [
    ("model",),
    ("data",),
    ("train",),
    ("deepspeed",),
    ("model", "characters"),
    ("model", "characters", "embedding_dim"),
    ("model", "characters", "filters"),
    ("model", "characters", "num_highway"),
    ("model", "lstm"),
    ("model", "lstm", "dim"),
    ("model", "lstm", "projection_dim"),
    ("model", "lstm", "num_layers"),
    ("data", "corpus"),
    ("train", "output_dir"),
    ("deepspeed", "train_batch_size"),
]


def mutated(seed: int) -> tuple[str, str]:
    """Return an invalid configuration as text, and the key that the message must name."""
    rng = random.Random(seed)
    config = tree()
    paths = list(leaves(config))
    path = rng.choice(paths)
    key, parent = path[-1], parent_of(config, path)
    kind = ["typo", "type", "range", "missing", "doubled", "nan", "comma"][seed % 7]
    if kind == "typo":
        at = rng.randrange(len(key))
        typo = key[:at] + rng.choice("xqzj") + key[at:]
        parent[typo] = parent.pop(key)
        return json.dumps(config), typo
    if kind == "type":
        value = parent[key]
        # null and numbers are valid in some places; these values are valid nowhere.
        parent[key] = {"odd": 1} if not isinstance(value, str) else rng.choice([7, [1], True])
        return json.dumps(config), key
    if kind == "range":
        ranged = [p for p in paths if type(parent_of(config, p)[p[-1]]) in (int, float)]
        path = rng.choice(ranged)
        parent_of(config, path)[path[-1]] = rng.choice([-1, -0.5, -(10**9)])
        return json.dumps(config), path[-1]
    if kind == "missing":
        path = rng.choice(REQUIRED)
        del parent_of(config, path)[path[-1]]
        return json.dumps(config), path[-1]
    text = json.dumps(config)
    value_text = f'"{key}": {json.dumps(parent[key])}'
    if kind == "doubled":
        return text.replace(value_text, f"{value_text}, {value_text}"), key
    if kind == "nan":
        number = rng.choice(["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
        return text.replace(value_text, f'"{key}": {number}', 1), key
    parent[key] = parent.pop(key)  # make it the last key of its object
    text = json.dumps(config)
    assert value_text + "}" in text
    return text.replace(value_text + "}", value_text + ",}"), key


@pytest.mark.parametrize("seed", range(NUM_MUTATIONS))
def test_rejects_mutated_configs(seed: int, tmp_path: Path) -> None:
    text, key = mutated(seed)
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert key in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_reports_all_errors_with_paths_and_suggestions(tmp_path: Path) -> None:
    config = tree()
    config["model"]["lstm"]["dimm"] = config["model"]["lstm"].pop("dim")
    config["model"]["dropout"] = 1.5
    config["train"]["unroll_steps"] = 20
    config["deepspeed"]["gradient_clipping"] = 1.0
    config["model"]["characters"]["filters"][2][1] = 0
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert "6 errors" in message
    assert "model.lstm.dim: is missing" in message
    assert "model.lstm.dimm: is not a known key; the closest key is 'dim'" in message
    assert "model.dropout: input should be less than 1, not 1.5" in message
    assert (
        "train.unroll_steps: is not a known key; the closest key is 'data.unroll_steps'" in message
    )
    assert "deepspeed.gradient_clipping" in message
    assert "train.max_gradient_norm" in message
    assert "model.characters.filters[2][1]" in message


def change(path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(tree())
    keys = path.split(".")
    parent_of(config, tuple(keys))[keys[-1]] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.lstm.projection_dim", 5000, "it must be below dim, which is 4096"),
        ("model.characters.filters", [[51, 4]], "a width of 51"),
        ("model.softmax.tied_to_input", True, "has no word embeddings"),
        ("deepspeed.zero_optimization.stage", 3, "sparse gradients"),
        ("deepspeed.gradient_accumulation_steps", 5, "must be a multiple of 5"),
        ("deepspeed.sparse_gradients", True, "by itself"),
        ("deepspeed.train_batch_sise", 1, "the closest key is 'train_batch_size'"),
    ],
)
def test_rejects_conflicting_fields(path: str, value: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(change(path, value)), encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "expected a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b" " * (2 << 20), "the limit is"),
        (b'{"model": 1, "data": 2, "train": null, "deepspeed": "x"}', "4 errors"),
    ],
)
def test_rejects_files_that_are_not_configs(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_rejects_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "nothing.json")
    with pytest.raises(ConfigError, match="directory"):
        load_config(tmp_path)


def test_applies_overrides() -> None:
    config = load_config(
        BIG,
        [
            "train.seed=7",
            "data.corpus=some/where",
            "model.lstm.cell_clip=null",
            "model.characters.filters=[[1, 8]]",
            "model.softmax.shared_negatives=true",
            "deepspeed.zero_optimization.overlap_comm=false",
        ],
    )
    assert config.train.seed == 7
    assert config.data.corpus == "some/where"
    assert config.model.lstm.cell_clip is None
    assert config.model.characters is not None
    assert config.model.characters.filters == ((1, 8),)
    assert config.model.softmax.shared_negatives
    assert config.model_dump()["deepspeed"]["zero_optimization"]["overlap_comm"] is False


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.seed", "section.key=value"),
        ("seed=1", "section.key=value"),
        ("train..seed=1", "section.key=value"),
        ("train.seed=NaN", "not a finite number"),
        ("train.seed.deeper=1", "not an object"),
        ("train.sede=1", "the closest key is 'seed'"),
        ("model.dropout=high", "model.dropout"),
    ],
)
def test_rejects_invalid_overrides(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(BIG, [override])


@pytest.mark.parametrize(
    "override",
    ["train.seed=" + "9" * 5000, "a." * 5000 + "b=1", "train.seed=\ud800", "model.lstm.dim=2e6"],
)
def test_rejects_extreme_overrides(override: str) -> None:
    with pytest.raises(ConfigError):
        load_config(BIG, [override])


@pytest.mark.parametrize(
    "override",
    [
        "model.lstm.num_layers=101",
        "model.lstm.dim=1048577",
        "model.characters.num_highway=101",
        "model.characters.max_characters=32768",
        "model.characters.filters=" + json.dumps([[1, 1]] * 101),
    ],
)
def test_rejects_sizes_that_would_exhaust_memory(override: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(override.partition("=")[0])):
        load_config(BIG, [override])
