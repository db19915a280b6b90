"""Layers that hand on whole tensors in the input buffer: programs on the functional simulator, rules, cycles."""

import random

import pytest

from gen.ir.errors import CompileError
from gen.lowering.steps import Step
from gen.lowering.verify import verify_mapped
from gen.mapping import chained, fused, whole
from gen.mapping.chained import ChainedLayers
from gen.mapping.fused import FusedLayers
from gen.mapping.registry import map_graph
from gen.mapping.trial import Trial
from gen.mapping.whole import WholeAfter, WholeLayer
from gen.memory.placement import Strips, WindowRows
from gen.options import CompileOptions
from tests.compiled import compile_kept
from tests.gen.test_chains import CONFIGS
from tests.gen.test_compiler import run_and_compare
from tests.random_layers import random_chains


def whole_always(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Tensors are handed on whole wherever that is possible, in any way, also after layers in a chain or fused."""
    for module in (chained, fused):
        monkeypatch.setattr(module, "_PROMISING", 1e9)
    monkeypatch.setattr(Trial, "ends", lambda self, steps: [chance.randrange(1000) for _ in steps])
    monkeypatch.setattr(Trial, "cycles", lambda self, steps, limit=0.0: (
        20 + chance.random() - 9 * any(isinstance(step, ChainedLayers | FusedLayers) for step in steps)
        - 15 * any(isinstance(step, WholeLayer) for step in steps)))
    monkeypatch.setattr(whole, "_GAIN", 1.0)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_always(monkeypatch, random.Random(1))


def wholes(steps: "list[Step]") -> list[WholeLayer]:
    return [step for step in steps if isinstance(step, WholeLayer)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_random_chains(name, seed, always):
    config, forms, after = CONFIGS[name], set[type](), 0
    for number in range(12):
        graph = random_chains(seed + number, count=3, max_channels=70, max_size=20)
        try:
            program, graph = compile_kept(graph, config, density=0.25 if number % 3 == 0 else None)
        except CompileError as error:
            assert error.code == "no-tile"
            continue
        mapped = map_graph(graph, config, CompileOptions())
        verify_mapped(mapped)
        forms |= {type(form) for step in wholes(mapped.steps) for form in step.kept.values()}
        after += sum(isinstance(step, WholeAfter) for step in mapped.steps)
        run_and_compare(program, graph, seed, ("load", "compute", "store", number))
    assert after and forms == {Strips, WindowRows}
