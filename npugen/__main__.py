"""The command ``npugen``, also ``python -m npugen``: ``python -m gen``, once it is certain that ``gen`` is ours."""

import sys

from npugen.own import require_own


def run() -> int:
    """Run the command that the program was called with; returns the exit status."""
    try:
        require_own()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    from gen.__main__ import run

    return run()


if __name__ == "__main__":
    sys.exit(run())
