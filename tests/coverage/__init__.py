"""Exported architectures through the compiler and the functional simulator, beside what is recorded of them.

    python -m tests.coverage export FOLDER [NAME ...] [--dynamo]
    python -m tests.coverage run FOLDER [NAME ...] [--json] [--record]
    python -m tests.coverage page

The first writes FOLDER/NAME.onnx, with random weights, and needs the packages of the extra `coverage`, in any
environment; nothing else does. The second compiles each model that is in FOLDER and runs a sample of it, and ends with
1 where one is worse than recorded; `--record` makes the results those that are recorded. The third writes the table of
docs/coverage.md anew.
"""
