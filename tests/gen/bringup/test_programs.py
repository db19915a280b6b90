"""Programs for the engines: on machines of every unit, and as a file."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from cores.arch.instruction import decode
from cores.arch.isa import INSTRUCTION_BYTES, Opcode, StepKind
from cores.config import COMPUTING_FEATURES, ConfigError, NpuConfig
from cores.device import driver_machine
from gen.bringup.programs import PLANS, bring_up
from npudriver import PackageError
from npudriver.bringup import BringUp, Trial
from npudriver.doctor import LADDER, Bench, examine
from sim import functional
from sim.devices import FunctionalBackend, RtlBackend
from sim.rtl.machine import RtlMachine
from tests.npudriver.small import CONFIG

#: Program -> what it is to execute.
EXECUTES: Mapping[str, Opcode | StepKind] = {
    "loop": Opcode.POOL, "maximum": Opcode.POOL, "sum": Opcode.POOL, "add": Opcode.STORE_ADD,
    "leaky": Opcode.STORE_LEAKY, "table": Opcode.STORE_TABLE, "product": Opcode.STORE_MULTIPLY,
    "dense": StepKind.DENSE, "sparse": StepKind.INDEXED, "depthwise": Opcode.COMPUTE, "gather": Opcode.LOAD_GATHER,
    "fusion": Opcode.STORE_SET, "maxima": Opcode.STORE_MAXIMUM, "binary": StepKind.BINARY,
    "int4": StepKind.INT4, "winograd": Opcode.LOAD_WINOGRAD, "streams": StepKind.STOCHASTIC,
}


def machines() -> Iterator[NpuConfig]:
    """Of each unit by itself, in small; of some, in the smallest machine that can have it, or makes use of it."""
    yield NpuConfig.preset(16)
    yield NpuConfig.preset(16, maximum=1)
    yield NpuConfig.preset(64, int4=1)
    for feature in COMPUTING_FEATURES:
        for macs in (256,) if feature == "fusion" else (16, 64, 256):
            try:
                yield NpuConfig.preset(macs, **NpuConfig.preset(macs).feature_fields([feature]))
                break
            except ConfigError:
                continue


MACHINES = list(machines())


def executed(trial: Trial) -> Iterator[Opcode | StepKind]:
    for start in range(0, len(trial.code), INSTRUCTION_BYTES):
        instruction = decode(trial.code[start:start + INSTRUCTION_BYTES])
        yield instruction.opcode
        if instruction.opcode is Opcode.COMPUTE:
            yield StepKind(instruction["kind"])


@pytest.mark.parametrize("config", MACHINES, ids=lambda config: ",".join(config.features) or "plain")
def test_each_engine_has_its_program(config):
    """It executes what it is for, gives what is expected, and values that many mistakes would change."""
    found = bring_up(config)
    assert [trial.name for trial in found.trials] == [plan.name for plan in PLANS if plan.has(config)]
    for trial in found.trials:
        assert EXECUTES[trial.name] in set(executed(trial)), trial.name
        region = np.zeros(trial.data_beats * config.beat_bytes, np.uint8)
        region[:len(trial.data)] = np.frombuffer(trial.data, np.uint8)
        functional.run(config, trial.code, region, write_start=trial.write_start)
        assert not any(trial.data[trial.output * config.beat_bytes:][:len(trial.expected)]), trial.name
        made = region[trial.output * config.beat_bytes:][:len(trial.expected)]
        assert made.tobytes() == trial.expected, trial.name
        assert len(np.unique(made)) > 50, trial.name
    assert not {Opcode.COMPUTE} & set(executed(found.trials[0])) and found.trials[0].source >= 0


def test_every_engine_is_tried():
    """By one machine or another."""
    assert {plan.name for plan in PLANS} == set(EXECUTES)
    assert {trial.name for config in MACHINES for trial in bring_up(config).trials} == set(EXECUTES)


@pytest.mark.rtl
@pytest.mark.parametrize("config", [pytest.param(config, marks=pytest.mark.full if config.features else ())
                                    for config in MACHINES],
                         ids=lambda config: ",".join(config.features) or "plain")
def test_on_the_verilog(config):
    """A sound machine goes up the whole ladder."""
    programs = bring_up(config).trials
    with RtlMachine(config) as machine:
        bench = Bench(RtlBackend(config, machine=machine), driver_machine(config), trials=programs)
        found = list(examine(bench))
    assert len(found) == len(LADDER) + len(programs) and all(finding.ok for finding in found), "\n".join(
        map(str, found))


def test_the_file(tmp_path):
    """The same programs give the same bytes, which are read back."""
    made, path = bring_up(CONFIG), tmp_path / "b.zip"
    path.write_bytes(made.content())
    read = BringUp.load(path)
    assert BringUp.is_one(path) and read.machine == driver_machine(CONFIG)
    assert [vars(one) for one in read.trials] == [{**vars(one), "shape": list(one.shape)} for one in made.trials]
    assert bring_up(CONFIG).content() == made.content() == read.content()


def test_damaged_files(tmp_path, rng):
    """A byte anywhere is found, or leaves what was written."""
    content, path = bring_up(CONFIG).content(), tmp_path / "b.zip"
    for _ in range(100):
        changed = bytearray(content)
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            assert BringUp.load(path).content() == content
        except PackageError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("change", [dict(data_beats=10), dict(output=0), dict(data=b"\1" * 20000),
                                    dict(shape=[1, 2, 3]), dict(source=1 << 19), dict(name="../x"), dict(code=b"123")])
def test_sizes_that_cannot_be(tmp_path, change):
    made, path = bring_up(CONFIG), tmp_path / "b.zip"
    trial = Trial(**{**vars(made.trials[0]), **change})
    path.write_bytes(BringUp(made.machine, [trial]).content())
    with pytest.raises(PackageError):
        BringUp.load(path)


def test_a_device_with_one_wrong_program():
    """The engine whose bytes are others is named, and none after it is tried."""
    programs = list(bring_up(CONFIG).trials)
    number = next(at for at, trial in enumerate(programs) if trial.name == "sum")
    wrong = bytearray(programs[number].expected)
    wrong[7] ^= 1
    programs[number] = Trial(**{**vars(programs[number]), "expected": bytes(wrong)})
    *before, last = examine(Bench(FunctionalBackend(CONFIG), driver_machine(CONFIG), trials=programs))
    assert all(finding.ok for finding in before) and last.check == "sum" and not last.ok
    assert "1 of" in last.found and "byte 0x7 " in last.found and "only bit 0" in last.wrong
