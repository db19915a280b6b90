"""``gen disasm``"""

import argparse
from pathlib import Path

from gen.cli.common import add_json_option, print_json

EXAMPLE = "example: %(prog)s build/digits.npu | less"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", type=Path, metavar="PROGRAM")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    from gen.program.assembler import disassemble_program
    from gen.program.program import Program

    program = Program.load(arguments.program)
    if arguments.json:
        names = [program.layers[layer].name if layer >= 0 else None for layer in program.instruction_layers]
        print_json({"instructions": [
            {"index": index, "queue": instruction.opcode.queue.name.lower(),
             "operation": instruction.opcode.name.lower(), "layer": name, "fields": dict(instruction.fields)}
            for index, (instruction, name) in enumerate(zip(program.instructions, names, strict=True))
        ]})
        return
    for line in disassemble_program(program):
        print(line)
