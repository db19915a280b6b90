"""Components in Icarus, which knows X: their benches drive what the component looks at, and no X comes out."""

import pytest

from cores.bus.read_engine import ReadEngine
from cores.bus.write_engine import WriteEngine
from cores.config import NpuConfig
from cores.control.register_file import RegisterFile
from tests.bench import LANGUAGES, run_bench

CONFIG = NpuConfig.preset(16)


@pytest.mark.full
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("component, name", [
    (RegisterFile, "register_file"), (ReadEngine, "read_engine"), (WriteEngine, "write_engine"),
])
def test_component_in_four_states(component, name, language):
    run_bench(component(CONFIG), module=f"tests.cores.bench_{name}", name=name,
              parameters={"config": CONFIG.to_dict()}, simulator="icarus", language=language)
