"""The order of test files."""

from __future__ import annotations

from types import SimpleNamespace

from tests.conftest import ROOT, SLOW_FILES, pytest_collection_modifyitems


def test_slow_files_exist() -> None:
    assert [name for name in SLOW_FILES if not (ROOT / "tests" / name).exists()] == []


def test_slow_files_are_first_and_others_keep_their_order() -> None:
    names = ("test_order.py", SLOW_FILES[1], "bilm/test_parity.py", SLOW_FILES[0], SLOW_FILES[1])
    items = [SimpleNamespace(path=ROOT / "tests" / name) for name in names]
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    found = [str(item.path.relative_to(ROOT / "tests")) for item in items]
    assert found == [SLOW_FILES[0], SLOW_FILES[1], SLOW_FILES[1], names[0], names[2]]
