from __future__ import annotations

import string
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_tools.building import merging
from data_tools.building.encode import SAMPLE_TYPES, PartSize
from data_tools.building.merging import MergeTask, Ranges, merge_range, plan_ranges
from data_tools.building.spool import part_directory
from data_tools.building.word_types import PLACES_FILE, TypeCounter, read_types, write_types

ZERO = {"train": 0, "heldout": 0}


def write_part(directory: Path, words: list[str], counts: list[int]) -> PartSize:
    directory.mkdir(parents=True)
    places = write_types(directory, [word.encode() for word in words], np.array(counts, np.int64))
    (directory / PLACES_FILE).write_bytes(places.tobytes())
    sample = sorted(words)[:: len(words) // SAMPLE_TYPES + 1]
    return PartSize(ZERO, ZERO, ZERO, 0, len(words), sample)


def random_parts() -> list[dict[str, int]]:
    """Return word counts of parts, one of them empty, in the order of the ids."""
    random = np.random.default_rng(0)
    letters = [*string.ascii_letters, *"éß日本😀"]
    parts: list[dict[str, int]] = []
    for size in (300, 0, 5, 700):
        words = ["".join(random.choice(letters, random.integers(1, 4))) for _ in range(size)]
        parts.append({word: int(random.integers(0, 9)) for word in words})
    return parts


@pytest.mark.parametrize("range_types", [10**9, 100, 1])
def test_merges_the_types_of_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, range_types: int
) -> None:
    monkeypatch.setattr(merging, "RANGE_TYPES", range_types)
    parts, expected = random_parts(), Counter[str]()
    sizes = []
    for number, part in enumerate(parts):
        directory = part_directory(tmp_path / "parts", number)
        sizes.append(write_part(directory, list(part), list(part.values())))
        expected.update(part)
    bounds = plan_ranges(sizes)
    assert len(bounds) == {10**9: 1, 100: 8, 1: merging.MAX_RANGES}[range_types]
    for number, pair in enumerate(bounds):
        directory = part_directory(tmp_path / "ranges", number)
        merge_range(MergeTask(tmp_path / "parts", len(parts), pair, directory))
    ranges = Ranges(tmp_path / "ranges", len(bounds))
    types = [word.decode() for word in ranges.types()]
    assert types == sorted(expected)
    assert ranges.counts().tolist() == [expected[word] for word in types]
    for number, part in enumerate(parts):
        places = ranges.places(part_directory(tmp_path / "parts", number))
        assert [types[i] for i in places] == list(part)


def test_ranges_have_similar_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "RANGE_TYPES", 5000)
    random = np.random.default_rng(0)
    sizes = []
    for number in range(8):
        words = {f"{word:x}" for word in random.integers(0, 1 << 30, 5000).tolist()}
        directory = part_directory(tmp_path, number)
        sizes.append(write_part(directory, list(words), [1] * len(words)))
    found = [
        sum(len(read_types(part_directory(tmp_path, number), pair)[0]) for number in range(8))
        for pair in plan_ranges(sizes)
    ]
    assert len(found) == 8
    assert sum(found) == sum(size.types for size in sizes)
    assert max(found) < 2 * 5000


def test_adds_counts_of_many_types() -> None:
    random = np.random.default_rng(0)
    counter, expected = TypeCounter(), Counter[bytes]()
    seen: dict[bytes, int] = {}
    for _ in range(20):
        words = [b"w%d" % i for i in np.unique(random.integers(0, 300_000, 10_000)).tolist()]
        counts = random.integers(0, 5, len(words))
        ids = counter.add(words, counts)
        expected.update(dict(zip(words, counts.tolist(), strict=True)))
        for word, position in zip(words, ids.tolist(), strict=True):
            assert seen.setdefault(word, position) == position
    assert len(counter) > 1 << 16  # the array of counts has grown
    assert counter.types == list(seen)
    assert dict(zip(counter.types, counter.counts.tolist(), strict=True)) == dict(expected)
