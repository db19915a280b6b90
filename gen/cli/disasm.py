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
    from gen.program.file import ProgramFile

    programs = ProgramFile.load(arguments.program).programs
    if arguments.json:
        print_json({"instructions": [
            {"subgraph": number, "index": index, "queue": instruction.opcode.queue.name.lower(),
             "operation": instruction.opcode.name.lower(),
             "layer": program.layers[layer].name if layer >= 0 else None, "fields": dict(instruction.fields)}
            for number, program in enumerate(programs)
            for index, (instruction, layer) in enumerate(
                zip(program.instructions, program.instruction_layers, strict=True))
        ]})
        return
    for number, program in enumerate(programs):
        if len(programs) > 1:
            print(f"# subgraph {number}")
        for line in disassemble_program(program):
            print(line)
