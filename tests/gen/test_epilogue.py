"""Operations of a store: each by itself against the machine's instruction set, and the rule of which follow which."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cores.arch.isa import LAYOUTS, Opcode
from cores.config import NpuConfig
from cores.store.requantizer import Requantizer
from gen.check.bounds import Bounds
from gen.ir import reference
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.chain import appended, chain_problems
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.multiply import Multiply
from gen.ir.epilogue.table import Table
from gen.ir.epilogue.upsample import Upsample
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Graph, Pool
from gen.ir.ranges import input_ranges
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.mapping.registry import map_graph
from gen.options import CompileOptions
from gen.passes.fuse_copies import fuse_copies
from gen.passes.fuse_residual import fuse_residual

Rng = np.random.Generator

SHAPE = (4, 5, 6)
MIDDLE = Tensor("middle", SHAPE, 1.0, 3)
LAST = dict(shift=14, zero_point=-2, low=-100, high=90)
UPSAMPLE = Upsample((2, 3))
ADD = Add(middle=MIDDLE, other="b", multiplier_a=9000, multiplier_b=7000, constant=1234, **LAST)
MULTIPLY = Multiply(middle=MIDDLE, other="b", multiplier=300, constant=1500, **LAST)
LEAKY = Leaky(middle=MIDDLE, multiplier=16000, negative=5000, **LAST)
TABLE = Table(MIDDLE, np.roll(np.arange(-128, 128), 17).astype(np.int8))
OPERATIONS: tuple[StoreOp, ...] = (UPSAMPLE, ADD, MULTIPLY, LEAKY, TABLE)


@dataclass(frozen=True)
class Absolute(StoreOp):
    """Defined here alone: what comes with a new operation, seen from the compiler."""

    name, verb = "abs", "takes absolute values"
    opcode = Opcode.STORE_SIGNS

    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        return np.minimum(np.abs(values.astype(np.int16)), 127).astype(np.int8)

    def value_range(self, values: tuple, others: Sequence[tuple], point: int) -> tuple[np.ndarray, np.ndarray]:
        ends = np.abs(np.stack(values))
        spans = (values[0] < 0) & (values[1] > 0)
        return np.where(spans, 0, np.minimum(ends.min(axis=0), 127)), np.minimum(ends.max(axis=0), 127)


def stage(channels: int = 4, *, point: int = 3) -> Requantize:
    """Of a copy, of values that have this zero point and keep it."""
    return Requantize(np.full(channels, -point), np.full(channels, 1 << 16), np.full(channels, 16), point, -128, 127)


def copy(source: str, target: str, *epilogue: StoreOp, first: Requantize | None = None) -> Pool:
    return Pool(target, source, target, maximum=False, pad_value=0, requantize=first or stage(), epilogue=epilogue)


def graph(*layers: Pool, **shapes: tuple[int, int, int]) -> Graph:
    """Layers one after the other, of an input ``x`` and, where one reads it, ``b``."""
    names = ["x", *(layer.output for layer in layers), *(name for layer in layers for name in layer.others)]
    tensors = {name: Tensor(name, shapes.get(name, SHAPE), 1.0, 5 if name == "b" else 3) for name in names}
    inputs = {name: (name, ()) for name in ("x", *(name for name in names if name == "b"))}
    return Graph("test", tensors, layers, inputs, {"y": (layers[-1].output, ())})


def outputs(made: Graph, rng: Rng) -> np.ndarray:
    inputs = {name: rng.integers(-128, 128, (2, *made.tensors[tensor].shape)).astype(np.int8)
              for name, (tensor, _) in made.inputs.items()}
    return reference.run(made, inputs)[0]["y"]


@pytest.mark.parametrize("op", [op for op in OPERATIONS if op.opcode is not None], ids=lambda op: op.name)
def test_fields_are_those_of_the_instruction(op: StoreOp) -> None:
    assert op.opcode is not None
    assert sorted(op.encode(broadcast=False)) == sorted(field.name for field in LAYOUTS[op.opcode])
    assert ("load" in op.encode(broadcast=False)) == (op.constants(16) is not None)


def test_cycles_are_those_of_the_hardware() -> None:
    assert ADD.cycles == MULTIPLY.cycles == Requantizer.ADD_CYCLES
    assert UPSAMPLE.cycles == TABLE.cycles == 1


@pytest.mark.parametrize("op", [*OPERATIONS, Absolute()], ids=lambda op: op.name)
def test_ranges_hold_and_are_reached(op: StoreOp, rng: Rng) -> None:
    """Of all values of both operands; the ends are made by some."""
    for _ in range(20):
        low, high = np.sort(rng.integers(-128, 128, (2, 1)), axis=0)
        others = [np.sort(rng.integers(-128, 128, (2, 1)), axis=0) for _ in op.others]
        mine = np.arange(low[0], high[0] + 1)[None, :, None]
        theirs = [np.arange(least[0], most[0] + 1)[None, None, :] for least, most in others]
        values = op.eval(np.broadcast_to(mine, np.broadcast_shapes(mine.shape, *(x.shape for x in theirs))), theirs, 3)
        found = op.value_range((low, high), [(least, most) for least, most in others], 3)
        assert (values.min(), values.max()) == tuple(int(end[0]) for end in found)


# -- the rule --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("first", OPERATIONS, ids=lambda op: op.name)
@pytest.mark.parametrize("second", OPERATIONS, ids=lambda op: op.name)
def test_one_of_each_place_in_order(first: StoreOp, second: StoreOp) -> None:
    places = {"upsample": 0, "add": 1, "mul": 1, "leaky": 1, "table": 2}
    assert (next(chain_problems((first, second)), None) is None) == (places[first.name] < places[second.name])


@pytest.mark.parametrize(("epilogue", "message"), [
    ((ADD, LEAKY), "it adds and scales negative values; a store has one second stage"),
    ((TABLE, TABLE), "it looks up and looks up; a store has one table"),
    ((TABLE, MULTIPLY), "it looks up and then multiplies; a store does that the other way round"),
    ((LEAKY, UPSAMPLE), "it scales negative values and then upsamples; a store does that the other way round"),
])
def test_chains_that_the_machine_lacks(epilogue: tuple[StoreOp, ...], message: str) -> None:
    grown = (4, 10, 18) if UPSAMPLE in epilogue else SHAPE
    with pytest.raises(GraphError, match=f"layer y: {message}"):
        verify(graph(copy("x", "y", *epilogue), y=grown))


def test_one_stream_beside_the_sums() -> None:
    """Whatever places a new operation has: a store reads one tensor."""
    two = replace(MULTIPLY), replace(ADD)
    assert "it reads several tensors beside its input; a store reads one" in list(chain_problems(two))


# -- fusion ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("before", "after", "merged"), [
    ((), (UPSAMPLE, TABLE), ["upsample", "table"]),
    ((TABLE,), (UPSAMPLE,), ["upsample", "table"]),
    ((UPSAMPLE,), (UPSAMPLE,), ["upsample"]),
    ((TABLE,), (LEAKY,), ["table"]),
    ((TABLE,), (UPSAMPLE, TABLE), ["upsample", "table"]),
    ((LEAKY,), (TABLE,), ["leaky", "table"]),
    ((UPSAMPLE,), (LEAKY,), ["upsample", "leaky"]),
    ((LEAKY,), (UPSAMPLE,), None),
    ((LEAKY,), (LEAKY,), None),
    ((ADD,), (LEAKY,), None),
    ((ADD,), (TABLE,), ["add", "table"]),
    ((), (Absolute(),), ["abs"]),
    ((TABLE,), (Absolute(),), ["table"]),
    ((Absolute(),), (TABLE,), None),
])
def test_copies_merge_where_a_store_can_do_both(before: tuple[StoreOp, ...], after: tuple[StoreOp, ...],
                                                merged: list[str] | None, rng: Rng) -> None:
    def grown(shape: tuple[int, int, int], epilogue: tuple[StoreOp, ...]) -> tuple[int, int, int]:
        down, across = copy("x", "y", *epilogue).repeats
        return shape[0], shape[1] * down, shape[2] * across

    middle = grown(SHAPE, before)
    target = grown(middle, after)
    fitted = tuple(replace(op, middle=replace(MIDDLE, shape=target)) if isinstance(op, Leaky) else op for op in after)
    made = graph(copy("x", "m", *before), copy("m", "y", *fitted), m=middle, y=target)
    fused = fuse_copies(made)
    verify(fused)
    assert [[op.name for op in layer.epilogue] for layer in fused.layers] == (
        [[op.name for op in layer.epilogue] for layer in made.layers] if merged is None else [merged])
    seed = int(rng.integers(1 << 30))
    assert np.array_equal(*(outputs(one, np.random.default_rng(seed)) for one in (made, fused)))


def test_a_slope_stays_where_values_count_from_another_zero(rng: Rng) -> None:
    made = graph(copy("x", "m", first=stage(point=4)), copy("m", "y", replace(LEAKY, middle=MIDDLE)))
    assert fuse_copies(made) is made


@pytest.mark.parametrize("op", [ADD, MULTIPLY], ids=lambda op: op.name)
@pytest.mark.parametrize("shortcut", [False, True])
def test_two_operands(op: StoreOp, shortcut: bool, rng: Rng) -> None:
    """Into the layer that makes either operand, with what comes after it."""
    first, last = copy("x", "m"), copy("m", "y", op, TABLE)
    if shortcut:
        swapped = replace(op, middle=replace(MIDDLE, zero_point=5), other="m", constant=900)  # type: ignore[call-arg]
        last = replace(last, input="b", requantize=stage(point=5), epilogue=(swapped, TABLE))
    made = graph(first, last)
    made = replace(made, inputs={name: (name, ()) for name in ("x", "b")},
                   tensors={**made.tensors, "b": Tensor("b", SHAPE, 1.0, 5)})
    fused = fuse_residual(made)
    verify(made)
    verify(fused)
    assert [[after.name for after in layer.epilogue] for layer in fused.layers] == [[op.name, "table"]]
    seed = int(rng.integers(1 << 30))
    assert np.array_equal(*(outputs(one, np.random.default_rng(seed)) for one in (made, fused)))


def test_a_vector_is_not_what_a_layer_makes() -> None:
    tensors = {"b": Tensor("b", (4, 1, 1), 1.0, 5)}
    assert ADD.swapped(MIDDLE, tensors) is None and MULTIPLY.swapped(MIDDLE, tensors) is None


# -- the rest of the compiler ----------------------------------------------------------------------------------------

def test_an_operation_that_only_a_test_knows(rng: Rng) -> None:
    """Golden model, ranges, verifier and bounds ask the operation alone."""
    made = graph(copy("x", "m", Absolute()), copy("m", "y"))
    verify(made)
    assert outputs(made, rng).min() >= 0
    ((low, high),) = input_ranges(made)["y"]
    assert set(low) == {0} and set(high) == {127}
    inputs = {"x": np.zeros((1, *SHAPE), np.int8)}
    values = reference.run(made, inputs, keep=True)[1]
    assert values is not None and Bounds(made, values)["y"].max() >= 1


@pytest.mark.parametrize(("op", "shape", "features", "message"), [
    (TABLE, SHAPE, {}, "layer y: needs a table of its function, which this machine does not have; --features table"),
    (MULTIPLY, SHAPE, {}, "layer y: multiplies two tensors, or adds a vector .* --features product has it do so"),
    (ADD, (4, 1, 1), {}, "layer y: multiplies two tensors, or adds a vector .* --features product has it do so"),
    (ADD, SHAPE, {}, None),
    (ADD, (4, 1, 1), {"product": 1}, None),
    (TABLE, SHAPE, {"table": 1}, None),
], ids=str)
def test_refused_by_the_instruction_set(op: StoreOp, shape: tuple[int, int, int], features: dict[str, int],
                                        message: str | None) -> None:
    made, config = graph(copy("x", "y", op), b=shape), NpuConfig.preset(16, **features)
    if message is None:
        map_graph(made, config, CompileOptions())
        return
    with pytest.raises(CompileError, match=message):
        map_graph(made, config, CompileOptions())


def test_appended_by_itself() -> None:
    assert appended((), LEAKY, source=None, point=3, first=4) is None
    assert appended((), LEAKY, source=None, point=3, first=3) == (LEAKY,)
    assert appended((), LEAKY, source=Tensor("small", (4, 1, 1), 1.0, 3), point=3, first=3) is None
