"""Limit report: the first burst that was held back, a read before a write, until a run begins."""

import random

from cores.arch.error_codes import LimitCode
from cores.bus.limits.limit_report import LimitReport
from cores.config import NpuConfig
from tests.cores.simulation import log_seed, simulate


def test_limit_report():
    log_seed()
    report = LimitReport(NpuConfig())

    async def bench(ctx):
        held = None
        for _ in range(500):
            clear = random.random() < 0.1
            found = None
            for port, codes in (("of_write", ["STORE_LIMIT"]), ("of_read", ["LOAD_LIMIT", "FETCH_LIMIT"])):
                refusal = {"valid": random.random() < 0.2, "code": LimitCode[random.choice(codes)],
                           "index": random.getrandbits(24), "address": random.getrandbits(40)}
                ctx.set(getattr(report, port), refusal)
                found = refusal if refusal["valid"] else found
            ctx.set(report.clear, clear)
            assert ctx.get(report.error.valid) == (found is not None)
            if found:
                assert ctx.get(report.error.index) == found["index"]
                assert ctx.get(report.error.as_value()) >> 1 & 15 == found["code"]
            assert ctx.get(report.address) == (held or 0)
            await ctx.tick()
            if clear:
                held = None
            elif found and held is None:
                held = found["address"]

    simulate(report, bench)
