"""A linear-chain conditional random field over tag sequences, with forbidden transitions.

The forward algorithm runs in log space, one time step after another for all sentences of a batch. A
step is a matrix product of `exp(alpha - max)` and `exp(transitions)`, which is several times faster
than a log-sum-exp over (sentences, labels, labels) and equal to it up to rounding. Forbidden
transitions have the score -inf in training and in decoding, so they have probability 0.

Cost per batch: words x labels^2 x sentences multiplications; memory of words x sentences x labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from downstream.texts.tag_sequences import may_follow

_UNREACHABLE = -1e4  # log-probability of a label that no path reaches; exp of it is 0


class LinearChainCrf(nn.Module):
    """Scores of label pairs, of the first label and of the last label."""

    may_start: Tensor
    may_follow: Tensor

    def __init__(self, labels: Sequence[str], constrained: bool, trained: bool = True) -> None:
        """Make a field over `labels`; `constrained` forbids what BIO does not allow.

        Without `trained`, the scores are 0 and fixed, so that only the constraints remain.
        """
        super().__init__()
        size = len(labels)
        self.trained = trained
        if trained:
            self.transitions = nn.Parameter(torch.zeros(size, size))  # (from, to)
            self.start = nn.Parameter(torch.zeros(size))
            self.end = nn.Parameter(torch.zeros(size))
        else:
            self.register_buffer("transitions", torch.zeros(size, size), persistent=False)
            self.register_buffer("start", torch.zeros(size), persistent=False)
            self.register_buffer("end", torch.zeros(size), persistent=False)
        starts = [not constrained or may_follow(None, label) for label in labels]
        pairs = [[not constrained or may_follow(a, b) for b in labels] for a in labels]
        self.register_buffer("may_start", torch.tensor(starts), persistent=False)
        self.register_buffer("may_follow", torch.tensor(pairs), persistent=False)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the log-probability of each tag sequence: (sentences,).

        `emissions` are (sentences, words, labels), `tags` and `mask` (sentences, words). The words
        of a sentence precede its padding, whose tags may have any value.
        """
        return self._path_scores(emissions, tags, mask) - self.log_partition(emissions, mask)

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return the log of the sum over all allowed sequences: (sentences,)."""
        transitions = self._transitions().exp()
        alpha = self._starts() + emissions[:, 0]  # (sentences, labels)
        for t in range(1, emissions.shape[1]):
            largest = alpha.detach().amax(dim=1, keepdim=True)
            total = (alpha - largest).exp() @ transitions
            is_reached = total > 0
            logs = torch.where(is_reached, total, 1.0).log()
            following = torch.where(is_reached, logs + largest, _UNREACHABLE) + emissions[:, t]
            alpha = torch.where(mask[:, t, None], following, alpha)
        return (alpha + self.end).logsumexp(dim=1)

    def _path_scores(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the score of each tag sequence: (sentences,)."""
        known = tags.clamp(min=0)  # padding has no tag
        scores = emissions.gather(2, known.unsqueeze(2)).squeeze(2)  # (sentences, words)
        steps = self._transitions()[known[:, :-1], known[:, 1:]]
        scores = scores.masked_fill(~mask, 0.0).sum(dim=1)
        scores = scores + steps.masked_fill(~mask[:, 1:], 0.0).sum(dim=1)
        last = known.gather(1, mask.sum(dim=1, keepdim=True) - 1).squeeze(1)
        return scores + self._starts()[known[:, 0]] + self.end[last]

    def best_paths(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable allowed sequence of each sentence: (sentences, words).

        The labels of padding have no meaning. The way back recomputes the predecessors of the best
        path alone: a maximum without indices over (sentences, to, from) is several times faster
        than one with them.
        """
        transitions = self._transitions().T.contiguous()  # (to, from)
        best = [self._starts() + emissions[:, 0]]  # (sentences, labels)
        for t in range(1, emissions.shape[1]):
            values = (best[-1].unsqueeze(1) + transitions).amax(dim=2)
            best.append(torch.where(mask[:, t, None], values + emissions[:, t], best[-1]))
        label = (best[-1] + self.end).argmax(dim=1)
        path = [label]
        for t in range(emissions.shape[1] - 1, 0, -1):
            previous = (best[t - 1] + transitions[label]).argmax(dim=1)
            label = torch.where(mask[:, t], previous, label)  # padding keeps the last label
            path.append(label)
        return torch.stack(path[::-1], dim=1)

    def _transitions(self) -> Tensor:
        return self.transitions.masked_fill(~self.may_follow, -torch.inf)

    def _starts(self) -> Tensor:
        return self.start.masked_fill(~self.may_start, _UNREACHABLE)
