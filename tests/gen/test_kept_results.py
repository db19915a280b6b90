"""Results that are kept: whatever becomes of their files, nobody gets another result."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from gen.files.results import EntryError, kept, read_entry, write_entry
from gen.hw.clock import clock_of, remember_route
from gen.hw.remembered import remember_synthesis, synthesis_of
from gen.hw.synth import Report
from gen.hw.timing import TimingReport

Rng = np.random.Generator
Damage = Callable[[Rng, Path], None]

BOARD = get_board("ecp5")
CONFIG = BOARD.config(16)
_TIMES = 50


@dataclass(frozen=True)
class Found:
    numbers: dict[str, float]


RIGHT = Found({"lut": 1234.5, "ff": 10, "x": 7})


def _cut(rng: Rng, path: Path) -> None:
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def _flipped(rng: Rng, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def _digits(rng: Rng, path: Path) -> None:
    """Still what it was but for a figure, wherever there is one after the digest."""
    data = bytearray(path.read_bytes())
    first = data.find(b"\n") + 1
    places = [place for place, byte in enumerate(data) if place >= first and chr(byte).isdigit()]
    place = places[int(rng.integers(len(places)))]
    data[place] = ord("0") + (data[place] - ord("0") + 1) % 10
    path.write_bytes(data)


def _without_digest(_: Rng, path: Path) -> None:
    """As an earlier version kept them."""
    path.write_bytes(path.read_bytes().partition(b"\n")[2])


def _another_way(rng: Rng, path: Path) -> None:
    path.unlink()
    [Path.mkdir, os.mkfifo, Path.touch, lambda path: path.symlink_to("/dev/zero")][int(rng.integers(4))](path)


def _remove(path: Path) -> None:
    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


DAMAGES = (_cut, _flipped, _digits, _without_digest, _another_way)


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_entry(damage: Damage, rng: Rng, tmp_path: Path):
    path = tmp_path / "x.kept"
    for _ in range(_TIMES):
        write_entry(path, "some text with figures, 12345")
        assert read_entry(path) == b"some text with figures, 12345"
        damage(rng, path)
        with pytest.raises((EntryError, OSError)):
            read_entry(path)
        _remove(path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_made_is_made_again(damage: Damage, rng: Rng, tmp_path: Path):
    made: list[int] = []

    def make() -> Found:
        made.append(1)
        return RIGHT

    def result() -> Found:
        return kept(tmp_path, "x.kept", lambda values: Found(**values), make)

    for number in range(_TIMES):
        assert result() == result() == RIGHT and len(made) == 2 * number + 1
        damage(rng, tmp_path / "x.kept")
        assert result() == RIGHT and len(made) == 2 * number + 2
        _remove(tmp_path / "x.kept")


def test_an_entry_of_another_name(tmp_path: Path):
    """One that somebody has copied or renamed."""
    def result(name: str, lut: int) -> Found:
        return kept(tmp_path, name, lambda values: Found(**values), lambda: Found({"lut": lut}))

    assert result("a", 1) == result("a", 2) == Found({"lut": 1})
    (tmp_path / "a").replace(tmp_path / "b")
    assert result("b", 3) == Found({"lut": 3})


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_reports_remember(damage: Damage, rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a machine whose figures are damaged nothing is known, but what is estimated and aimed at."""
    monkeypatch.setattr("gen.hw.remembered.cache_folder", lambda: tmp_path)
    for _ in range(10):
        timing = TimingReport("ecp5", "-6", 5, 11.3, {}, {}, [])
        remember_synthesis(BOARD, CONFIG, Report("ecp5", {"lut": 5123}, {}), timing)
        found = synthesis_of(BOARD, CONFIG)
        assert found is not None and found.totals == {"lut": 5123}
        remember_route(BOARD, CONFIG, 71)
        assert (clock_of(BOARD, CONFIG).mhz, clock_of(BOARD, CONFIG).basis) == (71, "placed and routed")
        (routed,) = tmp_path.rglob("*.routed.kept")
        damage(rng, routed)
        assert clock_of(BOARD, CONFIG).basis == "estimated"
        (machine,) = tmp_path.rglob("*.machine.kept")
        damage(rng, machine)
        assert synthesis_of(BOARD, CONFIG) is None and clock_of(BOARD, CONFIG).basis == "target"
        _remove(routed)
        _remove(machine)
