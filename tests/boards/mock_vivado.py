"""The commands of Vivado that the project scripts use, as far as their order, names and connections can be checked."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.boards.tcl_mock import MockError, TclMock, options_of

__all__ = ["MockVivado"]


@dataclass
class _Cell:
    """``pins``: name -> direction. ``interfaces``: name -> role. ``needs``: option -> what is there only with it."""

    kind: str
    pins: dict[str, str]
    interfaces: dict[str, str] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    values: dict[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        switches = [option for option, names in self.needs.items() if name in names]
        return all(self.values.get(option) == "1" for option in switches)


def _ultra() -> _Cell:
    return _Cell(
        "zynq_ultra_ps_e",
        {"pl_clk0": "out", "pl_resetn0": "out", "maxihpm0_fpd_aclk": "in", "saxihp0_fpd_aclk": "in",
         "saxihp1_fpd_aclk": "in", "pl_ps_irq0": "in"},
        {"M_AXI_HPM0_FPD": "master", "S_AXI_HP0_FPD": "slave", "S_AXI_HP1_FPD": "slave"},
        {"PSU__FPGA_PL0_ENABLE": ("pl_clk0", "pl_resetn0"), "PSU__USE__IRQ0": ("pl_ps_irq0",),
         "PSU__USE__M_AXI_GP0": ("maxihpm0_fpd_aclk", "M_AXI_HPM0_FPD"),
         "PSU__USE__S_AXI_GP2": ("saxihp0_fpd_aclk", "S_AXI_HP0_FPD"),
         "PSU__USE__S_AXI_GP3": ("saxihp1_fpd_aclk", "S_AXI_HP1_FPD")},
        ("PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ", "PSU__USE__M_AXI_GP1", "PSU__USE__M_AXI_GP2",
         "PSU__SAXIGP2__DATA_WIDTH", "PSU__SAXIGP3__DATA_WIDTH"))


def _seven() -> _Cell:
    return _Cell(
        "processing_system7",
        {"FCLK_CLK0": "out", "FCLK_RESET0_N": "out", "M_AXI_GP0_ACLK": "in", "S_AXI_HP0_ACLK": "in",
         "S_AXI_HP2_ACLK": "in", "IRQ_F2P": "in"},
        {"M_AXI_GP0": "master", "S_AXI_HP0": "slave", "S_AXI_HP2": "slave"},
        {"PCW_EN_CLK0_PORT": ("FCLK_CLK0",), "PCW_USE_M_AXI_GP0": ("M_AXI_GP0_ACLK", "M_AXI_GP0"),
         "PCW_USE_S_AXI_HP0": ("S_AXI_HP0_ACLK", "S_AXI_HP0"), "PCW_USE_S_AXI_HP2": ("S_AXI_HP2_ACLK", "S_AXI_HP2"),
         "PCW_USE_FABRIC_INTERRUPT": ("IRQ_F2P",), "PCW_IRQ_F2P_INTR": ("IRQ_F2P",)},
        ("PCW_FPGA0_PERIPHERAL_FREQMHZ", "PCW_S_AXI_HP0_DATA_WIDTH", "PCW_S_AXI_HP2_DATA_WIDTH"))


_IPS = {
    "zynq_ultra_ps_e": _ultra,
    "processing_system7": _seven,
    "proc_sys_reset": lambda: _Cell("proc_sys_reset", {
        "slowest_sync_clk": "in", "ext_reset_in": "in", "peripheral_aresetn": "out"}),
    "smartconnect": lambda: _Cell("smartconnect", {"aclk": "in", "aresetn": "in"},
                                  {"S00_AXI": "slave", "M00_AXI": "master"}, options=("NUM_SI",)),
}
_STRATEGIES = ("Performance_Explore", "Performance_ExtraTimingOpt", "Congestion_SpreadLogic_high", "Area_Explore")
_SEGMENTS = {"zynq_ultra_ps_e": (0xA000_0000, 0xB000_0000), "processing_system7": (0x4000_0000, 0x8000_0000)}
_PORT = re.compile(r'X_INTERFACE_INFO = "(\S+) (\S+) (\S+)" \*\)\s*(?:\(\*.*?\*\)\s*)?(input|output)\s+wire\s+'
                   r"(?:\[\d+:0\] )?(\w+)", re.S)


def _module(verilog: str, name: str) -> _Cell:
    """A module by its interface attributes: a bus whose addresses it drives is a master."""
    if f"module {name} (" not in verilog:
        raise MockError(f"no module {name} in the project")
    cell = _Cell(name, {})
    buses: dict[str, dict[str, str]] = {}
    for kind, bus, signal, direction, port in _PORT.findall(verilog):
        if kind == "xilinx.com:interface:aximm:1.0":
            buses.setdefault(bus, {})[signal] = direction
        else:
            cell.pins[port] = direction.removesuffix("put")
    for bus, signals in buses.items():
        # A bus may have reads or writes alone, but each with its addresses.
        halves = [signals.get(f"{half}ADDR") for half in ("AR", "AW") if f"{half}VALID" in signals]
        if halves and None not in halves:
            cell.interfaces[bus] = "slave" if halves[0] == "input" else "master"
    return cell


class MockVivado(TclMock):
    """``boards``: names of those whose files are installed. ``addresses``: slave segment -> offset."""

    def __init__(self, folder: Path, *, boards: tuple[str, ...] = (), slack: float = 0.1, hold: float = 0.1):
        super().__init__(folder)
        self.boards, self.slack, self.hold = boards, slack, hold
        self.steps: list[str] = []
        self.files: list[Path] = []
        self.cells: dict[str, _Cell] = {}
        self.drivers: dict[str, str] = {}
        self.addresses: dict[str, int] = {}
        self.properties: dict[tuple[str, str], str] = {}

    def _after(self, *steps: str) -> None:
        for step in steps:
            if step not in self.steps:
                raise MockError(f"before {step}")

    # -- project -------------------------------------------------------------------------------------------------

    def do_create_project(self, *arguments: str) -> None:
        options, (self.project, self.where) = options_of(arguments, ["-part"], ["-force"])
        self.properties["project", "part"] = options["-part"]
        self.steps.append("create_project")

    def do_get_board_parts(self, *arguments: str) -> str:
        (pattern,) = options_of(arguments, [], ["-quiet", "-latest_file_version"])[1]
        return self.list([f"maker:{name}:part0:1.0" for name in self.boards if f":{name}:" in pattern])

    def do_current_project(self) -> str:
        return "project"

    def do_current_fileset(self) -> str:
        return "sources_1"

    def do_add_files(self, *arguments: str) -> None:
        self._after("create_project")
        options, (names,) = options_of(arguments, ["-fileset"], ["-norecurse"])
        for name in self.tcl.splitlist(names):
            if not Path(name).is_file():
                raise MockError(f"no file {name}")
            self.files.append(Path(name))

    def do_get_files(self, name: str) -> str:
        if name not in [path.name for path in self.files]:
            raise MockError(f"no file {name} in the project")
        return name

    def do_update_compile_order(self, *arguments: str) -> None:
        options_of(arguments, ["-fileset"])

    def do_set_property(self, *arguments: str) -> None:
        if arguments[0] == "-dict":
            pairs, target = self.tcl.splitlist(arguments[1]), arguments[2]
        else:
            pairs, target = arguments[:2], arguments[2]
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            self._set(str(name), str(value).strip(), target)

    def _set(self, name: str, value: str, target: str) -> None:
        if name.startswith("CONFIG."):
            cell = self.cells[target]
            option = name.removeprefix("CONFIG.")
            if option not in cell.options and option not in cell.needs:
                raise MockError(f"{cell.kind} has no option {option}")
            cell.values[option] = value
            if option == "NUM_SI":
                cell.interfaces.update({f"S{number:02}_AXI": "slave" for number in range(int(value))})
        elif name == "strategy" and (target != "impl_1" or value not in _STRATEGIES):
            raise MockError(f"{target} has no strategy {value}")
        elif name == "top" and value != "system_wrapper":
            raise MockError(f"no module {value}")
        self.properties[target, name] = value
        self.steps.append(f"set {name}")

    # -- block design --------------------------------------------------------------------------------------------

    def do_create_bd_design(self, name: str) -> None:
        self._after("create_project")
        self.design = name
        self.steps.append("create_bd_design")

    def do_create_bd_cell(self, *arguments: str) -> None:
        self._after("create_bd_design")
        options, (name,) = options_of(arguments, ["-type", "-vlnv", "-reference"])
        if name in self.cells:
            raise MockError(f"there is a cell {name} already")
        if options["-type"] == "module":
            self.cells[name] = _module("".join(path.read_text() for path in self.files), options["-reference"])
        else:
            kind = options["-vlnv"].split(":")[2]
            if kind not in _IPS:
                raise MockError(f"no IP {options['-vlnv']}")
            self.cells[name] = _IPS[kind]()

    def do_apply_bd_automation(self, *arguments: str) -> None:
        options, (cell,) = options_of(arguments, ["-rule", "-config"])
        words = self.tcl.splitlist(options["-config"])
        wanted = dict(zip(words[::2], words[1::2], strict=True))
        if options["-rule"].split(":")[2] != self.cells[cell].kind:
            raise MockError(f"rule {options['-rule']} is not of {self.cells[cell].kind}")
        if str(wanted["apply_board_preset"]) == "1" and ("project", "board_part") not in self.properties:
            raise MockError("a board's preset without its board_part")
        if self.cells[cell].values:
            raise MockError("the preset would replace what has been set")

    def do_get_bd_cells(self, name: str) -> str:
        if name not in self.cells:
            raise MockError(f"no cell {name}")
        return name

    def do_get_bd_pins(self, path: str) -> str:
        return self._found(path, "pins")

    def do_get_bd_intf_pins(self, path: str) -> str:
        return self._found(path, "interfaces")

    def _found(self, path: str, what: str) -> str:
        cell, name = path.split("/")
        if name not in getattr(self.cells[self.do_get_bd_cells(cell)], what) or not self.cells[cell].has(name):
            raise MockError(f"{self.cells[cell].kind} has no {name} with what is set")
        return path

    def _role(self, path: str, what: str) -> str:
        cell, name = path.split("/")
        return getattr(self.cells[cell], what)[name]

    def do_connect_bd_net(self, source: str, sink: str) -> None:
        self._connect(source, sink, "pins", ("out", "in"))

    def do_connect_bd_intf_net(self, source: str, sink: str) -> None:
        self._connect(source, sink, "interfaces", ("master", "slave"))

    def _connect(self, source: str, sink: str, what: str, roles: tuple[str, str]) -> None:
        found = self._role(source, what), self._role(sink, what)
        if found != roles:
            raise MockError(f"{source} to {sink}: {found[0]} to {found[1]}")
        if sink in self.drivers:
            raise MockError(f"{sink} is driven already")
        self.drivers[sink] = source

    # -- addresses -----------------------------------------------------------------------------------------------

    def do_get_bd_addr_spaces(self, path: str) -> str:
        if path not in ("processor/Data", "npu/m_axi"):
            raise MockError(f"no address space {path}")
        return path

    def do_get_bd_addr_segs(self, path: str) -> str:
        if self.cells[path.split("/")[0]].interfaces.get(path.split("/")[1]) != "slave":
            raise MockError(f"no segment {path}")
        return path

    def do_assign_bd_address(self, *arguments: str) -> None:
        options, segments = options_of(arguments, ["-offset", "-range", "-target_address_space"])
        self._after("create_bd_design")
        for segment in segments:
            offset, kind = int(options["-offset"], 0), self.cells["processor"].kind
            low, high = _SEGMENTS[kind]
            if not low <= offset < high or offset % 4096:
                raise MockError(f"{options['-offset']} is not in the range of the processor's master")
            self.addresses[segment] = offset
        self.steps.append("assign_bd_address" if not segments else "assign registers")

    def do_validate_bd_design(self) -> None:
        self._after("assign registers", "assign_bd_address")
        for name, cell in self.cells.items():
            ends = [pin for pin, role in cell.pins.items() if role == "in"]
            ends += [bus for bus, role in cell.interfaces.items() if role == "slave"]
            for end in filter(cell.has, ends):
                if f"{name}/{end}" not in self.drivers:
                    raise MockError(f"{name}/{end} is not connected")
            for bus, role in cell.interfaces.items():
                if role == "master" and f"{name}/{bus}" not in self.drivers.values():
                    raise MockError(f"{name}/{bus} is not connected")
        self.steps.append("validate_bd_design")

    def do_save_bd_design(self) -> None:
        self._after("validate_bd_design")
        self._write(Path(self.where, "system.bd"))
        self.files.append(Path(self.where, "system.bd"))

    def _write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("made by the mock\n")

    # -- runs ----------------------------------------------------------------------------------------------------

    def do_make_wrapper(self, *arguments: str) -> str:
        self._after("validate_bd_design")
        options_of(arguments, ["-files"], ["-top"])
        wrapper = Path(self.where, "system_wrapper.v")
        self._write(wrapper)
        return self.list([str(wrapper)])

    def do_launch_runs(self, *arguments: str) -> None:
        self._after("validate_bd_design", "set top")
        options, _ = options_of(arguments, ["-to_step", "-jobs"])
        if options.get("-to_step") == "write_bitstream":
            self._write(Path(self.where, f"{self.project}.runs/impl_1/system_wrapper.bit"))
            self._write(Path(self.where, f"{self.project}.gen/sources_1/bd/system/hw_handoff/system.hwh"))
            self.steps.append("launch_runs")

    def do_wait_on_run(self, name: str) -> None:
        self._after("launch_runs")
        self.steps.append("wait_on_run")

    def do_exec(self, program: str, *arguments: str) -> None:
        """bootgen, which Vivado brings: the files that its image names are in the folder that it is run in."""
        if program != "bootgen":
            raise MockError(f"no program {program}")
        options, _ = options_of([word for word in arguments if not word.startswith(">")],
                                ["-image", "-arch", "-process_bitstream", "-w"])
        processor = next(cell.kind for name, cell in self.cells.items() if name == "processor")
        if options["-arch"] != {"zynq_ultra_ps_e": "zynqmp", "processing_system7": "zynq"}[processor]:
            raise MockError(f"bootgen: {options['-arch']} is not the processor's architecture")
        image = Path.cwd() / options["-image"]
        (bitstream,) = re.findall(r"^\s+(\S+\.bit)$", image.read_text(), re.M)
        if not (Path.cwd() / bitstream).is_file():
            raise MockError(f"bootgen: no file {bitstream}")
        self._write(Path.cwd() / f"{bitstream}.{options['-process_bitstream']}")
        self.steps.append("bootgen")

    def do_get_runs(self, name: str) -> str:
        return name

    def do_get_property(self, name: str, target: str) -> str:
        self._after("wait_on_run")
        return {"PROGRESS": "100%", "STATS.WNS": str(self.slack), "STATS.WHS": str(self.hold)}[name]

    def do_open_run(self, name: str) -> None:
        self._after("wait_on_run")
        self.steps.append("open_run")

    def _report(self, flags: list[str], arguments: tuple[str, ...]) -> None:
        self._after("open_run")
        options, _ = options_of(arguments, ["-file", "-delay_type"], flags)
        self._write(Path(options["-file"]))
        if options.get("-delay_type", "min_max") != "min_max":
            raise MockError("a report of setup and hold")

    def do_report_timing_summary(self, *arguments: str) -> None:
        self._report([], arguments)

    def do_report_utilization(self, *arguments: str) -> None:
        self._report(["-hierarchical"], arguments)

    def do_report_cdc(self, *arguments: str) -> None:
        self._report(["-details"], arguments)

    def do_report_methodology(self, *arguments: str) -> None:
        self._report([], arguments)

    def do_write_hw_platform(self, *arguments: str) -> None:
        self._after("wait_on_run")
        _, (path,) = options_of(arguments, [], ["-fixed", "-include_bit", "-force"])
        self._write(Path(path))
