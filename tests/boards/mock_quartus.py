"""The commands of Platform Designer and Quartus that the scripts use, as far as they can be checked."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.boards.tcl_mock import MockError, TclMock, options_of

__all__ = ["Component", "MockComponent", "MockPlatformDesigner", "MockQuartus"]


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
    """A script of ``quartus_sh``."""

    _ASSIGNMENTS = ("FAMILY", "DEVICE", "PROJECT_OUTPUT_DIRECTORY", "TOP_LEVEL_ENTITY", "QIP_FILE", "SDC_FILE",
                    "VERILOG_FILE", "GENERATE_RBF_FILE")

    def __init__(self, folder: Path, *arguments: str):
        super().__init__(folder)
        self.steps: list[str] = []
        self.assignments: dict[str, str] = {}
        self.pins: dict[str, str] = {}
        self.tcl.eval(f"array set quartus {{args {{{' '.join(arguments)}}} quartus_rootpath /quartus}}")

    def do_exec(self, program: str, *arguments: str) -> None:
        name = Path(program).name
        if name == "qsys-generate":
            if "qsys-script" not in self.steps:
                raise MockError("before qsys-script")
            for path in ("system.qip", "submodules/hps_sdram_p0_pin_assignments.tcl"):
                made = self.folder / "system/synthesis" / path
                made.parent.mkdir(parents=True, exist_ok=True)
                made.write_text("")
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
        self.steps.append(options["-tool"])

    def do_execute_flow(self, *arguments: str) -> None:
        self.steps += ["map", "fit", "asm", "sta"]

    def do_project_close(self) -> None:
        self.steps.append("project_close")
