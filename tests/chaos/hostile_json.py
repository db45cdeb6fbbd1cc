"""Hostile JSON, decompression bombs, locks and links."""

from __future__ import annotations

import bz2
import functools
import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import TokenizerSpec, load_tokenizer
from bilm.training.config import load_config
from tests.chaos.hostile_files import Attack, Case, written
from tests.chaos.hostile_formats import HUGE
from tests.chaos.readable_files import READABLE_FILES, checkpoint_directory, store_directory
from tests.chaos.sandbox import Sandbox, sign_corpus, sign_store

# -- JSON ------------------------------------------------------------------------------------------


def _edited(path: Path, change: Callable[[Any], object]) -> None:
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))


def _text_in(where: str, text: str, sandbox: Sandbox) -> Attack:
    return written(where, text.replace("MARKER", str(sandbox.marker)).encode(), sandbox)


OBJECTS = {
    "a YAML object": "!!python/object/apply:os.system ['touch MARKER']",
    "a jsonpickle object": '{"py/object": "posix.system", "py/reduce": ["touch MARKER"]}',
    "a class path": '{"model": {"_target_": "os.system", "command": "touch MARKER"}}',
    "a string for a section": "{\"model\": \"__import__('os').system('touch MARKER')\"}",
    "deep arrays": "[" * 400_000,
    "deep objects": '{"a":' * 200_000 + "1" + "}" * 200_000,
    "objects at the maximum depth": '{"a":' * 900 + "1" + "}" * 900,
    "a number with many digits": '{"model": ' + "9" * 10_000 + "}",
    "an unpaired surrogate": '{"model": "\\ud800"}',
}
JSON_FILES = (
    "config",
    "model/config.json",
    "published/options.json",
    "corpus/corpus.json",
    "checkpoint/run.json",
    "checkpoint/manifest.json",
    "store/store.json",
    "store/types.json",
    "classifier/classifier.json",
    "dump/run.json",
)
CHANGES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "a billion layers": (
        "model/config.json",
        lambda t: t["model"]["lstm"].update(num_layers=10**9),
    ),
    "a width that overflows": (
        "model/config.json",
        lambda t: t["model"]["lstm"].update(dim=10**18),
    ),
    "terabytes of weights": ("model/config.json", lambda t: t["model"]["lstm"].update(dim=HUGE)),
    "a huge vocabulary": ("model/config.json", lambda t: t.update(vocabulary_size=10**17)),
    "a tokenizer that is a program": (
        "model/config.json",
        lambda t: t.update(tokenizer={"name": "os.system", "lowercase": False}),
    ),
    "a tokenizer outside the directory": (
        "model/config.json",
        lambda t: t.update(tokenizer={"name": "sentencepiece", "model": "../../outside/secret"}),
    ),
    "a billion highway layers": (
        "published/options.json",
        lambda t: t["char_cnn"].update(n_highway=10**9),
    ),
    "a hundred thousand filters": (
        "published/options.json",
        lambda t: t["char_cnn"].update(filters=[[1, 1]] * 100_000),
    ),
    "a negative vocabulary size": ("published/options.json", lambda t: t.update(n_tokens_vocab=-5)),
    "a mix that is a program": (
        "classifier/classifier.json",
        lambda t: t.update(mix_kind="__import__('os').system('true')"),
    ),
    "a huge head": (
        "classifier/classifier.json",
        lambda t: t["head"].update(hidden_dim=10**15),
    ),
    "layers that the biLM does not have": (
        "classifier/classifier.json",
        lambda t: t.update(num_layers=10**9),
    ),
    "word vectors from a device": (
        "classifier/classifier.json",
        lambda t: t.update(vectors={"path": "/dev/zero", "digest": "0"}),
    ),
}


def _changed(where: str, change: Callable[[Any], object], sandbox: Sandbox) -> Attack:
    path = READABLE_FILES[where].path(sandbox)
    _edited(path, change)
    name = "/dev/zero" if "/dev/zero" in path.read_text() else path.name
    name = "model.safetensors" if str(HUGE) in path.read_text() else name
    name = "tokenizer" if "os.system" in path.read_text() or "outside" in path.read_text() else name
    return Attack(functools.partial(READABLE_FILES[where].action, sandbox), name)


def _escaping_store(sandbox: Sandbox) -> Attack:
    path = store_directory(sandbox) / "store.json"
    _edited(path, lambda t: t["files"].update({"../../../outside/secret": "0" * 64}))
    return Attack(functools.partial(READABLE_FILES["store/store.json"].action, sandbox), path.name)


def _store_words_of(numbers: list[int], name: str, dtype: str, sandbox: Sandbox) -> Attack:
    directory = store_directory(sandbox)
    count = len(np.fromfile(directory / name, dtype))
    data = np.resize(np.array(numbers, dtype), count)
    (directory / name).write_bytes(data.tobytes())
    sign_store(directory)
    return Attack(
        functools.partial(READABLE_FILES["store/store.json"].action, sandbox), directory.name
    )


def _escaping_shard(sandbox: Sandbox) -> Attack:
    path = sandbox.inside / "corpus/corpus.json"
    _edited(path, lambda t: t["splits"]["train"]["shards"][0].update(name="../../outside/secret"))
    sign_corpus(path.parent)
    return Attack(
        functools.partial(READABLE_FILES["corpus/corpus.json"].action, sandbox), path.name
    )


def _overridden(value: str, sandbox: Sandbox) -> Attack:
    path = sandbox.inside / "config.json"
    return Attack(lambda: load_config(path, [value]), "")


def json_cases() -> Iterator[Case]:
    """Yield Python objects, deep nesting, and values that would need terabytes."""
    for what, text in OBJECTS.items():
        for where in JSON_FILES:
            yield Case(f"{what} in {where}", functools.partial(_text_in, where, text))
    for what, (where, change) in CHANGES.items():
        yield Case(f"{what} in {where}", functools.partial(_changed, where, change))
    yield Case("a store that lists ../", _escaping_store)
    yield Case("a corpus that lists ../", _escaping_shard)
    for numbers, name, dtype in (
        ([0, 1 << 40], "offsets.bin", "<i8"),
        ([-1], "offsets.bin", "<i8"),
        ([1 << 30], "words.bin", "<i4"),
        ([-7], "words.bin", "<i4"),
    ):
        yield Case(
            f"{numbers} in a store's {name}",
            functools.partial(_store_words_of, numbers, name, dtype),
        )
    for value in ("train.seed=" + "9" * 5000, "a." * 5000 + "b=1", "model.lstm.dim=1e400"):
        yield Case(f"the override {value[:20]}", functools.partial(_overridden, value))


# -- compression and locks -------------------------------------------------------------------------

BOMB_BYTES = 1 << 28
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress
}  # fmt: skip


def _bomb(where: str, sandbox: Sandbox) -> Attack:
    """Write a line of 256 MiB in a file of a few kilobytes."""
    path = READABLE_FILES[where].path(sandbox)
    compress = _COMPRESS.get(path.suffix)
    if compress is None:
        with open(path, "wb") as file:
            file.truncate(BOMB_BYTES)  # a sparse file of NULs
    else:
        path.write_bytes(compress(b"x" * (1 << 20)) * (BOMB_BYTES >> 20))
    return Attack(functools.partial(READABLE_FILES[where].action, sandbox), path.name)


def _linked_lock(sandbox: Sandbox) -> Attack:
    partial = sandbox.inside / "vectors.hdf5.partial"
    (partial / "lock").symlink_to(sandbox.marker)
    return Attack(
        functools.partial(READABLE_FILES["dump/run.json"].action, sandbox), "vectors.hdf5"
    )


def _linked_partial(sandbox: Sandbox) -> Attack:
    partial = sandbox.inside / "vectors.hdf5.partial"
    partial.rename(sandbox.inside / "moved")
    partial.symlink_to(sandbox.outside)
    return Attack(functools.partial(READABLE_FILES["dump/run.json"].action, sandbox), partial.name)


def _header_without_key(sandbox: Sandbox) -> Attack:
    (sandbox.inside / "vectors.hdf5").write_bytes(b"other")
    _edited(sandbox.inside / "vectors.hdf5.partial/run.json", lambda t: t.pop("replaces"))
    return Attack(
        functools.partial(READABLE_FILES["dump/run.json"].action, sandbox), "vectors.hdf5"
    )


def _linked_checkpoint(sandbox: Sandbox) -> Attack:
    directory = checkpoint_directory(sandbox)
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    directory.symlink_to(sandbox.outside)
    return Attack(
        functools.partial(READABLE_FILES["checkpoint/run.json"].action, sandbox), "checkpoints"
    )


def _invalid_pieces(sandbox: Sandbox) -> Attack:
    path = sandbox.inside / "model/tokenizer.model"
    path.write_bytes(b"\x0a\x0f\x0a\x05<unk>" + bytes(range(256)))
    return Attack(
        lambda: load_tokenizer(TokenizerSpec(name="sentencepiece"), path.parent), path.name
    )


def _other_weights(sandbox: Sandbox) -> Attack:
    """Replace the weights of a model directory with weights in the published format."""
    path = sandbox.inside / "model/model.safetensors"
    path.write_bytes((sandbox.inside / "published/weights.hdf5").read_bytes())
    return Attack(lambda: PretrainedBiLm.from_pretrained(path.parent), path.name)


def other_cases(bombs: bool) -> Iterator[Case]:
    """Yield decompression bombs, locks, linked directories, and an invalid sentencepiece model."""
    yield Case("a lock that is a link outside", _linked_lock)
    yield Case("an unfinished dump that is a link outside", _linked_partial)
    yield Case("an unfinished dump without a key", _header_without_key)
    yield Case("a checkpoint that is a link outside", _linked_checkpoint)
    yield Case("an invalid sentencepiece model", _invalid_pieces)
    yield Case("HDF5 for safetensors", _other_weights)
    if bombs:
        for where in ("texts.csv.gz", "texts.jsonl", "vectors", "input.txt", "input.jsonl"):
            yield Case(f"one endless line for {where}", functools.partial(_bomb, where))
        for where in ("input.txt.gz", "input.txt.bz2", "input.txt.xz", "vocabulary"):
            yield Case(f"one endless line for {where}", functools.partial(_bomb, where))
