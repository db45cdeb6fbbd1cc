"""Hostile JSON, bombs, locks and links: what the other modules of hostile files leave out."""

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
from tests.chaos.hostile_files import (
    SPOTS,
    Attack,
    Case,
    checkpoint_directory,
    store_directory,
    written,
)
from tests.chaos.hostile_formats import HUGE
from tests.chaos.hostile_place import Place, sign_corpus, sign_store

# -- JSON ------------------------------------------------------------------------------------------


def _edited(path: Path, change: Callable[[Any], object]) -> None:
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))


def _text_in(where: str, text: str, place: Place) -> Attack:
    return written(where, text.replace("MARKER", str(place.marker)).encode(), place)


OBJECTS = {
    "a YAML object": "!!python/object/apply:os.system ['touch MARKER']",
    "a jsonpickle object": '{"py/object": "posix.system", "py/reduce": ["touch MARKER"]}',
    "a class path": '{"model": {"_target_": "os.system", "command": "touch MARKER"}}',
    "a string for a section": "{\"model\": \"__import__('os').system('touch MARKER')\"}",
    "deep arrays": "[" * 400_000,
    "deep objects": '{"a":' * 200_000 + "1" + "}" * 200_000,
    "objects as deep as can be": '{"a":' * 900 + "1" + "}" * 900,
    "a number of many digits": '{"model": ' + "9" * 10_000 + "}",
    "half a surrogate pair": '{"model": "\\ud800"}',
}
JSON_SPOTS = (
    *("config", "model/config.json", "published/options.json", "corpus/corpus.json"),
    *("checkpoint/run.json", "checkpoint/manifest.json", "store/store.json", "store/types.json"),
    *("classifier/classifier.json", "dump/run.json"),
)
PLANTS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "layers without end": (
        "model/config.json",
        lambda t: t["model"]["lstm"].update(num_layers=10**9),
    ),
    "a width that overflows": (
        "model/config.json",
        lambda t: t["model"]["lstm"].update(dim=10**18),
    ),
    "terabytes of weights": ("model/config.json", lambda t: t["model"]["lstm"].update(dim=HUGE)),
    "a vocabulary without end": ("model/config.json", lambda t: t.update(vocabulary_size=10**17)),
    "a tokenizer that is a program": (
        "model/config.json",
        lambda t: t.update(tokenizer={"name": "os.system", "lowercase": False}),
    ),
    "a tokenizer elsewhere": (
        "model/config.json",
        lambda t: t.update(tokenizer={"name": "sentencepiece", "model": "../../outside/secret"}),
    ),
    "highways without end": (
        "published/options.json",
        lambda t: t["char_cnn"].update(n_highway=10**9),
    ),
    "filters without end": (
        "published/options.json",
        lambda t: t["char_cnn"].update(filters=[[1, 1]] * 100_000),
    ),
    "a vocabulary below zero": ("published/options.json", lambda t: t.update(n_tokens_vocab=-5)),
    "a mix that is a program": (
        "classifier/classifier.json",
        lambda t: t.update(mix_kind="__import__('os').system('true')"),
    ),
    "a head without end": (
        "classifier/classifier.json",
        lambda t: t["head"].update(hidden_dim=10**15),
    ),
    "layers that the biLM lacks": (
        "classifier/classifier.json",
        lambda t: t.update(num_layers=10**9),
    ),
    "word vectors of a device": (
        "classifier/classifier.json",
        lambda t: t.update(vectors={"path": "/dev/zero", "digest": "0"}),
    ),
}


def _planted(where: str, change: Callable[[Any], object], place: Place) -> Attack:
    path = SPOTS[where].file(place)
    _edited(path, change)
    name = "/dev/zero" if "/dev/zero" in path.read_text() else path.name
    name = "model.safetensors" if str(HUGE) in path.read_text() else name
    name = "tokenizer" if "os.system" in path.read_text() or "outside" in path.read_text() else name
    return Attack(functools.partial(SPOTS[where].act, place), name)


def _escaping_store(place: Place) -> Attack:
    path = store_directory(place) / "store.json"
    _edited(path, lambda t: t["files"].update({"../../../outside/secret": "0" * 64}))
    return Attack(functools.partial(SPOTS["store/store.json"].act, place), path.name)


def _store_words_of(numbers: list[int], name: str, dtype: str, place: Place) -> Attack:
    directory = store_directory(place)
    count = len(np.fromfile(directory / name, dtype))
    data = np.resize(np.array(numbers, dtype), count)
    (directory / name).write_bytes(data.tobytes())
    sign_store(directory)
    return Attack(functools.partial(SPOTS["store/store.json"].act, place), directory.name)


def _escaping_shard(place: Place) -> Attack:
    path = place.inside / "corpus/corpus.json"
    _edited(path, lambda t: t["splits"]["train"]["shards"][0].update(name="../../outside/secret"))
    sign_corpus(path.parent)
    return Attack(functools.partial(SPOTS["corpus/corpus.json"].act, place), path.name)


def _overridden(value: str, place: Place) -> Attack:
    path = place.inside / "config.json"
    return Attack(lambda: load_config(path, [value]), "")


def json_cases() -> Iterator[Case]:
    """Python objects, depth, and values that would cost terabytes."""
    for what, text in OBJECTS.items():
        for where in JSON_SPOTS:
            yield Case(f"{what} in {where}", functools.partial(_text_in, where, text))
    for what, (where, change) in PLANTS.items():
        yield Case(f"{what} in {where}", functools.partial(_planted, where, change))
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
_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress
}  # fmt: skip


def _bomb(where: str, place: Place) -> Attack:
    """A line of a quarter of a gigabyte in some kilobytes."""
    path = SPOTS[where].file(place)
    packed = _PACK.get(path.suffix)
    if packed is None:
        with open(path, "wb") as file:
            file.truncate(BOMB_BYTES)  # NULs, none of them on the disk
    else:
        path.write_bytes(packed(b"x" * (1 << 20)) * (BOMB_BYTES >> 20))
    return Attack(functools.partial(SPOTS[where].act, place), path.name)


def _lock_elsewhere(place: Place) -> Attack:
    partial = place.inside / "vectors.hdf5.partial"
    (partial / "lock").symlink_to(place.marker)
    return Attack(functools.partial(SPOTS["dump/run.json"].act, place), "vectors.hdf5")


def _partial_elsewhere(place: Place) -> Attack:
    partial = place.inside / "vectors.hdf5.partial"
    partial.rename(place.inside / "moved")
    partial.symlink_to(place.outside)
    return Attack(functools.partial(SPOTS["dump/run.json"].act, place), partial.name)


def _header_without_a_word(place: Place) -> Attack:
    (place.inside / "vectors.hdf5").write_bytes(b"mine")
    _edited(place.inside / "vectors.hdf5.partial/run.json", lambda t: t.pop("replaces"))
    return Attack(functools.partial(SPOTS["dump/run.json"].act, place), "vectors.hdf5")


def _checkpoint_elsewhere(place: Place) -> Attack:
    directory = checkpoint_directory(place)
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    directory.symlink_to(place.outside)
    return Attack(functools.partial(SPOTS["checkpoint/run.json"].act, place), "checkpoints")


def _no_pieces(place: Place) -> Attack:
    path = place.inside / "model/tokenizer.model"
    path.write_bytes(b"\x0a\x0f\x0a\x05<unk>" + bytes(range(256)))
    return Attack(
        lambda: load_tokenizer(TokenizerSpec(name="sentencepiece"), path.parent), path.name
    )


def _other_weights(place: Place) -> Attack:
    """A model directory with the weights of the published format."""
    path = place.inside / "model/model.safetensors"
    path.write_bytes((place.inside / "published/weights.hdf5").read_bytes())
    return Attack(lambda: PretrainedBiLm.from_pretrained(path.parent), path.name)


def other_cases(bombs: bool) -> Iterator[Case]:
    """What is left: bombs, locks, links for directories, a sentencepiece model that is none."""
    yield Case("a lock that is a link outside", _lock_elsewhere)
    yield Case("an unfinished dump that is a link outside", _partial_elsewhere)
    yield Case("an unfinished dump that lacks a word", _header_without_a_word)
    yield Case("a checkpoint that is a link outside", _checkpoint_elsewhere)
    yield Case("a sentencepiece model that is none", _no_pieces)
    yield Case("HDF5 for safetensors", _other_weights)
    if bombs:
        for where in ("texts.csv.gz", "texts.jsonl", "vectors", "input.txt", "input.jsonl"):
            yield Case(f"one endless line for {where}", functools.partial(_bomb, where))
        for where in ("input.txt.gz", "input.txt.bz2", "input.txt.xz", "vocabulary"):
            yield Case(f"one endless line for {where}", functools.partial(_bomb, where))
