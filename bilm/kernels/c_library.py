"""Build the C kernels on first use with the system's compiler, load them, and call them.

The library is cached (in `$BILM_CACHE`, else in `~/.cache/bilm`) under a name that depends on its
source, the compiler, the flags and the processor. It is written to a temporary file and renamed, so
ranks that start together or a process that is killed cannot damage it, and no lock is needed.
Building takes about a second, once.

A `Kernel` declares the name and the kind of each parameter of a C function. It is called by keyword
and checks every argument first, because C would otherwise read or write the wrong memory.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from bilm.files.writing import cache_directory

SOURCE = Path(__file__).with_name("kernels.c")
INCLUDED = Path(__file__).with_name("lstm_layer.h")

FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared"]

# Each kernel is compiled once per float type. Values: the suffix of its name, and the C type.
FLOAT_TYPES = {torch.float32: ("f32", ctypes.c_float), torch.float64: ("f64", ctypes.c_double)}


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of parameter: a number of one of the given types, or an array.

    `dtype` is the element type of an integer array. All float arrays of a call have the same type,
    which selects the compiled function.
    """

    description: str
    types: tuple[type, ...] = ()
    dtype: torch.dtype | None = None


Size = Kind("an int", types=(int,))
Real = Kind("a float", types=(float, int))
Floats = Kind("a contiguous CPU tensor of the call's float type")
Int16s = Kind("a contiguous int16 CPU tensor", dtype=torch.int16)
Int32s = Kind("a contiguous int32 CPU tensor", dtype=torch.int32)
Int64s = Kind("a contiguous int64 CPU tensor", dtype=torch.int64)
Bfloat16s = Kind("a contiguous bfloat16 CPU tensor", dtype=torch.bfloat16)
Bools = Kind("a contiguous bool CPU tensor", dtype=torch.bool)
# Adjacent columns of a larger matrix, whose row stride is a separate argument.
FloatColumns = Kind("a CPU matrix with contiguous rows of the call's float type")
Int16Columns = Kind("an int16 CPU matrix with contiguous rows", dtype=torch.int16)


class Kernel:
    """A function of kernels.c, declared with its parameters in the order of the C code.

    A call passes every argument by keyword. It raises `TypeError` if one is missing, unknown or not
    of the declared kind. Checking and converting the arguments takes a few microseconds.
    """

    def __init__(self, name: str, **parameters: Kind) -> None:
        self.name = name
        self.parameters = parameters
        self._names = tuple(parameters)
        kinds = list(enumerate(parameters.values()))
        self._numbers = [(i, kind.types) for i, kind in kinds if kind.types]
        self._arrays = [(i, kind.dtype) for i, kind in kinds if not kind.types]
        self._functions: dict[torch.dtype | None, Callable[..., None]] = {}

    def __call__(self, **arguments: Tensor | int | float) -> None:
        values: list[Any] = [*arguments.values()]
        if (*arguments,) != self._names:
            values = self._in_order(arguments)
        for i, types in self._numbers:
            if type(values[i]) not in types:  # isinstance would accept a bool as an int
                raise self._wrong_kind(i, values)
        float_dtype: torch.dtype | None = None
        for i, dtype in self._arrays:
            value = values[i]
            if not isinstance(value, Tensor) or not value.is_cpu:
                raise self._wrong_kind(i, values)
            actual = value.dtype
            if dtype is None and float_dtype is None:
                float_dtype = actual
            if actual is not (dtype or float_dtype):
                raise self._wrong_kind(i, values)
            if not value.is_contiguous() and not self._are_columns(i, value):
                raise self._wrong_kind(i, values)
            values[i] = value.data_ptr()
        try:
            function = self._functions[float_dtype]
        except KeyError:
            function = self._load(float_dtype)
        function(*values)

    def _in_order(self, arguments: dict[str, Tensor | int | float]) -> list[Tensor | int | float]:
        """Return the arguments in the declared order."""
        if arguments.keys() != self.parameters.keys():
            missing = ", ".join(self.parameters.keys() - arguments.keys()) or "none"
            unknown = ", ".join(arguments.keys() - self.parameters.keys()) or "none"
            raise TypeError(f"{self.name}: missing arguments: {missing}; unknown: {unknown}")
        return [arguments[name] for name in self._names]

    def _are_columns(self, i: int, value: Tensor) -> bool:
        """Return whether argument `i` is declared as columns, and is a matrix with dense rows."""
        is_matrix = value.layout is torch.strided and value.dim() == 2 and value.stride(1) == 1
        return is_matrix and self.parameters[self._names[i]] in (FloatColumns, Int16Columns)

    def _load(self, dtype: torch.dtype | None) -> Callable[..., None]:
        """Return the function compiled for a float type, with its argument types set."""
        if dtype not in FLOAT_TYPES:
            raise TypeError(
                f"{self.name}: the float type is {dtype}; it must be float32 or float64"
            )
        suffix, real = FLOAT_TYPES[dtype]
        numbers = {Size: ctypes.c_int64, Real: real}
        function = getattr(library(), f"{self.name}_{suffix}", None)
        if function is None:
            raise TypeError(f"{self.name}: it is not compiled for {dtype} on this processor")
        function.argtypes = [numbers.get(k, ctypes.c_void_p) for k in self.parameters.values()]
        function.restype = None
        self._functions[dtype] = function
        return cast(Callable[..., None], function)

    def _wrong_kind(self, i: int, values: list[Any]) -> TypeError:
        name, value = self._names[i], values[i]
        actual = f"a {type(value).__name__}"
        if isinstance(value, Tensor):
            actual = f"a tensor of {value.dtype} with shape {tuple(value.shape)} on {value.device}"
        expected = self.parameters[name].description
        return TypeError(f"{self.name}: {name} is {actual}; it must be {expected}")


@functools.cache
def library() -> ctypes.CDLL:
    """Return the loaded library, and build it first if it is not in the cache.

    Raises `OSError` or `subprocess.SubprocessError` if there is no working compiler.
    """
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise OSError("no C compiler was found")
    path = cache_directory() / f"kernels-{_fingerprint(compiler)}.so"
    if not path.exists():
        _build(compiler, path)
    return ctypes.CDLL(str(path))


def constant(name: str) -> int:
    """Return the value of an int64 constant of kernels.c."""
    return ctypes.c_int64.in_dll(library(), name).value


def _flags() -> list[str]:
    """Return the compiler's flags; `BILM_C_ARCH` is the processor to compile for."""
    return [*FLAGS, f"-march={os.environ.get('BILM_C_ARCH') or 'native'}"]


def _build(compiler: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".kernels-", suffix=".so", dir=path.parent)
    os.close(descriptor)
    try:
        completed = subprocess.run(
            [compiler, *_flags(), str(SOURCE), "-o", name, "-lm"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if completed.returncode:
            raise OSError(f"{compiler} failed: {completed.stderr.strip()[:500]}")
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _fingerprint(compiler: str) -> str:
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    sources = [path.read_text(encoding="utf-8") for path in (SOURCE, INCLUDED)]
    parts = [*sources, version, *_flags(), platform.machine(), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return the processor's features, on which -march=native depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()
