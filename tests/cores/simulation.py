"""Amaranth's own simulator for the small components, with a logged seed."""

import os
import random
import secrets

from amaranth.sim import Simulator

__all__ = ["log_seed", "simulate"]


def log_seed() -> int:
    """Seed ``random`` from NPUGEN_SEED, or anew, and print it so that a failure can be repeated."""
    seed = int(os.environ.get("NPUGEN_SEED") or secrets.randbelow(1 << 31))
    print(f"NPUGEN_SEED={seed}")
    random.seed(seed)
    return seed


def simulate(component, bench) -> None:
    """Run ``async bench(ctx)`` on ``component``."""
    simulator = Simulator(component)
    simulator.add_clock(1e-6, if_exists=True)
    simulator.add_testbench(bench)
    simulator.run()
