"""Parity with the original's figures, and proof that the comparison would notice a wrong model."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
def test_golden_figures_are_met(name: str) -> None:
    differences = compare(GOLDEN / name)
    assert differences
    assert max(differences.values()) <= TOLERANCE, differences


@pytest.mark.parametrize("native", [True, False])
def test_command(native: bool) -> None:
    done = parity(*(GOLDEN / name for name in (TRACE, EMBEDDINGS, SOFTMAX)), native=native)
    assert done.returncode == 0, done.stdout
    for figure in ("loss", "gradient norm before the clip", "final weights", "final states"):
        assert figure in done.stdout


# Each fault is one edit of the real source; the text must be there, or the test is out of date.
FAULTS = {
    "highway gate flipped": (
        "kernels.c",
        "out[k] = vg * vt + (1 - vg) * in[k];",
        "out[k] = (1 - vg) * vt + vg * in[k];",
        (TRACE, EMBEDDINGS),
    ),
    "highway gate flipped, without the kernels": (
        "highway.py",
        "gate * transform + (1 - gate) * x",
        "(1 - gate) * transform + gate * x",
        (TRACE, EMBEDDINGS),
    ),
    "forget bias dropped": (
        "projected_lstm.py",
        "FORGET_BIAS = 1.0",
        "FORGET_BIAS = 0.0",
        (TRACE, EMBEDDINGS),
    ),
    "gates permuted": (
        "kernels.c",
        "REAL vi = SIGMOID(i[k] + bi[k]), vj = TANH(j[k] + bj[k]);",
        "REAL vi = SIGMOID(j[k] + bj[k]), vj = TANH(i[k] + bi[k]);",
        (TRACE, EMBEDDINGS),
    ),
    "gates permuted, without the kernels": (
        "projected_lstm.py",
        "i, j, f, o = torch.addmm",
        "i, f, j, o = torch.addmm",
        (TRACE, EMBEDDINGS),
    ),
    "windows of padding left out": (
        "kernels.c",
        "if (lengths[w] < last) last = lengths[w];",
        "last = lengths[w] > width ? lengths[w] - width : 0;",
        (TRACE, EMBEDDINGS),
    ),
    "skip missing": ("bilstm.py", "and layer > 0 else y", "and False else y", (TRACE, EMBEDDINGS)),
    "skip at the first layer too": (
        "bilstm.py",
        "and layer > 0 else y",
        "else y",
        (TRACE, EMBEDDINGS),
    ),
    "factor unroll_steps dropped": (
        "model.py",
        "return loss_sums.mean() / rows",
        "return loss_sums.mean() / rows / 7",
        (TRACE,),
    ),
    "activation before the bias": (
        "token_encoder.py",
        "x = torch.relu(x) if",
        "x = torch.relu(self._maxima(char_ids)) + torch.cat(list(self.filter_biases)) if",
        (TRACE, EMBEDDINGS),
    ),
    "accumulator from 0": (
        "optimizer.py",
        "initial_accumulator_value=config.initial_accumulator",
        "initial_accumulator_value=0.1",
        (TRACE,),
    ),
    "cell not clipped": (
        "projected_lstm.py",
        "clips = (self.config.cell_clip or math.inf, ",
        "clips = (math.inf, ",
        (TRACE, EMBEDDINGS),
    ),
    "projection not clipped": (
        "projected_lstm.py",
        "self.config.projection_clip or math.inf)",
        "math.inf)",
        (TRACE, EMBEDDINGS),
    ),
    "state not carried": (
        "bilstm.py",
        "state.cell[direction, layer]",
        "0 * state.cell[0, 0]",
        (TRACE,),
    ),
    "accidental hits kept": (
        "sampled_softmax.py",
        "torch.where(ordered[places] == targets, order[places], -1)",
        "torch.full_like(places, -1)",
        (SOFTMAX,),
    ),
    "expected counts not subtracted": (
        "sampled_softmax.py",
        "true_logit -= true_count.to(bias.dtype)",
        "pass",
        (SOFTMAX,),
    ),
    "biased variance": ("scalar_mix.py", "correction=0", "correction=1", (EMBEDDINGS,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_model_fails(name: str, tmp_path: Path) -> None:
    file, right, wrong, affected = FAULTS[name]
    shutil.copytree(ROOT / "bilm", tmp_path / "bilm", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "bilm" / file
    text = source.read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in {file}"
    source.write_text(text.replace(right, wrong), encoding="utf-8")
    done = parity(
        *(GOLDEN / golden for golden in affected),
        package_home=tmp_path,
        native="without the kernels" not in name,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for golden in affected:
        assert f"{golden}: NOT met" in done.stdout


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(CheckpointError, match="holds neither"):
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


def test_a_trace_of_other_options_must_fit_its_weights(tmp_path: Path) -> None:
    arrays = dict(np.load(GOLDEN / TRACE))
    arrays["options"] = np.array(str(arrays["options"]).replace('"n_highway": 2', '"n_highway": 1'))
    np.savez(tmp_path / "trace.npz", **arrays)
    with pytest.raises(CheckpointError, match="differ in: CNN_high_1/W_carry"):
        compare(tmp_path / "trace.npz")
    arrays["options"] = np.array(str(arrays["options"]).replace('"dropout": 0.0', '"dropout": 0.1'))
    np.savez(tmp_path / "trace.npz", **arrays)
    with pytest.raises(CheckpointError, match="dropout"):
        compare(tmp_path / "trace.npz")
