"""The rule of `tests.lint.families` finds what it is for."""

import ast

from tests.lint.families import named, strings


def test_what_names_a_family_is_found():
    assert named("synthesis for xcup") == {"xcup"} and named("a TRELLIS_FF") == {"TRELLIS_FF"}
    assert list(strings(ast.parse('"""xc7"""\nA = f"{b} xcup"\n'))) == [" xcup"]
