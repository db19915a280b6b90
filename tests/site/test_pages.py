"""What is generated has all of what it is generated from, and links lead somewhere."""

import re
from pathlib import Path

import pytest

import npugen
from cores.arch.isa import LAYOUTS
from cores.arch.registers import COUNTERS, REGISTERS
from gen.cli import COMMANDS, make_parser
from gen.options import CompileOptions
from tests import ROOT
from tests.gen.browser import opened
from tests.site.commands import commands_page
from tests.site.comments import fields_table
from tests.site.machine import instructions_page, registers_page
from tests.site.pages import GENERATED, SCRIPT, elsewhere, led_anew


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


def test_what_a_page_fetches_from_elsewhere():
    assert elsewhere('<script src="https://unpkg.com/iframe-worker/shim"></script><img src=//x.org/a.png alt=""> '
                     '<link rel="stylesheet" href="http://y.org/a.css">') == [
        "https://unpkg.com/iframe-worker/shim", "//x.org/a.png", "http://y.org/a.css"]
    assert elsewhere('<script src="iframe-worker.js"></script><a href="https://x.org">x</a><img src="../a.png">'
                     '<link rel="canonical" href="https://x.org/a.html"><img src="data:image/png;base64,//x">') == []


@pytest.mark.full
def test_search_from_the_disk(tmp_path: Path):
    """The search's script hears messages and answers, as that of a worker, without a server and without a network."""
    (tmp_path / "worker.js").write_text('addEventListener("message", event => postMessage(event.data + 1));')
    page = tmp_path / "page.html"
    page.write_text(f'''<html><head><title>none</title><script>{SCRIPT.read_text()}</script></head><body><script>
const worker = new Worker("worker.js");
worker.addEventListener("message", event => {{ document.title = `heard ${{event.data}}`; }});
worker.postMessage(41);
</script></body></html>''')
    assert "<title>heard 42</title>" in opened(page, tmp_path, "--virtual-time-budget=5000").stdout
