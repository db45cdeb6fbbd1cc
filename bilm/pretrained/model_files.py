"""Read and write the files of a model directory: `config.json`, and the weights in safetensors.

Weights are stored as float32, or as float16 at about half the size, and are always read as float32.
With float16, the few weights of the encoder outside its highways stay in float32: rounding them
would change vectors more than rounding all others does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from bilm.errors import CheckpointError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from bilm.model.config import ModelConfig, VocabularySize
from bilm.model.language_model import BiLm, allocate
from bilm.pretrained.file_names import CONFIG_FILE, WeightType
from bilm.pretrained.tensors import TensorFile, save_tensors
from bilm.text.tokenizers import TokenizerSpec

_TYPES: dict[WeightType, torch.dtype] = {"float32": torch.float32, "float16": torch.float16}

_ENCODER, _HIGHWAYS = "encoder.", "encoder.highways."

_STORED_TYPES = ("F32", "F16")


class ModelDescription(Section):
    """The content of config.json."""

    format: Literal["bilm-model"]
    version: Literal[1]
    model: ModelConfig
    vocabulary_size: VocabularySize | None
    has_softmax: bool
    tokenizer: TokenizerSpec | None


def read_description(path: Path) -> ModelDescription:
    """Read config.json."""
    tree = read_json(path, CheckpointError)
    description = parse_section(ModelDescription, tree, str(path), CheckpointError)
    needs_vocabulary = description.has_softmax or description.model.characters is None
    if description.vocabulary_size is None and needs_vocabulary:
        raise CheckpointError(
            f"{path}: vocabulary_size is null; a model with a softmax or with word ids requires it"
        )
    return description


def write_description(model: BiLm, tokenizer: dict[str, Any] | None, path: Path) -> None:
    """Write config.json."""
    description = {
        "format": "bilm-model",
        "version": 1,
        "model": model.config.model_dump(mode="json"),
        "vocabulary_size": model.vocabulary_size,
        "has_softmax": model.softmax is not None,
        "tokenizer": tokenizer,
    }
    write_text(path, json.dumps(description, indent=2) + "\n")


def stored_weights(model: BiLm, dtype: WeightType) -> dict[str, Tensor]:
    """Return the weights as they are stored; values that float16 cannot represent are rejected."""
    stored = {}
    for name, parameter in model.named_parameters():
        is_kept = name.startswith(_ENCODER) and not name.startswith(_HIGHWAYS)
        own_type = torch.float32 if is_kept else _TYPES[dtype]
        tensor = parameter.detach().cpu().to(own_type).contiguous()
        if dtype != "float32" and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"the weight {name!r} has values that {dtype} cannot represent; store float32"
            )
        stored[name] = tensor
    return stored


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write the weights that `stored_weights` returned."""
    save_tensors(weights, path)


def read_weights(model: BiLm, path: Path) -> BiLm:
    """Fill `model` from `path`; memory is allocated only after all names and shapes are checked."""
    if not path.exists():
        raise CheckpointError(f"the weight file {path} does not exist")
    parameters = dict(model.named_parameters())
    with TensorFile(path) as file:
        missing, unexpected = parameters.keys() - file.names, file.names - parameters.keys()
        if missing:
            raise CheckpointError(f"{path} lacks the weights {', '.join(sorted(missing)[:5])}")
        if unexpected:
            raise CheckpointError(
                f"{path} has weights that the model does not have: "
                f"{', '.join(sorted(unexpected)[:5])}"
            )
        for name, parameter in parameters.items():
            dtype, shape = file.dtype_and_shape(name)
            if shape != tuple(parameter.shape) or dtype not in _STORED_TYPES:
                raise CheckpointError(
                    f"{path}: {name!r} is {dtype} {shape}; it must be F32 or F16 "
                    f"{tuple(parameter.shape)}"
                )
        model = allocate(model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(file.tensor(name))
    return model


def check_replaceable(directory: Path) -> None:
    """Reject a directory that is not a model, so that it is never replaced with a model."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    try:
        tree = read_json(directory / CONFIG_FILE, CheckpointError)
    except CheckpointError:
        tree = None
    if not isinstance(tree, dict) or tree.get("format") != "bilm-model":
        raise CheckpointError(
            f"{directory} exists and is not a model directory, so it is not replaced; choose "
            "another directory"
        )
