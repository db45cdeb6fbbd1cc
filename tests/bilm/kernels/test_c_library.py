"""Building the library, and calls with wrong arguments."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bilm.kernels import (
    c_library,
    char_cnn,
    dropout,
    highway,
    lstm_packing,
    sampled_softmax,
    sparse_rows,
)
from bilm.kernels.c_library import (
    Bfloat16s,
    Bools,
    FloatColumns,
    Floats,
    Int16Columns,
    Int16s,
    Int32s,
    Int64s,
    Kernel,
    Kind,
    Real,
    Size,
)
from tests.bilm.conftest import needs_compiler
from tests.conftest import ROOT

KERNELS = [
    value
    for module in (char_cnn, dropout, highway, sampled_softmax, sparse_rows)
    for value in vars(module).values()
    if isinstance(value, Kernel)
] + [*lstm_packing.IN_FLOATS]
PARAMETERS = [(kernel, name) for kernel in KERNELS for name in kernel.parameters]
DTYPES = [torch.float32, torch.float64]


def right_value(kind: Kind, dtype: torch.dtype) -> torch.Tensor | int | float:
    """Return a valid argument for a call on arrays of one element, which packing enlarges."""
    if kind is Size:
        return 1
    if kind is Real:
        return 1.0
    return torch.zeros(16, 16, dtype=kind.dtype or dtype)


def wrong_values(kind: Kind, dtype: torch.dtype) -> list[Any]:
    """Return values of every other kind."""
    right = right_value(kind, dtype)
    if not isinstance(right, torch.Tensor):
        wrong = [None, "1", True, [1], torch.tensor(1), torch.tensor(1.0)]
        return [*wrong, 1.0] if kind is Size else wrong
    other = torch.float64 if dtype == torch.float32 else torch.float32
    dtypes = {torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.bool, dtype, other}
    return [
        *(None, 1, 1.0, True, right.numpy(), right.tolist(), right.data_ptr()),
        *(right.to(wrong) for wrong in dtypes - {right.dtype}),
        right.t()[:2],  # neither the array nor its rows are contiguous
        right.to_sparse(),
        right.to("meta"),
    ]


def arguments_of(kernel: Kernel, dtype: torch.dtype) -> dict[str, Any]:
    return {name: right_value(kind, dtype) for name, kind in kernel.parameters.items()}


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_accepts_valid_arguments_in_any_order(kernel: Kernel, dtype: torch.dtype) -> None:
    arguments = arguments_of(kernel, dtype)
    kernel(**arguments)
    kernel(**dict(reversed(arguments.items())))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_rejects_positional_and_unknown_arguments(kernel: Kernel) -> None:
    arguments = arguments_of(kernel, torch.float32)
    with pytest.raises(TypeError, match="positional"):
        kernel(*arguments.values())  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown: other"):
        kernel(**arguments, other=1)
    name, value = arguments.popitem()
    with pytest.raises(TypeError, match=f"missing arguments: {name}; unknown: other"):
        kernel(**arguments, other=value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kernel", "name"), PARAMETERS, ids=lambda v: getattr(v, "name", v))
def test_rejects_missing_and_wrong_arguments(kernel: Kernel, name: str, dtype: torch.dtype) -> None:
    arguments = arguments_of(kernel, dtype)
    for wrong in wrong_values(kernel.parameters[name], dtype):
        with pytest.raises(TypeError, match=f"^{kernel.name}: "):
            kernel(**{**arguments, name: wrong})
    del arguments[name]
    with pytest.raises(TypeError, match=f"missing arguments: {name}"):
        kernel(**arguments)


def test_rejects_floats_of_unsupported_type() -> None:
    for kernel in KERNELS:
        with pytest.raises(TypeError, match=r"float type is torch\.bfloat16"):
            kernel(**arguments_of(kernel, torch.bfloat16))


def test_error_names_kernel_argument_and_rule() -> None:
    kernel = Kernel("lstm_forward", rows=Size, gates=Floats)
    with pytest.raises(TypeError, match=r"^lstm_forward: rows is a bool; it must be an int$"):
        kernel(rows=True, gates=torch.zeros(1))
    message = r"gates is a tensor of torch.float32 with shape \(2, 3\) on cpu; it must be a contig"
    with pytest.raises(TypeError, match=message):
        kernel(rows=1, gates=torch.zeros(3, 2).t())


def test_columns_may_have_gaps_between_rows_only() -> None:
    kernel = Kernel("unused", columns=FloatColumns, array=Floats)
    matrix = torch.zeros(3, 4)
    with pytest.raises(TypeError, match="columns is"):
        kernel(columns=matrix.t()[:, :2], array=matrix)
    with pytest.raises(TypeError, match="array is"):
        kernel(columns=matrix[:, 1:3], array=matrix[:, 1:3])


def c_prototypes() -> dict[str, list[tuple[str, str]]]:
    """Return the (type, name) pairs of the parameters of each function of the library."""
    text, included = (
        re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
        for path in (c_library.SOURCE, c_library.INCLUDED)
    )
    macros = {
        macro: parameters_of(parameters)
        for macro, parameters in re.findall(
            r"#define (\w+)\(NAME, REAL.*?void NAME\((.*?)\) \{", text, flags=re.DOTALL
        )
    }
    instances = re.findall(r"^(\w+)\((\w+)_(f32|f64), (float|double)", text, flags=re.MULTILINE)
    for suffix, real in (("f32", "float"), ("f64", "double")):
        assert {i[3] for i in instances if i[2] == suffix} == {real}
        assert {i[0] for i in instances if i[2] == suffix} == macros.keys()
        assert f"#define REAL {real}\n#define NAME(name) name##_{suffix}\n" in text
    functions = re.findall(r"^void NAME\((\w+)\)\((.*?)\) \{", included, re.DOTALL | re.MULTILINE)
    assert len(functions) == 5
    return {
        **{name: macros[macro] for macro, name, *_ in instances},
        **{name: parameters_of(parameters) for name, parameters in functions},
    }


def parameters_of(text: str) -> list[tuple[str, str]]:
    """Return the (type, name) pairs of a list of parameters in C."""
    one_line = re.sub(r"\\?\n\s*", " ", text).replace("const ", "")
    return re.findall(r"(\w+ \*?)(\w+)(?:,|$)", one_line)


C_TYPES = {
    Size: "int64_t ",
    Real: "REAL ",
    Floats: "REAL *",
    FloatColumns: "REAL *",
    Int16s: "int16_t *",
    Int16Columns: "int16_t *",
    Int32s: "int32_t *",
    Int64s: "int64_t *",
    Bools: "uint8_t *",
}


def test_declarations_match_c_prototypes() -> None:
    declared = {
        kernel.name: [(C_TYPES[kind], name) for name, kind in kernel.parameters.items()]
        for kernel in KERNELS
    }
    prototypes = {
        name: [("REAL *" if kind == "PACKED *" else kind, parameter) for kind, parameter in pairs]
        for name, pairs in c_prototypes().items()
    }
    assert declared == prototypes
    assert len(declared) == len(KERNELS) >= 10


def test_only_packed_weights_are_in_bfloat16() -> None:
    prototypes = c_prototypes()
    for in_floats, in_bfloat16 in zip(
        lstm_packing.IN_FLOATS, lstm_packing.IN_BFLOAT16, strict=True
    ):
        assert in_bfloat16.name == f"bfloat16_{in_floats.name}"
        for (kind, name), declared in zip(
            prototypes[in_floats.name], in_bfloat16.parameters.items(), strict=True
        ):
            assert declared[0] == name
            assert (kind == "PACKED *") == (declared[1] is Bfloat16s)
            assert declared[1] in (Bfloat16s, in_floats.parameters[name])


@needs_compiler
def test_argument_types_are_set_for_each_float_type() -> None:
    kernel = lstm_packing.IN_FLOATS.backward
    for dtype, (suffix, real) in c_library.FLOAT_TYPES.items():
        kernel(**arguments_of(kernel, dtype))
        function: Any = kernel._functions[dtype]
        assert function.__name__ == f"lstm_backward_{suffix}"
        assert function.argtypes.count(real) == 1
        assert len(function.argtypes) == len(kernel.parameters)
        assert function.restype is None


LOAD = "from bilm.kernels import c_library; c_library.library()"


def start(cache: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LOAD],
        cwd=ROOT,
        env={**os.environ, "BILM_CACHE": str(cache), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


@pytest.mark.slow
@needs_compiler
def test_processes_that_start_together_build_one_library(tmp_path: Path) -> None:
    for process in [start(tmp_path) for _ in range(4)]:
        finish(process)
    (built,) = tmp_path.iterdir()  # one library and no temporary file
    modified = built.stat().st_mtime_ns
    finish(start(tmp_path))
    assert built.stat().st_mtime_ns == modified  # not built again


@pytest.mark.slow
@needs_compiler
def test_build_succeeds_after_a_killed_build(tmp_path: Path) -> None:
    slow = tmp_path / "slow-cc"
    slow.write_text('#!/bin/sh\ncase "$1" in --version) exec cc --version;; esac\nsleep 60\n')
    slow.chmod(0o755)
    cache = tmp_path / "cache"
    process = start(cache, CC=str(slow))
    deadline = time.monotonic() + 60
    while not cache.exists() or not any(cache.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(start(cache))
