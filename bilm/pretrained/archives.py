"""Read published files from a .zip file, such as the models of the NLPL repository.

The files of the model are extracted into a temporary directory, one by one and by name; all other
members of the archive are ignored.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from bilm.errors import CheckpointError


@contextmanager
def extracted(archive: Path, required: Sequence[Sequence[str]], optional: str) -> Iterator[Path]:
    """Extract files of `archive` into a temporary directory and yield it.

    `required` lists the alternative names of each file; one directory of the archive must contain
    all of them. `optional` is extracted too if it is there.
    """
    with tempfile.TemporaryDirectory(prefix="bilm-") as temporary:
        try:
            with zipfile.ZipFile(archive) as file:
                members = _members(file, archive, required, optional)
                needed = sum(member.file_size for member in members)
                free = shutil.disk_usage(temporary).free
                if needed > free:
                    raise CheckpointError(
                        f"extracting {archive} needs {needed:,} bytes, and {free:,} are free in "
                        f"{Path(temporary).parent}; free some space, or set TMPDIR"
                    )
                for member in members:
                    target = Path(temporary) / PurePosixPath(member.filename).name
                    with file.open(member) as source, open(target, "wb") as copy:
                        shutil.copyfileobj(source, copy)
        # RuntimeError: an encrypted member; NotImplementedError: an unknown compression
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as e:
            raise CheckpointError(f"cannot read {archive}: {e}; download it again") from None
        try:
            yield Path(temporary)
        except CheckpointError as e:
            raise CheckpointError(f"{archive}: {str(e).replace(f'{temporary}/', '')}") from None


def _members(
    file: zipfile.ZipFile, archive: Path, required: Sequence[Sequence[str]], optional: str
) -> list[zipfile.ZipInfo]:
    """Return the members to extract; they must be in one directory of the archive."""
    directories: dict[PurePosixPath, dict[str, zipfile.ZipInfo]] = {}
    for info in file.infolist():
        path = PurePosixPath(info.filename)
        directories.setdefault(path.parent, {})[path.name] = info
    found = []
    for members in directories.values():
        names = [next((name for name in group if name in members), None) for group in required]
        if None not in names:
            found.append([members[name] for name in (*names, optional) if name in members])
    if len(found) != 1:
        needed = " and ".join(" or ".join(group) for group in required)
        raise CheckpointError(
            f"{archive} must contain one directory with {needed}; it has {len(found)}. It may be a "
            "model of another program, which cannot be read"
        )
    return found[0]
