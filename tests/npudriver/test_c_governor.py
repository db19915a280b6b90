"""The governor in C makes the choices of the one in Python, refuses the same tables, and governs a device."""

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from gen.deploy.c_sources import c_sources, library_files
from gen.deploy.package import encoded_sample
from gen.govern.header import levels_header
from gen.ir import reference
from gen.passes.streams import shorten_streams
from gen.run.inputs import Samples
from npudriver.battery import BatteryError, PowerSupply
from npudriver.governor import Governor
from npudriver.levels import LevelsFileError, LevelTable

from .compiled_c import HERE, compiled, on_rtl
from .governing import random_table, random_trace, table
from .small_streams import CONFIG, workload


def test_the_same_choices(rng: np.random.Generator, tmp_path: Path):
    """300 random tables, some of them wrong, each on a trace of charges, times and deadlines."""
    for name, content in library_files(CONFIG).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "governor.c").write_text((HERE / "governor.c").read_text())
    example = compiled(tmp_path, "governor.c", "npugen_governor.c", "npugen.c")
    lines, wanted = [], []
    for _ in range(300):
        levels, plan, battery = random_table(rng)
        trace = random_trace(rng, 60)
        numbers = [len(levels), int(plan.kind == "lasting"), plan.deadline_ns, plan.hysteresis_ppm, plan.least_right,
                   plan.period_us, plan.lasts_us, battery]
        numbers += [value for one in levels for value in (one.time_ns, one.energy, one.right, one.above_ppm)]
        numbers += [len(trace), *(value for step in trace for value in step)]
        lines.append(" ".join(map(str, numbers)))
        wanted.append(_choices(levels, plan, battery, trace))
    done = subprocess.run([example], input="\n".join(lines), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = [line.strip() for line in done.stdout.splitlines()]
    assert found == wanted
    assert 10 < wanted.count("refused") < 150
    # The traces are worth something: all levels, both remarks.
    steps = [step for line in wanted if line != "refused" for step in line.split()]
    assert {step.split(",")[0] for step in steps} >= set("012345")
    assert {step.split(",", 1)[1] for step in steps} == {"0,0", "0,1", "1,0", "1,1"}


def _choices(levels, plan, battery, trace) -> str:
    try:
        governor = Governor(LevelTable(levels, plan, battery))
    except LevelsFileError:
        return "refused"
    found = []
    for charge, now, deadline in trace:
        governor.set_deadline(deadline)
        choice = governor.choose(charge, now)
        found.append(f"{choice.level},{int(choice.late)},{int(choice.short)}")
    return " ".join(found)


@pytest.fixture
def governed(rng: np.random.Generator, tmp_path: Path) -> tuple[Path, LevelTable, list[str]]:
    """What governs a device in C, its levels, and by level the bytes that the reference makes."""
    model = workload(rng)
    x = rng.integers(-128, 128, (1, 8, 4, 4), dtype=np.int8)
    sample = encoded_sample(model.program.deployed, model, Samples({"x": x}, None))
    for name, content in c_sources(CONFIG, model.program.deployed, get_board("zu3eg"), sample).items():
        (tmp_path / name).write_bytes(content)
    levels = [dataclasses.replace(one, shift=shift) for one, shift in zip(table().levels, (0, 1, 3), strict=True)]
    whole = dataclasses.replace(table(battery=4000), levels=levels, programs=["a*/ \"\\b.npu"], about="*/ #error")
    (tmp_path / "npugen_levels.h").write_text(levels_header(whole))
    sources = (tmp_path / "npugen.c", tmp_path / "npugen_governor.c", tmp_path / "npugen_power.c")
    (tmp_path / "npugen.c").write_text("\n".join(source.read_text() for source in sources))
    outputs = [reference.run(shorten_streams(model.graph, one.shift), {"x": x})[0] for one in levels]
    return on_rtl(tmp_path, "governing.c", CONFIG), whole, [
        next(iter(one.values()))[0].tobytes().hex() for one in outputs]


def test_a_reckoned_battery(tmp_path: Path):
    """It has never less than nothing, nor more than all."""
    for name, content in library_files(CONFIG).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "battery.c").write_text((HERE / "battery.c").read_text())
    example = compiled(tmp_path, "battery.c", "npugen_governor.c", "npugen.c")

    def charges(*numbers: int) -> list[int]:
        done = subprocess.run([example], input=" ".join(map(str, numbers)), capture_output=True, text=True, check=True)
        return [int(charge) for charge in done.stdout.split()]

    assert charges(100, 100, 30, 60, 20, 1) == [1_000_000, 700_000, 100_000, 0, 0]
    assert charges(100, 10**9, 1) == [1_000_000, 1_000_000]
    assert charges(0, 0, 1) == [0, 0] == charges(0, 5, 9)
    assert charges(1 << 43, 1 << 42) == [500_000]


#: What files may hold: numbers, and what is none.
_TEXTS = ("47\n", "0", " 5 \n", "\t\n12\r\n", "9" * 18, "123456789012345678", "1" + "0" * 17, "100", "250", "-3",
          "full", "", "\n", "9" * 19, "4 7", "1.5", "0x10", "\u0663", "7\u00a0", "3" + " " * 61 + "\n",
          "3" + " " * 70 + "x")


def test_charges_of_linux_are_pythons(rng: np.random.Generator, tmp_path: Path):
    """Folders with some of the files, some of them no numbers: the same charge, or an error of both."""
    for name, content in library_files(CONFIG).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "charges.c").write_text((HERE / "charges.c").read_text())
    example = compiled(tmp_path, "charges.c", "npugen_power.c", "npugen.c")
    folders, wanted = [], []
    for number in range(300):
        folders.append(folder := tmp_path / f"BAT{number}")
        folder.mkdir()
        for name in ("energy_now", "energy_full", "charge_now", "charge_full", "capacity"):
            if rng.random() < 0.7:
                (folder / name).write_text(str(rng.choice(_TEXTS[:9] if rng.random() < 0.8 else _TEXTS)))
            elif rng.random() < 0.1:
                (folder / name).mkdir()     # cannot be read
        try:
            wanted.append(str(PowerSupply(folder).charge()))
        except BatteryError:
            wanted.append("error")
    done = subprocess.run([example, *folders], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == wanted
    assert 30 < wanted.count("error") < 200 and len(set(wanted)) > 10


def test_a_battery_lasts_where_the_time_wraps():
    """As from 0: the plan is of what has passed since the first inference."""
    levels, plan = table().levels, dataclasses.replace(table().plan, kind="lasting", period_us=10, lasts_us=1000)
    found = []
    for first in (0, (1 << 64) - 500):
        governor = Governor(LevelTable(levels, plan, battery=4000))
        found.append([governor.choose(1_000_000 - 9 * step, (first + step) % (1 << 64)) for step in range(0, 1200, 10)])
    assert found[0] == found[1]


def test_on_the_verilog(governed):
    """A whole discharge: each result is the reference's at the level that the charge gives."""
    example, whole, outputs = governed
    done = subprocess.run([example], cwd=example.parent, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    left, governor, wanted = whole.battery, Governor(whole), []
    while not (choice := governor.choose(charge := left * 1_000_000 // whole.battery)).short:
        wanted.append([str(choice.level), str(charge), outputs[choice.level]])
        left -= whole.levels[choice.level].energy
    assert [line.split() for line in done.stdout.splitlines()] == wanted
    assert [level for level, *_ in wanted] == ["0"] * 4 + ["1"] * 6 + ["2"] * 12


def test_charges_of_linux(governed, tmp_path: Path):
    example, *_ = governed
    folder = tmp_path / "BAT0"
    folder.mkdir()

    def charge(**files: str) -> str:
        for old in folder.iterdir():
            old.unlink()
        for name, text in files.items():
            (folder / name).write_text(text)
        done = subprocess.run([example, folder], cwd=tmp_path, capture_output=True, text=True)
        return done.stdout.strip() or done.stderr.strip()

    failed = "reading the charge: the way to the device fails"
    assert charge() == failed
    assert charge(capacity="47\n") == "470000"
    assert charge(capacity="47\n", charge_now="3", charge_full="4") == "750000"
    assert charge(charge_now="3", charge_full="4", energy_now="1\n", energy_full="10\n") == "100000"
    assert charge(energy_now="11\n", energy_full="10\n") == "1000000"
    for text in ("-3", "full", "", "9" * 30, "4 7"):
        assert charge(capacity=text) == failed
    assert charge(energy_now="1", energy_full="0") == failed
