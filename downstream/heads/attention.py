"""Attention between the words of two texts, and between the words of one (Clark and Gardner, 2018).

The similarity of two vectors is `u x + v y + w (x * y)`. Padding gets no attention, and does not
change the results.

Cost: memory and time in proportion to the product of the numbers of words.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Similarity(nn.Module):
    """The similarities (texts, words, others) of words (texts, words, dim) with other words."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.left = nn.Linear(dim, 1, bias=False)
        self.right = nn.Linear(dim, 1, bias=False)
        # At first, the product is that of scaled dot-product attention: equal words are similar.
        self.product = nn.Parameter(torch.full((dim,), 1 / math.sqrt(dim)))

    def forward(self, words: Tensor, others: Tensor) -> Tensor:
        left = self.left(words)  # (texts, words, 1)
        right = self.right(others).transpose(1, 2)  # (texts, 1, others)
        products: Tensor = (words * self.product) @ others.transpose(1, 2)
        similarity: Tensor = products + left + right
        return similarity


class BidirectionalAttention(nn.Module):
    """From the words of a passage to those of its question, and back (as in BiDAF).

    `is_asked` (texts, words) marks words of the passage that the question contains. Attention
    learns this only slowly from the vectors of words.
    """

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__()
        self.similarity = Similarity(input_dim)
        self.project = nn.Linear(4 * input_dim + 1, output_dim)

    def forward(
        self,
        passage: Tensor,
        question: Tensor,
        passage_mask: Tensor,
        question_mask: Tensor,
        is_asked: Tensor,
    ) -> Tensor:
        """Return the words of the passage given the question: (texts, words, `output_dim`)."""
        similarity = self.similarity(passage, question)
        similarity = similarity.masked_fill(~question_mask.unsqueeze(1), -torch.inf)
        attended = similarity.softmax(dim=2) @ question  # (texts, words, dim)
        highest = similarity.amax(dim=2).masked_fill(~passage_mask, -torch.inf)
        summary = highest.softmax(dim=1).unsqueeze(1) @ passage  # (texts, 1, dim)
        same = is_asked.unsqueeze(2).to(passage.dtype)
        joined = [passage, attended, passage * attended, summary * attended, same]
        return F.relu(self.project(torch.cat(joined, dim=-1)))


class SelfAttention(nn.Module):
    """From the words of a passage to its other words; the result is added to the input.

    A word may attend to nothing: a key of similarity 0 and value 0 takes part in the softmax. This
    also defines the attention of a passage of one word.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.similarity = Similarity(dim)
        self.project = nn.Linear(3 * dim, dim)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Return words (texts, words, dim)."""
        similarity = self.similarity(words, words)
        itself = torch.eye(words.shape[1], dtype=torch.bool, device=words.device)
        excluded = itself | ~mask.unsqueeze(1)  # (texts, words, words)
        similarity = similarity.masked_fill(excluded, -torch.inf)
        weights = F.pad(similarity, (0, 1)).softmax(dim=2)[:, :, :-1]
        attended = weights @ words
        joined = torch.cat([words, attended, words * attended], dim=-1)
        return words + F.relu(self.project(joined))
