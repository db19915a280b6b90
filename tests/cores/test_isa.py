"""The instruction set: layouts fit, encoding and decoding agree, what the machine refuses is refused, room is left."""

import pytest

from cores.arch.instruction import Instruction, decode, disassemble, encode
from cores.arch.isa import (
    CHAIN,
    HEADER,
    HEADER_BITS,
    LAYOUTS,
    OPERATIONS,
    QUEUE_OPERATIONS,
    SECOND_STAGES,
    SETTERS,
    EntryForm,
    Field,
    Opcode,
    Queue,
    StepKind,
    WordForm,
)
from cores.arch.isa_features import is_supported, kinds_of, missing, telling_bits
from cores.config import NpuConfig

#: Fields that choose a kind, and their operations.
KIND_FIELDS = [(opcode, field) for opcode, layout in LAYOUTS.items() for field in layout if field.kinds]
#: Operations of a queue that stay free for later versions.
SPARE = 8
CONFIGS = {
    "plain": NpuConfig(),
    "depthwise": NpuConfig.preset(64, depthwise=1),
    "binary": NpuConfig.preset(64, gather=1, binary_rows=4),
    "winograd": NpuConfig.preset(64, winograd=1),
    "everything": NpuConfig.preset(64, depthwise=1, gather=1, binary_rows=4, winograd=1, local_store=1, table=1,
                                   product=1, stochastic_rows=4, stochastic_bits=1),
}


def random_instruction(rng, opcode: Opcode) -> Instruction:
    values = {}
    for field in LAYOUTS[opcode]:
        low = -(1 << field.bits - 1) if field.signed else field.minimum
        values[field.name] = int(rng.choice(field.kinds) if field.kinds
                                 else rng.integers(low, 1 << field.bits - int(field.signed)))
    for field in HEADER[1:]:
        if field.name in OPERATIONS[opcode].tokens:
            values[field.name] = int(rng.integers(0, 1 << field.bits))
    return Instruction(opcode, **values)


def place_of(opcode: Opcode, name: str) -> tuple[int, Field]:
    """The lowest bit of an operation's field, and the field."""
    position = HEADER_BITS
    for field in LAYOUTS[opcode]:
        if field.name == name:
            return position, field
        position += field.bits
    raise KeyError(name)


def legal_word(opcode: Opcode) -> int:
    """The bits of a legal instruction whose fields are as small as they may be; its kinds are all zero."""
    fields = {field.name: field.minimum for field in LAYOUTS[opcode] if field.minimum}
    return int.from_bytes(encode(Instruction(opcode, **fields)), "little")


@pytest.mark.parametrize("opcode", Opcode)
def test_round_trip(opcode, rng):
    for _ in range(50):
        instruction = random_instruction(rng, opcode)
        if instruction.illegal():
            continue
        assert decode(encode(instruction)) == instruction
        line = disassemble(instruction)
        assert line.startswith(opcode.name.lower())
        assert all(f"{field.name}={instruction[field.name]}" in line for field in LAYOUTS[opcode])


def test_opcodes_and_queues():
    assert {opcode.queue for opcode in Opcode} == set(Queue)
    assert 0 not in set(Opcode), "memory of zeros must not be a program"
    assert max(Opcode) < 1 << HEADER[0].bits == len(Queue) * QUEUE_OPERATIONS


def test_operations_that_an_operation_needs():
    """They are setters of its own queue."""
    for opcode, operation in OPERATIONS.items():
        assert all(needed.queue == opcode.queue and needed in SETTERS for needed in operation.after), opcode.name
        assert not (operation.setter and operation.tokens), opcode.name


def test_chain():
    """STORE_REQUANT begins it; every other operation of it has a later place, in which a STORE applies it."""
    assert CHAIN[0] == min(CHAIN) == Opcode.STORE_REQUANT
    assert set(CHAIN) <= SETTERS and set(SECOND_STAGES) < set(CHAIN)
    others = set(CHAIN) - {Opcode.STORE_REQUANT, *SECOND_STAGES}
    assert max(SECOND_STAGES) < min(others) and max(CHAIN) < Opcode.STORE


def test_second_stages_share_their_places():
    """The engine keeps one of them, and reads what they have in common as that of a STORE_ADD."""
    for opcode in SECOND_STAGES:
        for name in ("shift", "zero_point", "low", "high"):
            assert place_of(opcode, name) == place_of(Opcode.STORE_ADD, name), (opcode, name)
    for name in ("constant", "broadcast"):
        place, shared = place_of(Opcode.STORE_MULTIPLY, name), place_of(Opcode.STORE_ADD, name)
        assert (place[0], place[1].bits, place[1].signed) == (shared[0], shared[1].bits, shared[1].signed), name
    first = {opcode: place_of(opcode, name) for opcode, name in (
        (Opcode.STORE_ADD, "multiplier_a"), (Opcode.STORE_MULTIPLY, "multiplier"), (Opcode.STORE_LEAKY, "multiplier"))}
    assert len({(position, field.bits) for position, field in first.values()}) == 1


@pytest.mark.parametrize(("opcode", "field"), KIND_FIELDS, ids=lambda value: getattr(value, "name", None))
def test_kinds(opcode, field):
    """Every kind has a number within its field, is legal and comes back; every other number is refused."""
    position, _ = place_of(opcode, field.name)
    word, seen = legal_word(opcode), set()
    for number in range(1 << field.bits):
        bits = (word | number << position).to_bytes(16, "little")
        if number in field.kinds:
            seen.add(decode(bits)[field.name])
            continue
        with pytest.raises(ValueError, match=f"{opcode.name}: {field.name} has no kind {number}"):
            decode(bits)
    assert seen == set(field.kinds), "a kind does not fit its field"
    assert 0 in field.kinds, "fields that are not named are zero"


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("kinds", [StepKind, WordForm, EntryForm])
def test_telling_bits(kinds, name):
    """They tell each kind of a machine from all others that it has."""
    config = CONFIGS[name]
    there = [kind for kind in kinds if not kind.unit or getattr(config, kind.unit)]
    for kind in there:
        bits = telling_bits(kind, config)
        assert [other for other in there
                if all(other >> bit & 1 == value for bit, value in bits.items())] == [kind]
    assert len(there) > 1 or telling_bits(there[0], config) == {}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("queue", [Queue.LOAD, Queue.COMPUTE, Queue.STORE])
def test_telling_bits_of_operations(queue, name):
    config = CONFIGS[name]
    there = [opcode for opcode in Opcode if opcode.queue == queue and is_supported(opcode, config)]
    for opcode in there:
        bits = telling_bits(opcode, config)
        assert [other for other in there
                if all(other >> bit & 1 == value for bit, value in bits.items())] == [opcode]


@pytest.mark.parametrize("kinds", [Opcode, StepKind, WordForm, EntryForm])
def test_no_number_twice(kinds):
    assert len(kinds.__members__) == len(kinds)


@pytest.mark.parametrize("name", CONFIGS)
def test_missing_kinds(name):
    """A machine without a kind's unit has not the kind; one with it has."""
    config = CONFIGS[name]
    for opcode, field in KIND_FIELDS:
        for kind in field.kinds:
            message = missing(Instruction(opcode, **{field.name: kind}), config)
            if kind in kinds_of(field, config):
                assert message is None
            else:
                assert message == f"this machine's {opcode.name} has no {field.name} {kind.name}"


@pytest.mark.parametrize(("fields", "message"), [
    ({"colour": 1}, "LOAD_WGT has no field 'colour'"),
    ({"beats": 0}, r"LOAD_WGT\.beats must be in 1\.\.16777215, not 0"),
    ({"beats": 1, "offset": 1 << 28}, r"LOAD_WGT\.offset must be in 0\.\.268435455, not 268435456"),
])
def test_refuses_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        Instruction(Opcode.LOAD_WGT, **fields)


@pytest.mark.parametrize(("word", "message"), [
    (0, "unknown opcode 0"),
    (QUEUE_OPERATIONS - 1, "unknown opcode 31"),
    (Opcode.END | 1 << 127, "END: reserved bits are set"),
    (Opcode.LOAD_WGT, "LOAD_WGT: beats must be at least 1"),
    (Opcode.SYNC | 1 << 8, "SYNC: wait_compute"),
    (Opcode.STORE_SIGNS | 1 << HEADER_BITS, "STORE_SIGNS: reserved bits are set"),
])
def test_refuses_words(word, message):
    with pytest.raises(ValueError, match=message):
        decode(int(word).to_bytes(16, "little"))


@pytest.mark.parametrize("queue", [Queue.LOAD, Queue.COMPUTE, Queue.STORE])
def test_room_for_operations(queue):
    """Later versions add operations, each with an opcode of its own."""
    free = QUEUE_OPERATIONS - sum(opcode.queue == queue for opcode in Opcode)
    assert free >= SPARE, f"{free} opcodes are left"


def test_room_for_operations_of_a_chain():
    """They lie after those that are there, in front of STORE."""
    free = Opcode.STORE - max(CHAIN) - 1
    assert free >= SPARE, f"{free} opcodes are left"


def test_room_for_kinds_of_steps():
    free = (1 << place_of(Opcode.COMPUTE, "kind")[1].bits) - len(StepKind)
    assert free >= SPARE, f"{free} kinds are left"
