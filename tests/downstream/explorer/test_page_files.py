from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from downstream.explorer.page_files import page_files

# A namespace, and a link that is only followed on a click.
ADDRESSES = {"http://www.w3.org/2000/svg", "http://localhost:6006/"}
# Functions that parse text as HTML or as code.
PARSERS = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\(")


@pytest.mark.parametrize("path", page_files().values(), ids=lambda path: path.name)
def test_loads_nothing_from_other_hosts_and_parses_no_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:https?:)?//[a-z][^\s\"'`)]*", text)) <= ADDRESSES
    assert not PARSERS.search(text)


def test_every_file_that_the_page_names_is_served() -> None:
    files = page_files()
    named = re.findall(r'"(/page/[^"]+)"', files["/"].read_text(encoding="utf-8"))
    for path in files.values():
        imports = re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8"))
        named += [f"/page/{name}" for name in imports]
    assert set(named) == set(files) - {"/"}
