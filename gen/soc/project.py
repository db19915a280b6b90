"""The files of a system: Verilog, constraints, scripts for the open tools, and what a host has to know of it."""

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cores.config import NpuConfig
from cores.emit import emit_verilog
from cores.errors import NpugenError
from gen.families.family import HIDE_ELEMENTS, SystemBuild
from gen.families.registry import get_family
from gen.soc.processor import Processor
from gen.soc.targets import Target
from npudriver.files import read_text

if TYPE_CHECKING:
    from litex.soc.integration.soc_core import SoCCore

__all__ = ["NAME", "SystemError", "board_files", "describe", "litex_quiet", "require_litex", "simulation_files",
           "system_build"]

#: Top module, and what all files of the system are called.
NAME = "soc"


class SystemError(NpugenError):
    """A system that LiteX cannot make, or LiteX is missing."""

    code = "system"


def require_litex(*modules: str) -> None:
    """Raises SystemError when LiteX, or one of ``modules``, is not installed."""
    import importlib.util

    for module in ("migen", "litex", "litedram", "litex_boards", *modules):
        if importlib.util.find_spec(module) is None:
            raise SystemError(f"{module} is not installed, which systems of LiteX need: pip install npugen[litex]",
                              code="missing-package")


@contextmanager
def litex_quiet() -> Iterator[None]:
    """LiteX reports its progress on the root logger, and closes stderr when it gives up: SystemError instead."""
    errors, folder, level = sys.stderr, os.getcwd(), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    except NpugenError:
        raise
    except ValueError as error:     # such as a clock that the PLL or the memory cannot have; not all say it
        raise SystemError(f"LiteX cannot make this system: {str(error) or 'a lower --clock may help'}") from None
    except Exception as error:
        if type(error).__name__ != "SoCError":
            raise
        raise SystemError("LiteX cannot make this system (its own message is above)") from None
    finally:
        sys.stderr = errors
        os.chdir(folder)
        logging.disable(level)


def board_files(target: Target, config: NpuConfig, *, clock_mhz: float, baud: int,
                processor: Processor | None = None) -> dict[str, str]:
    """Name -> content of all files of the board's system, the same bytes every time.

    Raises SystemError when LiteX is missing or cannot make it, ConfigError for a machine that it has no room for.
    """
    require_litex(target.module.partition(".")[0], *([] if processor is None else [processor.package]))
    from gen.soc.system import board_system

    family = get_family(target.board.family)
    with litex_quiet():
        system = board_system(target, config, clock_mhz=clock_mhz, baud=baud, processor=processor)
        files = _finished(system) | _processor_files(processor)
        script = _synthesis_script(target, [name for name in files if name.endswith(".v")])
        values = {"target": target, "config": config, "clock_mhz": clock_mhz, "name": NAME,
                  "nextpnr": family.route_command(target.board), "script": script}
        return {**files, "npu.v": emit_verilog(config), **family.scripts(),
                "config.json": config.to_json() + "\n",
                "Makefile": family.render(system_build(target).makefile, values), f"{NAME}.ys": script,
                "system.json": json.dumps(describe(system, target, clock_mhz, baud), indent=2) + "\n"}


def system_build(target: Target) -> SystemBuild:
    """How the files become a bitstream. Raises SystemError for a family of devices that does not say."""
    found = get_family(target.board.family).system
    if found is None:
        raise SystemError(f"{target.name}: its family of devices has no way from a LiteX system to a bitstream")
    return found


def simulation_files(target: Target, config: NpuConfig, *, clock_mhz: float,
                     processor: Processor | None = None) -> dict[str, str]:
    """Name -> content: the Verilog of `simulated_system`, with the machine's, and ``system.json``.

    Raises SystemError when LiteX is missing or cannot make it.
    """
    require_litex(target.module.partition(".")[0], *([] if processor is None else [processor.package]))
    from gen.soc.system import simulated_system

    with litex_quiet():
        system = simulated_system(target, config, clock_mhz=clock_mhz, processor=processor)
        system.finalize()
        output = system.platform.get_verilog(system, name=NAME)
        files = {f"{NAME}.v": _with_memories(_same(str(output.main_source)), output.data_files)}
        return {**files, **_processor_files(processor), "npu.v": emit_verilog(config),
                "system.json": json.dumps(describe(system, target, clock_mhz, 0), indent=2) + "\n"}


def describe(system: "SoCCore", target: Target, clock_mhz: float, baud: int) -> dict[str, Any]:
    """What a host has to know: where registers and memory are, and how the memory is woken (`gen.soc.host`)."""
    from litex.soc.integration.export import get_csr_json

    exported = json.loads(get_csr_json(system.csr_regions, system.constants, system.mem_regions))
    phy = system.sdram.controller.settings.phy
    return {
        "board": target.name, "clock_mhz": clock_mhz, "baud": baud,
        "registers": {name: entry["addr"] for name, entry in exported["csr_registers"].items()},
        "regions": {name: {"base": entry["base"], "size": entry["size"]}
                    for name, entry in exported["memories"].items()},
        "memory": {"kind": phy.memtype, "leveling": bool(phy.read_leveling), "start": _memory_start(system)},
        **({"interrupt": system.irq.locs["npu"]} if system.irq.enabled else {}),
    }


def _with_memories(verilog: str, files: Mapping[str, str]) -> str:
    """What memories hold first, in the Verilog itself: a simulation runs in any folder."""
    def words(place: re.Match[str]) -> str:
        return "\n".join(f"{place[2]}[{number}] = 'h{word};" for number, word in enumerate(files[place[1]].split()))

    return re.sub(r'\$readmemh\("([^"]+)", (\w+)\);', words, verilog)


def _processor_files(processor: Processor | None) -> dict[str, str]:
    return {} if processor is None else {f"{processor.module}.v": processor.verilog()}


def _memory_start(system: "SoCCore") -> list[dict[str, Any]]:
    """The writes that wake the memory, as LiteDRAM has them: register, its value, and the cycles after it."""
    from litedram.init import get_sdram_phy_init_sequence, get_sdram_phy_py_header

    settings = system.sdram.controller.settings
    codes: dict[str, Any] = {}
    exec(get_sdram_phy_py_header(settings.phy, settings.timing), codes)   # assignments: the only place that has them
    steps = []
    for what, address, bank, command, cycles in get_sdram_phy_init_sequence(settings.phy, settings.timing)[0]:
        names = command.lower().split("|")
        register = "sdram_dfii_control" if names[0].startswith("dfii_control") else "sdram_dfii_pi0_command"
        steps.append({"what": what, "address": address, "bank": bank, "register": register,
                      "value": sum(codes[name] for name in names), "cycles": cycles})
    return [*steps, {"what": "controller takes over", "address": 0, "bank": 0, "register": "sdram_dfii_control",
                     "value": codes["dfii_control_sel"], "cycles": 0}]


def _finished(system: "SoCCore") -> dict[str, str]:
    """Verilog, contents of its memories, and constraints, as LiteX writes them for the board."""
    with tempfile.TemporaryDirectory(prefix="npugen-soc-") as name:
        system.finalize()
        system.platform.build(system, build_name=NAME, build_dir=name, run=False)
        wanted = [path for path in sorted(Path(name).iterdir()) if path.suffix in (".v", ".init", ".lpf")]
        return {path.name: _same(read_text(path)) for path in wanted}


def _same(text: str) -> str:
    """Without what differs from run to run: when LiteX wrote it, and its list of instances, which has no order."""
    text = re.sub(r"^/\*.*?^\*/\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^(// *Date +:|// *Auto-Generated by LiteX on).*$", r"\1 -", text, flags=re.MULTILINE)


def _synthesis_script(target: Target, names: list[str]) -> str:
    """``names``: of the files of Verilog beside the machine's."""
    family = get_family(target.board.family)
    return "\n".join([f"read_verilog {' '.join(['npu.v', *names])}", f"hierarchy -top {NAME}", "flatten", HIDE_ELEMENTS,
                      *family.mapping(NAME), f"write_json {NAME}.mapped.json", ""])
