"""Hostile content in binary formats: safetensors, HDF5, tar and .npy."""

from __future__ import annotations

import functools
import io
import json
import os
import struct
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np

from tests.chaos.hostile_files import Attack, Case, written
from tests.chaos.readable_files import READABLE_FILES
from tests.chaos.sandbox import Sandbox, Touch, sign_corpus

HUGE = 1 << 20  # the largest width that a configuration may have


# -- safetensors -----------------------------------------------------------------------------------


def _safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


TENSORS: dict[str, bytes] = {
    "a giant header": _safetensors({}, length=1 << 62),
    "a header of a terabyte": _safetensors({}, bytes(64), length=1 << 40),
    "overlapping tensors": _safetensors(
        {"a": _entry("F32", [2], 0, 8), "b": _entry("F32", [2], 4, 12)}, bytes(12)
    ),
    "an unknown type": _safetensors({"a": _entry("PICKLE", [1], 0, 4)}, bytes(4)),
    "a type that numpy does not have": _safetensors(
        {"shapes": _entry("BF16", [2, 1], 0, 4), "values": _entry("BF16", [0], 4, 4)}, bytes(4)
    ),
    "a duplicate name": _safetensors(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        bytes(8),
    ),
    "a shape that overflows": _safetensors(
        {"a": _entry("F32", [1 << 62, 1 << 62], 0, 4)}, bytes(4)
    ),
    "a negative offset": _safetensors({"a": _entry("F32", [1], -4, 0)}, bytes(4)),
    "offsets beyond the end": _safetensors({"a": _entry("F32", [1 << 40], 0, 1 << 42)}, bytes(4)),
    "a deep header": _safetensors(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a header that is not text": _safetensors(b'{"\xff\xfe":1}'),
    "shapes without a dimension": _safetensors(
        {"shapes": _entry("I64", [], 0, 8), "values": _entry("F32", [0], 8, 8)}, bytes(8)
    ),
    "shapes with negative sizes": _safetensors(
        {"shapes": _entry("I64", [1, 3], 0, 24), "values": _entry("F32", [6], 24, 48)},
        np.array([-2, 1, -3], "<i8").tobytes() + bytes(24),
    ),
    "shapes larger than the data": _safetensors(
        {"shapes": _entry("I64", [1, 3], 0, 24), "values": _entry("F32", [6], 24, 48)},
        np.array([1 << 40, 1 << 40, 3], "<i8").tobytes() + bytes(24),
    ),
}
TENSOR_FILES = (
    "model/model.safetensors",
    "checkpoint/weights.safetensors",
    "classifier/head.safetensors",
    "dump/part",
)


def tensor_cases() -> Iterator[Case]:
    """Yield each malformed safetensors file for each reader of that format."""
    for what, data in TENSORS.items():
        for where in TENSOR_FILES:
            if "dump" not in where and what.startswith("shapes"):
                continue
            yield Case(f"{what} in {where}", functools.partial(written, where, data))


# -- HDF5 ------------------------------------------------------------------------------------------


def _external_link(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    file["char_embed"] = h5py.ExternalLink(str(sandbox.secret), "/char_embed")


def _external_pipe(file: h5py.File, sandbox: Sandbox) -> None:
    os.mkfifo(sandbox.inside / "pipe")
    file["softmax2"] = h5py.ExternalLink(str(sandbox.inside / "pipe"), "/x")


def _external_softmax(file: h5py.File, sandbox: Sandbox) -> None:
    os.mkfifo(sandbox.inside / "pipe")
    del file["softmax"]
    file["softmax"] = h5py.ExternalLink(str(sandbox.inside / "pipe"), "/x")


def _external_storage(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    file.create_dataset(
        "char_embed", (261, 3), "f4", external=[(str(sandbox.secret), 0, h5py.h5f.UNLIMITED)]
    )


def _virtual(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    layout = h5py.VirtualLayout((261, 3), "f4")
    layout[:] = h5py.VirtualSource(str(sandbox.secret), "x", (261, 3))
    file.create_virtual_dataset("char_embed", layout)


def _soft_cycle(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    file["char_embed"] = h5py.SoftLink("/char_embed")


def _soft_softmax(file: h5py.File, sandbox: Sandbox) -> None:
    del file["softmax"]
    file["softmax"] = h5py.SoftLink("/softmax")


def _hard_cycle(file: h5py.File, sandbox: Sandbox) -> None:
    file["RNN_0/RNN_0"] = file["/"]


def _references(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    data = file.create_dataset("char_embed", (261, 3), dtype=h5py.ref_dtype)
    data[0, 0] = file["CNN"].ref


def _strings(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    file.create_dataset("char_embed", (261, 3), dtype=h5py.string_dtype())


def _no_space(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    file["char_embed"] = h5py.Empty("f4")


def _named_type(file: h5py.File, sandbox: Sandbox) -> None:
    del file["CNN"]
    file["CNN"] = np.dtype("f4")


def _pickled_attribute(file: h5py.File, sandbox: Sandbox) -> None:
    file.attrs["note"] = np.void(sandbox.pickled())
    file["note"] = np.void(sandbox.pickled())


def _foreign_filter(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((261, 3))
    properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))
    space = h5py.h5s.create_simple((261, 3))
    h5py.h5d.create(file.id, b"char_embed", h5py.h5t.IEEE_F32LE, space, properties)


def _huge_here(file: h5py.File, sandbox: Sandbox) -> None:
    del file["char_embed"]
    file.create_dataset("char_embed", (1 << 31, 1 << 30), "f4", chunks=(1024, 1024))


def _huge_by_options(
    file: h5py.File, sandbox: Sandbox, filters: dict[str, Any] | None = None
) -> None:
    """Declare terabytes in options and file, without writing them."""
    options = sandbox.inside / "published/options.json"
    tree = json.loads(options.read_text())
    tree["lstm"]["dim"] = HUGE
    options.write_text(json.dumps(tree))
    shapes = {"W_0": (12, 4 * HUGE), "B": (4 * HUGE,), "W_P_0": (HUGE, 6)}
    for direction in range(2):
        for layer in range(2):
            for name, shape in shapes.items():
                key = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{name}"
                del file[key]
                chunks = tuple(min(size, 1024) for size in shape)
                file.create_dataset(key, shape, "f4", chunks=chunks, **(filters or {}))


HDF5: dict[str, Callable[[h5py.File, Sandbox], None]] = {
    "an external link": _external_link,
    "an external link to a pipe": _external_pipe,
    "an external link for the softmax": _external_softmax,
    "external storage": _external_storage,
    "a virtual dataset": _virtual,
    "a soft link to itself": _soft_cycle,
    "a soft link for the softmax": _soft_softmax,
    "a group within itself": _hard_cycle,
    "object references": _references,
    "strings for numbers": _strings,
    "a dataset without a space": _no_space,
    "a type instead of a group": _named_type,
    "a pickle in an attribute and a dataset": _pickled_attribute,
    "a filter that would be loaded": _foreign_filter,
    "a shape of exabytes": _huge_here,
    "terabytes by shape and options": _huge_by_options,
    "terabytes by shape, options and compression": functools.partial(
        _huge_by_options, filters={"compression": "gzip"}
    ),
}


def _in_hdf5(change: Callable[[h5py.File, Sandbox], None], sandbox: Sandbox) -> Attack:
    with h5py.File(sandbox.inside / "published/weights.hdf5", "r+") as file:
        change(file, sandbox)
    return Attack(
        functools.partial(READABLE_FILES["published/weights.hdf5"].action, sandbox), "weights.hdf5"
    )


def _user_block(sandbox: Sandbox) -> Attack:
    """Put a pickle before the HDF5 data, where the format allows any bytes."""
    path = sandbox.inside / "published/weights.hdf5"
    path.write_bytes(sandbox.pickled().ljust(512, b"\0") + path.read_bytes())
    action = functools.partial(READABLE_FILES["published/weights.hdf5"].action, sandbox)
    return Attack(action, "weights.hdf5", harmless=True)


def hdf5_cases() -> Iterator[Case]:
    """Yield each hostile HDF5 file, as published weights."""
    for what, change in HDF5.items():
        yield Case(f"{what} in weights.hdf5", functools.partial(_in_hdf5, change))
    yield Case("a pickle before weights.hdf5", _user_block)


# -- tar and .npy ----------------------------------------------------------------------------------


def _members(sandbox: Sandbox, kind: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("../../outside/marker", str(sandbox.marker), "00000000.words.npy"):
            member = tarfile.TarInfo(name)
            if kind == "files":
                member.size = 5
                tar.addfile(member, io.BytesIO(b"hello"))
                continue
            kinds = {"symlinks": tarfile.SYMTYPE, "hardlinks": tarfile.LNKTYPE}
            member.type = kinds.get(kind, tarfile.CHRTYPE)
            member.linkname = str(sandbox.secret)
            tar.addfile(member)
    return buffer.getvalue()


def _tar(kind: str, sandbox: Sandbox) -> Attack:
    return written("corpus/train-00000.tar", _members(sandbox, kind), sandbox)


def _renamed_members(sandbox: Sandbox) -> Attack:
    """Give valid arrays names that point outside; the reader ignores the names."""
    path = sandbox.inside / "corpus/train-00000.tar"
    data = bytearray(path.read_bytes())
    name = b"../../outside/marker"
    data[: len(name)] = name
    path.write_bytes(data)
    sign_corpus(path.parent)
    action = functools.partial(READABLE_FILES["corpus/train-00000.tar"].action, sandbox)
    return Attack(action, path.name, harmless=True)


def _object_array(where: str, sandbox: Sandbox) -> Attack:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Touch(sandbox.marker)], dtype=object), allow_pickle=True)
    return written(where, buffer.getvalue(), sandbox)


def _object_archive(sandbox: Sandbox) -> Attack:
    path = sandbox.inside / "trace.npz"
    np.savez(path, loss=np.array([Touch(sandbox.marker)], dtype=object), options=np.array("{}"))
    return Attack(functools.partial(READABLE_FILES["parity"].action, sandbox), path.name)


def archive_cases() -> Iterator[Case]:
    """Yield hostile tar files and arrays."""
    for kind in ("files", "symlinks", "hardlinks", "devices"):
        yield Case(f"a tar of {kind} that point outside", functools.partial(_tar, kind))
    yield Case("a shard whose members are called ../", _renamed_members)
    for where in (
        "corpus/lexicon.offsets.npy",
        "corpus/lexicon.counts.npy",
        "corpus/train-00000.tar",
    ):
        yield Case(f"an array of pickles for {where}", functools.partial(_object_array, where))
    yield Case("an array of pickles in an .npz", _object_archive)
