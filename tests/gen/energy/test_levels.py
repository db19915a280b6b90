"""Levels of voltage and frequency: the shipped file, and what is wrong with others."""

import json
from pathlib import Path
from typing import Any

import pytest

from gen.energy.levels import CORTEX_A7, LevelsError, read_levels

TWO: list[dict[str, Any]] = [{"name": "slow", "mhz": 100, "volts": 0.8, "above": 0},
                             {"name": "fast", "mhz": 200, "volts": 1.0, "above": 0.5}]


def written(folder: Path, *changed: dict[str, Any], **other: Any) -> Path:
    path = folder / "levels.json"
    levels = [{**level, **change} for level, change in zip(TWO, [*changed, {}, {}], strict=False)]
    path.write_text(json.dumps({"levels": levels, **other}))
    return path


def test_the_shipped_ones():
    levels = read_levels(CORTEX_A7)
    assert len(levels.levels) == 6 and [level.name for level in levels.used] == ["l6", "l4", "l3"]


def test_used_from_full_to_empty(tmp_path: Path):
    fast, slow = read_levels(written(tmp_path)).used
    assert (fast.name, slow.name) == ("fast", "slow")
    assert fast.seconds(3e6) == pytest.approx(3e6 / 200e6)
    assert fast.energy(10, 3) / slow.energy(10, 3) == pytest.approx(1 / 0.8 ** 2)


@pytest.mark.parametrize("changed, message", [
    ([{"name": "fast"}], "two levels are called fast"),
    ([{"volts": 1.1}], "fast is faster than slow at a lower voltage"),
    ([{"above": None}], "one level must be used down to an empty battery"),
    ([{"above": 0.1}], "one level must be used down to an empty battery"),
    ([{}, {"above": 0}], "are for the same charge"),
    ([{"mhz": 300, "volts": 1.2}], "fast is for more charge than slow, and must be faster"),
    ([{"mhz": 0}], r"Expected `float` > 0.*levels\[0\].mhz"),
    ([{"volts": "1"}], "Expected `float`, got `str`"), ([{"above": 1}], r"Expected `float` < 1"),
    ([{"clock": 1}], "unknown field `clock`"), ([{"name": "a\nb"}], "matching regex")])
def test_others(changed: list[dict[str, Any]], message: str, tmp_path: Path):
    with pytest.raises(LevelsError, match=message) as caught:
        read_levels(written(tmp_path, *changed))
    assert str(caught.value).startswith(f"{tmp_path / 'levels.json'}: ")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"levels": []}', "{", "null", '{"levels": [1]}', '{"levels": {}}'])
def test_files_that_hold_none(text: str, tmp_path: Path):
    path = tmp_path / "levels.json"
    path.write_text(text)
    with pytest.raises((LevelsError, OSError), match="levels.json|empty"):
        read_levels(path)


def test_no_numbers_beyond_all_measure(tmp_path: Path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("200", "1e999"))
    with pytest.raises(LevelsError):
        read_levels(path)
