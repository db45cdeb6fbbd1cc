from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bilm.errors import CorpusError
from bilm.text import lines
from bilm.text.json_array import json_items
from bilm.text.lines import LineReader


def items(path: Path, content: str) -> list[Any]:
    path.write_bytes(content.encode())
    return list(json_items(LineReader(path)))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab"), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(values, max_size=20), st.sampled_from([None, 2]), st.integers(1, 40))
def test_equals_json_module_for_all_block_sizes(
    tmp_path: Path, array: list[Any], indent: int | None, block_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        text = json.dumps(array, indent=indent, ensure_ascii=False)
        assert items(tmp_path / "a.json", f" \n{text}\n") == array


def test_reads_compressed_array_on_one_long_line(tmp_path: Path) -> None:
    array = [{"text": "x" * 1000}] * 20_000  # 20 MB, more than a line may have
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(array).encode(), compresslevel=1))
    assert sum(1 for item in json_items(LineReader(path)) if item == array[0]) == 20_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "does not contain a JSON array"),
        ('{"text": "a"}\n{"text": "b"}\n', "does not contain a JSON array; .* --format jsonl"),
        ('["a", {"b": ]', "item 2 is not valid JSON: Expecting value"),
        ('["a" "b"]', "item 1 is followed by '\"'; expected a comma"),
        (
            '["a"',
            "item 1 is not valid JSON: the array is not closed|item 1 is followed by 'the end",
        ),
        ("[12", "item 1 is not valid JSON: the array is not closed"),
        ('["a",]', "item 2 is not valid JSON"),
        ('["a"] x', "has text after the end of its JSON array"),
        ("[" * 100_000, "item 1 is not valid JSON"),
    ],
)
def test_rejects_invalid_arrays(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=rf"a\.json.*({message})"):
        items(tmp_path / "a.json", content)
