"""`python -m bilm.parity FILE.npz ...`: compare bilm with the original implementation.

There are three kinds of files:
- a training trace (weights before, batches, losses, gradient norms, weights and states after) is
  replayed with the model, the loss, the clipping and the optimizer;
- embeddings (with options.json and weights.hdf5 in the same directory) are computed by
  `bilm.Embedder` from the words that the file spells in characters;
- a sampled softmax is computed from its weights, with its gradients.

The command computes in float32 on --device, and prints the largest absolute difference of each
quantity. It exits with code 0 if all differences are within 1e-5, and with code 1 otherwise.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, run_command
from bilm.files.reading import open_regular
from bilm.files.strict_json import parse_json
from bilm.kernels.sampled_softmax import Candidates
from bilm.kernels.sparse_rows import clip_gradients
from bilm.model.devices import AUTO, DEVICE_HELP, choose_device
from bilm.model.language_model import BiLm, training_objective
from bilm.model.negatives import log_expected_count, log_uniform
from bilm.model.precision import Precision, precision_context
from bilm.model.scalar_mix import ScalarMix
from bilm.model.softmax import VocabularySoftmax
from bilm.pretrained.published_options import model_config_from_options
from bilm.pretrained.published_weights import published_name, published_views
from bilm.text.characters import BEGIN_WORD, END_WORD, SHIFT
from bilm.training.config import OptimizerConfig
from bilm.training.optimizers import build_optimizer

TOLERANCE = 1e-5
Arrays = dict[str, npt.NDArray[Any]]
Differences = dict[str, float]
# Bytes that complete a truncated UTF-8 character; `char_ids` truncates them again.
_COMPLETIONS = (b"", b"\x80", b"\xa0", b"\x80\x80", b"\xa0\x80", b"\x80\x80\x80", b"\xa0\x80\x80")


def compare(path: Path, device_name: str = AUTO, precision: Precision = "float32") -> Differences:
    """Return the greatest difference of each figure in the file at `path`."""
    arrays, device = _read(path), choose_device(device_name)
    with precision_context(device, precision):
        if "loss" in arrays and "options" in arrays:
            return _compare_trace(arrays, str(path), device, precision)
        if "batch0/char_ids" in arrays:
            embedder = Embedder.from_pretrained(path.parent, device=device, precision=precision)
            return _compare_embeddings(embedder, arrays)
        if "sampled_ids" in arrays:
            return _compare_sampled_softmax(arrays, device)
    raise CheckpointError(
        f"{path} contains neither a training trace ('loss', 'options'), nor embeddings "
        "('batch0/char_ids'), nor a sampled softmax ('sampled_ids')"
    )


def _read(path: Path) -> Arrays:
    open_regular(path, CheckpointError).close()
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as e:  # numpy raises nearly any type for a damaged file
        raise CheckpointError(f"{path} is not an .npz file of plain arrays: {e}") from None


def _compare_trace(
    arrays: Arrays, source: str, device: torch.device, precision: Precision
) -> Differences:
    options = parse_json(str(arrays["options"]), f"options of {source}", CheckpointError)
    config, vocabulary_size = model_config_from_options(options, f"options of {source}")
    if config.dropout or config.softmax.kind == "sampled":
        raise CheckpointError(
            f"{source} was made with dropout or a sampled softmax, whose random draws a trace does "
            "not contain; only a trace with dropout 0 and sample_softmax false can be replayed"
        )
    model = BiLm(config, vocabulary_size).to(device).train()
    model.training_precision = precision
    for parameter, initial in _weights(model, arrays, "init/"):
        parameter.copy_(torch.from_numpy(initial))
    rate = float(options.get("learning_rate", 0.2))
    optimizer = build_optimizer(OptimizerConfig(learning_rate=rate), model.parameters())
    means, norms = [], []
    rows, directions = arrays["batch/0/token_ids"].shape[0], config.num_directions
    state = model.zero_state(rows)
    for step in range(len(arrays["loss"])):
        batch = _trace_batch(arrays, step, directions)
        words, inverse, targets = (tensor.to(device) for tensor in batch)
        sums, state = model(words, inverse, targets, state)
        state = state.detach()
        optimizer.zero_grad()
        training_objective(sums, rows).backward()
        norms.append(clip_gradients(model.parameters(), options.get("all_clip_norm_val")))
        optimizer.step()
        means.append(sums.detach() / targets[0].numel())

    losses = torch.stack(means)
    differences = {
        "loss": _difference(losses.mean(dim=1), arrays["loss"]),
        "loss of each direction": _difference(losses, arrays["loss_fwd_bwd"][:, :directions]),
        "gradient norm before the clip": _difference(
            torch.stack(norms), arrays["grad_norm_before_clip"]
        ),
        "final weights": max(
            _difference(ours, theirs) for ours, theirs in _weights(model, arrays, "final/")
        ),
    }
    states = [
        _difference(ours[d, layer], arrays[f"final_state/dir{d}/layer{layer}/{name}"])
        for name, ours in (("c", state.cell), ("h", state.hidden))
        for d in range(directions)
        for layer in range(config.lstm.num_layers)
    ]
    return {**differences, "final states": max(states)}


def _weights(model: BiLm, arrays: Arrays, prefix: str) -> Iterator[tuple[Tensor, Any]]:
    """Yield each weight of the model, in the published layout, with that of the trace."""
    theirs = {
        published_name(name.removeprefix(prefix)): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    ours = published_views(model)
    if set(ours) != set(theirs):
        names = ", ".join(sorted(set(ours) ^ set(theirs)))
        raise CheckpointError(f"the trace's {prefix} and a model of its options differ in: {names}")
    for name, view in ours.items():
        if tuple(view.shape) != theirs[name].shape:
            raise CheckpointError(
                f"{prefix}{name} has the shape {theirs[name].shape}; according to the options it "
                f"must be {tuple(view.shape)}"
            )
        yield view, theirs[name]


def _trace_batch(arrays: Arrays, step: int, num_directions: int) -> tuple[Tensor, Tensor, Tensor]:
    suffixes = ("", "_reverse")[:num_directions]
    prefix = f"batch/{step}/"
    kind = "tokens_characters" if f"{prefix}tokens_characters" in arrays else "token_ids"
    tokens = np.stack([arrays[prefix + kind + suffix] for suffix in suffixes])
    targets = np.stack([arrays[prefix + "next_token_id" + suffix] for suffix in suffixes])
    flat = tokens.reshape(targets.size, *tokens.shape[3:])
    words, inverse = np.unique(flat, axis=0, return_inverse=True)
    return (
        torch.from_numpy(words).long(),
        torch.from_numpy(inverse.reshape(targets.shape)),
        torch.from_numpy(targets).long(),
    )


def _compare_embeddings(embedder: Embedder, arrays: Arrays) -> Differences:
    """Compare layers and mixes, with the LSTM states carried from batch to batch."""
    worst: Differences = {}
    for batch in range(sum(name.endswith("/char_ids") for name in arrays)):
        keys = ("char_ids", "layers", "mask", "mix", "mix_layer_norm", "l2")
        expected = {key: arrays[f"batch{batch}/{key}"] for key in keys}
        embedded = embedder.embed(
            _sentences(expected["char_ids"]), "carry", batch_size=int(arrays["batch_size"])
        )
        layers = np.zeros(expected["layers"].shape, dtype=np.float32)
        for row, array in enumerate(embedded):
            layers[row, :, : array.shape[1]] = array
        mask = torch.from_numpy(expected["mask"]).to(embedder.device)
        # (layers, sentences, words, dim)
        stacked = torch.from_numpy(layers).transpose(0, 1).to(embedder.device)
        differences = {
            "layers": _difference(
                stacked[:, mask], expected["layers"].swapaxes(0, 1)[:, expected["mask"]]
            )
        }
        for key, layer_norm in (("mix", False), ("mix_layer_norm", True)):
            mix = ScalarMix(
                len(stacked),
                initial_weights=arrays["mix_w"].tolist(),
                layer_norm=layer_norm,
                penalty=float(arrays["l2_coef"]),
            ).to(embedder.device)
            mix.gamma.data.fill_(float(arrays["mix_gamma"]))
            differences[key] = _difference(
                mix(stacked, mask)[mask], expected[key][expected["mask"]]
            )
            differences["penalty of the mix"] = _difference(mix.regularization(), expected["l2"][0])
        worst = {name: max(differences[name], worst.get(name, 0.0)) for name in differences}
    return worst


def _sentences(shifted: npt.NDArray[Any]) -> list[list[str]]:
    """Return the words of shifted character ids, without boundary tokens.

    `shifted` is (sentences, tokens, characters); absent tokens do not begin with `BEGIN_WORD`.
    """
    ids = shifted.astype(np.int64) - SHIFT
    return [
        [_word(token) for token in sentence[sentence[:, 0] == BEGIN_WORD][1:-1].tolist()]
        for sentence in ids
    ]


def _word(ids: list[int]) -> str:
    """Return a word with these character ids; a character at its end may have been truncated."""
    for completion in _COMPLETIONS:
        try:
            return (bytes(ids[1 : ids.index(END_WORD)]) + completion).decode("utf-8")
        except ValueError:
            continue
    raise CheckpointError(f"the character ids {ids} do not spell a word in UTF-8")


def _compare_sampled_softmax(arrays: Arrays, device: torch.device) -> Differences:
    size, dim = arrays["weight"].shape
    softmax = VocabularySoftmax(size, dim).to(device)
    with torch.no_grad():
        softmax.weight.copy_(torch.from_numpy(arrays["weight"]))
        softmax.bias.copy_(torch.from_numpy(arrays["bias"]).unsqueeze(1))
    hidden = torch.from_numpy(arrays["hidden"]).to(device).requires_grad_()
    targets = torch.from_numpy(arrays["targets"]).to(device)
    sampled = torch.from_numpy(arrays["sampled_ids"]).to(device)
    expected = torch.from_numpy(arrays["sampled_expected_count"])
    num_tries = _recover_num_tries(sampled, expected, size)
    counts = {
        name: log_expected_count(ids, num_tries, size)
        for name, ids in (("true", targets), ("sampled", sampled))
    }
    losses = softmax.sampled_loss(
        hidden.unsqueeze(0),
        Candidates(targets.unsqueeze(0), counts["true"].unsqueeze(0)),
        Candidates(sampled.unsqueeze(0), counts["sampled"].unsqueeze(0)),
    )[0]
    with torch.autocast(device.type, enabled=False):  # as in training
        losses.mean().backward()
    assert softmax.weight.grad is not None
    assert softmax.bias.grad is not None
    return {
        "expected count of targets": _difference(
            counts["true"].exp(), arrays["true_expected_count"].ravel()
        ),
        "expected count of negatives": _difference(counts["sampled"].exp(), expected),
        "loss": _difference(losses, arrays["loss_per_token"]),
        "gradient of weights": _difference(softmax.weight.grad.to_dense(), arrays["grad_weight"]),
        "gradient of biases": _difference(
            softmax.bias.grad.to_dense().squeeze(1), arrays["grad_bias"]
        ),
        "gradient of hidden vectors": _difference(hidden.grad, arrays["grad_hidden"]),
    }


def _recover_num_tries(ids: Tensor, expected_count: Tensor, vocabulary_size: int) -> int:
    """Return the number of draws, which is not in the file, from an expected count."""
    rarest = int(log_uniform(ids, vocabulary_size).argmin())
    p = float(log_uniform(ids, vocabulary_size)[rarest])
    return round(math.log1p(-float(expected_count[rarest])) / math.log1p(-p))


def _difference(ours: Tensor | None, theirs: Any) -> float:
    """Return the greatest absolute difference; infinite if a value is missing or not a number."""
    other = torch.as_tensor(theirs)
    if ours is None or ours.shape != other.shape:
        return math.inf
    if ours.numel() == 0:
        return 0.0
    greatest = float((ours.detach().cpu().double() - other.double()).abs().max())
    return greatest if math.isfinite(greatest) else math.inf


def main() -> int:
    """Compare bilm with figures of the original implementation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="+", help="an .npz file of reference values")
    parser.add_argument("--device", default=AUTO, help=DEVICE_HELP)
    arguments = parser.parse_args()
    all_passed = True
    for path in arguments.file:
        differences = compare(path, arguments.device)
        has_passed = all(difference <= TOLERANCE for difference in differences.values())
        all_passed &= has_passed
        sys.stdout.write(f"{path.name}: {'passed' if has_passed else 'FAILED'}\n")
        for name, difference in differences.items():
            verdict = "ok" if difference <= TOLERANCE else f"above {TOLERANCE:g}"
            sys.stdout.write(f"  {name:<30} {difference:8.1e}  {verdict}\n")
    return 0 if all_passed else 1


if __name__ == "__main__":
    run_command(main)
