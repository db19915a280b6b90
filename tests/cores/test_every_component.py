"""Every component of the hardware has a bench of its own."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from amaranth.lib import wiring

import cores

FOLDER = Path(__file__).parent


def components() -> list[type[wiring.Component]]:
    """The component classes that the modules of ``cores`` define."""
    modules = [importlib.import_module(module.name) for module in pkgutil.walk_packages(cores.__path__, "cores.")]
    return [value for module in modules for value in vars(module).values()
            if inspect.isclass(value) and issubclass(value, wiring.Component) and value.__module__ == module.__name__]


@pytest.mark.parametrize("component", components(), ids=lambda component: component.__name__)
def test_has_a_bench(component):
    """Of ``MacRow``: test_mac_row.py makes one, or some test does and runs bench_mac_row.py on it."""
    name = component.__name__
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    texts = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
    makes = [module for module, text in texts.items() if module.startswith("test_") and f"{name}(" in text]
    runs = [module for module in makes if f"bench_{snake}" in texts[module]] if f"bench_{snake}" in texts else []
    assert f"test_{snake}" in makes or runs, f"{name} ({component.__module__}) has no test_{snake}.py of its own"
