"""Embed sentences with AllenNLP's ELMo: started by benchmarks/allennlp_elmo.py.

Runs in an environment that has allennlp, and imports nothing from this project. The directory of
its argument has options.json, weights.hdf5 and sentences.json. Each line of standard input is
answered with one JSON line: the seconds of one pass over all sentences, sorted by length, in
batches of 64, in total and without the conversion of words into character ids. The first line of
output is written after a pass that also writes vectors.npy, the vectors of the first batch.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BATCH_SENTENCES = 64
UNUSED_PACKAGES = ("torchvision", "fairscale")  # imported by allennlp, but not used by ELMo


class StandIns:
    """Import empty modules in place of packages that are not installed and not used."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Return a specification of a module of an unused package."""
        is_unused = name.partition(".")[0] in UNUSED_PACKAGES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_unused else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return a module that has a class of any name."""
        module = types.ModuleType(spec.name)
        module.__getattr__ = _missing_class  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Run nothing."""


def _missing_class(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def embed(elmo: Any, sentences: Sequence[Sequence[str]]) -> tuple[float, float, Any]:
    """Return the seconds of all and of ELMo alone, and the vectors of the first batch."""
    import torch
    from allennlp.modules.elmo import batch_to_ids

    elmo._elmo_lstm._elmo_lstm.reset_states()
    vectors, alone, begun = None, 0.0, time.perf_counter()
    with torch.no_grad():
        for start in range(0, len(sentences), BATCH_SENTENCES):
            ids = batch_to_ids(sentences[start : start + BATCH_SENTENCES])
            begun_alone = time.perf_counter()
            (batch,) = elmo(ids)["elmo_representations"]
            alone += time.perf_counter() - begun_alone
            vectors = batch if vectors is None else vectors
    return time.perf_counter() - begun, alone, vectors


def main(directory: Path, threads: int) -> None:
    """Load the model, then embed once per line of standard input."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not an answer
    sys.meta_path.append(StandIns())  # type: ignore[arg-type]
    import numpy as np
    import torch
    from allennlp.modules.elmo import Elmo
    from allennlp.version import VERSION

    torch.set_num_threads(threads)
    sentences = json.loads((directory / "sentences.json").read_text(encoding="utf-8"))
    sentences.sort(key=len)
    files = (str(directory / "options.json"), str(directory / "weights.hdf5"))
    elmo = Elmo(*files, num_output_representations=1, dropout=0.0).eval()
    _, _, vectors = embed(elmo, sentences)
    np.save(directory / "vectors.npy", vectors.numpy())
    versions = {"allennlp": VERSION, "torch": torch.__version__}
    print(json.dumps(versions), file=answers, flush=True)
    for _ in sys.stdin:
        seconds, alone, _ = embed(elmo, sentences)
        print(json.dumps([seconds, alone]), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
