"""Every component of the hardware has a bench of its own."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path

from amaranth.lib import wiring

import cores

FOLDER = Path(__file__).parent


def components() -> list[type[wiring.Component]]:
    """The component classes that the modules of ``cores`` define, but for bases of others."""
    modules = [importlib.import_module(module.name) for module in pkgutil.walk_packages(cores.__path__, "cores.")]
    classes = [value for module in modules for value in vars(module).values()
               if inspect.isclass(value) and value.__module__ == module.__name__]
    return [one for one in classes if issubclass(one, wiring.Component) and "elaborate" in vars(one)]


def has_bench(name: str, texts: Mapping[str, str]) -> bool:
    """Of ``MacRow``: test_mac_row.py makes one, or some test does and runs bench_mac_row.py on it."""
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    makes = [module for module, text in texts.items() if module.startswith("test_") and f"{name}(" in text]
    runs = [module for module in makes if f"bench_{snake}" in texts[module]] if f"bench_{snake}" in texts else []
    return f"test_{snake}" in makes or bool(runs)


def test_all_have_a_bench():
    """One test for all: `make check` takes a few cases of a test, and this is to be seen at once."""
    texts = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
    assert [f"{component.__module__}.{component.__name__}" for component in components()
            if not has_bench(component.__name__, texts)] == []
