"""A suggestion is made for a slip, and not for another word."""

import pytest

from kdbirl.errors import did_you_mean


@pytest.mark.parametrize(
    ("asked", "known", "suggested"),
    [
        ("medain", ["paper", "median"], "median"),
        ("yy", ["x", "y"], "y"),
        ("POS X", ["episode", "pos_x"], "pos_x"),
        ("sofa-lactat", ["sofa-lactate-map"], "sofa-lactate-map"),
        ("w9", ["x", "w1"], "w1"),
        ("rigth", ["left", "right"], "right"),
    ],
)
def test_near_names_are_suggested(asked, known, suggested):
    assert did_you_mean(asked, known) == f" Did you mean {suggested!r}?"


@pytest.mark.parametrize(
    ("asked", "known"),
    [("time", ["name", "dose"]), ("x", ["y", "z"]), ("why", ["y"]), ("position", ["rotation"]), ("reward", ["row"])],
)
def test_far_names_are_listed_instead(asked, known):
    assert did_you_mean(asked, known) == f" There are: {', '.join(map(repr, known))}."


def test_nothing_to_suggest():
    assert did_you_mean("x", []) == ""
    assert did_you_mean("zzz", map(str, range(20))).endswith("'11' and 8 more.")
