"""Random transformers on the generated Verilog."""

import random
from pathlib import Path

import numpy as np
import pytest

from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.program.program import Program
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept
from tests.gen.random_transformers import RandomTransformer

from .on_rtl import ATTENTION, check_on_rtl, machines

machine = machines({"attention": ATTENTION})


def _compiled(machine: RtlMachine, number: tuple[int, int], folder: Path, *,
              largest: int, widest: int) -> tuple[Program, Graph]:
    model = RandomTransformer(np.random.default_rng(number), largest=largest, widest=widest)
    imported = load_model(model.save(folder), machine=Machine.of(machine.config))
    return compile_kept(imported.graph, machine.config)


@pytest.mark.parametrize(("number", "largest", "widest"), [((3, 3), 197, 64), ((20, 30), 197, 64), ((9, 21), 33, 32)],
                         ids=("many loads wait", "copies begin ahead", "fetch waits for a queue"))
def test_exact_cycles(machine, number, largest, widest, tmp_path: Path):
    """Where more loads wait than the engine has places for; where windows begin of which no results are taken yet;
    where fetch asks for the program's next beats while a tile runs."""
    program, graph = _compiled(machine, number, tmp_path, largest=largest, widest=widest)
    real = check_on_rtl(machine, program, graph, number[1], bus=Bus()).counters["cycles"]
    assert estimate(machine.config, program.code).cycles == real


@pytest.mark.parametrize(("count", "largest", "widest"), [
    (6, 17, 32), pytest.param(40, 197, 64, marks=pytest.mark.full)])
def test_random(machine, seed, count, largest, widest, tmp_path: Path):
    """Every tensor is the golden layers' on a memory that pauses and on one that does not; the time model has the
    latter's cycles."""
    errors, cycles = {}, 0
    for number in range(count):
        program, graph = _compiled(machine, (seed, number), tmp_path, largest=largest, widest=widest)
        chance = random.Random(seed + number)
        bus = Bus(latency=chance.randint(1, 120), bandwidth=chance.choice([1.0, 0.6, 0.25]),
                  stall_probability=chance.choice([0.1, 0.3, 0.5]))
        check_on_rtl(machine, program, graph, number, bus=bus)
        real = check_on_rtl(machine, program, graph, number, bus=Bus()).counters["cycles"]
        cycles += real
        errors[number] = (off := estimate(machine.config, program.code).cycles - real) / real
        assert off == pytest.approx(0, abs=0.005 * real), f"number {number}: {off} of {real} cycles"
    worst = max(errors, key=lambda number: abs(errors[number]))
    print(f"{count} transformers, {cycles} cycles: the time model is {errors[worst]:+.2%} off at worst, of number "
          f"{worst}; {sum(map(bool, errors.values()))} are off at all")
