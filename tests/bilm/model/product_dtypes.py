"""Record the dtypes of the matrix products that really run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bilm.kernels.dropout import DropoutSeed
from bilm.model.language_model import BiLm, training_objective
from bilm.model.precision import Precision
from tests.conftest import tiny_model_config

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")
VOCABULARY, ROWS, TIME = 40, 4, 3


class Products(TorchDispatchMode):
    """Collect the dtypes of the arguments of every matrix product within the context."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in PRODUCTS:
            self.count += 1
            self.dtypes |= {x.dtype for x in args if isinstance(x, torch.Tensor) and x.dim() > 1}
        return func(*args, **(kwargs or {}))


def products_of_a_step(device: str, precision: Precision, kind: str = "sampled") -> Products:
    """Run forward and backward as DeepSpeed does, and check what stays in float32."""
    torch.manual_seed(0)
    config = tiny_model_config(dropout=0.2, softmax={"kind": kind})
    model = BiLm(config, VOCABULARY).train().to(device)
    model.training_precision = precision
    ids = [
        torch.randint(0, bound, shape).to(device)
        for bound, shape in ((255, (9, 50)), (9, (2, ROWS, TIME)), (VOCABULARY, (2, ROWS, TIME)))
    ]
    negatives = model.draw_negatives((0, 1))
    if negatives is not None:
        negatives = [n._replace(ids=n.ids.to(device)) for n in negatives]
    with Products() as products:
        with torch.autocast(device, torch.bfloat16, enabled=False):
            losses, state = model(*ids, model.zero_state(ROWS), negatives, DropoutSeed(1))
        training_objective(losses, ROWS).backward()
    values = [losses, *state, *(p.grad for p in model.parameters() if p.grad is not None)]
    assert {value.dtype for value in values} == {torch.float32}
    return products
