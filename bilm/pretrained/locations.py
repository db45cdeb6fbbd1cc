"""Where a model is: a path, the name of a model that comes with bilm, or a repository of a hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilm.errors import BilmError
from bilm.pretrained.hub import download, is_repository_id
from bilm.pretrained.named_models import MODELS, model_path


@dataclass(frozen=True)
class Location:
    """The directory or file of a model.

    Args:
        path: the directory or file, which may not exist.
        name: a name of the model that does not depend on the working directory.
        checksums_digest: the SHA-256 of the checksums of the model, if bilm knows it.
    """

    path: Path
    name: str
    checksums_digest: str | None = None


def locate(name: Path | str) -> Location:
    """Return the location of a model.

    An existing path has precedence over the name of a model that comes with bilm. Other names of
    the form `owner/name` are repositories of the Hugging Face Hub, unless `owner` is a local
    directory.
    """
    text, path = str(name), Path(name)
    if not path.exists() and text in MODELS:
        return Location(model_path(text), text, MODELS[text])
    if path.exists() or not is_repository_id(text) or path.parent.exists():
        return Location(path, str(path.resolve()))
    try:
        return Location(download(text), text)
    except BilmError as e:
        raise type(e)(f"the model {text} does not exist on this machine; {e}") from None
