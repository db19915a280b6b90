"""Which modules say what they are."""

import pytest

from tests.lint.texts import says_what_it_is


@pytest.mark.parametrize("text, expected", [
    ('"""A module."""', True), ('def f():\n    """A function."""', True), ("import sys", False),
    ("def f():\n    # nothing\n    pass", False)])
def test_docstrings(text: str, expected: bool):
    assert says_what_it_is(text) is expected
