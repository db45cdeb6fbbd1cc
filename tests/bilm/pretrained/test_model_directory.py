from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bilm.errors import BilmError, CheckpointError, ConfigError
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import MosesTokenizer
from bilm.text.vocabulary import Vocabulary
from tests.conftest import GOLDEN, tiny_model_config


def pretrained_of(**changes: Any) -> PretrainedBiLm:
    torch.manual_seed(0)
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    model = BiLm(tiny_model_config(**changes), len(vocabulary))
    return PretrainedBiLm(model, vocabulary, MosesTokenizer(lowercase=True))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"characters": None, "softmax": {"tied_to_input": True}},
        {"bidirectional": False},
        {"lstm": {"projection_dim": 12}},
    ],
)
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    pretrained = pretrained_of(**changes)
    pretrained.save_pretrained(tmp_path / "model")
    again = PretrainedBiLm.from_pretrained(tmp_path / "model")
    assert again.model.config == pretrained.model.config
    ours, theirs = dict(pretrained.model.named_parameters()), dict(again.model.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert again.vocabulary is not None
    assert pretrained.vocabulary is not None
    assert again.vocabulary.words == pretrained.vocabulary.words
    assert again.tokenizer is not None
    assert again.tokenizer.tokenize("It's HERE.") == ["it", "'s", "here", "."]


def test_converts_published_files_to_model_directory(tmp_path: Path) -> None:
    published = PretrainedBiLm.from_published(GOLDEN / "options.json", GOLDEN / "weights.hdf5")
    published.save_pretrained(tmp_path / "model")
    again = PretrainedBiLm.from_pretrained(tmp_path / "model")
    assert again.model.softmax is None
    assert again.vocabulary is None
    ours, theirs = published.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_files_are_reproducible(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pretrained_of().save_pretrained(tmp_path / name / "model")
    for file in (tmp_path / "a" / "model").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / "model" / file.name).read_bytes()
    assert sorted(p.name for p in (tmp_path / "a" / "model").iterdir()) == [
        "README.md",
        "checksums.json",
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]


def test_rejects_existing_directory_unless_overwrite(tmp_path: Path) -> None:
    pretrained_of().save_pretrained(tmp_path / "model")
    with pytest.raises(CheckpointError, match="already exists"):
        pretrained_of().save_pretrained(tmp_path / "model")
    pretrained_of(bidirectional=False).save_pretrained(tmp_path / "model", overwrite=True)
    assert not PretrainedBiLm.from_pretrained(tmp_path / "model").model.config.bidirectional
    assert [p.name for p in tmp_path.iterdir()] == ["model"]  # nothing temporary is left


def edit_json(key: str, value: Any) -> Callable[[Path], None]:
    def fault(directory: Path) -> None:
        tree = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        tree[key] = value
        (directory / "config.json").write_text(json.dumps(tree), encoding="utf-8")

    return fault


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def fault(directory: Path) -> None:
        tensors = load_file(directory / "model.safetensors")
        change(tensors)
        save_file(tensors, directory / "model.safetensors")

    return fault


def put(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_bytes(data)


def truncate(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


FAULTS: list[tuple[Callable[[Path], object], str]] = [
    (lambda d: (d / "config.json").unlink(), "No such file"),
    (lambda d: (d / "model.safetensors").unlink(), "weight file .* does not exist"),
    (truncate, "not an intact safetensors file"),
    (put("model.safetensors", b"\x80\x04\x95pickle"), "not an intact safetensors file"),
    (put("model.safetensors", b"\xff" * 7 + b"\x7f{"), "not an intact safetensors file"),
    (put("config.json", b"{}"), "model: is missing"),
    (edit_json("version", 2), "version"),
    (edit_json("format", "other"), "format"),
    (edit_json("extra", 1), "extra: is not a known key"),
    (edit_json("vocabulary_size", 83), r"\(82, 6\).*must be F32 or F16 \(83, 6\)|82 words"),
    (edit_json("vocabulary_size", 1 << 30), r"must be F32 or F16 \(1073741824"),
    (edit_json("vocabulary_size", 1 << 31), "vocabulary_size: "),
    (edit_json("vocabulary_size", None), "vocabulary_size is null"),
    (edit_json("tokenizer", {"name": "builtins.eval"}), "tokenizer.name: "),
    (edit_tensors(lambda t: t.pop("softmax.weight")), "lacks the weights softmax.weight"),
    (edit_tensors(lambda t: t.update(odd=torch.zeros(1))), "that the model does not have: odd"),
    (
        edit_tensors(lambda t: t.update({"softmax.bias": torch.zeros(82)})),
        r"softmax.bias' is F32 \(82,\); it must be F32 or F16 \(82, 1\)",
    ),
    (
        edit_tensors(lambda t: t.update({"softmax.bias": torch.zeros(82, 1).double()})),
        r"softmax.bias' is F64 \(82, 1\); it must be F32 or F16 \(82, 1\)",
    ),
    (put("vocab.txt", b"<S>\n</S>\n<UNK>\nthe\n"), "4 words"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_reports_each_fault(fault: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    pretrained_of().save_files(tmp_path / "model")  # without checksums, which would fail first
    fault(tmp_path / "model")
    with pytest.raises(BilmError, match=message):
        PretrainedBiLm.from_pretrained(tmp_path / "model")


def test_rejects_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        PretrainedBiLm.from_pretrained(tmp_path / "nothing")


def test_from_weights_rejects_other_shapes() -> None:
    expected = pretrained_of()
    config, words = expected.model.config, expected.vocabulary
    assert words is not None
    weights = {name: parameter.detach() for name, parameter in expected.model.named_parameters()}
    found = PretrainedBiLm.from_weights(config, weights, words, expected.tokenizer)
    assert found.vocabulary is words
    assert found.tokenizer is expected.tokenizer
    assert all(torch.equal(p, weights[name]) for name, p in found.model.named_parameters())
    weights["softmax.bias"] = torch.zeros(1)  # copy_ would broadcast it to all rows
    with pytest.raises(
        CheckpointError, match=r"here: 'softmax.bias' is \(1,\); it must be \(82, 1\)"
    ):
        PretrainedBiLm.from_weights(config, weights, words, None, "here")
    del weights["softmax.bias"]
    with pytest.raises(CheckpointError, match=r"here differ .* softmax\.bias"):
        PretrainedBiLm.from_weights(config, weights, words, None, "here")


def test_open_finds_the_model_of_each_kind_of_directory(tmp_path: Path) -> None:
    expected = pretrained_of()
    expected.save_pretrained(tmp_path / "model")
    expected.save_pretrained(tmp_path / "run" / "best")
    published = tmp_path / "published"
    expected.save_published(published / "options.json", published / "weights.hdf5")
    assert PretrainedBiLm.open(published).vocabulary is None
    assert expected.vocabulary is not None
    expected.vocabulary.write(published / "vocab.txt")
    for name in ("model", "run", "published"):
        found = PretrainedBiLm.open(str(tmp_path / name))
        assert found.vocabulary is not None
        assert found.vocabulary.words == expected.vocabulary.words
        assert (found.tokenizer is None) == (name == "published")
        weights = dict(found.model.named_parameters())
        assert all(torch.equal(p, weights[n]) for n, p in expected.model.named_parameters())


def test_open_rejects_other_directories(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is neither a run"):
        PretrainedBiLm.open(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ConfigError, match="has no best model yet"):
        PretrainedBiLm.open(tmp_path)
