"""Errors of `downstream.classify` with the targets multilabel and regression."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bilm.errors import BilmError, ConfigError
from downstream.analyses.layers import main as layers
from downstream.classify import main as classify
from tests.conftest import ROOT
from tests.downstream.order_task import write_csv
from tests.downstream.target_task import make_target_place, target_flags


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target_place(tmp_path_factory.mktemp("targets"))


@pytest.mark.parametrize(
    ("target", "more", "message"),
    [
        ("regression", ["--train", "labels_train.csv"], r"labels_train\.csv, line \d+: the label"),
        ("multilabel", ["--label-separator", ""], '--label-separator is ""; string should'),
        ("multilabel", ["--threshold", "1"], "--threshold is 1.0; it must be above 0 and below 1"),
        ("regression", ["--threshold", "0.3"], "--threshold is for --target multilabel, but the t"),
        (
            "multilabel",
            ["--test", "unknown.csv"],
            r"unknown\.csv, line 3: the label 'lake' does not",
        ),
        ("multilabel", ["--train", "none.csv"], r"no text of .*none\.csv has a label"),
        ("regression", ["--train", "constant.csv"], r"constant\.csv have the number 3"),
        ("regression", ["--train", "pair.csv"], r"only training text of pair\.csv has the number"),
        (
            "regression",
            ["--train", "few.csv"],
            r"the only validation text of few\.csv has the number \d, .* raise --validation-share",
        ),
        (
            "regression",
            ["--train", "few.csv", "--validation", "constant.csv"],
            r"each validation text of constant\.csv has the number 3, .* add texts",
        ),
        *(
            (target, ["--train-share", "1e-9"], "--train-share 1e-09 of 270 training texts is one")
            for target in ("multilabel", "regression")
        ),
        ("multilabel", ["--train", "two.csv"], r"two\.csv has only one text for training"),
        ("multilabel", ["--target", "several"], '--target is "several"; it must be'),
    ],
)
def test_rejects_invalid_targets(
    place: Path, target: str, more: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    write_csv(place / "unknown.csv", [("river", "a"), ("money|lake", "b")])
    write_csv(place / "none.csv", [("", "a"), ("", "b")])
    write_csv(place / "two.csv", [("river|money|sport", "a"), ("", "b")])
    write_csv(place / "pair.csv", [("1", "a"), ("2", "b")])
    write_csv(place / "few.csv", [(str(i), f"a {'b' * i}") for i in range(9)])
    write_csv(place / "constant.csv", [("3", "a b"), ("3.0", "b"), ("3", "c")])
    with pytest.raises(BilmError, match=message):
        classify(target_flags(place, target, f"--output={place / 'mistake'}", *more))
    assert not (place / "mistake").exists()


def test_bad_number_exits_with_code_2(place: Path) -> None:
    path = write_csv(place / "bad.csv", [("1", "a"), ("good", "b")])
    command = [sys.executable, "-m", "bilm", "tasks", "classify"]
    more = target_flags(place, "regression", f"--output={place / 'mistake'}", f"--train={path}")
    done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "bad.csv, line 3: the label is 'good'; expected a number" in done.stderr


def test_analyses_reject_other_targets(place: Path) -> None:
    with pytest.raises(ConfigError, match="--target is multilabel; it is supported only by"):
        layers(target_flags(place, "multilabel", f"--output={place / 'mistake'}"))
