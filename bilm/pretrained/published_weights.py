"""Read and write the published `weights.hdf5` with its `options.json`, bit for bit.

`published_views` is the only table of names and layouts: each dataset is a view of a parameter in
the published layout, so reading copies into the view and writing copies out of it.

Files are not trusted: every name, shape and type is checked before data is read, and links,
external storage and filters that are not built in, which could reach other files or code, are
rejected.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
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
from bilm.model.config import ModelConfig
from bilm.model.language_model import BiLm, allocate, shape_only_model
from bilm.model.token_encoder import Highway, TokenEncoder
from bilm.pretrained.published_options import model_config_from_options, options_from_model_config

# h5py raises any of these for a damaged file.
_HDF5_ERRORS = (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError)

_MAX_COMPRESSION_RATIO = 1032  # the limit of deflate

_BUILT_IN_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


def published_views(model: BiLm) -> dict[str, Tensor]:
    """Return each dataset of the published format as a view of its parameter."""
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
    """Return the dataset name of a variable in the original's TensorFlow graph."""
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
        raise CheckpointError(f"the weight file {weights_hdf5} does not exist")
    open_regular(weights_hdf5, CheckpointError).close()  # HDF5 would block on a pipe
    if not h5py.is_hdf5(weights_hdf5):
        raise CheckpointError(
            f"{weights_hdf5} is not an HDF5 file; pass the weights of the model, or download them "
            "again"
        )
    with ExitStack() as stack:
        with _hdf5_errors(weights_hdf5):
            file = stack.enter_context(h5py.File(weights_hdf5, "r"))
            model = _model_of_shapes(config, vocabulary_size, "softmax" in file, options_json)
            datasets = _checked_datasets(model, file, weights_hdf5)
        model = _allocate(model, weights_hdf5)
        for name, view in published_views(model).items():
            with _hdf5_errors(weights_hdf5, f"the dataset {name!r} cannot be read: "):
                data = datasets[name][()]
            view.copy_(torch.from_numpy(data.astype(np.float32, copy=False)))
        return model


@contextmanager
def _hdf5_errors(path: Path, what: str = "") -> Iterator[None]:
    """Report the errors of h5py as a damaged file, and a lack of memory as such."""
    try:
        yield
    except MemoryError as e:
        raise _out_of_memory(path, str(e)) from None
    except _HDF5_ERRORS as e:
        raise CheckpointError(
            f"{path} is not an intact HDF5 file: {what}{e}; download or export it again"
        ) from None


def _allocate(model: BiLm, path: Path) -> BiLm:
    num_bytes = sum(view.nbytes for view in published_views(model).values())
    try:
        return allocate(model)
    except (MemoryError, RuntimeError):  # RuntimeError is what torch raises
        raise _out_of_memory(path, f"the weights need {num_bytes:,} bytes") from None


def _out_of_memory(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"there is not enough memory to read {path}{f': {reason}' if reason else ''}; free some "
        "memory, or use a smaller model"
    )


def _model_of_shapes(
    config: ModelConfig, vocabulary_size: int | None, has_softmax: bool, options_json: Path
) -> BiLm:
    """Return the model that the files describe; the published weights have no softmax."""
    if vocabulary_size is None and has_softmax:
        raise CheckpointError(
            f"the weights have a softmax, but {options_json} has no n_tokens_vocab; add it"
        )
    if vocabulary_size is None and config.characters is None:
        raise CheckpointError(
            f"{options_json} has neither char_cnn nor n_tokens_vocab; add the one that describes "
            "the input of the model"
        )
    is_needed = has_softmax or config.characters is None
    model = shape_only_model(config, vocabulary_size if is_needed else None)
    return model if has_softmax else model.without_softmax()


def save_published(model: BiLm, options_json: Path, weights_hdf5: Path) -> None:
    """Write a biLM as published files, with its softmax if it has one."""
    is_needed = model.softmax is not None or model.config.characters is None
    options = options_from_model_config(model.config, model.vocabulary_size if is_needed else None)
    with atomic_file(weights_hdf5) as temporary, h5py.File(temporary, "w") as file:
        for name, view in published_views(model).items():
            file.create_dataset(name, data=view.contiguous().cpu().numpy())
    write_text(options_json, json.dumps(options, indent=1) + "\n")


def _checked_datasets(model: BiLm, file: h5py.File, path: Path) -> dict[str, h5py.Dataset]:
    """Return the datasets of the model's weights, after checking all of their names and shapes."""
    views = published_views(model)
    datasets = _datasets(file, path, set(views))
    missing = sorted(set(views) - set(datasets))
    if missing:
        name = missing[0]
        raise CheckpointError(
            f"{path} lacks the dataset {name!r} {tuple(views[name].shape)}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + "; use the options.json that belongs to these weights"
        )
    for name, view in views.items():
        _check(datasets[name], name, tuple(view.shape), path)
    return datasets


def _datasets(group: h5py.Group, path: Path, expected: set[str]) -> dict[str, h5py.Dataset]:
    """Return all datasets below `group` by name; anything unexpected is rejected unopened."""
    datasets: dict[str, h5py.Dataset] = {}
    pending = [(group, "")]
    while pending:
        parent, prefix = pending.pop()
        for key in parent:
            name = prefix + key
            link = parent.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                kind = "an external" if isinstance(link, h5py.ExternalLink) else "a soft"
                raise CheckpointError(f"{path}: {name!r} is {kind} link; links are not followed")
            node_class = parent.get(key, getclass=True)
            if node_class is h5py.Dataset and name in expected:
                datasets[name] = parent[key]
            elif node_class is h5py.Group and any(
                other.startswith(f"{name}/") for other in expected
            ):
                pending.append((parent[key], f"{name}/"))
            else:
                raise CheckpointError(
                    f"{path} has {name!r}, which a model with these options does not have; use "
                    "the options.json that belongs to these weights"
                )
    return datasets


def _check(dataset: h5py.Dataset, name: str, shape: tuple[int, ...], path: Path) -> None:
    if dataset.shape != shape:
        raise CheckpointError(
            f"{path}: the dataset {name!r} has the shape {dataset.shape}; according to the "
            f"options it must be {shape}"
        )
    if dataset.dtype.kind != "f" or dataset.dtype.itemsize != 4:
        raise CheckpointError(
            f"{path}: the dataset {name!r} {shape} has the type {dataset.dtype}; it must be float32"
        )
    properties = dataset.id.get_create_plist()
    filters = {properties.get_filter(i)[0] for i in range(properties.get_nfilters())}
    if dataset.is_virtual or dataset.external or not filters <= _BUILT_IN_FILTERS:
        raise CheckpointError(
            f"{path}: the dataset {name!r} {shape} stores its data in another file or uses a "
            "filter that is not built in; neither is supported"
        )
    # A dataset that was created but never written can have any shape and takes no disk space.
    num_bytes, size = 4 * math.prod(shape), path.stat().st_size
    if num_bytes > size * (_MAX_COMPRESSION_RATIO if filters else 1):
        raise CheckpointError(
            f"{path}: the dataset {name!r} {shape} would have {num_bytes:,} bytes, which a file of "
            f"{size:,} bytes cannot contain"
        )
