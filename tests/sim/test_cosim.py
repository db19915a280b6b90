"""The Verilog beside the functional simulator: programs agree, and what does not is named where it first differs."""

from collections.abc import Callable

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.buffers.accumulators import AccumulatorSlice
from cores.config import NpuConfig
from gen.program.program import Program
from sim.cosim import Difference, compare_program
from sim.cosim.recorder import RecordingMachine
from sim.rtl import RtlMachine
from tests.compiled import random_image
from tests.random_cases import MACHINES, compile_case
from tests.random_layers import random_inputs
from tests.selection import with_full


def differences(machine: RtlMachine, seed: int) -> tuple[Program, list[Difference]]:
    case, program, graph = compile_case(machine.config, seed)
    image = random_image(program, random_inputs(case.graph, seed), seed)
    return program, compare_program(machine, program.code, image, write_start=program.write_start)[1]


@pytest.fixture(scope="module")
def plain():
    with RtlMachine(MACHINES["plain"], seed=1, observed=True) as machine:
        yield machine


@pytest.mark.parametrize("name", with_full(MACHINES, *(MACHINES.keys() - {"plain"})))
def test_random_programs(name: str, seed: int):
    with RtlMachine(MACHINES[name], seed=1, observed=True) as machine:
        for number in range(10 if name == "plain" else 24):
            assert differences(machine, seed + number)[1] == [], number


def _other_put(machine: RecordingMachine, index: int, places: np.ndarray, values: np.ndarray, *rest: object,
               **named: int) -> None:
    values = values.copy()
    values[..., 0] ^= 1
    _PUT(machine, index, places, values, *rest, **named)


def _other_write(machine: RecordingMachine, index: int, beats: np.ndarray, values: np.ndarray) -> None:
    _WRITE(machine, index, beats, values ^ 1)


def _other_passed(stream: str) -> Callable[..., None]:
    def passed(machine: RecordingMachine, name: str, queue: object, values: np.ndarray) -> None:
        _PASSED(machine, name, queue, values + (name == stream))

    return passed


def _other_post(machine: RecordingMachine, *arguments: object) -> None:
    machine.accumulators.sums += 1
    _POST(machine, *arguments)
    machine.accumulators.sums -= 1


_PUT, _WRITE, _PASSED, _POST = (
    RecordingMachine.put, RecordingMachine.write, RecordingMachine.passed, RecordingMachine.post)
#: What is recorded otherwise -> component, operation of the first instruction that is wrong.
FAULTS = {
    "put": (_other_put, "input buffer", Opcode.LOAD_ACT),
    "write": (_other_write, "memory", Opcode.STORE),
    "weights": (_other_passed("weight"), "weight ring", Opcode.LOAD_WGT),
    "side": (_other_passed("side"), "side ring", Opcode.LOAD_SIDE),
    "pixels": (_other_passed("pool"), "pool unit", Opcode.POOL),
    "sums": (_other_post, "accumulators", Opcode.COMPUTE),
}
_METHODS = {"put": "put", "write": "write", "sums": "post"}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_component_is_named(plain: RtlMachine, monkeypatch: pytest.MonkeyPatch, fault: str):
    """With another expectation of one component the first program that uses it differs, from its first use on."""
    other, component, opcode = FAULTS[fault]
    monkeypatch.setattr(RecordingMachine, _METHODS.get(fault, "passed"), other)
    for seed in range(40):
        program, found = differences(plain, seed)
        used = [index for index, instruction in enumerate(program.instructions) if instruction.opcode is opcode]
        if used:
            break
    first = next(difference for difference in found if difference.component == component)
    assert first.index == used[0]
    assert first.text.startswith(f"{opcode.name}: ")


def test_a_wrong_adder(monkeypatch: pytest.MonkeyPatch):
    """In the Verilog itself: the first difference is a sum, of the first instruction that adds to one."""
    monkeypatch.setattr(AccumulatorSlice, "_add", lambda self, before, addend, carry: before + addend + 1)
    with RtlMachine(MACHINES["plain"], seed=1, observed=True) as machine:
        program, found = differences(machine, 0)
    used = [index for index, instruction in enumerate(program.instructions) if instruction.opcode is Opcode.COMPUTE]
    assert (found[0].component, found[0].index) == ("accumulators", used[0])
    assert "when instruction" in found[0].text


def test_only_of_an_observed_machine():
    with RtlMachine(NpuConfig.preset(16)) as machine, pytest.raises(ValueError, match="is not observed"):
        _ = machine.events
