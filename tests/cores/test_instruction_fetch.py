"""Instruction fetch: see bench_instruction_fetch; its instruction check against `cores.arch.instruction.decode`."""

import random

import pytest

from cores.arch.instruction import decode
from cores.arch.isa import Queue
from cores.arch.isa_features import missing
from cores.config import NpuConfig
from cores.control.instruction_check import InstructionCheck
from cores.control.instruction_fetch import InstructionFetch
from tests.bench import run_bench
from tests.cores.instruction_samples import broken_word, random_word
from tests.cores.simulation import log_seed, simulate
from tests.selection import with_full


@pytest.mark.parametrize("lanes", with_full([4, 8, 16, 32], 16))
def test_instruction_fetch(lanes):
    # On the narrowest bus with queues of one instruction, as machines for small devices have.
    config = NpuConfig(oc_lanes=32, ic_lanes=lanes, queue_depth=1 if lanes == 4 else 16)
    run_bench(InstructionFetch(config), module="tests.cores.bench_instruction_fetch",
              name=f"instruction_fetch_{lanes}", parameters={"config": config.to_dict()})


@pytest.mark.slow
def test_instruction_check_refuses_what_decode_refuses():
    log_seed()
    words = [random_word() for _ in range(1000)] + [broken_word() for _ in range(1000)]
    config = NpuConfig()
    check, seen = InstructionCheck(config), {True: 0, False: 0}

    async def bench(ctx):
        for word in words:
            ctx.set(check.word, int.from_bytes(word, "little"))
            ctx.set(check.take, 1)
            await ctx.tick()
            ctx.set(check.word, random.getrandbits(128))
            ctx.set(check.take, 0)
            await ctx.tick().repeat(check.LATENCY - 1)
            try:
                instruction = decode(word)
                if lack := missing(instruction, config):
                    raise ValueError(lack)
                queue = instruction.opcode.queue
            except ValueError as error:
                assert ctx.get(check.illegal), f"{word.hex()}: {error}"
                seen[True] += 1
            else:
                assert not ctx.get(check.illegal), f"{word.hex()}: {instruction.opcode.name} is legal"
                assert ctx.get(check.queue) == Queue(queue)
                seen[False] += 1

    simulate(check, bench)
    assert min(seen.values()) > 150, seen
