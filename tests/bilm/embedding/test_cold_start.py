"""What a new process does before its first vector."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import MosesTokenizer
from tests.conftest import GOLDEN, ROOT, tiny_model_config

# Each of them takes longer to import than a small model takes to load.
UNNEEDED = ("torch._dynamo", "torch._inductor", "sympy", "triton", "deepspeed", "sacremoses")

CODE = """
import sys
import torch
known = set(sys.modules)
import bilm
embedder = bilm.Embedder.{call}
embedder.embed([["The", "bank"]])
print(*[name for name in {names!r} if name in sys.modules and name not in known])
"""


def imported(call: str, *names: str) -> list[str]:
    """Return which of `names` a new process imports to compute vectors."""
    code = CODE.format(call=call, names=names)
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=300
    )
    assert completed.returncode == 0
    return completed.stdout.split()


def test_model_directory_imports_only_what_it_needs(tmp_path: Path) -> None:
    model = BiLm(tiny_model_config(), None)
    PretrainedBiLm(model, None, MosesTokenizer()).save_pretrained(tmp_path / "model")
    assert imported(f"from_pretrained({str(tmp_path / 'model')!r})", *UNNEEDED, "h5py") == []


def test_published_files_import_only_what_they_need() -> None:
    files = (str(GOLDEN / "options.json"), str(GOLDEN / "weights.hdf5"))
    assert imported(f"from_published{files!r}", *UNNEEDED) == []
