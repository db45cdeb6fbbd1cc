"""Read and write models in repositories of the Hugging Face Hub, with `huggingface_hub`.

Only the files of a model are downloaded, and they are checked like those of any model directory.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError, ConfigError
from bilm.extras import require

# As in huggingface_hub: an owner and a name, without a leading dot.
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")

_MODEL_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.hdf5", "*.md"]


def is_repository_id(name: str) -> bool:
    """Return whether `name` has the form `owner/name`."""
    return _REPOSITORY.fullmatch(name) is not None and ".." not in name and "--" not in name


def download(repository: str) -> Path:
    """Return the directory of the model in `repository`; download it unless it is cached."""
    require(f"downloading {repository} from the Hugging Face Hub", "huggingface_hub")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, allow_patterns=_MODEL_FILES))
    except Exception as e:
        raise _described(e, repository) from None


def upload(directory: Path, repository: str) -> None:
    """Create `repository` if it does not exist, and write the files of `directory` to it."""
    if not is_repository_id(repository):
        raise ConfigError(f"push_to_hub is {repository!r}; it must have the form owner/name")
    require(f"writing {repository} to the Hugging Face Hub", "huggingface_hub")
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=directory, commit_message="Upload a model of bilm"
        )
    except Exception as e:
        raise _described(e, repository) from None


def _described(error: Exception, repository: str) -> CheckpointError:
    """Return the error for a user; others than those of the network and the hub are raised."""
    from huggingface_hub import errors

    # The base class of the HTTP library that huggingface_hub uses, which depends on its version.
    network_error: type[Exception] = getattr(errors, "HTTPError", OSError)
    if isinstance(error, errors.GatedRepoError):
        reason = "its owner restricts access; request it on the hub, and run `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        reason = "it does not exist, or it is private and you are not logged in (`hf auth login`)"
    elif isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        reason = "the hub cannot be reached, and the model is not in the local cache"
    elif isinstance(error, errors.HfHubHTTPError):
        reason = f"the hub answered: {_first_line(error)}"
    elif isinstance(error, network_error | OSError):
        reason = f"the hub cannot be reached ({_first_line(error)})"
    else:
        raise error
    return CheckpointError(
        f"cannot access the repository {repository} of the Hugging Face Hub: {reason}. To use a "
        "local model, pass the path of its directory"
    )


def _first_line(error: Any) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
