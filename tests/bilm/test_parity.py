"""Parity with the original implementation, and its failure for models with a fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from bilm.errors import CheckpointError
from bilm.parity import TOLERANCE, compare
from tests.conftest import GOLDEN, ROOT

TRACE, EMBEDDINGS, SOFTMAX = "train_trace.npz", "embeddings.npz", "sampled_softmax.npz"


def parity(
    *files: Path, package_home: Path = ROOT, native: bool = True
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bilm.parity", *map(str, files)],
        capture_output=True,
        text=True,
        cwd=package_home,
        env={
            **os.environ,
            "PYTHONPATH": str(package_home),
            "BILM_NATIVE": str(int(native)),
            **({} if package_home == ROOT else {"BILM_CACHE": str(package_home / "cache")}),
        },
    )


@pytest.mark.parametrize("name", [TRACE, EMBEDDINGS, SOFTMAX])
def test_matches_golden_values(name: str) -> None:
    differences = compare(GOLDEN / name)
    assert differences
    assert max(differences.values()) <= TOLERANCE, differences


@pytest.mark.parametrize("native", [True, False])
def test_command_passes_and_lists_values(native: bool) -> None:
    done = parity(*(GOLDEN / name for name in (TRACE, EMBEDDINGS, SOFTMAX)), native=native)
    assert done.returncode == 0, done.stdout
    for figure in ("loss", "gradient norm before the clip", "final weights", "final states"):
        assert figure in done.stdout


class Fault(NamedTuple):
    """An edit of the source: `right` occurs once in all of bilm, and `wrong` replaces it."""

    right: str
    wrong: str
    affected: tuple[str, ...]


FAULTS = {
    "highway gate flipped": Fault(
        "out[k] = vg * vt + (1 - vg) * in[k];",
        "out[k] = (1 - vg) * vt + vg * in[k];",
        (TRACE, EMBEDDINGS),
    ),
    "highway gate flipped, without the kernels": Fault(
        "gate * transform + (1 - gate) * x",
        "(1 - gate) * transform + gate * x",
        (TRACE, EMBEDDINGS),
    ),
    "forget bias dropped": Fault(
        "FORGET_BIAS = 1.0",
        "FORGET_BIAS = 0.0",
        (TRACE, EMBEDDINGS),
    ),
    "gates permuted": Fault(
        "REAL vi = SIGMOID(sums[k] + i[k] + bi[k]), vj = TANH(sums[LANES + k] + j[k] + bj[k]);",
        "REAL vi = SIGMOID(sums[LANES + k] + j[k] + bj[k]), vj = TANH(sums[k] + i[k] + bi[k]);",
        (TRACE, EMBEDDINGS),
    ),
    "gates permuted, without the kernels": Fault(
        "i, j, f, o = torch.addmm",
        "i, f, j, o = torch.addmm",
        (TRACE, EMBEDDINGS),
    ),
    "windows of padding left out": Fault(
        "if (lengths[w] < last) last = lengths[w];",
        "last = lengths[w] > width ? lengths[w] - width : 0;",
        (TRACE, EMBEDDINGS),
    ),
    "skip missing": Fault(
        "is_added = self.config.skip_connections and layer > 0",
        "is_added = False",
        (TRACE, EMBEDDINGS),
    ),
    "skip at the first layer too": Fault(
        "is_added = self.config.skip_connections and layer > 0",
        "is_added = self.config.skip_connections",
        (TRACE, EMBEDDINGS),
    ),
    "factor unroll_steps dropped": Fault(
        "return loss_sums.mean() / rows",
        "return loss_sums.mean() / rows / 7",
        (TRACE,),
    ),
    "activation before the bias": Fault(
        "x = torch.relu(x) if",
        "x = torch.relu(maxima) + torch.cat(list(self.filter_biases)) if",
        (TRACE, EMBEDDINGS),
    ),
    "accumulator from 0": Fault(
        "initial_accumulator_value=config.initial_accumulator",
        "initial_accumulator_value=0.1",
        (TRACE,),
    ),
    "cell not clipped": Fault(
        "cell=self.config.cell_clip or math.inf,",
        "cell=math.inf,",
        (TRACE, EMBEDDINGS),
    ),
    "projection not clipped": Fault(
        "projection=self.config.projection_clip or math.inf,",
        "projection=math.inf,",
        (TRACE, EMBEDDINGS),
    ),
    "state not carried": Fault(
        "LayerState(state.cell[:, layer], ",
        "LayerState(0 * state.cell[:, layer], ",
        (TRACE,),
    ),
    "accidental hits kept": Fault(
        "torch.where(ordered[places] == targets, order[places], -1)",
        "torch.full_like(places, -1)",
        (SOFTMAX,),
    ),
    "expected counts not subtracted": Fault(
        "true_logit -= true_count.to(bias.dtype)",
        "pass",
        (SOFTMAX,),
    ),
    "biased variance": Fault(
        "correction=0",
        "correction=1",
        (EMBEDDINGS,),
    ),
    "carried state of the embedder dropped": Fault(
        "self._read(batch, before.take_rows(order), collector)",
        "self._read(batch, self._model.zero_state(len(batch)), collector)",
        (EMBEDDINGS,),
    ),
    "backward direction of the embedder not reversed": Fault(
        "part = tokens[max(0, end - steps) : end][::-1]",
        "part = tokens[max(0, end - steps) : end]",
        (EMBEDDINGS,),
    ),
    "backward results of the embedder not reordered": Fault(
        "words = slice(num_words - first, last if last >= 0 else None, -1)",
        "words = slice(first - 1, stop - 1)",
        (EMBEDDINGS,),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_fails_for_a_wrong_model(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    shutil.copytree(ROOT / "bilm", tmp_path / "bilm", ignore=shutil.ignore_patterns("__pycache__"))
    paths = (tmp_path / "bilm").rglob("*")
    sources = [path for path in paths if path.suffix in (".py", ".c", ".h")]
    texts = {path: path.read_text(encoding="utf-8") for path in sources}
    edited = [path for path, text in texts.items() if fault.right in text]
    num_matches = sum(text.count(fault.right) for text in texts.values())
    assert num_matches == 1, f"{fault.right!r} occurs {num_matches} times: {edited}"
    wrong_text = texts[edited[0]].replace(fault.right, fault.wrong)
    edited[0].write_text(wrong_text, encoding="utf-8")
    done = parity(
        *(GOLDEN / golden for golden in fault.affected),
        package_home=tmp_path,
        native="without the kernels" not in name,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for golden in fault.affected:
        assert f"{golden}: FAILED" in done.stdout


def test_rejects_files_without_golden_values(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(CheckpointError, match="contains neither"):
        compare(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(CheckpointError, match=r"not an \.npz file"):
        compare(tmp_path / "text.npz")
    np.savez(tmp_path / "objects.npz", loss=np.array([{"a": 1}], dtype=object))
    with pytest.raises(CheckpointError, match="plain arrays"):
        compare(tmp_path / "objects.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(CheckpointError, match=r"not an \.npz file"):
        compare(tmp_path / "one.npy")
    done = parity(tmp_path / "missing.npz")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_rejects_trace_that_does_not_match_its_options(tmp_path: Path) -> None:
    arrays = dict(np.load(GOLDEN / TRACE))
    arrays["options"] = np.array(str(arrays["options"]).replace('"n_highway": 2', '"n_highway": 1'))
    np.savez(tmp_path / "trace.npz", **arrays)
    with pytest.raises(CheckpointError, match="differ in: CNN_high_1/W_carry"):
        compare(tmp_path / "trace.npz")
    arrays["options"] = np.array(str(arrays["options"]).replace('"dropout": 0.0', '"dropout": 0.1'))
    np.savez(tmp_path / "trace.npz", **arrays)
    with pytest.raises(CheckpointError, match="dropout"):
        compare(tmp_path / "trace.npz")
