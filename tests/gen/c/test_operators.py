"""Generated C against onnxruntime: a node of every operator, at random."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.c import generate
from gen.c.text import identifier
from tests.gen.c.compiled import Library, compilers, difference, reference
from tests.gen.c.random_nodes import FAMILIES


@pytest.mark.parametrize("compiler", [pytest.param("gcc"), pytest.param("clang", marks=pytest.mark.full)])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_values_are_those_of_onnxruntime(family: Any, compiler: str, rng: np.random.Generator, tmp_path: Path) -> None:
    if compiler not in compilers():
        pytest.skip(f"{compiler} is not installed")
    made = dict(family(rng))
    functions = {name: generate(model, f"f_{identifier(name)}") for name, (model, _) in made.items()}
    library = Library(list(functions.values()), tmp_path, compiler=compiler)
    wrong = {}
    for name, (model, inputs) in made.items():
        expected = reference(model, inputs)
        found = library(functions[name].name, inputs)
        worst = max(difference(one, other) / (1 if other.dtype.kind == "f" else 1e-9)
                    for one, other in zip(found, expected, strict=True))
        if not worst <= 1:
            wrong[name] = worst, found, expected
    assert not wrong
