"""The published files: `options.json` and `weights.hdf5`, read and written bit for bit.

`published_views` is the one table of names and layouts: each dataset is a view of a parameter in
the published layout, so reading is a copy into it and writing a copy out of it.

A file is not trusted: every name, shape and type is checked before anything is read, and links,
external storage and foreign filters, which could reach other files or code, are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import torch
from torch import Tensor

from bilm.errors import CheckpointError
from bilm.files.reading import open_regular
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_file, write_text
from bilm.model.config import (
    ModelConfig,
)
from bilm.model.language_model import BiLm, allocate, shape_only_model
from bilm.model.token_encoder import Highway, TokenEncoder
from bilm.pretrained.published_options import model_config_from_options, options_from_model_config

# What h5py raises, in one place or another, for a damaged file.
_DAMAGE = (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError, MemoryError)

_MAX_DEFLATION = 1032  # what one byte of a compressed dataset can stand for at most

_BUILT_IN_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


def published_views(model: BiLm) -> dict[str, Tensor]:
    """Every dataset of the published format, as a view of the parameter that it holds."""
    views: dict[str, Tensor] = {}
    encoder = model.encoder
    if isinstance(encoder, TokenEncoder):
        views["char_embed"] = encoder.char_embedding
        for i, (weight, bias) in enumerate(
            zip(encoder.filter_weights, encoder.filter_biases, strict=True)
        ):
            # (count, char_dim, width) -> (1, width, char_dim, count)
            views[f"CNN/W_cnn_{i}"] = weight.permute(2, 1, 0).unsqueeze(0)
            views[f"CNN/b_cnn_{i}"] = bias
        for k, highway in enumerate(cast(Iterable[Highway], encoder.highways)):
            views[f"CNN_high_{k}/W_carry"] = highway.gate_weight
            views[f"CNN_high_{k}/b_carry"] = highway.gate_bias
            views[f"CNN_high_{k}/W_transform"] = highway.transform_weight
            views[f"CNN_high_{k}/b_transform"] = highway.transform_bias
        if encoder.projection_weight is not None and encoder.projection_bias is not None:
            views["CNN_proj/W_proj"] = encoder.projection_weight
            views["CNN_proj/b_proj"] = encoder.projection_bias
    else:
        views["embedding"] = encoder.weight
    lstms = product(range(model.config.num_directions), range(model.config.lstm.num_layers))
    for direction, layer in lstms:
        lstm = model.bilstm.lstm(direction, layer)
        prefix = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        views[f"{prefix}/W_0"] = lstm.weight
        views[f"{prefix}/B"] = lstm.bias
        if lstm.projection is not None:
            views[f"{prefix}/W_P_0"] = lstm.projection
    if model.softmax is not None:
        if not model.softmax.is_tied:
            views["softmax/W"] = model.softmax.weight
        views["softmax/b"] = model.softmax.bias.squeeze(1)
    return {name: view.detach() for name, view in views.items()}


def published_name(tensorflow_name: str) -> str:
    """The name in the files for a variable of the original's graph."""
    name = tensorflow_name.removeprefix("lm/")
    cell = re.fullmatch(r"(?:RNN_(\d+)/)?rnn/(?:multi_rnn_cell/cell_(\d+)/)?lstm_cell/(.+)", name)
    if cell is None:
        return name
    inner = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}.get(cell[3], cell[3])
    return f"RNN_{cell[1] or 0}/RNN/MultiRNNCell/Cell{cell[2] or 0}/LSTMCell/{inner}"


def load_published(options_json: Path, weights_hdf5: Path) -> BiLm:
    """Read a biLM from its published files."""
    tree = read_json(options_json, CheckpointError)
    config, vocabulary_size = model_config_from_options(tree, str(options_json))
    if not weights_hdf5.exists():
        raise CheckpointError(f"there is no weight file {weights_hdf5}")
    open_regular(weights_hdf5, CheckpointError).close()  # HDF5 would wait for a pipe
    try:
        with h5py.File(weights_hdf5, "r") as file:
            return _load(config, vocabulary_size, file, options_json, weights_hdf5)
    except _DAMAGE as e:
        raise CheckpointError(
            f"{weights_hdf5} is not a whole HDF5 file: {e}; fetch or export it again"
        ) from None


def _load(
    config: ModelConfig,
    vocabulary_size: int | None,
    file: h5py.File,
    options_json: Path,
    weights_hdf5: Path,
) -> BiLm:
    has_softmax = "softmax" in file  # the published weights come without it
    if not has_softmax:
        vocabulary_size = vocabulary_size if config.characters is None else None
    elif vocabulary_size is None:
        raise CheckpointError(
            f"{weights_hdf5} has a softmax, but {options_json} does not say n_tokens_vocab"
        )
    if config.characters is None and vocabulary_size is None:
        raise CheckpointError(
            f"{options_json} has neither char_cnn nor n_tokens_vocab: the input is unknown"
        )
    model = shape_only_model(config, vocabulary_size)
    if not has_softmax:
        model = model.without_softmax()
    return _fill(model, file, weights_hdf5)


def save_published(model: BiLm, options_json: Path, weights_hdf5: Path) -> None:
    """Write a biLM as published files, its softmax included if it has one."""
    vocabulary_size = model.vocabulary_size if model.softmax is not None else None
    if model.config.characters is None:
        vocabulary_size = model.vocabulary_size
    options = options_from_model_config(model.config, vocabulary_size)
    with atomic_file(weights_hdf5) as temporary, h5py.File(temporary, "w") as file:
        for name, view in published_views(model).items():
            file.create_dataset(name, data=view.contiguous().cpu().numpy())
    write_text(options_json, json.dumps(options, indent=1) + "\n")


def _fill(model: BiLm, file: h5py.File, path: Path) -> BiLm:
    """Give `model` its memory and weights, once everything that it needs is seen to be there."""
    views = published_views(model)
    found = _datasets(file, path, set(views))
    missing = sorted(set(views) - set(found))
    if missing:
        name = missing[0]
        raise CheckpointError(
            f"{path} lacks the dataset {name!r} {tuple(views[name].shape)}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + "; do the options belong to these weights?"
        )
    for name, view in views.items():
        _check(found[name], name, tuple(view.shape), path)
    model = allocate(model)
    for name, view in published_views(model).items():
        try:
            data = found[name][()]
        except _DAMAGE as e:
            raise CheckpointError(f"{path}: the dataset {name!r} cannot be read: {e}") from None
        view.copy_(torch.from_numpy(data.astype(np.float32, copy=False)))
    return model


def _datasets(group: h5py.Group, path: Path, expected: set[str]) -> dict[str, h5py.Dataset]:
    """All datasets below `group` by name; anything that is not expected is refused unopened."""
    found: dict[str, h5py.Dataset] = {}
    pending = [(group, "")]
    while pending:
        parent, prefix = pending.pop()
        for key in parent:
            name = prefix + key
            link = parent.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                kind = "an external" if isinstance(link, h5py.ExternalLink) else "a soft"
                raise CheckpointError(f"{path}: {name!r} is {kind} link; links are not followed")
            kind_of = parent.get(key, getclass=True)
            if kind_of is h5py.Dataset and name in expected:
                found[name] = parent[key]
            elif kind_of is h5py.Group and any(other.startswith(f"{name}/") for other in expected):
                pending.append((parent[key], f"{name}/"))
            else:
                raise CheckpointError(
                    f"{path} has {name!r}, which a model of these options does not have; "
                    "do the options belong to these weights?"
                )
    return found


def _check(dataset: h5py.Dataset, name: str, shape: tuple[int, ...], path: Path) -> None:
    if dataset.shape != shape:
        raise CheckpointError(
            f"{path}: the dataset {name!r} has the shape {dataset.shape}; "
            f"by the options it must be {shape}"
        )
    if dataset.dtype.kind != "f" or dataset.dtype.itemsize != 4:
        raise CheckpointError(
            f"{path}: the dataset {name!r} {shape} is of type {dataset.dtype}; it must be float32"
        )
    properties = dataset.id.get_create_plist()
    filters = {properties.get_filter(i)[0] for i in range(properties.get_nfilters())}
    if dataset.is_virtual or dataset.external or not filters <= _BUILT_IN_FILTERS:
        raise CheckpointError(
            f"{path}: the dataset {name!r} {shape} keeps its data in another file or behind a "
            "filter that is not built in; neither is read"
        )
    # A dataset of which nothing was ever written has any shape and takes no room.
    num_bytes, size = 4 * math.prod(shape), path.stat().st_size
    if num_bytes > size * (_MAX_DEFLATION if filters else 1):
        raise CheckpointError(
            f"{path}: the dataset {name!r} {shape} would be {num_bytes:,} bytes, which a file of "
            f"{size:,} bytes cannot hold"
        )
