"""Maxima of 2x2 in the stores before them: which, and what they make on the functional simulator."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cores.arch.numerics import TABLE_BYTES
from cores.config import NpuConfig
from gen.compiler import compile_graph, prepare
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.maximum import Maximum
from gen.ir.epilogue.table import Table
from gen.ir.epilogue.upsample import Upsample
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Conv, Graph, Pool
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.options import CompileOptions
from sim.cycles import estimate
from sim.functional import run
from tests.compiled import check_tensors, golden_tensors, random_image
from tests.random_cases import MACHINES
from tests.random_layers import random_inputs
from tests.random_maxima import maximum_of, random_maxima

CONFIGS = {name: replace(MACHINES[name], maximum=1)
           for name in ("plain", "windows", "own taps", "exact", "one pixel", "binary")}
CONFIG = NpuConfig.preset(16, table=1, maximum=1)


def check(graph: Graph, config: NpuConfig, seed: int, **options: str) -> tuple[list[str], int]:
    """All tensors are the golden layers', its outputs those of the graph as it was. Returns how the layers are computed
    that take maxima, and how many there are in the graph.
    """
    program, prepared = compile_graph(graph, config, CompileOptions(keep_all=True, **options))
    inputs = random_inputs(prepared, seed)
    image = random_image(program, inputs, seed)
    run(config, program.code, image, write_start=program.write_start, strict=True)
    tensors, before = golden_tensors(prepared, inputs), golden_tensors(graph, inputs)
    check_tensors(program, prepared, image, tensors, f"graph {seed}")
    for name, _ in graph.outputs.values():
        np.testing.assert_array_equal(tensors[name], before[name])
    modes = {layer.name: layer.mode for layer in program.layers}
    return ([modes[layer.name] for layer in prepared.layers if layer.windows != (1, 1)],
            sum(isinstance(layer, Pool) for layer in graph.layers))


@pytest.mark.parametrize("name", CONFIGS)
def test_random_networks(name: str, seed: int) -> None:
    config, found = CONFIGS[name], []
    for number in range(seed, seed + 6):
        winograd = 0.6 if config.winograd and number % 2 else None
        graph = random_maxima(number, max_size=16, winograd=winograd, tables=0.4 * config.table)
        try:
            found += check(graph, config, number)[0]
        except CompileError as error:
            assert error.code == "no-tile"
    assert found


def conv(*, channels: int = 20, size: tuple[int, int] = (9, 11), depthwise: bool = False, groups: int = 1,
         kernel: int = 3) -> Graph:
    """A convolution of as many channels, and maxima of 2x2 of it."""
    rng, pad = np.random.default_rng(1), kernel // 2
    source = Tensor("x", (channels, *size), 1.0, 3)
    made, target = replace(source, name="y"), replace(source, name="z", shape=(channels, size[0] // 2, size[1] // 2))
    weights = rng.integers(-128, 128, (channels, 1 if depthwise else channels, kernel, kernel)).astype(np.int16)
    weights[:] = weights if groups == 1 else weights * np.kron(
        np.eye(groups), np.ones((channels // groups,) * 2))[..., None, None]
    stage = Requantize(rng.integers(-99, 99, channels), np.full(channels, 70_000), np.full(channels, 25), 3, -128, 127)
    layer = Conv("conv", "x", "y", weights=weights, depthwise=depthwise, groups=groups, pads=(pad,) * 4,
                 requantize=stage)
    return Graph("maxima", {tensor.name: tensor for tensor in (source, made, target)},
                 (layer, maximum_of("pool", made, target)), {"in": ("x", ())}, {"out": ("z", ())})


def changed(graph: Graph, name: str, **fields: object) -> Graph:
    return replace(graph, layers=tuple(replace(layer, **fields) if layer.name == name else layer
                                       for layer in graph.layers))


@pytest.mark.parametrize("config, options, form, mode", [
    (CONFIG, {}, {}, "dense"), (CONFIG, {}, {"kernel": 1}, "dense"),
    (CONFIGS["windows"], {}, {"channels": 8}, "spread"),
    (CONFIGS["windows"], {}, {"groups": 4, "channels": 32}, "grouped"),
    (CONFIGS["exact"], {"winograd": "exact"}, {"channels": 16}, "winograd"),
    (CONFIGS["plain"], {}, {"depthwise": True}, "depthwise"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_ways_to_compute(config: NpuConfig, options: dict, form: dict, mode: str, seed: int) -> None:
    """Of a map with an odd row and column, and a last block that is not full."""
    assert check(conv(**form), config, seed, **options) == ([mode], 1)


def test_a_table_and_bounds_come_before(seed: int) -> None:
    """A table that falls, then maxima with bounds of their own, which go into the table."""
    graph = conv()
    falls = np.arange(127, -129, -1).astype(np.int8)
    assert len(falls) == TABLE_BYTES
    graph = changed(graph, "conv", epilogue=(Table(graph.tensors["y"], falls),))
    pool = maximum_of("pool", graph.tensors["y"], graph.tensors["z"], low=-100, high=20)
    graph = replace(graph, layers=(graph.layers[0], pool))
    assert check(graph, CONFIG, seed) == (["dense"], 1)


def stays(change: Callable[[Graph], Graph], config: NpuConfig = CONFIG, **form: object) -> None:
    graph = change(conv(**form))
    verify(graph)
    prepared = prepare(graph, config, CompileOptions())
    assert [layer.name for layer in prepared.layers] == [layer.name for layer in graph.layers]
    assert all(layer.windows == (1, 1) for layer in prepared.layers)


@pytest.mark.parametrize("fields, shape", [
    ({"maximum": False}, None), ({"stride": (1, 1)}, (20, 8, 10)), ({"stride": (2, 1)}, (20, 4, 10)),
    ({"kernel": (3, 3)}, (20, 4, 5)), ({"pads": (0, 0, 1, 1)}, (20, 5, 6)), ({"pads": (1, 0, 0, 0)}, (20, 5, 5)),
])
def test_other_pools_stay(fields: dict, shape: tuple[int, int, int] | None) -> None:
    def change(graph: Graph) -> Graph:
        graph = changed(graph, "pool", **fields)
        target = graph.tensors["z"] if shape is None else replace(graph.tensors["z"], shape=shape)
        return replace(graph, tensors={**graph.tensors, "z": target})

    stays(change)


def test_what_others_read_stays() -> None:
    """A second reader, an output of the model, or two pools of one tensor."""
    stays(lambda graph: replace(graph, outputs={**graph.outputs, "whole": ("y", ())}))

    def twice(graph: Graph) -> Graph:
        again = replace(graph.tensors["z"], name="again")
        pool = maximum_of("second", graph.tensors["y"], again)
        return replace(graph, tensors={**graph.tensors, "again": again}, layers=(*graph.layers, pool),
                       outputs={**graph.outputs, "again": ("again", ())})

    stays(twice)


def test_what_stores_do_otherwise_stays() -> None:
    """Another requantisation, or an operation after the maxima; a sum or repeated columns before them."""
    def finer(graph: Graph) -> Graph:
        stage = graph.layers[1].requantize
        return changed(graph, "pool", requantize=replace(stage, multiplier=stage.multiplier + 1))

    def added(graph: Graph) -> Graph:
        made = graph.tensors["y"]
        add = Add(middle=made, other="x", multiplier_a=1 << 15, multiplier_b=1 << 15, constant=0, shift=16,
                  zero_point=0, low=-128, high=127)
        return changed(graph, "conv", epilogue=(add,))

    def repeated(graph: Graph) -> Graph:
        made, target = (replace(graph.tensors[name], shape=(20, rows, cols))
                        for name, rows, cols in (("y", 18, 22), ("z", 9, 11)))
        return changed(replace(graph, tensors={**graph.tensors, "y": made, "z": target}), "conv",
                       epilogue=(Upsample((2, 2)),))

    def table_after(graph: Graph) -> Graph:
        return changed(graph, "pool", epilogue=(Table(graph.tensors["z"], np.arange(-128, 128).astype(np.int8)),))

    for change in (finer, added, repeated, table_after):
        stays(change)


def test_other_layers_and_machines_stay() -> None:
    """Windows of several taps at once, whose rows alternate; a machine without the unit."""
    stays(lambda graph: graph, CONFIGS["windows"], depthwise=True, channels=32, size=(24, 24))
    stays(lambda graph: graph, replace(CONFIG, maximum=0))


def test_a_pointwise_layer_after_a_depthwise_one_stays() -> None:
    """It may read that one's result from the input buffer; without fusion it takes maxima."""
    graph = conv(channels=32, kernel=1)
    first = replace(conv(channels=32, depthwise=True).layers[0], name="depthwise", output="middle")
    pointwise, pool = graph.layers
    graph = replace(graph, layers=(first, replace(pointwise, input="middle"), pool),
                    tensors={**graph.tensors, "middle": replace(graph.tensors["y"], name="middle")})
    for fusion, windows in (("auto", (1, 1)), ("off", (2, 2))):
        prepared = prepare(graph, CONFIGS["windows"], CompileOptions(fusion=fusion))
        assert prepared.layers[1].windows == windows


def test_fewer_cycles() -> None:
    """A pool of 32x32 in two blocks takes 2,048 cycles, and its input is not loaded again."""
    graph = conv(channels=32, size=(32, 32))
    apart, together = (replace(CONFIG, maximum=unit) for unit in (0, 1))
    one, other = (estimate(config, compile_graph(graph, config, CompileOptions())[0].code).cycles
                  for config in (apart, together))
    assert one - other > 2000


def test_the_rules_of_the_graph() -> None:
    """Maxima come last, and not of columns that are repeated."""
    graph = conv(size=(8, 8))
    together = changed(replace(graph, layers=graph.layers[:1]), "conv", output="z", epilogue=(Maximum(),))
    verify(together)
    table = Table(graph.tensors["z"], np.arange(-128, 128).astype(np.int8))
    with pytest.raises(GraphError, match="it takes maxima and then looks up; a store does that the other way round"):
        verify(changed(together, "conv", epilogue=(Maximum(), table)))
    with pytest.raises(GraphError, match="it upsamples and takes maxima; a store does one of both"):
        whole = {**together.tensors, "z": replace(graph.tensors["y"], name="z")}
        verify(changed(replace(together, tensors=whole), "conv", epilogue=(Upsample((2, 2)), Maximum())))
    with pytest.raises(CompileError, match="layer conv: takes maxima of 2x2 as it stores"):
        compile_graph(together, replace(CONFIG, maximum=0))


def test_multiplications_are_those_of_the_model():
    """A last odd row and column are in no window: the model has them, the machine does not compute them."""
    graph = conv(size=(9, 11))
    apart, together = (compile_graph(graph, config)[0].layers for config in (NpuConfig.preset(16), CONFIG))
    assert [len(layers) for layers in (apart, together)] == [2, 1]
    assert together[0].macs == apart[0].macs == apart[0].useful_macs
    assert together[0].useful_macs * 9 * 11 == together[0].macs * 8 * 10
