"""The models that come with bilm, by name: `Embedder.from_pretrained("english-small")`.

They are in `models/` of a checkout, and in `bilm/models/` of an installed package.
"""

from __future__ import annotations

from pathlib import Path

from bilm.errors import CheckpointError
from bilm.pretrained.checksums import verify_checksums

# The SHA-256 of the checksums of each model.
MODELS = {
    "english-small": "e405ce534aa83ff8c959ec0e57e82c616891727efe555d267317c5236392baa6",
}

_PACKAGE = Path(__file__).resolve().parents[1]


def model_path(name: str) -> Path:
    """Return the directory of the model `name`, which is a key of `MODELS`."""
    installed = _PACKAGE / "models"
    directory = (installed if installed.is_dir() else _PACKAGE.parent / "models") / name
    if not directory.is_dir():
        raise CheckpointError(
            f"the model {name} is not part of this installation of bilm; install bilm from its "
            "wheel or from a complete checkout"
        )
    return directory


def find_named_model(name: str) -> Path:
    """Return the directory of the model `name` after comparing its files with their checksums."""
    directory = model_path(name)
    verify_checksums(directory, MODELS[name])
    return directory
