"""Where a model is: a path, the name of a model that comes with bilm, or a repository of a hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilm.errors import BilmError
from bilm.pretrained.hub import download, is_repository_id
from bilm.pretrained.named_models import MODELS, model_path


@dataclass(frozen=True)
class Location:
    """The directory or file of a model, and the SHA-256 of its checksums if bilm knows it."""

    path: Path
    checksums_digest: str | None = None


def locate(name: Path | str) -> Location:
    """Return the location of a model.

    An existing path has precedence over the name of a model that comes with bilm. Other names of
    the form `owner/name` are repositories of the Hugging Face Hub, unless `owner` is a local
    directory.
    """
    text, path = str(name), Path(name)
    if path.exists():
        return Location(path)
    if text in MODELS:
        return Location(model_path(text), MODELS[text])
    if not is_repository_id(text) or path.parent.exists():
        return Location(path)
    try:
        return Location(download(text))
    except BilmError as e:
        raise type(e)(f"the model {text} does not exist on this machine; {e}") from None
