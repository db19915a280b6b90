"""Instruction check against the decoder of the instruction set: legal words, broken ones, and those in between."""

import pytest

from cores.arch.instruction import Instruction, decode, encode
from cores.arch.isa import HEADER, HEADER_BITS, INSTRUCTION_BYTES, LAYOUTS, Opcode
from cores.arch.isa_features import missing
from cores.config import NpuConfig
from cores.control.instruction_check import InstructionCheck
from tests.cores.instruction_samples import broken_word, random_instruction, random_word
from tests.cores.simulation import log_seed, simulate

CONFIGS = {
    "plain": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1),
    "units": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, winograd=1, product=1,
                       stochastic_rows=8, stochastic_bits=1),
    "everything": NpuConfig.preset(64, depthwise=1, gather=1, binary_rows=4, winograd=1, local_store=1, table=1,
                                   product=1, stochastic_rows=4, stochastic_bits=1),
}


def expected(word: bytes, config: NpuConfig) -> tuple[bool, int | None]:
    """Whether it is illegal, and its queue if not."""
    try:
        instruction = decode(word)
    except ValueError:
        return True, None
    return missing(instruction, config) is not None, int(instruction.opcode.queue)


def words_of_every_kind() -> list[bytes]:
    """Each field that chooses a kind with each number that fits it, in instructions that are legal but for that."""
    words = []
    for opcode, layout in LAYOUTS.items():
        least = {field.name: field.minimum for field in layout if field.minimum}
        word, position = int.from_bytes(encode(Instruction(opcode, **least)), "little"), HEADER_BITS
        for field in layout:
            if field.kinds:
                words += [(word | number << position).to_bytes(INSTRUCTION_BYTES, "little")
                          for number in range(1 << field.bits)]
            position += field.bits
    return words


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_instruction_check(name):
    """A word a cycle, told `LATENCY` cycles later."""
    log_seed()
    config, most = CONFIGS[name], CONFIGS["everything"]
    words = [word for _ in range(800) for word in (random_word(), broken_word(), random_word(most), broken_word(most))]
    words += [encode(random_instruction(config=most)) for _ in range(600)]
    words += words_of_every_kind()
    # Every opcode, and every operation with a single bit of the word set.
    words += [opcode.to_bytes(INSTRUCTION_BYTES, "little") for opcode in range(1 << HEADER[0].bits)]
    words += [(int(opcode) | 1 << place).to_bytes(INSTRUCTION_BYTES, "little") for opcode in Opcode
              for place in range(HEADER[0].bits, 8 * INSTRUCTION_BYTES)]
    verdicts = [expected(word, config) for word in words]
    assert 0.1 < sum(illegal for illegal, _ in verdicts) / len(verdicts) < 0.9
    check = InstructionCheck(config)

    async def compare(ctx):
        for number in range(len(words) + check.LATENCY):
            if number >= check.LATENCY:
                illegal, queue = verdicts[number - check.LATENCY]
                assert ctx.get(check.illegal) == illegal, words[number - check.LATENCY].hex()
                assert illegal or ctx.get(check.queue) == queue, words[number - check.LATENCY].hex()
            ctx.set(check.word, int.from_bytes(words[min(number, len(words) - 1)], "little"))
            ctx.set(check.take, 1)
            await ctx.tick()
        ctx.set(check.take, 0)
        ctx.set(check.word, ~int.from_bytes(words[-1], "little"))
        await ctx.tick().repeat(3)
        assert ctx.get(check.illegal) == verdicts[-1][0], "it looks at no word without ``take``"

    simulate(check, compare)
