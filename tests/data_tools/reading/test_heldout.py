from __future__ import annotations

from data_tools.reading.heldout import HeldoutChoice

LINES = [f"line {i}" for i in range(10_000)]


def test_holds_out_the_share_of_lines() -> None:
    is_heldout = HeldoutChoice(0.1, seed=1)
    assert 850 < sum(map(is_heldout, LINES)) < 1150
    assert not any(map(HeldoutChoice(0.0, seed=1), LINES))


def test_depends_on_line_and_seed_only() -> None:
    first, again, other = HeldoutChoice(0.1, 1), HeldoutChoice(0.1, 1), HeldoutChoice(0.1, 2)
    chosen = [line for line in LINES if first(line)]
    assert chosen == [line for line in LINES if again(f" {line}\r")]
    assert chosen != [line for line in LINES if other(line)]


def test_a_larger_share_keeps_the_smaller_one() -> None:
    small, large = HeldoutChoice(0.1, 1), HeldoutChoice(0.2, 1)
    assert all(large(line) for line in LINES if small(line))
