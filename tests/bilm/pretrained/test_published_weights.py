"""Round trips of published weights are bit-identical, and each fault has its own error."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bilm.errors import CheckpointError
from bilm.model.language_model import BiLm
from bilm.pretrained import published_weights
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.published_weights import load_published, save_published
from tests.conftest import GOLDEN, tiny_model_config

OPTIONS, WEIGHTS = GOLDEN / "options.json", GOLDEN / "weights.hdf5"


def datasets(path: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update(
                {name: item[()]} if isinstance(item, h5py.Dataset) else {}
            )
        )
    return found


def assert_identical(first: Path, second: Path) -> None:
    ours, theirs = datasets(first), datasets(second)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype
        assert array.tobytes() == theirs[name].tobytes(), name


def test_round_trip_is_bit_identical(tmp_path: Path) -> None:
    pretrained = PretrainedBiLm.from_published(OPTIONS, WEIGHTS)
    pretrained.save_published(tmp_path / "options.json", tmp_path / "weights.hdf5")
    assert_identical(WEIGHTS, tmp_path / "weights.hdf5")
    written = json.loads((tmp_path / "options.json").read_text(encoding="utf-8"))
    original = json.loads(OPTIONS.read_text(encoding="utf-8"))
    for key in ("lstm", "char_cnn", "bidirectional", "dropout"):
        assert written[key] == original[key]
    assert written["char_cnn"]["n_characters"] == 262


@pytest.mark.parametrize(
    ("changes", "vocabulary_size"),
    [
        ({}, None),
        ({}, 30),
        ({"bidirectional": False, "lstm": {"num_layers": 1}}, 30),
        ({"characters": None}, 30),
        ({"characters": None, "softmax": {"tied_to_input": True}}, 30),
        ({"lstm": {"projection_dim": 12}}, 30),
        ({"characters": {"num_highway": 0, "activation": "tanh", "filters": [[2, 6]]}}, None),
        ({"lstm": {"cell_clip": None, "skip_connections": False}}, None),
    ],
)
def test_round_trip_of_each_kind_of_model(
    changes: dict[str, Any], vocabulary_size: int | None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(**changes), vocabulary_size)
    save_published(model, tmp_path / "o.json", tmp_path / "w.hdf5")
    again = load_published(tmp_path / "o.json", tmp_path / "w.hdf5")
    assert again.config.lstm == model.config.lstm
    assert again.config.characters == model.config.characters
    ours, theirs = dict(model.named_parameters()), dict(again.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    if model.config.softmax.tied_to_input:
        assert again.softmax is not None
        assert again.softmax.weight is again.encoder.weight


def edit(file: h5py.File, name: str, data: Any) -> None:
    del file[name]
    file[name] = data


def add_external_link(file: h5py.File) -> None:
    del file["char_embed"]
    file["char_embed"] = h5py.ExternalLink("/etc/passwd", "/char_embed")


def add_soft_link(file: h5py.File) -> None:
    file["copy"] = file["char_embed"][()]
    del file["char_embed"]
    file["char_embed"] = h5py.SoftLink("/copy")


def add_external_storage(file: h5py.File) -> None:
    del file["char_embed"]
    file.create_dataset(
        "char_embed", (261, 4), "f4", external=[("elsewhere.bin", 0, h5py.h5f.UNLIMITED)]
    )


def add_virtual_dataset(file: h5py.File) -> None:
    del file["char_embed"]
    layout = h5py.VirtualLayout((261, 4), "f4")
    layout[:] = h5py.VirtualSource("elsewhere.hdf5", "x", (261, 4))
    file.create_virtual_dataset("char_embed", layout)


def add_cycle(file: h5py.File) -> None:
    file["CNN/again"] = file["/"]


CELL = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"
FAULTS: list[tuple[Callable[[h5py.File], object], str]] = [
    (lambda f: edit(f, CELL, np.zeros((32, 255), "f4")), rf"{CELL}.*\(32, 255\).*\(32, 256\)"),
    (
        lambda f: edit(f, "char_embed", np.zeros((262, 4), "f4")),
        r"char_embed.*\(262, 4\).*\(261, 4\)",
    ),
    (lambda f: edit(f, "CNN_proj/b_proj", np.zeros(16, "f8")), "b_proj.*float64.*float32"),
    (
        lambda f: f.__delitem__("CNN_high_1"),
        "lacks the dataset 'CNN_high_1/W_carry' .124, 124.*3 more",
    ),
    (lambda f: f.__setitem__("CNN_high_2/W_carry", [1.0]), "has 'CNN_high_2'"),
    (lambda f: f.__setitem__("CNN/W_cnn_5", [1.0]), "has 'CNN/W_cnn_5'"),
    (lambda f: f.__setitem__("note", "hello"), "has 'note'"),
    (add_external_link, "'char_embed' is an external link"),
    (add_soft_link, "'char_embed' is a soft link"),
    (add_external_storage, "char_embed.*another file"),
    (add_virtual_dataset, "char_embed.*another file"),
    (add_cycle, "has 'CNN/again'"),
    (lambda f: (f.__delitem__("CNN"), f.__setitem__("CNN", np.dtype("f4"))), "has 'CNN'"),
    (lambda f: edit(f, "char_embed", h5py.Empty("f4")), "char_embed.*has the shape None"),
    (lambda f: f.__setitem__("softmax/b", np.zeros(9, "f4")), "'softmax/W'"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_reports_each_fault(
    fault: Callable[[h5py.File], object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "weights.hdf5"
    path.write_bytes(WEIGHTS.read_bytes())
    with h5py.File(path, "r+") as file:
        fault(file)
    with pytest.raises(CheckpointError, match=message):
        load_published(OPTIONS, path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_rejects_truncated_file(share: float, tmp_path: Path) -> None:
    path = tmp_path / "weights.hdf5"
    data = WEIGHTS.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    message = "not an intact HDF5 file" if share > 0.0 else "is not an HDF5 file"
    with pytest.raises(CheckpointError, match=message):
        load_published(OPTIONS, path)


def test_rejects_file_of_another_format(tmp_path: Path) -> None:
    path = tmp_path / "weights.hdf5"
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match=r"is not an HDF5 file; .* download them again"):
        load_published(OPTIONS, path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_rejects_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "weights.hdf5"
    path.write_bytes(WEIGHTS.read_bytes())
    path.chmod(0)
    with pytest.raises(CheckpointError, match=r"cannot read .*weights\.hdf5: Permission denied"):
        load_published(OPTIONS, path)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("allocate", MemoryError(), "the weights need 4[0-9]{2},[0-9]{3} bytes"),
        (
            "allocate",
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            "the weights need",
        ),
        ("_datasets", MemoryError("Unable to allocate 1 GiB"), "Unable to allocate 1 GiB"),
    ],
)
def test_reports_lack_of_memory(
    function: str, error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(published_weights, function, fail)
    with pytest.raises(CheckpointError, match=f"not enough memory to read .*: {message}") as caught:
        load_published(OPTIONS, WEIGHTS)
    assert "intact" not in str(caught.value)


def test_rejects_missing_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weight file .* does not exist"):
        load_published(OPTIONS, tmp_path / "weights.hdf5")


def test_rejects_vocabulary_of_another_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_published(BiLm(tiny_model_config(), 30), tmp_path / "o.json", tmp_path / "w.hdf5")
    with pytest.raises(CheckpointError, match=r"has 82 words; the model .* has 30"):
        PretrainedBiLm.from_published(
            tmp_path / "o.json", tmp_path / "w.hdf5", GOLDEN / "vocab.txt"
        )


def test_rejects_huge_dataset_without_data(tmp_path: Path) -> None:
    """Options and weights agree on a shape of terabytes, but the file has a few kilobytes."""
    save_published(BiLm(tiny_model_config(), 30), tmp_path / "o.json", tmp_path / "w.hdf5")
    options = json.loads((tmp_path / "o.json").read_text())
    options["n_tokens_vocab"] = 1 << 30
    (tmp_path / "o.json").write_text(json.dumps(options))
    for filters in ({}, {"compression": "gzip"}):
        with h5py.File(tmp_path / "w.hdf5", "r+") as file:
            for name, shape in (("softmax/W", (1 << 30, 6)), ("softmax/b", (1 << 30,))):
                del file[name]
                chunks = (1024, *shape[1:])
                file.create_dataset(name, shape, "f4", chunks=chunks, **filters)
        with pytest.raises(CheckpointError, match=r"'softmax/W'.*25,769,803,776 bytes, which a"):
            load_published(tmp_path / "o.json", tmp_path / "w.hdf5")


def test_rejects_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "weights.hdf5")
    with pytest.raises(CheckpointError, match="it is not a regular file"):
        load_published(OPTIONS, tmp_path / "weights.hdf5")
