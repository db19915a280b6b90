"""The governor: choices by hand, what does not make it flutter, its files, batteries, and models that it governs."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from cores.device import driver_machine
from gen.ir import reference
from gen.passes.streams import shorten_streams
from npudriver import Deployment, Device, DriverError
from npudriver.battery import BatteryError, ModelledBattery, PowerSupply, ReadBattery
from npudriver.governed import GovernedModel
from npudriver.governor import Choice, Governor
from npudriver.levels import FULL, LevelsFileError, LevelTable, Plan
from sim.devices import FunctionalBackend

from . import small
from .governing import level, table
from .small_streams import CONFIG, workload


def chosen(governor: Governor, *percents: float) -> list[int]:
    return [governor.choose(round(percent * 10_000)).level for percent in percents]


def test_by_thresholds():
    """Down at once; up only with the hysteresis of 5 % above the threshold."""
    assert chosen(Governor(table()), 100, 61, 60, 61, 64.9, 65, 65.1, 31, 30, 34, 35.1, 100, 0) == [
        0, 0, 1, 1, 1, 1, 0, 1, 2, 2, 1, 0, 2]
    # What was never used needs no hysteresis.
    assert chosen(Governor(table()), 62) == [0] and chosen(Governor(table()), 31) == [1]


def test_a_charge_that_is_read_unevenly_switches_once(rng: np.random.Generator):
    """With errors of less than half the hysteresis each threshold is passed once; without it, it flutters."""
    falling = np.linspace(FULL, 0, 4000)
    read = np.clip(falling + rng.uniform(-24_000, 24_000, 4000), 0, FULL).astype(int)
    switches = {}
    for hysteresis in (50_000, 0):
        governor = Governor(table(hysteresis_ppm=hysteresis))
        levels = [governor.choose(int(charge)).level for charge in read]
        switches[hysteresis] = sum(a != b for a, b in zip(levels, levels[1:], strict=False))
    assert switches[50_000] == 2 and switches[0] > 20


def test_by_deadline():
    """The charge's level if it is in time; else one of less energy; else one of more; else the fastest, and it is
    said. Accuracy comes before all of them.
    """
    governor = Governor(table(deadline_ns=2000))
    assert governor.choose(FULL) == Choice(1)
    governor.set_deadline(999)
    assert governor.choose(FULL) == Choice(2, late=True)
    governor.set_deadline(0)
    assert governor.choose(FULL) == Choice(0)
    slow = dataclasses.replace(table(deadline_ns=4000), levels=[
        dataclasses.replace(one, time_ns=time)
        for one, time in zip(table().levels, (4000, 9000, 8000), strict=True)])
    assert Governor(slow).choose(0) == Choice(0)
    accurate = Governor(table(deadline_ns=1500, least_right=9000))
    assert accurate.choose(FULL) == Choice(1, late=True)
    accurate.set_deadline(0)
    assert accurate.choose(0) == Choice(1)
    with pytest.raises(ValueError, match="deadline_ns must be 0 or more, not -1"):
        governor.set_deadline(-1)


def test_by_endurance():
    """Ten inferences of 400 are there; for 20 that is half a level's; and what was saved brings the first one back."""
    plan = dict(kind="lasting", period_us=10, lasts_us=200, hysteresis_ppm=100_000)
    governor = Governor(table(battery=4000, **plan))
    for _ in range(2):
        assert governor.choose(FULL, 1000) == Choice(1)             # 200 each: what is there needs no more than that
    assert governor.choose(FULL * 9 // 10, 1110) == Choice(1)       # 3600 for 9: not 440
    assert governor.choose(FULL * 9 // 10, 1120) == Choice(0)       # for 8: 450
    assert governor.choose(FULL // 10, 1150) == Choice(2, short=True)   # 400 for 5
    assert governor.choose(FULL // 10, 1160) == Choice(2)
    assert governor.choose(FULL // 10, 5000) == Choice(1)           # beyond the end: for one, and not 440
    assert governor.choose(FULL // 5, 5000) == Choice(0)
    assert governor.choose(FULL // 20, 1195) == Choice(1)           # the last one, of which half the period is left
    with pytest.raises(ValueError, match="charge and time must be 0 or more, not -1 and 0"):
        governor.choose(-1)


def test_a_battery_lasts_as_planned(rng: np.random.Generator):
    """Whatever it holds: with enough for the last level it is not empty before the end, and not half full then."""
    for _ in range(40):
        count, battery = int(rng.integers(50, 400)), 0
        battery = int(rng.uniform(1.1, 4) * 100 * count)
        levels = table(battery=battery, kind="lasting", period_us=7, lasts_us=7 * count)
        governor, left = Governor(levels), ModelledBattery(battery)
        for number in range(count):
            choice = governor.choose(left.charge(), 7 * number)
            assert not choice.short and left.left >= levels.levels[choice.level].energy
            left.spend(levels.levels[choice.level].energy)
        assert left.left < 0.1 * battery + 400


def test_short_of_charge():
    governor = Governor(table(battery=10_000))
    assert governor.choose(FULL // 100) == Choice(2)
    assert governor.choose(FULL // 100 - 1) == Choice(2, short=True)
    assert not Governor(table()).choose(0).short     # how much it has is not known


@pytest.mark.parametrize("change, message", [
    (dict(levels=[]), "there must be 1 to 32 levels, not 0"),
    (dict(levels=[level("a", above_ppm=5), level("a", energy=1)]), "two levels are called a"),
    (dict(levels=[level("a", above_ppm=5), level("b")]), "level b takes no less energy than a, the one before it"),
    (dict(levels=[level("a", above_ppm=5), level("b", energy=1, above_ppm=5)]), "b is not for less charge than a"),
    (dict(levels=[level("a", above_ppm=5)]), "level a, the last one, must be used down to an empty battery"),
    (dict(levels=[level("a", program=1)]), "level a: there is no program 1"),
    (dict(plan=Plan(least_right=9501)), "no level has 95.01 % of its answers right, as the plan asks"),
    (dict(plan=Plan(hysteresis_ppm=400_000)), "level full would never come back"),
    (dict(plan=Plan("lasting", lasts_us=1)), "a plan of kind lasting needs period_us and battery"),
])
def test_tables_that_do_not_go_together(change, message):
    with pytest.raises(LevelsFileError, match=message):
        dataclasses.replace(table(), **change)


def test_files(tmp_path: Path):
    path = tmp_path / "governor.json"
    whole = table(battery=77, deadline_ns=5)
    path.write_text(whole.to_json())
    assert LevelTable.load(path) == whole
    damages = {
        "level[1]": lambda value: value["levels"][1].update(energy=0), "plan": lambda value: value.pop("plan"),
        "kind": lambda value: value["plan"].update(kind="best"), "right": lambda value: value["levels"][0].pop("right"),
        "more": lambda value: value.update(more=1), "above_ppm": lambda value: value["levels"][2].update(above_ppm=1),
        "unit": lambda value: value.update(unit="a\nb"),
        "energy": lambda value: value["levels"][0].update(energy=1 << 44),
    }
    for name, damage in damages.items():
        value = json.loads(whole.to_json())
        damage(value)
        path.write_text(json.dumps(value))
        with pytest.raises(LevelsFileError) as raised:
            LevelTable.load(path)
        text = str(raised.value)
        assert text.startswith(f"{path}: ") and "\n" not in text and raised.value.code == "bad-levels", name
    for content in (b"", b"[1", b"\xff", b"[]", b'{"format": "another"}'):
        path.write_bytes(content)
        with pytest.raises(LevelsFileError, match="governor.json: "):
            LevelTable.load(path)


def _mutated(value: object, rng: np.random.Generator) -> object:
    """A JSON value with one value in it replaced, left out, or with one more."""
    odd: list[object] = [None, True, -1, 0, 1, 1.5, 1 << 43, (1 << 43) + 1, 1 << 70, "", "x" * 300, "\x1b[2J", [], {}]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = list(value)[int(rng.integers(len(value)))]
        change = int(rng.integers(5))
        if change == 0:
            return {key: one for key, one in value.items() if key != name}
        if change == 1:
            return {**value, "more": 1}
        return {**value, name: _mutated(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = int(rng.integers(len(value)))
        return [*value[:place], _mutated(value[place], rng), *value[place + int(rng.integers(2)):]]
    return odd[int(rng.integers(len(odd)))]


def test_files_that_say_anything(rng: np.random.Generator):
    """Each is refused in one line, or is a table by which levels can be chosen."""
    whole = json.loads(table(battery=77, deadline_ns=5).to_json())
    refused = 0
    for _ in range(500):
        content = json.dumps(_mutated(whole, rng)).encode()
        if rng.random() < 0.1:
            content = content[:int(rng.integers(len(content)))]
        try:
            governor = Governor(LevelTable.read(content))
        except LevelsFileError as error:
            refused += 1
            assert str(error).isprintable() and len(str(error)) < 300
            continue
        for charge in (0, 500_000, FULL):
            assert 0 <= governor.choose(charge, charge).level < len(governor.levels)
    assert 250 < refused < 500


@pytest.mark.parametrize("names", [[], ["a"] * 33, ["\0"], ["\ud800"], ["a\nb"]], ids=ascii)
def test_files_of_programs(names: list[str]):
    """Names that no file has, and lists of any length."""
    content = json.dumps({**json.loads(table().to_json()), "programs": names}).encode()
    with pytest.raises(LevelsFileError, match="programs must be 1 to 32 names of files"):
        LevelTable.read(content)


def test_batteries(tmp_path: Path):
    folder = tmp_path / "BAT0"
    with pytest.raises(BatteryError, match="BAT0: no such power supply"):
        PowerSupply(folder)
    folder.mkdir()
    supply = PowerSupply(folder)
    with pytest.raises(BatteryError, match="BAT0/capacity: No such file"):
        supply.charge()
    (folder / "capacity").write_text("47\n")
    assert supply.charge() == 470_000
    for now, full, wanted in (("charge_now", "charge_full", 250_000), ("energy_now", "energy_full", 750_000)):
        (folder / now).write_text(f"{3 * wanted}\n")
        (folder / full).write_text("3000000\n")
        assert supply.charge() == wanted
    (folder / "energy_full").write_text("1000\n")
    assert supply.charge() == FULL
    for text in ("-3", "full", "", "9" * 30):
        (folder / "energy_now").write_text(text)
        with pytest.raises(BatteryError, match="energy_now: must be a whole number of 0 or more"):
            supply.charge()
    (folder / "energy_now").write_text("1")
    (folder / "energy_full").write_text("0")
    with pytest.raises(BatteryError, match="energy_full: a full battery that has nothing"):
        supply.charge()
    assert ReadBattery(lambda: FULL + 3).charge() == FULL
    with pytest.raises(BatteryError, match="must be a whole number of 0 or more millionths, not 0.5"):
        ReadBattery(lambda: 0.5).charge()     # type: ignore[arg-type, return-value]
    model = ModelledBattery(1000, 500)
    model.spend(333)
    assert (model.left, model.charge()) == (167, 167_000)
    model.spend(333)
    assert model.charge() == 0
    with pytest.raises(BatteryError, match="does not say how much a full battery has"):
        ModelledBattery(0)


def deployed(rng: np.random.Generator) -> tuple[Deployment, object]:
    model = workload(rng)
    program = model.program.deployed
    return Deployment(name="streams", board="b", device="uio:", machine=driver_machine(CONFIG),
                      inputs={"x": ("int8", [8, 4, 4])}, outputs=[port.name for port in program.outputs],
                      segments=[program]), model.graph


def test_a_governed_model(rng: np.random.Generator):
    """As the battery empties streams get shorter, each result the reference's at its length; clocks are set once."""
    deployment, graph = deployed(rng)
    levels = [dataclasses.replace(one, shift=shift, clock_khz=khz) for one, shift, khz in zip(
        table().levels, (0, 2, 3), (400_000, 400_000, 200_000), strict=True)]
    whole = dataclasses.replace(table(battery=4000), levels=levels)
    x = rng.integers(-128, 128, (8, 4, 4), dtype=np.int8)
    clocks: list[int] = []
    with Device(FunctionalBackend(CONFIG), driver_machine(CONFIG)) as device, deployment.load_into(device) as model:
        battery = ModelledBattery(whole.battery)
        governed = GovernedModel(Governor(whole), [model], battery,
                                 set_clock=lambda level: clocks.append(level.clock_khz))
        found = []
        while not (made := governed.run({"x": x})).choice.short:
            found.append(made)
    assert [made.level.name for made in found] == ["full"] * 4 + ["half"] * 6 + ["quarter"] * 12
    assert [made.charge_ppm for made in found][:4] == [1_000_000, 900_000, 800_000, 700_000]
    assert clocks == [400_000, 200_000]
    for made in found:
        wanted = reference.run(shorten_streams(graph, made.level.shift), {"x": x[None]})[0]
        assert all(np.array_equal(made.outputs[name], values[0]) for name, values in wanted.items())
    cycles = [made.cycles or 0 for made in found]
    assert cycles[0] > cycles[4] > cycles[-1] > 0
    assert found[0].now_us < found[-1].now_us       # the device's own time


def test_what_a_governed_model_wants(rng: np.random.Generator):
    deployment, _ = deployed(rng)
    battery = ModelledBattery(1)
    with Device(FunctionalBackend(CONFIG), driver_machine(CONFIG)) as device, deployment.load_into(device) as model:
        clocked = [dataclasses.replace(one, clock_khz=one.energy) for one in table().levels]
        for levels, models, message in (
                (table(), [model, model], "the levels are of 1 programs, not of 2"),
                (dataclasses.replace(table(), levels=clocked), [model], "clocks or voltages of their own")):
            with pytest.raises(LevelsFileError, match=message):
                GovernedModel(Governor(levels), models, battery)
    whole = small.program()
    plain = Deployment(name="small", board="b", device="uio:", machine=small.machine_of_json(),
                       inputs={"x": ("uint8", [4, 6, 6])}, outputs=[whole.outputs[0].name], segments=[whole])
    shifted = [dataclasses.replace(table().levels[-1], shift=1)]
    with Device(FunctionalBackend(small.CONFIG), small.machine_of_json()) as device, \
            plain.load_into(device) as model:
        with pytest.raises(DriverError, match="level quarter shortens streams, which the machine does not have"):
            GovernedModel(Governor(dataclasses.replace(table(), levels=shifted)), [model], battery)
