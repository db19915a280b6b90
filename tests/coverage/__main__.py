"""The command: see `tests/coverage/__init__.py`."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests import coverage
from tests.coverage.architectures import ARCHITECTURES


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=coverage.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write the architectures as ONNX files, where they are not there yet")
    run = commands.add_parser("run", help="compile and run the models, beside what is recorded")
    for command in (export, run):
        command.add_argument("folder", type=Path)
        command.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    export.add_argument("--dynamo", action="store_true", help="by PyTorch's newer exporter")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="models at a time (default 1)")
    run.add_argument("--json", action="store_true", help="print all that is known of each model")
    run.add_argument("--record", action="store_true", help="make the results those that are recorded")
    commands.add_parser("page", help="write the table of docs/coverage.md anew")
    return parser


def _export(arguments: argparse.Namespace) -> int:
    from tests.coverage.export import export

    export(arguments.folder, arguments.names or list(ARCHITECTURES), dynamo=arguments.dynamo, said=_say)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from tests.coverage.figures import Recorded
    from tests.coverage.page import table
    from tests.coverage.record import record
    from tests.coverage.runner import run_all

    names = arguments.names or sorted(path.stem for path in arguments.folder.glob("*.onnx"))
    models = [arguments.folder / f"{name}.onnx" for name in names]
    if missing := [str(model) for model in models if not model.is_file()] or not models and [arguments.folder]:
        _say(f"{missing[0]}: no model is there; `python -m tests.coverage export {arguments.folder}` writes them")
        return 1
    before = Recorded.load().models
    found, worse = {}, 0
    for model, figures in run_all(models, arguments.jobs):
        found[model.stem] = figures
        wrong = figures.worse_than(before.get(model.stem))
        worse += bool(wrong)
        _say(f"{model.stem}: {f'worse: {wrong}' if wrong else figures.summary}")
    if arguments.record:
        record(arguments.folder, found)
    print(json.dumps({name: asdict(figures) for name, figures in found.items()}, indent=1) if arguments.json
          else table(found))
    return 1 if worse else 0


def _page(arguments: argparse.Namespace) -> int:
    from tests.coverage.page import PAGE, page

    PAGE.write_text(page())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 1 where a model is worse than recorded, or not there."""
    arguments = _parser().parse_args(argv)
    return {"export": _export, "run": _run, "page": _page}[arguments.command](arguments)


if __name__ == "__main__":
    sys.exit(main())
