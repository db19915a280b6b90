"""Verilog that stops a simulation of four states where the machine shows or keeps something undefined."""

import random
import re

__all__ = ["forget_contents", "watch_unknowns"]

_MODULE = re.compile(r"^module (\S+) ?\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
_REGISTER = re.compile(r"^  always @\(posedge clk\)\n    (\\\S+ |\w+)\s*<=", re.MULTILINE)
_OUTPUT = re.compile(r"^  output (?:\[\d+:0\] )?(\w+);", re.MULTILINE)

_MEMORY = re.compile(r"(^  reg \[\d+:0\] (?:\\\S+ |\w+) *\[\d+:0\];\n)  initial begin\n((?:    .*;\n)+)  end\n",
                     re.MULTILINE)
#: Modules whose memories are read where nothing was written: the input buffer's banks, and the queue whose head is the
#: next word's address before there is one.
_READ_AHEAD = re.compile(r"\\top\.(compute\.buffer|fetch\.compute_queue)")

#: Outputs of the machine that need not have a value without that ``valid``.
_QUALIFIED = {rf"m_axi(?:_read\d_)?__{channel}(?!valid|ready)\w+": f"{channel}valid" for channel in ("ar", "aw", "w")}

#: Registers that may be undefined, by module: of data, and of an instruction or request that is looked at before it is
#: known to be one. All others are control, and so are those of a part that is not here.
_DATA = {
    # Numbers on their way through the array and back to memory. The stages have a word's place beside its flags.
    r"compute": r"(stage|stream|window|read)\d",
    r"compute\.(accumulators|array|pool|buffer|binary)(\.\w+)?":
        r"(control|before|total|tap|count)\d|channels|bits|(read|product|selected|stored|sum|marks|parit|early|number"
        r"|ones|rest)\w*",
    # Of row operations: values on their way, and what is made of a row's sum.
    r"compute\.pool":
        r"(difference|factor|kept|other|coarse|total\d_)\d|place(\d_|_late)|total_late|some|many|made|found|top|index"
        r"|shift|row_results",
    r"load\.writer\.turn(ed_bias)?": r"write_data|sum|product",
    r"store\.(requantizer(\.lane\d+)?|table)":
        r"(late_)?pooled\w*|(sum|word|bank|negative|value)\d|\$signal.*|coarse_lost|integer|moved|product|result|total"
        r"|wide|output|port__data",
    r"store\.local": r"kept",
    r"load\.writer": r"late",
    r"load\.writer\.path(\.bytes.*)?": r"value|kept_beat\d|arrived",
    r"load\.writer\.tiles\.transformer(\.lane\d+|\.lines\.buffer)?":
        r"columns_\w|column|rounded|total|output__payload|second",
    r"read": r"arrived|arrived_for_load",
    # Of what the queue's head would be if it were there.
    r"load": r"bad_code|error",
    r"load\.requester": r"\$signal.*|error|kind|was_set|whole|(block|row|next_|offset)\w*",
    r"load\.spans": r"\$signal.*|end|steps?",
    r"load\.writer\.dispatch": r"\$signal.*|was_box",
    r"compute\.sequencer": r"entries|following|issue",
    r"compute\.sequencer\.loops": r"acc_address|prepared|tap\d|(block|col|group|last|next)_\w+",
    r"compute\.weights.*": r"missing|step|last",
    r"write": r"\$signal.*|axi__wlast|error",
    # Of a register's address, before the host sends one.
    r"registers": r"\$signal.*|counter_select|is_high",
}
_DATA_OF = [(re.compile(rf"\\?top\.{module}"), re.compile(names)) for module, names in _DATA.items()]


def _is_data(module: str, register: str) -> bool:
    return any(of.fullmatch(module) and names.fullmatch(register) for of, names in _DATA_OF)


def _check(what: str, condition: str) -> str:
    report = f'$display("UNDEFINED: %m has {what} at %0t", $time)'
    return f"    if ({condition}) begin\n      {report};\n      $fatal;\n    end\n"


def forget_contents(verilog: str, seed: int) -> str:
    """``verilog`` whose memories start with nothing in place of zeros: all bits are X.

    Those of `_READ_AHEAD` have random ones. What is read there unwritten is multiplied by weights that are zero
    (channels that a layer does not have), or as the vacant second pixel of a row's last word, in one multiplier with
    the first. A simulator makes X of both products, the hardware what is right: the results decide.
    """
    chance = random.Random(seed)

    def filled(match: re.Match) -> str:
        declaration, values = match.groups()
        anything = re.sub(r"(\d+)'h\w+", lambda value: f"{value[1]}'h{chance.getrandbits(int(value[1])):x}", values)
        return f"{declaration}  initial begin\n{anything}  end\n"

    def forgotten(module: re.Match) -> str:
        return _MEMORY.sub(filled if _READ_AHEAD.fullmatch(module[1]) else r"\1", module[0])
    return _MODULE.sub(forgotten, verilog)


def watch_unknowns(verilog: str) -> str:
    """``verilog`` of the machine (module ``top``) that ends the simulation by ``$fatal`` where after a reset an output
    or a register of its control has a bit that is X or Z; the line before says which. Data count only where they are
    offered: `_QUALIFIED`, `_DATA`. It is SystemVerilog."""
    def watched(match: re.Match) -> str:
        name, text = match.group(1), match.group()
        registers = {register.strip().lstrip("\\") for register in _REGISTER.findall(text)}
        checks = [_check(register, f"^\\{register} === 1'bx")
                  for register in sorted(registers) if not _is_data(name, register)]
        if name == "top":
            for port in _OUTPUT.findall(text):
                valid = next((f"{port[:port.index('__') + 2]}{qualifier} !== 1'b0 && "
                              for pattern, qualifier in _QUALIFIED.items() if re.fullmatch(pattern, port)), "")
                checks.append(_check(port, f"{valid}^{port} === 1'bx"))
        if not checks or not re.search(r"^  input rst;", text, re.MULTILINE):
            return text
        body = "".join(checks)
        return text.removesuffix("endmodule\n") + (
            "  reg was_reset = 0;\n  always @(negedge clk) if (rst === 1'b1) was_reset <= 1;\n"
            f"  always @(negedge clk) if (was_reset && rst === 1'b0) begin\n{body}  end\nendmodule\n")
    return _MODULE.sub(watched, verilog)
