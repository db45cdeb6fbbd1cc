from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from bilm import Elmo, Embedder, Scorer
from tests.bilm.embedding.elmo_models import tiny

IDS = torch.full((2, 3, 50), 261)
NOT_IDS = "pass lists of words, not character ids (docs/migration.md)"
ONE_BATCH = "pass one batch at a time, as a list of sentences"

REJECTED = [
    (IDS, f"sentence 0 is a tensor; {NOT_IDS}"),
    (list(IDS), f"sentence 0 is a tensor; {NOT_IDS}"),
    ([["a"], IDS[0]], f"sentence 1 is a tensor; {NOT_IDS}"),
    ([list(IDS[0])], f"sentence 0 contains a tensor; {NOT_IDS}"),
    (IDS.tolist(), f"sentence 0 contains a list of ids; {NOT_IDS}"),
    (IDS.numpy(), f"sentence 0 contains a list of ids; {NOT_IDS}"),
    ([list(IDS[0].numpy())], f"sentence 0 contains a list of ids; {NOT_IDS}"),
    (torch.stack([IDS, IDS]).tolist(), f"sentence 0 contains a list of ids; {NOT_IDS}"),
    ([[7, 8]], f"sentence 0 contains 7, which is not a string; {NOT_IDS}"),
    (np.array([[7, 8]]), f"sentence 0 contains 7, which is not a string; {NOT_IDS}"),
    ([["the", 8]], f"sentence 0 contains 8, which is not a string; {NOT_IDS}"),
    (
        [[["the", "bank"]], [["a"]]],
        f"sentence 0 contains a list, which is not a string; {ONE_BATCH}",
    ),
    (np.array([[["the"]]]), f"sentence 0 contains a list, which is not a string; {ONE_BATCH}"),
    ([[[]]], f"sentence 0 contains a list, which is not a string; {ONE_BATCH}"),
    ([["the", 0.5]], "sentence 0 contains 0.5, which is not a string"),
    ([["the", None]], "sentence 0 contains None, which is not a string"),
    ([["the"], None], "sentence 1 is None; it must be a list of words"),
]


@pytest.mark.parametrize(("sentences", "message"), REJECTED, ids=[m for _, m in REJECTED])
def test_rejects_ids_and_nested_batches(sentences: Any, message: str) -> None:
    functions = (Elmo(tiny()), Embedder(tiny(), device="cpu").embed, Scorer(tiny()).score)
    for function in functions:
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            function(sentences)


@pytest.mark.parametrize("value", [{"a": 1}, {"a", "b"}, 7, None])
def test_rejects_collections_without_an_order_and_other_values(value: Any) -> None:
    functions = (Elmo(tiny()), Embedder(tiny(), device="cpu").embed, Scorer(tiny()).score)
    for function in functions:
        with pytest.raises(TypeError, match="takes a list of sentences; got"):
            function(value)


def test_messages_about_large_values_are_short() -> None:
    for sentences in ([["a"], {str(i): i for i in range(1000)}], [[bytes(1000)]]):
        with pytest.raises(TypeError) as caught:
            Elmo(tiny())(sentences)
        assert len(str(caught.value)) < 120
