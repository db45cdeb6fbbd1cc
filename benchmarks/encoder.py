"""Compare the token encoder by table look-up with convolutions: `python benchmarks/encoder.py`

Runs the published encoder (2,048 filters, two highway layers, 512 dimensions) on one step of 128
rows x 20 words of both directions, forward + backward. Compared are: ours (look-up, once per
distinct word); convolutions, once per distinct word; convolutions on every token of both
directions, the usual implementation. The text is generated with the word lengths and frequencies of
English, or read from `--text FILE` (raw lines). Prints one JSON line per figure, with the
differences from float64.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import sys
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from measure import Measured, elsewhere, figure, without_kernels
from rounds import Bounds, add_bounds
from torch import Tensor
from torch.nn import functional as F

from bilm.distributed.process import keep_freed_memory, num_cores
from bilm.kernels.char_cnn import filter_maxima
from bilm.model.token_encoder import TokenEncoder
from bilm.text.characters import char_ids
from bilm.text.tokenizers import MosesTokenizer
from bilm.training.config import load_config

ROWS, TIME, DIRECTIONS = 128, 20, 2


def english_like(num_words: int, seed: int) -> list[str]:
    """Draw words by Zipf's law, with lengths like those of English (rare words are longer)."""
    draws = np.random.default_rng(seed)
    ranks = np.minimum(draws.zipf(1.15, num_words), 500_000)
    letters = np.array(list("etaoinshrdlucmwfgypbvkjxqz"))
    share = 1.0 / np.arange(1, len(letters) + 1)
    words: dict[int, str] = {}
    for rank in ranks:
        if rank not in words:
            length = int(np.clip(draws.normal(1.5 + np.log2(rank + 1) * 0.45, 1.5), 1, 30))
            words[rank] = "".join(draws.choice(letters, length, p=share / share.sum()))
    return [words[rank] for rank in ranks]


def batch(text: Path | None) -> tuple[Tensor, Tensor]:
    """Return the character ids of distinct words, and an index of them (directions, rows, time)."""
    count = ROWS * (TIME + 2)
    if text is None:
        words = english_like(count, seed=1)
    else:
        tokenize = MosesTokenizer().tokenize
        with open(text, encoding="utf-8") as lines:
            words = [word for line in itertools.islice(lines, count) for word in tokenize(line)]
        words = words[:count]
    distinct, inverse = np.unique(np.array(words), return_inverse=True)
    ids = torch.from_numpy(char_ids(list(distinct), 50)).long()
    rows = torch.from_numpy(inverse.reshape(ROWS, TIME + 2))
    # Forward reads all words of a row but the last two, backward all but the first two.
    return ids, torch.stack([rows[:, :TIME], rows[:, 2:].flip(1)])


def distinct_pass(encoder: TokenEncoder, ids: Tensor, inverse: Tensor, grad: Tensor) -> Tensor:
    """Encode each distinct word once, and copy its vector to all of its positions."""
    out = F.embedding(inverse, encoder(ids))
    out.backward(grad)
    return out.detach()


def token_pass(encoder: TokenEncoder, ids: Tensor, inverse: Tensor, grad: Tensor) -> Tensor:
    """Encode every token, direction by direction."""
    outputs = []
    for d in range(DIRECTIONS):
        out = encoder(ids[inverse[d]].flatten(0, 1)).view(ROWS, TIME, -1)
        out.backward(grad[d])
        outputs.append(out.detach())
    return torch.stack(outputs)


def differences(encoder: TokenEncoder, ids: Tensor, inverse: Tensor, grad: Tensor) -> None:
    """Print the differences of look-up and convolutions from float64.

    The difference of gradients is the norm of the difference divided by the norm. It is given for
    the filters' maxima alone and for the whole encoder. In the latter, rounding determines whether
    a ReLU of a highway layer whose input is almost 0 is active, in any float32 implementation.
    """
    exact = copy.deepcopy(encoder).double()
    contenders = {"look-up": copy.deepcopy(encoder), "convolutions": copy.deepcopy(encoder)}
    wide = torch.randn(len(ids), encoder.config.num_filters)
    with without_kernels():
        reference = distinct_pass(exact, ids, inverse, grad.double())
        filters = copy.deepcopy(encoder).double()
        _maxima(filters, ids).backward(wide.double())
    for name, contender in contenders.items():
        with without_kernels() if name == "convolutions" else nullcontext():
            alone = copy.deepcopy(contender)
            _maxima(alone, ids).backward(wide)
            vectors = distinct_pass(contender, ids, inverse, grad)
        figure(
            "encoder",
            name=name,
            forward_from_float64=(vectors - reference).abs().max().item(),
            filter_gradients_from_float64=_worst_gradient(alone, filters),
            all_gradients_from_float64=_worst_gradient(contender, exact),
        )


def _maxima(encoder: TokenEncoder, ids: Tensor) -> Tensor:
    return filter_maxima(ids, encoder.char_embedding, list(encoder.filter_weights))


def _worst_gradient(contender: TokenEncoder, exact: TokenEncoder) -> float:
    pairs = zip(contender.parameters(), exact.parameters(), strict=True)
    return max(
        ((p.grad - q.grad).norm() / q.grad.norm()).item()
        for p, q in pairs
        if p.grad is not None and q.grad is not None
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a file of raw lines (default: generated words)")
    add_bounds(parser)
    cores = num_cores()
    parser.add_argument("--threads", type=int, default=cores, help="threads (default: all cores)")
    arguments = parser.parse_args()
    keep_freed_memory()  # like a training process
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    config = load_config(Path(__file__).parents[1] / "configs" / "big.json").model
    assert config.characters is not None
    encoder = TokenEncoder(config.characters, config.lstm.projection_dim)
    ids, inverse = batch(arguments.text)
    grad = torch.randn(DIRECTIONS, ROWS, TIME, config.lstm.projection_dim)
    differences(encoder, ids, inverse, grad)

    def convolutions_on_distinct() -> None:
        with without_kernels():
            distinct_pass(encoder, ids, inverse, grad)

    def convolutions_on_tokens() -> None:
        with without_kernels():
            token_pass(encoder, ids, inverse, grad)

    measured = Measured(
        {
            "ours": lambda: distinct_pass(encoder, ids, inverse, grad),
            "convolutions, distinct words": elsewhere(convolutions_on_distinct),
            "convolutions, every token": elsewhere(convolutions_on_tokens),
        },
        Bounds(arguments.rounds, arguments.max_spread),
    )
    for name in measured.seconds:
        figure(
            "encoder",
            name=name,
            seconds=measured.median(name),
            distinct_words=len(ids),
            tokens=inverse.numel(),
            threads=arguments.threads,
        )
    for other in list(measured.seconds)[1:]:
        figure("encoder", **measured.times_faster("ours", other))


if __name__ == "__main__":
    main()
