"""What a dump of a machine says, in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cores.arch.error_codes import ErrorCode, error_code
from cores.arch.instruction import decode, disassemble
from cores.arch.isa import INSTRUCTION_BYTES, Queue
from cores.arch.registers import ENGINE_STATES
from gen.bringup.remedies import REMEDIES
from gen.files.printable import printable
from npudriver import DeployedProgram
from npudriver.dump import Dump, Sample
from npudriver.program import layer_of

__all__ = ["WAITS", "Explanation", "Share", "explain", "shares_of"]

#: Engine and state -> what an engine in it waits for; the other states of `ENGINE_STATES` are no waits.
WAITS: Mapping[tuple[str, str], str] = {
    ("load", "wait_compute"): "a part of the input buffer that the compute engine has not finished reading",
    ("load", "wait_store"): "data that a STORE has not written yet",
    ("load", "wait_ring"): "room in the weight or the side ring, from which nobody takes",
    ("load", "wait_bus"): "the memory: requests that it does not take, or data that do not come",
    ("compute", "wait_load"): "activations that the load engine has not brought",
    ("compute", "wait_store"): "an accumulator bank that the store engine has not read, or the store engine's room",
    ("compute", "wait_weights"): "weights that the load engine has not brought",
    ("store", "wait_compute"): "sums that the compute engine has not finished",
    ("store", "wait_side"): "parameters or another operand that the load engine has not brought",
    ("store", "wait_bus"): "the memory: writes that it does not take, or does not answer",
}


@dataclass(frozen=True)
class Share:
    """``cycles`` of an engine in a state, and what part of all cycles they are (0 to 1)."""

    engine: str
    state: str
    cycles: int
    share: float


@dataclass(frozen=True)
class Explanation:
    """``state``: one word for scripts; ``says``: lines for people, the most important first; ``shares``: of cycles."""

    state: str
    says: Sequence[str]
    shares: Sequence[Share]


def explain(dump: Dump, programs: Sequence[DeployedProgram] = ()) -> Explanation:
    """``programs``: of which one may have been running; its instructions are disassembled then."""
    machine, registers = dump.machine, dump.registers
    wrong = next((name for name, value in machine.fingerprint.items() if registers.get(name, value) != value), None)
    if dump.trouble:
        return Explanation("unreachable", [f"the way to the device failed while it was read: {printable(dump.trouble)}",
                                           *_identity(dump, wrong)], [])
    if not dump.samples:
        why = "nothing else was read, as reading another device may change it"
        return Explanation("other-device", [*_identity(dump, wrong), why], [])
    first, last = dump.samples
    says = list(_identity(dump, wrong))
    state, words = _state(dump)
    says.insert(0, words)
    if state == "failed":
        says += _failure(registers)
    where = _place(dump, state)
    if where is not None:
        says += _instruction(dump, where, state, programs)
    if state in ("running", "stands"):
        says += _doing(first, last)
    elif state == "failed" and registers["error_code"] == ErrorCode.TIMEOUT:
        says += _longest_waits(last)
    return Explanation(state, says, list(shares_of(last)))


def _identity(dump: Dump, wrong: str | None) -> Iterator[str]:
    machine, registers = dump.machine, dump.registers
    if wrong is not None:
        values = set(registers.values())
        silent = len(values) == 1 and values <= {0, 0xFFFFFFFF}
        yield (f"it is not the machine of the package: register {wrong} is {registers[wrong]:#010x}, not "
               f"{machine.fingerprint[wrong]:#010x}" + ("; nothing answers there: another address, no clock, held in "
                                                        "reset, or no bitstream" if silent else ""))
    elif machine.fingerprint.keys() <= registers.keys():
        yield f"it is an NPU of {machine.macs} MACs, configuration {machine.fingerprint['config']:#010x}"


def _state(dump: Dump) -> tuple[str, str]:
    """A word for the state, and a line."""
    (first, last), status = dump.samples, dump.machine.status
    busy, done, error = (bool(last.status & status[name]) for name in ("BUSY", "DONE", "ERROR"))
    known = status["BUSY"] | status["DONE"] | status["ERROR"]
    if last.status & ~known or (done and error):
        return "nonsense", (f"register status is {last.status:#010x}, which no machine has: the register port returns "
                            "wrong data")
    if busy:
        if not _counts_engines(last):
            return "running", "a program is running; whether it gets on this machine does not count (cycles_only)"
        if _moved(first, last):
            return "running", "a program is running, and gets on"
        return "stands", (f"a program is running, and nothing moved in the {last.microseconds - first.microseconds:,} "
                          "microseconds between two looks")
    if error:
        number = dump.registers["error_code"]
        known_error = dump.machine.errors.get(number)
        name = known_error.name if known_error else f"error {number}"
        return "failed", f"the last program failed: {printable(name)}" + (
            f", {printable(known_error.text)}" if known_error else ", which this machine does not have")
    if done:
        return "done", "the last program has reached its END"
    if any(last.counters.values()):
        return "rest", "the machine is at rest: a program has run, and its outcome was cleared or it was stopped"
    return "rest", "the machine is at rest, and has run nothing since its reset"


def _counts_engines(sample: Sample) -> bool:
    return "compute_busy" in sample.counters


def _moved(first: Sample, last: Sample) -> bool:
    """Whether anything but waiting went on."""
    still = {"cycles", "fetch_wait_queue", *(f"{engine}_{state}" for engine, state in WAITS)}
    return any(last.counters[name] != first.counters[name] for name in first.counters if name not in still)


def _failure(registers: Mapping[str, int]) -> Iterator[str]:
    try:
        remedy = REMEDIES.get(error_code(registers["error_code"]))
    except KeyError:
        remedy = "the package is of another version than the machine"
    if remedy:
        yield f"what would help: {remedy}"
    if "limit_address_low" in registers:
        address = registers["limit_address_low"] | registers["limit_address_high"] << 32
        if address:
            yield f"the limits held back a burst at bus address {address:#x}"


def _place(dump: Dump, state: str) -> int | None:
    """Index of the instruction in question; None where none is."""
    dispatched = dump.samples[-1].counters.get("instructions")
    if state == "failed":
        return dump.registers["error_index"]
    return dispatched if state in ("running", "stands") else None


def _instruction(dump: Dump, index: int, state: str, programs: Sequence[DeployedProgram]) -> Iterator[str]:
    length = dump.registers["program_length"]
    what = "it failed at" if state == "failed" else f"{index:,} of {length:,} instructions were dispatched; the next is"
    fitting = [program for program in programs if len(program.code) == length * INSTRUCTION_BYTES]
    if not programs:
        yield f"{what} instruction {index:,}; --program FILE says which that is"
        return
    if not fitting:
        found = ", ".join(f"{len(program.code) // INSTRUCTION_BYTES:,}" for program in programs)
        yield f"{what} instruction {index:,}; the given program is another: it has {found} instructions"
        return
    program = fitting[0]
    if not 0 <= index < length:
        yield f"{what} instruction {index:,}, which is beyond the program's {length:,}"
        return
    yield f"{what} instruction {index:,}: {_text(program, index)}"
    if state != "failed":
        for queue in (Queue.LOAD, Queue.COMPUTE, Queue.STORE):
            last = next((at for at in reversed(range(index)) if _queue(program, at) is queue), None)
            if last is not None:
                yield f"the last that the {queue.name.lower()} queue was given is {last:,}: {_text(program, last)}"
    if len(fitting) > 1:
        yield f"{len(fitting)} segments have as many instructions; this is the first of them"


def _code(program: DeployedProgram, index: int) -> bytes:
    return program.code[index * INSTRUCTION_BYTES:(index + 1) * INSTRUCTION_BYTES]


def _queue(program: DeployedProgram, index: int) -> Queue | None:
    try:
        return decode(_code(program, index)).opcode.queue
    except ValueError:
        return None


def _text(program: DeployedProgram, index: int) -> str:
    layer = layer_of(index, program.instruction_layers, program.layers)
    try:
        text = disassemble(decode(_code(program, index)))
    except ValueError as error:
        text = f"{_code(program, index).hex()}, which is no instruction ({error})"
    return text + (f", of layer {printable(layer)}" if layer else "")


def _doing(first: Sample, last: Sample) -> Iterator[str]:
    """What each engine was at between two samples."""
    passed = last.counters["cycles"] - first.counters["cycles"]
    if passed <= 0:
        yield "not even cycles are counted: the machine has no clock"
        return
    if not _counts_engines(last):
        yield "this machine does not count what its engines do (cycles_only)"
        return
    grown = {name: value - first.counters[name] for name, value in last.counters.items()}
    for engine, states in ENGINE_STATES.items():
        state = max(states[1:], key=lambda state: grown.get(f"{engine}_{state}", 0))
        cycles = grown.get(f"{engine}_{state}", 0)
        if 2 * cycles < passed:
            yield f"the {engine} engine has nothing to do"
        elif (engine, state) in WAITS:
            yield f"the {engine} engine waits for {WAITS[engine, state]}"
        else:
            yield f"the {engine} engine is at work ({state})"
    if 2 * grown.get("fetch_wait_queue", 0) >= passed:
        yield "the dispatcher waits for room in the queue of the next instruction"


def _longest_waits(sample: Sample) -> Iterator[str]:
    """Of a machine that gave up: in what each engine was most, of all its waits."""
    for (engine, state), what in sorted(WAITS.items(), key=lambda item: -sample.counters.get("_".join(item[0]), 0))[:2]:
        cycles = sample.counters.get(f"{engine}_{state}", 0)
        if cycles:
            yield f"the {engine} engine waited {cycles:,} cycles for {what}"


def shares_of(sample: Sample) -> Iterator[Share]:
    """Of each engine in each of its states, idle last; none where no cycle was counted."""
    cycles = sample.counters["cycles"]
    if not cycles or not _counts_engines(sample):
        return
    for engine, states in ENGINE_STATES.items():
        counts = {state: sample.counters.get(f"{engine}_{state}", 0) for state in states[1:]}
        counts["idle"] = max(0, cycles - sum(counts.values()))
        yield from (Share(engine, state, count, min(1.0, count / cycles)) for state, count in counts.items())
