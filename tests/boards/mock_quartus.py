"""The commands of Platform Designer and Quartus that the scripts use, as far as they can be checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tests.boards.tcl_mock import MockError, RefusedError, TclMock, options_of

__all__ = ["Component", "MockComponent", "MockPlatformDesigner", "MockQuartus", "MockTiming"]


@dataclass
class Component:
    """``interfaces``: name -> (kind, role). ``ports``: (interface, port, signal, direction, width)."""

    interfaces: dict[str, tuple[str, str]] = field(default_factory=dict)
    properties: dict[tuple[str, str], str] = field(default_factory=dict)
    ports: list[tuple[str, str, str, str, int]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


class MockComponent(TclMock):
    """A ``_hw.tcl`` script."""

    _PROPERTIES = ("associatedClock", "associatedReset", "associatedAddressablePoint", "readIssuingCapability",
                   "writeIssuingCapability")

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.component = Component()
        self.module: dict[str, str] = {}

    def do_set_module_property(self, name: str, value: str) -> None:
        self.module[name] = value

    def do_add_fileset(self, name: str, kind: str) -> None:
        self.fileset = name

    def do_set_fileset_property(self, name: str, key: str, value: str) -> None:
        if name != self.fileset:
            raise MockError(f"no fileset {name}")

    def do_add_fileset_file(self, name: str, kind: str, _: str, path: str) -> None:
        if not (self.folder / path).is_file():
            raise MockError(f"no file {path}")
        self.component.files.append(path)

    def do_add_interface(self, name: str, kind: str, role: str) -> None:
        if kind not in ("clock", "reset", "interrupt", "axi4", "axi4lite"):
            raise MockError(f"no interface type {kind}")
        self.component.interfaces[name] = kind, role

    def do_set_interface_property(self, name: str, key: str, value: str) -> None:
        if name not in self.component.interfaces or key not in self._PROPERTIES:
            raise MockError(f"no property {key} of {name}")
        if key.startswith("associated") and value not in self.component.interfaces:
            raise MockError(f"{name}: no interface {value}")
        self.component.properties[name, key] = value

    def do_add_interface_port(self, interface: str, port: str, signal: str, direction: str, width: str) -> None:
        if interface not in self.component.interfaces:
            raise MockError(f"no interface {interface}")
        self.component.ports.append((interface, port, signal, direction, int(width)))


_HPS_OPTIONS = ("F2S_Width", "S2F_Width", "LWH2F_Enable", "F2SDRAM_Type", "F2SDRAM_Width", "F2SINTERRUPT_Enable")
_OPTIONS = {
    "clock_source": ("clockFrequency", "clockFrequencyKnown", "resetSynchronousEdges"),
    "altera_pll": ("gui_reference_clock_frequency", "gui_number_of_clocks", "gui_output_clock_frequency0",
                   "gui_use_locked"),
    "altera_hps": _HPS_OPTIONS, "npu": (),
}
#: Interface -> (kind, whether a connection begins there).
_ENDS = {
    "clock_source": {"clk": ("clock", True), "clk_reset": ("reset", True), "clk_in": ("clock", False),
                     "clk_in_reset": ("reset", False)},
    "altera_pll": {"refclk": ("clock", False), "reset": ("reset", False), "outclk0": ("clock", True)},
    "altera_hps": {"h2f_reset": ("reset", True), "h2f_lw_axi_clock": ("clock", False),
                   "h2f_lw_axi_master": ("axi", True), "f2h_sdram0_clock": ("clock", False),
                   "f2h_sdram0_data": ("axi", False), "f2h_irq0": ("interrupt", True), "memory": ("conduit", False)},
}


class MockPlatformDesigner(TclMock):
    """A script of ``qsys-script``; ``component`` is the NPU."""

    def __init__(self, folder: Path, component: Component):
        super().__init__(folder)
        self.ends = {**_ENDS, "npu": {
            name: ("axi" if kind.startswith("axi") else kind, role == "start")
            for name, (kind, role) in component.interfaces.items()}}
        self.instances: dict[str, str] = {}
        self.options: dict[str, dict[str, str]] = {}
        self.connections: dict[str, dict[str, str]] = {}
        self.exports: dict[str, str] = {}
        self.saved = ""

    def do_create_system(self, name: str) -> None:
        self.system = name

    def do_set_project_property(self, name: str, value: str) -> None:
        if name not in ("DEVICE_FAMILY", "DEVICE"):
            raise MockError(f"no property {name}")

    def do_add_instance(self, name: str, kind: str) -> None:
        if kind not in self.ends:
            raise MockError(f"no component {kind}")
        self.instances[name] = kind
        self.options[name] = {}

    def do_set_instance_parameter_value(self, name: str, option: str, value: str) -> None:
        if option not in _OPTIONS[self.instances[name]]:
            raise MockError(f"{self.instances[name]} has no parameter {option}")
        self.options[name][option] = value.strip()

    def _end(self, path: str) -> tuple[str, bool]:
        name, _, interface = path.partition(".")
        if name not in self.instances or interface not in self.ends[self.instances[name]]:
            raise MockError(f"no interface {path}")
        return self.ends[self.instances[name]][interface]

    def do_add_connection(self, start: str, end: str) -> None:
        (kind, begins), (other, also) = self._end(start), self._end(end)
        if kind != other or not begins or also:
            raise MockError(f"{start} cannot be connected to {end}")
        if kind != "interrupt" and any(path.endswith(f"/{end}") for path in self.connections):
            raise MockError(f"{end} is connected already")
        self.connections[f"{start}/{end}"] = {}

    def do_set_connection_parameter_value(self, path: str, name: str, value: str) -> None:
        if path not in self.connections or name not in ("baseAddress", "irqNumber"):
            raise MockError(f"no parameter {name} of {path}")
        self.connections[path][name] = value

    def do_add_interface(self, name: str, kind: str, role: str) -> None:
        self.exports[name] = ""

    def do_set_interface_property(self, name: str, key: str, value: str) -> None:
        if key != "EXPORT_OF" or name not in self.exports:
            raise MockError(f"no property {key} of {name}")
        self._end(value)
        self.exports[name] = value

    def do_save_system(self, path: str) -> None:
        served = {path.split("/")[1] for path in self.connections} | set(self.exports.values())
        for name, kind in self.instances.items():
            for interface, (_, begins) in self.ends[kind].items():
                path_ = f"{name}.{interface}"
                begun = any(one.startswith(f"{path_}/") for one in self.connections)
                if not begins and path_ not in served and not begun:
                    raise MockError(f"{path_} is not connected")
        self.saved = path


class MockQuartus(TclMock):
    """A script of ``quartus_sh``. ``slacks`` are `MockTiming`'s; ``assistant``: whether the edition has one."""

    _MODES = ("BALANCED", "HIGH PERFORMANCE EFFORT", "AGGRESSIVE PERFORMANCE", "AGGRESSIVE AREA")
    _REPORTS = {"fit": "npu_system.fit.rpt", "drc": "npu_system.drc.rpt"}
    _ASSIGNMENTS = ("FAMILY", "DEVICE", "PROJECT_OUTPUT_DIRECTORY", "TOP_LEVEL_ENTITY", "QIP_FILE", "SDC_FILE",
                    "VERILOG_FILE", "GENERATE_RBF_FILE", "SEED", "OPTIMIZATION_MODE")

    def __init__(self, folder: Path, *arguments: str, slacks: Mapping[tuple[str, str], float] = MappingProxyType({}),
                 assistant: bool = True):
        super().__init__(folder)
        self.slacks, self.assistant = slacks, assistant
        self.steps: list[str] = []
        self.assignments: dict[str, str] = {}
        self.pins: dict[str, str] = {}
        self.tcl.eval(f"array set quartus {{args {{{' '.join(arguments)}}} quartus_rootpath /quartus "
                      "binpath /quartus/bin}")

    def do_exec(self, program: str, *arguments: str) -> None:
        name = Path(program).name
        if name == "qsys-generate":
            if "qsys-script" not in self.steps:
                raise MockError("before qsys-script")
            for path in ("system.qip", "submodules/hps_sdram_p0_pin_assignments.tcl"):
                made = self.folder / "system/synthesis" / path
                made.parent.mkdir(parents=True, exist_ok=True)
                made.write_text("")
        elif name == "quartus_sta":
            if arguments[0] != "-t" or self.steps[-1] != "project_close":
                raise MockError("quartus_sta: needs -t and a project that nobody else has open")
            if not {"fit", "sta"} <= set(self.steps):
                raise MockError("quartus_sta: before the fitter")
            MockTiming(self.folder, self.slacks).run(arguments[1])
        elif not (self.folder / arguments[0].removeprefix("--script=")).is_file():
            raise MockError(f"{name}: no file {arguments[0]}")
        self.steps.append(name)

    def do_project_new(self, *arguments: str) -> None:
        options_of(arguments, [], ["-overwrite"])
        self.steps.append("project_new")

    def do_set_global_assignment(self, *arguments: str) -> None:
        options, (value,) = options_of(arguments, ["-name"])
        name = options["-name"]
        if "project_new" not in self.steps:
            raise MockError("before project_new")
        if name not in self._ASSIGNMENTS:
            raise MockError(f"no assignment {name}")
        if name.endswith("_FILE") and name != "GENERATE_RBF_FILE" and not (self.folder / value).is_file():
            raise MockError(f"no file {value}")
        if name == "OPTIMIZATION_MODE" and value not in self._MODES or name == "SEED" and int(value) < 1:
            raise MockError(f"{name} cannot be {value}")
        self.assignments[name] = value

    def do_set_instance_assignment(self, *arguments: str) -> None:
        options, _ = options_of(arguments, ["-name", "-to"])
        if options["-name"] not in ("VIRTUAL_PIN", "IO_STANDARD"):
            raise MockError(f"no assignment {options['-name']}")

    def do_set_location_assignment(self, *arguments: str) -> None:
        options, (pin,) = options_of(arguments, ["-to"])
        self.pins[options["-to"]] = pin

    def do_export_assignments(self) -> None:
        self.steps.append("export_assignments")

    def do_execute_module(self, *arguments: str) -> None:
        options, _ = options_of(arguments, ["-tool"])
        tool = options["-tool"]
        if tool == "drc" and not self.assistant:
            raise RefusedError("no Design Assistant in this edition")
        if tool in self._REPORTS:
            report = self.folder / "output_files" / self._REPORTS[tool]
            report.parent.mkdir(exist_ok=True)
            report.write_text(f"report of {tool}\n")
        self.steps.append(tool)

    def do_execute_flow(self, *arguments: str) -> None:
        self.steps += ["map", "fit", "asm", "sta"]

    def do_project_close(self) -> None:
        self.steps.append("project_close")


class MockTiming(TclMock):
    """A script of ``quartus_sta``; ``slacks``: (check, corner) -> slack of its worst path; 0.1 where none is given."""

    CORNERS = ("slow_85c", "slow_0c", "fast_85c", "fast_0c")
    _CHECKS = ("setup", "hold", "recovery", "removal")

    def __init__(self, folder: Path, slacks: Mapping[tuple[str, str], float] = MappingProxyType({})):
        super().__init__(folder)
        self.slacks = slacks
        self.steps: list[str] = []
        self.corner = ""
        self.tcl.eval("proc foreach_in_collection {name values body} "
                      "{upvar 1 $name one; foreach one $values {uplevel 1 $body}}")

    def _step(self, name: str, *before: str) -> None:
        for step in before:
            if step not in self.steps:
                raise MockError(f"{name} before {step}")
        self.steps.append(name)

    def do_project_open(self, name: str) -> None:
        self._step("project_open")

    def do_create_timing_netlist(self) -> None:
        self._step("create_timing_netlist", "project_open")

    def do_read_sdc(self) -> None:
        self._step("read_sdc", "create_timing_netlist")

    def do_get_available_operating_conditions(self) -> str:
        self._step("get_available_operating_conditions", "create_timing_netlist")
        return self.list(self.CORNERS)

    def do_set_operating_conditions(self, corner: str) -> None:
        self._step("set_operating_conditions", "read_sdc")
        self.corner, self.updated = corner, False

    def do_update_timing_netlist(self) -> None:
        self._step("update_timing_netlist", "read_sdc")
        self.updated = True

    def do_get_operating_conditions_info(self, *arguments: str) -> str:
        return f"Corner {options_of(arguments, [], ['-display_name'])[1][0]}"

    def _report(self, arguments: tuple[str, ...], options: tuple[str, ...] = (), *, checks: bool = False) -> None:
        flags = ["-append", *(f"-{check}" for check in self._CHECKS if checks)]
        found, rest = options_of(arguments, ["-file", *options], flags)
        if rest or not self.updated or checks and not any(f"-{check}" in found for check in self._CHECKS):
            raise MockError(f"a report of {arguments}")
        if "-append" not in found:
            raise MockError("a report that replaces those before")
        with (self.folder / found["-file"]).open("a") as file:
            file.write(f"{self.corner} {' '.join(arguments)}\n")

    def do_create_timing_summary(self, *arguments: str) -> None:
        self._report(arguments, checks=True)

    def do_report_timing(self, *arguments: str) -> None:
        self._report(arguments, ("-npaths", "-detail"), checks=True)

    def do_report_min_pulse_width(self, *arguments: str) -> None:
        self._report(arguments, ("-nworst",))

    def do_report_clock_transfers(self, *arguments: str) -> None:
        self._report(arguments)

    def do_report_metastability(self, *arguments: str) -> None:
        self._report(arguments)

    def do_report_ucp(self, *arguments: str) -> None:
        self._report(arguments)

    def do_get_timing_paths(self, *arguments: str) -> str:
        options, _ = options_of(arguments, ["-npaths"], [f"-{check}" for check in self._CHECKS])
        (check,) = (check for check in self._CHECKS if f"-{check}" in options)
        if not self.updated:
            raise MockError(f"paths of {self.corner} before update_timing_netlist")
        return self.list([f"{check}:{self.corner}"])

    def do_get_path_info(self, path: str, option: str) -> float:
        if option != "-slack":
            raise MockError(f"no {option} of a path")
        check, corner = path.split(":")
        return self.slacks.get((check, corner), 0.1)

    def do_delete_timing_netlist(self) -> None:
        self._step("delete_timing_netlist", "create_timing_netlist")

    def do_project_close(self) -> None:
        self._step("project_close", "project_open")
