"""What a test costs: markers given by the tools that its code names, and a guard that holds tests to them.

``make check`` runs the tests without such a marker, and of one with many cases `CASES`. `COSTLY` names what is
expensive. A test gets the marker of everything in it to which its function, its fixtures and the helpers in ``tests``
that these call refer. Where the project's own code starts the tool, a test says so itself: ``@pytest.mark.rtl``. The
guard finds one that does not: it fails when it starts a process or loads a simulation.
"""

import functools
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

__all__ = ["CASES", "COSTLY", "MARKERS", "Guard", "costs_of", "for_check", "mark_by_cost"]

#: pyproject.toml says what each means.
MARKERS = ("rtl", "synth", "cli", "slow", "full")

#: Of a test with more cases than this, `for_check` takes so many: the first and the last, and those between them that
#: are as far apart.
CASES = 2

#: Marker -> the functions and classes that make a test one of that kind: a module, or a name in one.
COSTLY = {
    "rtl": {"tests.bench.run_bench", "tests.bench.verilog_of", "cores.emit.emit_component", "cores.emit.emit_verilog",
            "sim.rtl.machine.RtlMachine", "sim.rtl.build.build_library", "sim.rtl.build.compile_library",
            "sim.rtl.observed.observed_verilog"},
    "synth": {"gen.hw.yosys.mapped", "gen.hw.yosys.run_yosys"},
    "cli": {"subprocess.run", "subprocess.Popen", "subprocess.check_output"},
}
_KINDS = {name: marker for marker, names in COSTLY.items() for name in names}


def _name(value: object) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _referred(function: types.FunctionType) -> Iterator[object]:
    """What a function's code names: globals, and attributes of modules among them (``subprocess.run``)."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, types.ModuleType):
                found = (vars(value).get(other) for other in code.co_names)
                yield from (one for one in found if callable(one))
            elif value is not None:
                yield value


def _parts(value: object) -> Iterator[types.FunctionType]:
    """The functions of a function or a class of ``tests``; none of what is elsewhere, or is a value."""
    value = getattr(value, "__wrapped__", value)        # fixtures, context managers
    value = getattr(value, "_get_wrapped_function", lambda: value)()
    if not str(getattr(value, "__module__", "")).startswith("tests"):
        return
    if isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, type):
        yield from (item for item in vars(value).values() if isinstance(item, types.FunctionType))


@functools.cache
def costs_of(value: object) -> frozenset[str]:
    """Markers of a function or class of ``tests``: of `COSTLY` that its code names, or that what it names does."""
    found, seen, todo = set(), set(), [*_parts(value)]
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        for other in _referred(function):
            if kind := _KINDS.get(_name(other)):
                found.add(kind)
            elif callable(other):
                todo += _parts(other)
    return frozenset(found)


def _fixtures(item: pytest.Item) -> Iterator[object]:
    info = getattr(item, "_fixtureinfo", None)
    for definitions in info.name2fixturedefs.values() if info else ():
        yield from (definition.func for definition in definitions)


def mark_by_cost(item: pytest.Item) -> None:
    """Give a test the markers of `COSTLY` that its function and its fixtures have."""
    for part in (getattr(item, "function", None), *_fixtures(item)):
        for marker in costs_of(part) if part else ():
            item.add_marker(marker)


def for_check(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those that `MARKERS` do not call expensive; of a test with many cases `CASES`, the same in every run."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(map(item.get_closest_marker, MARKERS)):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [cases[index * (len(cases) - 1) // max(1, count - 1)] for cases in tests.values()
            for count in [min(len(cases), CASES)] for index in range(count)]


class Guard:
    """Fails a test without any of `MARKERS` that starts a process or loads a compiled simulation.

    The plugin is told by Python's audit events, so that it sees what is started wherever the call is.
    """

    #: What is no cost: Python itself asks for the processor's name, Matplotlib once for the fonts.
    _FREE = ("uname", "sleep", "git", "fc-list")

    def __init__(self) -> None:
        self._started: list[str] = []

    def pytest_configure(self) -> None:
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple) -> None:
        if event == "subprocess.Popen":
            command = arguments[1] if isinstance(arguments[1], str | bytes) else " ".join(map(str, arguments[1]))
            if Path(str(command).split()[0]).name not in self._FREE:
                self._started.append(str(command).partition("\n")[0][:100])
        elif event == "ctypes.dlopen" and str(arguments[0]).endswith("libnpu.so"):
            self._started.append(str(arguments[0]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item):
        self._started.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item):
        result = yield
        if self._started and not any(item.get_closest_marker(marker) for marker in MARKERS):
            pytest.fail(f"it starts `{self._started[0]}`: mark it with what that costs, one of "
                        f"{', '.join(MARKERS)} (tests/costs.py)", pytrace=False)
        return result
