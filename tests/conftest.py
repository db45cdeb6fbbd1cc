"""Small models and paths that several test files share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel; idle threads would spin

from bilm.model.config import ModelConfig

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
SHARED = ROOT.parent / "shared"

# Files that take half a minute or more, the longest first. They are started first, so that no
# process is left with a long file at the end while the others are idle.
SLOW_FILES = (
    "launch/test_pretrain.py",
    "launch/test_resume.py",
    "bilm/commands/test_gpu_check.py",
    "docs/test_code_blocks.py",
    "launch/test_demo.py",
    "launch/test_embed.py",
    "launch/test_embed_ranks.py",
    "chaos/test_kills.py",
    "downstream/explorer/test_page.py",
    "downstream/explorer/test_screens.py",
    "launch/test_plan.py",
    "bilm/model/test_own_processes.py",
    "launch/test_commands.py",
    "examples/test_examples.py",
    "bilm/embedding/test_elmo_module.py",
    "launch/test_elastic.py",
    "launch/test_numbers_of_ranks.py",
    "downstream/test_second_device.py",
    "launch/test_background_saves.py",
    "second_device/test_second_device.py",
    "benchmarks/test_serving.py",
    "downstream/explorer/test_server.py",
    "downstream/explorer/test_hostile.py",
    "downstream/explorer/test_fuzz.py",
    "chaos/test_hostile_files.py",
    "chaos/test_nan.py",
    "packaging/test_wheel.py",
    "cluster/test_cluster.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of slow files to the front."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def shared_file(*parts: str) -> Path:
    """Return the path of real data next to the checkout, or skip the test if it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"../shared/{'/'.join(parts)} is absent")
    return path


def tiny_model_config(**changes: Any) -> ModelConfig:
    """Return a model of a few thousand weights; changes of sections are merged into them."""
    tree: dict[str, Any] = {
        "characters": {"embedding_dim": 3, "filters": [[1, 4], [2, 5], [3, 6]], "num_highway": 2},
        "lstm": {"dim": 12, "projection_dim": 6, "num_layers": 2},
        "softmax": {"num_negatives": 20},
        "dropout": 0.0,
    }
    for key, value in changes.items():
        if isinstance(value, dict):
            tree[key] = {**tree[key], **value}
        else:
            tree[key] = value
    return ModelConfig.model_validate_json(json.dumps(tree))
