"""Random calls of every operation with C code, valid ones and wrong ones.

    python -m tests.bilm.kernels.random_calls SEED COUNT [--sanitize]

changes the arguments of valid calls at random until COUNT calls have been rejected. Every call is
made with both backends, which must raise the same error or return the same result. `--sanitize`
builds the C code with gcc's sanitizers; the caller must preload their runtime.
"""

from __future__ import annotations

import copy
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from bilm.kernels import backends, c_library
from tests.bilm.kernels.valid_calls import MAKERS, Call

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
DTYPES += [torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
NO_TENSORS = [None, 3, 0.5, "x", [1, 2], (), True]
NUMBERS = [None, "x", True, [1.0], math.nan, math.inf, -1.0, 0.0, 0, 2, 0.25]
IDS = [-1, -2, -100, 5, 260, 261, 262, 1 << 15, 1 << 31, -(1 << 40), 1 << 62]
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 0.1}


def change_shape(rng: random.Random, tensor: Tensor) -> Tensor:
    """Return a tensor with more, fewer, larger, smaller or swapped dimensions."""
    dim = rng.randrange(tensor.dim()) if tensor.dim() else 0
    kind = rng.randrange(7)
    if not tensor.dim() or kind == 0:
        return tensor.unsqueeze(dim)
    if kind == 1:
        return tensor.flatten()
    if kind == 2 and tensor.shape[dim]:
        return tensor.select(dim, 0)
    if kind == 3:
        return tensor.transpose(dim, rng.randrange(tensor.dim()))
    if kind == 4:
        return tensor.narrow(dim, 0, 0)
    if kind == 5 and tensor.shape[dim]:
        return tensor.narrow(dim, 0, tensor.shape[dim] - 1)
    more = tensor.narrow(dim, 0, min(1, tensor.shape[dim])).detach().clone()
    return torch.cat([tensor, more.normal_() if tensor.is_floating_point() else more], dim)


def change_values(rng: random.Random, tensor: Tensor) -> Tensor:
    """Return a tensor with one other element."""
    if not tensor.numel() or tensor.is_complex() or tensor.dtype is torch.bool:
        return tensor
    values = [math.nan] if tensor.is_floating_point() else IDS
    value = torch.tensor(rng.choice(values)).to(tensor.dtype)
    changed = tensor.detach().clone()
    changed.view(-1)[rng.randrange(tensor.numel())] = value
    return changed


def change_layout(rng: random.Random, tensor: Tensor) -> Tensor:
    """Return a tensor of the same shape that is not contiguous, not dense or not on the CPU."""
    kind = rng.randrange(6)
    if kind == 0:
        return tensor.to("meta")
    if kind == 1 and tensor.dim():
        return tensor.detach().to_sparse()
    if kind == 2 and tensor.numel():
        return tensor.flatten()[:1].expand(tensor.numel()).view(tensor.shape)
    if kind == 3 and tensor.dim() > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    return torch.stack([tensor, tensor], dim=-1)[..., rng.randrange(2)]


def change(rng: random.Random, value: Any) -> Any:
    """Return another value, which may be valid as well."""
    if not isinstance(value, Tensor):
        return rng.choice(NUMBERS if isinstance(value, float) else NO_TENSORS)
    kind = rng.randrange(10)
    if kind < 4:
        return change_shape(rng, value)
    if kind < 6 or (kind == 6 and not value.is_floating_point()):
        return change_values(rng, value.contiguous())
    if kind == 7:
        return value.detach().to(rng.choice(DTYPES))
    if kind == 8:
        return rng.choice(NO_TENSORS)
    return change_layout(rng, value)


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)


def gradient_for(result: Tensor, expand: bool) -> Tensor:
    if expand:
        return torch.ones((), dtype=result.dtype).expand(result.shape)
    return (torch.arange(result.numel()) % 7 - 3.0).to(result.dtype).view(result.shape)


def run(call: Call, backend: Literal["c", "torch"]) -> list[Tensor] | Exception:
    """Return the results, the arguments afterwards and the gradients, or the error."""
    backends.requested = lambda: backend  # type: ignore[assignment]
    arguments = copy.deepcopy(call.arguments)
    leaves = []
    for name, value in arguments.items():
        if name in call.gradients and isinstance(value, Tensor) and value.is_floating_point():
            arguments[name] = value.detach().requires_grad_()
            leaves.append(arguments[name])
    try:
        results = list(tensors_in(call.function(**arguments)))
        outputs = [result for result in results if result.requires_grad]
        if outputs:
            grads = [gradient_for(output, call.expand) for output in outputs]
            torch.autograd.backward(outputs, grads)
    except Exception as error:
        return error
    after = list(tensors_in(list(arguments.values())))
    if any(tensor.is_meta or not tensor.detach().isfinite().all() for tensor in after):
        return results + after  # gradients with NaN may differ
    return results + after + [leaf.grad for leaf in leaves if leaf.grad is not None]


def compare(in_c: list[Tensor] | Exception, plain: list[Tensor] | Exception) -> None:
    """Check that both errors or both results are the same."""
    if isinstance(in_c, Exception) or isinstance(plain, Exception):
        assert (type(in_c), str(in_c)) == (type(plain), str(plain))
        return
    assert len(in_c) == len(plain)
    tolerance = max(TOLERANCES.get(tensor.dtype, 0.0) for tensor in plain)
    for actual, expected in zip(in_c, plain, strict=True):
        assert actual.is_meta == expected.is_meta
        if actual.is_meta:
            continue
        options = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
        torch.testing.assert_close(actual.to_dense(), expected.to_dense(), **options)


def main() -> None:
    """Make random calls, and print how many were accepted and rejected."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    if "--sanitize" in sys.argv:
        c_library.FLAGS += SANITIZERS
    torch.set_num_threads(1)
    rng = random.Random(seed)
    torch.manual_seed(seed)
    totals: Counter[str] = Counter()
    names = sorted(MAKERS)
    while totals["rejected"] < count:
        name = names[sum(totals.values()) % len(names)]
        call = MAKERS[name](rng)
        changes = {key: change(rng, call.arguments[key]) for key in _some_keys(rng, call)}
        call.arguments.update(changes)
        if name == "filter_maxima" and any(
            0 in t.stride() for t in tensors_in([*changes.values()])
        ):
            call.gradients = ()  # several windows have the maximum
        in_c, plain = run(call, "c"), run(call, "torch")
        try:
            compare(in_c, plain)
        except AssertionError:
            print(f"{name} with {call.arguments}\nchanged: {changes}", file=sys.stderr)
            print(f"C: {in_c!r}\nPyTorch: {plain!r}", file=sys.stderr)
            raise
        totals["rejected" if isinstance(in_c, Exception) else "accepted"] += 1
    print(json.dumps(totals))


def _some_keys(rng: random.Random, call: Call) -> list[str]:
    names = sorted(call.arguments)
    return rng.sample(names, min(len(names), rng.choice([0, 1, 1, 1, 1, 2, 2, 3, 3, 3])))


if __name__ == "__main__":
    main()
