"""A sandbox for hostile files: valid files to replace, and a directory that must not change.

The valid files (artifacts) are made once and copied for each case. `Sandbox.check` detects side
effects: a marker that a payload would create, a change outside, or the secret inside.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import save_file

from bilm.corpus.manifest import fingerprint_of
from bilm.corpus.reader import Corpus
from bilm.embedding.embedder import Embedder
from bilm.model.language_model import BiLm
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.published_weights import save_published
from bilm.text.tokenizers import SentencePieceTokenizer
from bilm.text.vocabulary import Vocabulary
from bilm.training.checkpoints import LSTM_STATE, OPTIMIZER, WEIGHTS, CheckpointStore
from bilm.training.config import Config
from bilm.training.run_directory import CONFIG_FILE
from downstream.features.store import open_stores
from downstream.heads.saved_head import Description, FileRecord, make_model, save_classifier
from downstream.settings.sections import HeadSettings, MixSettings
from tests.bilm.small_corpus import write_corpus
from tests.bilm.training.records import record_of
from tests.conftest import tiny_model_config

SECRET = "a-secret-that-appears-nowhere-6e1f"
SENTENCES = [["the", "cat", "sat"], ["a", "dog", "ran", "far"], ["the", "dog", "sat"]]
TEXTS = ("the cat sat", "a dog ran far", "the dog sat")


class Touch:
    """An object that creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self._marker}'",)


@dataclass(frozen=True)
class Sandbox:
    """The directories of a case: `inside` has the files of the user, `outside` everything else."""

    inside: Path
    outside: Path

    @property
    def marker(self) -> Path:
        """The file that a payload would create if it were executed."""
        return self.outside / "marker"

    @property
    def secret(self) -> Path:
        """A file that can be reached only by a link or by `../`."""
        return self.outside / "secret"

    def pickled(self) -> bytes:
        """Return a pickle that creates the marker."""
        return pickle.dumps(Touch(self.marker))

    def torch_saved(self) -> bytes:
        """Return the same object as a zip archive written by torch.save."""
        path = self.inside / "saved.pt"
        torch.save({"state": Touch(self.marker)}, path)
        data = path.read_bytes()
        path.unlink()
        return data

    def check(self) -> None:
        """Fail if there was a side effect."""
        assert not self.marker.exists(), "the payload was executed"
        names = sorted(path.name for path in self.outside.iterdir())
        assert names == ["secret"], names
        assert self.secret.read_text() == SECRET, "the file outside was changed"
        for path in self.inside.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20:
                assert SECRET.encode() not in path.read_bytes(), f"the secret is in {path}"


def make_sandbox(root: Path, artifacts: Path) -> Sandbox:
    """Return a new sandbox with a copy of every artifact."""
    shutil.copytree(artifacts, root / "inside", symlinks=True)
    (root / "outside").mkdir()
    (root / "outside" / "secret").write_text(SECRET)
    return Sandbox(root / "inside", root / "outside")


def make_artifacts(root: Path) -> None:
    """Write one file or directory of each format that the project reads."""
    torch.manual_seed(0)
    corpus = write_corpus(root / "corpus", {"train": SENTENCES, "heldout": SENTENCES[:1]})
    pieces = root / "pieces.model"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(s) for s in SENTENCES * 20]),
        model_prefix=str(root / "pieces"),
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (root / "pieces.vocab").unlink()
    vocabulary = Vocabulary(corpus.vocabulary.words)
    model = BiLm(tiny_model_config(), len(vocabulary)).eval()
    pretrained = PretrainedBiLm(model, vocabulary, SentencePieceTokenizer(pieces))
    pretrained.save_files(root / "model")
    (root / "published").mkdir()
    save_published(model, root / "published/options.json", root / "published/weights.hdf5")
    vocabulary.write(root / "published/vocab.txt")
    config = run_config(root / "corpus")
    (root / "config.json").write_text(json.dumps(config.model_dump(mode="json"), indent=1))
    _save_checkpoint(root / "run" / "checkpoints", config, corpus, model)
    embedder = Embedder(pretrained)
    open_stores(root / "store", "words", embedder, {"texts": TEXTS})
    _save_classifier(root / "classifier", root / "model", embedder)
    partial = root / "vectors.hdf5.partial"
    partial.mkdir()
    header = {"format": "bilm-embeddings", "version": 2, "run": {"model": "m"}, "replaces": False}
    (partial / "run.json").write_text(json.dumps(header))
    lines = torch.frombuffer(bytearray(b'[["a", "a"]]'), dtype=torch.uint8)
    part = {"shapes": torch.tensor([[2, 1, 3]]), "values": torch.zeros(6), "lines": lines}
    save_file(part, partial / "part-00000000.safetensors")


def run_config(corpus: Path) -> Config:
    """Return a small configuration of a run."""
    tree = {
        "model": tiny_model_config().model_dump(mode="json"),
        "data": {"corpus": str(corpus)},
        "train": {"output_dir": "run"},
        "deepspeed": {"train_batch_size": 2},
    }
    return Config.model_validate_json(json.dumps(tree))


def _save_checkpoint(directory: Path, config: Config, corpus: Corpus, model: BiLm) -> None:
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    CheckpointStore(directory).save(
        {WEIGHTS: weights, OPTIMIZER: {"a/sum": torch.ones(1)}, LSTM_STATE: {"x": torch.ones(1)}},
        record_of(1, corpus.fingerprint),
    )
    (directory.parent / CONFIG_FILE).write_text(config.model_dump_json(), encoding="utf-8")


def _save_classifier(directory: Path, model: Path, embedder: Embedder) -> None:
    description = Description(
        format="bilm-classifier",
        version=1,
        bilm=FileRecord(path=str(model), digest=model_digest(embedder.pretrained)),
        vectors=None,
        vector_dim=0,
        classes=("a", "b"),
        mix_kind="trainable",
        mix=MixSettings(),
        head=HeadSettings(),
        num_layers=embedder.num_layers,
        dim=embedder.dim,
        tokenized=True,
        max_words=400,
        seed=0,
    )
    directory.mkdir()
    save_classifier(description, make_model(description), directory)


def sign_corpus(directory: Path) -> None:
    """Correct the sizes and digests in corpus.json, as an attacker would."""
    path = directory / "corpus.json"
    tree = json.loads(path.read_text())
    entries = {**tree["files"]}
    entries |= {s["name"]: s for split in tree["splits"].values() for s in split["shards"]}
    for name, entry in entries.items():
        _sign(entry, directory / name)
    tree["fingerprint"] = fingerprint_of(tree)
    path.write_text(json.dumps(tree, separators=(",", ":")))


def sign_checkpoint(directory: Path) -> None:
    """Correct the sizes and digests in the manifest of a checkpoint."""
    path = directory / "manifest.json"
    tree = json.loads(path.read_text())
    for name, entry in tree["files"].items():
        _sign(entry, directory / name)
    path.write_text(json.dumps(tree, indent=1) + "\n")


def sign_store(directory: Path) -> None:
    """Correct the digests of stored representations."""
    path = directory / "store.json"
    tree = json.loads(path.read_text())
    for name in tree["files"]:
        if (directory / name).is_file():
            tree["files"][name] = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(tree))


def _sign(entry: dict[str, Any], path: Path) -> None:
    data = path.read_bytes() if path.is_file() else b""  # a pipe or a device has size 0
    entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
