"""Dumps in words: of devices in every state, and damaged ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.arch.error_codes import ERROR_CODES, ErrorCode
from cores.arch.registers import COUNTERS, ENGINE_STATES
from gen.bringup.explain import WAITS, Explanation, explain
from gen.bringup.remedies import REMEDIES
from gen.cli import main
from gen.program.assembler import assemble, encode_all
from npudriver import Backend, DeployedProgram, Deployment
from npudriver.dump import Dump, take_dump
from npudriver.registers import Job, Registers
from sim.devices import FunctionalBackend, InjectedFault, RtlBackend
from sim.rtl.machine import RtlMachine
from tests.npudriver.faulty import FaultyBackend
from tests.npudriver.small import CONFIG, MACHINE, program

#: A load that waits for a token that nobody gives.
STUCK = "load_wgt offset=0 beats=1\nload_wgt offset=1 beats=1 | wait_compute\nend\n"


def stuck() -> DeployedProgram:
    return replace(program(), code=encode_all(assemble(STUCK.splitlines())), instruction_layers=[[0, 2], [-1, 1]],
                   layers=["conv"])


def started(backend: Backend, work: DeployedProgram, timeout: int = 0) -> None:
    """Put a program into memory and start it."""
    code, data = backend.allocate(4096, 4096), backend.allocate(work.data_beats * MACHINE.beat_bytes, 4096)
    code.write(0, np.frombuffer(work.code, np.uint8))
    data.write(0, np.frombuffer(work.constants, np.uint8))
    Registers(backend, MACHINE).start(
        Job(code.address, len(work.code) // 16, data.address, work.data_beats, work.write_start, timeout))


def words(found: Explanation) -> str:
    return "\n".join(found.says)


def test_every_wait_and_every_error_has_words():
    assert set(WAITS) == {(engine, state) for engine, states in ENGINE_STATES.items() for state in states
                          if state.startswith("wait_")}
    assert set(REMEDIES) == set(ERROR_CODES) - {ErrorCode.NONE}


def test_a_machine_that_has_run_nothing():
    found = explain(take_dump(FunctionalBackend(CONFIG), MACHINE))
    assert found.state == "rest" and "run nothing" in words(found) and not found.shares
    assert f"an NPU of {CONFIG.macs} MACs" in words(found)


def test_a_program_that_has_ended():
    backend = FunctionalBackend(CONFIG)
    started(backend, program())
    backend.pause(1)
    found = explain(take_dump(backend, MACHINE))
    assert found.state == "done" and "reached its END" in found.says[0] and found.shares
    Registers(backend, MACHINE).command("CLEAR")
    assert explain(take_dump(backend, MACHINE)).state == "rest"


@pytest.mark.parametrize("fault", [InjectedFault.READ_ERROR, InjectedFault.STALL])
def test_a_program_that_has_failed(fault):
    backend = FunctionalBackend(CONFIG)
    backend.faults.append(fault)
    started(backend, program())
    backend.pause(1)
    found = explain(take_dump(backend, MACHINE), [program()])
    assert found.state == "failed" and "what would help" in words(found)
    assert "it failed at instruction 0: load_" in words(found)
    assert ("READ_SLVERR" if fault is InjectedFault.READ_ERROR else "TIMEOUT") in found.says[0]


def test_an_error_that_nobody_knows():
    dump = take_dump(FunctionalBackend(CONFIG), MACHINE)
    failed = [replace(sample, status=MACHINE.status["ERROR"]) for sample in dump.samples]
    found = explain(replace(dump, samples=failed, registers={**dump.registers, "error_code": 99}))
    assert "error 99" in words(found) and "another version" in words(found)


def test_a_register_port_that_returns_nonsense():
    dump = take_dump(FunctionalBackend(CONFIG), MACHINE)
    odd = [replace(sample, status=0x80) for sample in dump.samples]
    assert explain(replace(dump, samples=odd)).state == "nonsense"


def test_another_device():
    silent = FaultyBackend(FunctionalBackend(CONFIG), register=lambda address, value: 0)
    found = explain(take_dump(silent, MACHINE))
    assert found.state == "other-device" and "no bitstream" in words(found)


def test_programs_that_do_not_fit():
    backend = FunctionalBackend(CONFIG)
    backend.faults.append(InjectedFault.ENDLESS)
    started(backend, program())
    dump = take_dump(backend, MACHINE)
    assert "--program FILE" in words(explain(dump))
    assert "is another: it has 3 instructions" in words(explain(dump, [stuck()]))
    assert "the next is instruction 0: load_" in words(explain(dump, [program()]))
    garbage = replace(program(), code=b"\xff" * len(program().code))
    assert "which is no instruction" in words(explain(dump, [garbage]))
    far = replace(dump, samples=[replace(sample, counters={**sample.counters, "instructions": 9999})
                                 for sample in dump.samples])
    assert "beyond the program's" in words(explain(far, [program()]))


@pytest.mark.rtl
def test_a_hanging_machine_on_the_verilog():
    """Nothing moves, the load engine waits for a token; with a TIMEOUT the same is seen from the counters."""
    with RtlMachine(CONFIG) as machine:
        backend = RtlBackend(CONFIG, machine=machine)
        started(backend, stuck())
        backend.pause(1e-4)
        found = explain(take_dump(backend, MACHINE), [stuck()])
        assert found.state == "stands"
        assert f"the load engine waits for {WAITS['load', 'wait_compute']}" in found.says
        assert "the compute engine has nothing to do" in found.says
        assert any("the load queue was given is 1: load_wgt" in line and "of layer conv" in line for line in found.says)
        assert {share.state: round(share.share, 1) for share in found.shares if share.engine == "load"}[
            "wait_compute"] == 1
        Registers(backend, MACHINE).command("ABORT")
        backend.pause(1e-4)
        started(backend, stuck(), 1000)
        backend.pause(1e-4)
        found = explain(take_dump(backend, MACHINE), [stuck()])
        assert found.state == "failed" and "it failed at instruction 1: load_wgt" in words(found)
        assert f"cycles for {WAITS['load', 'wait_compute']}" in words(found)


def test_a_machine_that_counts_cycles_alone():
    """Whether it gets on is not known, so it is not said to stand still."""
    dump = take_dump(FunctionalBackend(CONFIG), MACHINE)
    samples = [replace(one, status=MACHINE.status["BUSY"], counters={"cycles": 5 + number})
               for number, one in enumerate(dump.samples)]
    found = explain(replace(dump, samples=samples))
    assert found.state == "running" and "does not count what its engines do" in words(found) and not found.shares


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    (tmp_path / "d.json").write_text(take_dump(FunctionalBackend(CONFIG), MACHINE).to_json())
    return tmp_path / "d.json"


def test_the_command(dumped, tmp_path, capsys):
    Deployment(name="small", board="b", device="uio:", machine=MACHINE, inputs={"x": ("uint8", [4, 6, 6])},
               outputs=[program().outputs[0].name], segments=[program()]).save(tmp_path)
    assert main(["explain", str(dumped), "--program", str(tmp_path)]) == 0
    assert "at rest" in capsys.readouterr().out
    assert main(["explain", str(dumped), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counters"] == dict.fromkeys(COUNTERS, 0)


@pytest.mark.parametrize("change", [
    lambda fields: fields.update(version=2), lambda fields: fields.update(format="x"),
    lambda fields: fields.pop("machine"), lambda fields: fields.update(machine=[]),
    lambda fields: fields["registers"].update(status=-1), lambda fields: fields["registers"].update(status=True),
    lambda fields: fields["registers"].update(sta="1"), lambda fields: fields["registers"].pop("program_length"),
    lambda fields: fields["samples"].pop(), lambda fields: fields["samples"][0]["counters"].pop("cycles"),
    lambda fields: fields["samples"][1].update(status=1 << 32), lambda fields: fields.update(more=1),
    lambda fields: fields["machine"]["status"].pop("BUSY")])
def test_damaged_dumps(dumped, capsys, change):
    fields = json.loads(dumped.read_text())
    change(fields)
    dumped.write_text(json.dumps(fields))
    assert main(["explain", str(dumped)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("[damaged-dump]\n") and "internal" not in said


def test_mutated_dumps(dumped, capsys, rng):
    """Any damage is one line, or leaves a dump."""
    text = dumped.read_bytes()
    for _ in range(200):
        content = bytearray(text)
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(len(content))] = rng.integers(256)
        if rng.integers(4) == 0:
            del content[rng.integers(len(content)):]
        dumped.write_bytes(content)
        status = main(["explain", str(dumped)])
        said = capsys.readouterr().err
        assert (status == 0 and not said) or (status == 2 and said.count("\n") == 1 and "internal" not in said)
    with pytest.raises(Exception, match="not a dump"):
        Dump.from_json(b'{"format": "", "version": 1}', "d")
