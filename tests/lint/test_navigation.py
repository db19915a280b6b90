"""What the rule about menus finds."""

from tests.lint.navigation import unlike


def test_what_is_in_one_alone_is_found():
    assert list(unlike({"a.md", "b.md"}, ["b.md", "c.md", "b.md"])) == [
        "docs/a.md: in no menu of mkdocs.yml", "mkdocs.yml: c.md is no page", "mkdocs.yml: b.md is in two menus"]
    assert list(unlike({"a.md"}, ["a.md"])) == []
