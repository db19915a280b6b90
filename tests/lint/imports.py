"""Who may import whom: the rooms of the five packages, and the edges between them."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests import ROOT

PACKAGES = ("boards", "cores", "gen", "npudriver", "npugen", "sim")

#: What the modules of each room import of other rooms, all of it. A module belongs to the room that says most of its
#: name; what is beside the rooms of a package is one with the package. Top to bottom: nobody imports what stands below.
EDGES = {
    "npudriver": "",
    # hardware
    "cores.errors": "npudriver",
    "cores.arch": "",
    "cores.config": "cores.arch cores.errors npudriver",
    "cores.timing": "cores.arch cores.config",
    "cores.lib": "cores.timing",
    "cores.bus": "cores.arch cores.config cores.lib cores.timing",
    "cores.control": "cores.arch cores.bus cores.config cores.lib cores.timing",
    "cores.buffers": "cores.arch cores.config cores.lib cores.timing",
    "cores.load": "cores.arch cores.buffers cores.bus cores.config cores.control cores.lib cores.timing",
    "cores.compute": "cores.arch cores.buffers cores.config cores.control cores.lib cores.timing",
    "cores.store": "cores.arch cores.buffers cores.bus cores.config cores.control cores.lib cores.timing",
    "cores": "cores.arch cores.buffers cores.bus cores.compute cores.config cores.control cores.lib cores.load "
             "cores.store npudriver",
    "boards": "cores.config cores.errors",
    # simulators: `sim` is the functional one, and what is shared
    "sim.errors": "cores.arch cores.errors npudriver",
    "sim.stochastic": "cores.arch",
    "sim.golden": "cores.arch",
    "sim.rows": "cores.arch",
    "sim.table": "cores.arch",
    "sim.store_operations": "cores.arch sim.golden sim.table",
    "sim.signs": "cores.arch npudriver",
    "sim.hazards": "cores.arch cores.config sim.errors",
    "sim.timing": "cores.arch cores.config cores.timing sim.hazards sim.stochastic",
    "sim": "cores.arch cores.config cores.errors cores.timing npudriver sim.errors sim.golden sim.hazards sim.rows "
           "sim.signs sim.stochastic sim.store_operations sim.timing",
    "sim.rtl": "cores cores.arch cores.config cores.errors cores.lib npudriver sim sim.errors sim.timing",
    "sim.cosim": "cores.arch cores.config sim sim.hazards sim.rtl",
    "sim.devices": "cores cores.arch cores.config npudriver sim sim.errors sim.rtl",
    # compiler
    "gen.name": "",
    "gen.files": "cores.errors npudriver sim",
    "gen.netlist": "",
    "gen.families": "boards gen.netlist",
    "gen.options": "sim.stochastic",
    "gen.detection": "cores.errors gen.files",
    "gen.ir": "cores.arch cores.errors npudriver sim.golden sim.rows sim.stochastic sim.store_operations "
              "sim.table",
    "gen.passes": "cores.arch cores.config cores.errors gen.ir sim.golden sim.stochastic",
    "gen.onnx": "cores.arch cores.config cores.errors gen.files gen.ir gen.passes sim.golden sim.rows",
    "gen.partition": "cores.errors gen.ir gen.onnx",
    "gen.quantize": "cores.arch cores.errors gen.detection gen.onnx sim.stochastic",
    "gen.tiling": "cores.arch cores.config cores.timing gen.ir sim.timing",
    "gen.memory": "cores.arch npudriver",
    "gen.program": "boards cores cores.arch cores.config cores.errors gen.files gen.ir gen.memory npudriver "
                   "sim.stochastic",
    "gen.lowering": "cores.arch cores.config cores.errors gen.ir gen.memory gen.tiling sim.rows",
    "gen.mapping": "cores.arch cores.config cores.errors cores.timing gen.ir gen.lowering gen.memory gen.options "
                   "gen.tiling sim sim.golden",
    "gen.compiler": "cores.arch cores.config gen.ir gen.lowering gen.mapping gen.options gen.passes gen.program",
    # the processor's part
    "gen.c": "gen.ir gen.memory gen.onnx",
    # models to try
    "gen.zoo": "cores.errors gen.onnx",
    "gen.bringup": "cores cores.arch cores.config gen.compiler gen.files gen.ir gen.mapping gen.options gen.passes "
                   "npudriver sim.golden sim.stochastic",
    # what is done with it
    "gen.run": "boards cores cores.arch cores.config cores.errors cores.timing gen.compiler gen.detection "
               "gen.files gen.ir gen.mapping gen.onnx gen.options gen.partition gen.passes gen.program gen.quantize "
               "npudriver sim sim.devices sim.rtl sim.timing",
    "gen.check": "gen.detection gen.ir gen.onnx gen.partition gen.quantize sim.golden",
    "gen.prune": "cores.config cores.errors gen.compiler gen.detection gen.ir gen.onnx gen.options gen.passes "
                 "gen.quantize gen.run sim",
    "gen.train": "cores.arch cores.config cores.errors gen.detection gen.files gen.onnx gen.prune gen.run npudriver "
                 "sim.stochastic",
    "gen.hw": "boards cores cores.arch cores.bus cores.config cores.control cores.errors cores.timing gen.families "
              "gen.files gen.netlist npudriver sim",
    "gen.stochastic": "cores.arch cores.config cores.errors gen.files sim sim.golden sim.stochastic",
    "gen.energy": "cores cores.arch cores.compute cores.config cores.errors gen.files gen.hw gen.stochastic",
    "gen.govern": "cores.arch cores.config cores.errors gen.energy gen.files gen.run npudriver sim",
    "gen.explore": "boards cores.arch cores.config cores.errors gen.compiler gen.energy gen.families gen.files gen.hw "
                   "gen.ir gen.onnx gen.options gen.partition gen.passes gen.prune gen.run gen.stochastic sim "
                   "sim.stochastic",
    "gen.deploy": "boards cores cores.config cores.errors gen.bringup gen.c gen.files gen.hw gen.ir gen.program "
                  "gen.run npudriver",
    "gen.soc": "boards cores cores.arch cores.bus cores.config cores.errors gen.bringup gen.deploy gen.families gen.hw "
               "gen.ir gen.run npudriver sim sim.rtl",
    "gen.bench": "boards cores cores.arch cores.compute cores.config gen.check gen.compiler gen.energy gen.explore "
                 "gen.files gen.hw gen.ir gen.mapping gen.onnx gen.options gen.partition gen.passes gen.program "
                 "gen.prune gen.quantize gen.run gen.stochastic gen.train gen.zoo npudriver sim sim.devices "
                 "sim.golden sim.rtl sim.stochastic sim.timing",
    "gen.report": "boards cores.arch cores.config cores.errors gen.check gen.explore gen.files gen.hw gen.ir "
                  "gen.mapping gen.name gen.onnx gen.run npudriver sim",
    "gen.cli": "boards cores cores.arch cores.config cores.errors gen.bench gen.bringup gen.check gen.deploy "
               "gen.detection gen.energy gen.explore gen.families gen.files gen.govern gen.hw gen.ir gen.name "
               "gen.onnx gen.options gen.partition gen.passes gen.program gen.prune gen.quantize gen.report gen.run "
               "gen.soc gen.stochastic gen.train gen.zoo npudriver sim sim.rtl sim.stochastic",
    "gen": "gen.cli gen.name",
    "npugen": "boards cores cores.config gen gen.deploy gen.detection gen.explore gen.files gen.hw gen.onnx "
              "gen.options gen.prune gen.quantize gen.report gen.run gen.train",
}

@dataclass(frozen=True)
class Import:
    importer: str
    imported: str


def modules() -> dict[str, Path]:
    """All modules of the packages, by name."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imports_of(name: str, path: Path, known: Mapping[str, object]) -> Iterator[Import]:
    """What a module imports of ``known`` modules, also within its functions or for types alone."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]

    def found(node: ast.AST) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                base = package[:len(package) + 1 - child.level] if child.level else []
                base = ".".join([*base, *([child.module] if child.module else [])])
                names = [longer if (longer := f"{base}.{alias.name}") in known else base for alias in child.names]
            else:
                yield from found(child)
                continue
            yield from (Import(name, imported) for imported in names if imported in known)

    return found(ast.parse(path.read_text()))


def all_imports() -> set[Import]:
    known = modules()
    return {item for name, path in known.items() for item in imports_of(name, path, known)}


def room(module: str) -> str:
    return max((name for name in EDGES if module == name or module.startswith(f"{name}.")), key=len)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The nodes of one circle, in order; none if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def needs(imports: set[Import]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for item in imports:
        graph.setdefault(item.importer, set()).add(item.imported)
    return graph


def broken() -> Iterator[str]:
    """What is wrong with the imports of the packages, a line each."""
    imports = all_imports()
    allowed = {(name, other) for name, others in EDGES.items() for other in others.split()}
    crossing = {item: (room(item.importer), room(item.imported)) for item in imports
                if room(item.importer) != room(item.imported)}
    for item in sorted(crossing, key=str):
        if crossing[item] not in allowed:
            yield f"{item.importer} imports {item.imported}: an edge that tests/lint/imports.py has not"
    # An edge that is gone leaves the table, or it would come back unseen.
    for name, other in sorted(allowed - set(crossing.values())):
        yield f"tests/lint/imports.py: {name} no longer imports {other}"
    order = list(EDGES)
    for name in order:
        for other in EDGES[name].split():
            if order.index(other) > order.index(name):
                yield f"tests/lint/imports.py: {name} imports {other}, which stands below it"
    if ring := circle(needs(imports)):
        yield f"imports in a circle: {' > '.join(ring)}"
