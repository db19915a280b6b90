"""The instruction set: layouts fit, encoding and decoding agree, what the machine refuses is refused."""

import pytest

from cores.arch.instruction import Instruction, decode, disassemble, encode
from cores.arch.isa import HEADER, LAYOUTS, TOKEN_FLAGS, Opcode, Queue


def random_instruction(rng, opcode: Opcode) -> Instruction:
    values = {}
    for field in LAYOUTS[opcode]:
        low = -(1 << field.bits - 1) if field.signed else field.minimum
        values[field.name] = int(rng.integers(low, 1 << field.bits - int(field.signed)))
    for field in HEADER[1:]:
        if field.name in TOKEN_FLAGS[opcode]:
            values[field.name] = int(rng.integers(0, 1 << field.bits))
    return Instruction(opcode, **values)


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
    (Opcode.END | 1 << 127, "END: reserved bits are set"),
    (Opcode.LOAD_WGT, "LOAD_WGT: beats must be at least 1"),
    (Opcode.SYNC | 1 << 5, "SYNC: wait_compute"),
])
def test_refuses_words(word, message):
    with pytest.raises(ValueError, match=message):
        decode(int(word).to_bytes(16, "little"))
