"""What is generated has all of what it is generated from, and links lead somewhere."""

import re

import pytest

import npugen
from cores.arch.isa import LAYOUTS
from cores.arch.registers import COUNTERS, REGISTERS
from gen.cli import COMMANDS, make_parser
from gen.options import CompileOptions
from tests import ROOT
from tests.site.commands import commands_page
from tests.site.comments import fields_table
from tests.site.machine import instructions_page, registers_page
from tests.site.pages import GENERATED, led_anew


@pytest.mark.slow
def test_every_command_has_its_options():
    page = commands_page()
    assert [name for name in COMMANDS if f"\n## {name}\n" not in page] == []
    section = page.partition("\n## report\n")[2].partition("\n## ")[0]
    parser = make_parser("report")._subparsers._group_actions[0].choices["report"]  # type: ignore[union-attr, index]
    options = [option for action in parser._actions for option in action.option_strings
               if action.help != "==SUPPRESS==" and option not in ("-h", "--help")]
    assert len(options) > 20 and [option for option in options if f"`{option}" not in section] == []


def test_every_instruction_has_its_fields():
    page = instructions_page()
    for opcode, fields in LAYOUTS.items():
        section = page.partition(f"\n### {opcode.name} ({int(opcode)})\n")[2].partition("\n##")[0]
        assert [field.name for field in fields if f" `{field.name}` |" not in section] == [], opcode
    assert "entries from an output row to the next" in page, "the comments of fields"
    assert "Geometry that the LOAD_ACTs after it share." in page, "the comments of operations"


def test_every_register_is_there():
    page = registers_page()
    names = [register.name for register in REGISTERS if not register.name.startswith("counter_")]
    assert [name for name in (*names, *COUNTERS) if f"`{name}`" not in page] == []


def test_fields_of_a_dataclass():
    assert "| `density` | `float | None` | `None` | Share of each block's weights" in fields_table(CompileOptions)


def test_all_of_the_package_is_there():
    page = GENERATED["reference/npugen.md"]()
    named = [name for name in npugen.__all__ if name not in ("__version__", "examples")]
    assert [name for name in named if not re.search(rf"^::: npugen\.\w+\.{name}$", page, re.M)] == []


@pytest.mark.parametrize(("page", "given", "expected"), [
    ("overview.md", "[a](docs/timing.md#x) [b](LICENSE)", "[a](timing.md#x) [b](licence.md)"),
    ("boards/ecp5.md", "[a](../../README.md) [b](../boards.md)", "[a](../overview.md) [b](../boards.md)"),
    ("api.md", "[a](#here) [b](https://x.org) [c](../pyproject.toml)", "[a](#here) [b](https://x.org) c"),
    ("api.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ("api.md", "[a](none.md)", "[a](none.md)"),
])
def test_links_are_led_anew(page: str, given: str, expected: str):
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert led_anew(given, page, pages.__contains__) == expected
