from __future__ import annotations

import torch
from torch import Tensor

from downstream.heads.attention import BidirectionalAttention, SelfAttention, Similarity


def similarity(module: Similarity, x: Tensor, y: Tensor) -> Tensor:
    """Return the similarity of two vectors by its definition."""
    left, right = module.left.weight[0], module.right.weight[0]
    return (left * x + right * y + module.product * x * y).sum()


def trained(module: BidirectionalAttention | SelfAttention) -> None:
    """Replace the initial weights of the products, which are all equal."""
    torch.nn.init.normal_(module.similarity.product)


def test_attention_equals_its_definition() -> None:
    torch.manual_seed(0)
    module = BidirectionalAttention(4, 3)
    trained(module)
    passage, question = torch.randn(1, 3, 4), torch.randn(1, 2, 4)
    masks = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    is_asked = torch.tensor([[False, True, False]])
    outputs = module(passage, question, *masks, is_asked)
    x, y = passage[0], question[0]
    table = torch.stack([torch.stack([similarity(module.similarity, a, b) for b in y]) for a in x])
    summary = table.max(dim=1).values.softmax(dim=0) @ x
    for i in range(3):
        attended = table[i].softmax(dim=0) @ y
        same = is_asked[0, i : i + 1].float()
        joined = torch.cat([x[i], attended, x[i] * attended, summary * attended, same])
        torch.testing.assert_close(outputs[0, i], torch.relu(module.project(joined)))


def test_self_attention_equals_its_definition() -> None:
    torch.manual_seed(1)
    module = SelfAttention(4)
    trained(module)
    words = torch.randn(1, 3, 4)
    outputs = module(words, torch.ones(1, 3, dtype=torch.bool))
    x = words[0]
    for i in range(3):
        others = [k for k in range(3) if k != i]
        scores = torch.stack([similarity(module.similarity, x[i], x[k]) for k in others])
        weights = torch.cat([scores, torch.zeros(1)]).softmax(dim=0)[:-1]  # 0: to attend to nothing
        attended = weights @ x[others]
        added = torch.relu(module.project(torch.cat([x[i], attended, x[i] * attended])))
        torch.testing.assert_close(outputs[0, i], x[i] + added)


def test_padding_gets_no_attention() -> None:
    torch.manual_seed(2)
    both, single = BidirectionalAttention(4, 3), SelfAttention(4)
    passage, question = torch.randn(1, 5, 4), torch.randn(1, 4, 4)
    for num_words in (1, 3):
        mask = torch.arange(5)[None] < num_words
        question_mask = torch.arange(4)[None] < 2
        padded = both(passage, question, mask, question_mask, mask)[:, :num_words]
        short = passage[:, :num_words], question[:, :2]
        alone = both(*short, mask[:, :num_words], question_mask[:, :2], mask[:, :num_words])
        torch.testing.assert_close(padded, alone)
        torch.testing.assert_close(
            single(passage, mask)[:, :num_words], single(short[0], mask[:, :num_words])
        )
