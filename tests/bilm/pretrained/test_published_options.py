from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CheckpointError
from bilm.pretrained.published_options import model_config_from_options, options_from_model_config
from bilm.pretrained.published_weights import load_published
from tests.conftest import GOLDEN, tiny_model_config

OPTIONS, WEIGHTS = GOLDEN / "options.json", GOLDEN / "weights.hdf5"


@pytest.mark.parametrize("vocabulary_size", [None, 30])
@pytest.mark.parametrize("changes", [{}, {"bidirectional": False, "lstm": {"cell_clip": None}}])
def test_round_trip(changes: dict[str, Any], vocabulary_size: int | None) -> None:
    config = tiny_model_config(**changes)
    options = options_from_model_config(config, vocabulary_size)
    found, size = model_config_from_options(json.loads(json.dumps(options)), "options")
    assert size == vocabulary_size
    names = {"characters", "lstm", "bidirectional", "dropout"}
    assert found.model_dump(include=names) == config.model_dump(include=names)


def test_261_and_262_characters_are_the_same_model(tmp_path: Path) -> None:
    options = json.loads(OPTIONS.read_text(encoding="utf-8"))
    options["char_cnn"]["n_characters"] = 261
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    assert load_published(tmp_path / "options.json", WEIGHTS).config.characters is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o.pop("lstm"), "lstm: is missing"),
        (lambda o: o["lstm"].update(dimm=3), "lstm.dimm.*the closest key is 'dim'"),
        (lambda o: o["lstm"].update(dim="64"), "lstm.dim"),
        (lambda o: o["lstm"].update(dim=8), "projection_dim is 16; it must be below dim"),
        (lambda o: o["lstm"].update(cell_clip=-1), "lstm.cell_clip"),
        (lambda o: o.update(n_tokens_vocab=-5), "n_tokens_vocab"),
        (lambda o: o["lstm"].update(n_layers=10**9), "num_layers"),
        (lambda o: o["char_cnn"].update(n_characters=300), "char_cnn.n_characters"),
        (lambda o: o["char_cnn"].update(activation="gelu"), "char_cnn.activation"),
        (lambda o: (o.pop("char_cnn"), o.pop("n_tokens_vocab")), "neither char_cnn nor n_tokens"),
    ],
)
def test_rejects_invalid_options(
    change: Callable[[Any], object], message: str, tmp_path: Path
) -> None:
    options = json.loads(OPTIONS.read_text(encoding="utf-8"))
    change(options)
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        load_published(tmp_path / "options.json", WEIGHTS)
