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
