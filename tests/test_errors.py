"""A suggestion is made for a slip, and not for another word; a message can be read, whatever a file put into it."""

import pytest

from kdbirl.errors import FileProblem, Interrupted, KDBIRLError, MissingDependency, did_you_mean


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


@pytest.mark.parametrize("kind", [KDBIRLError, FileProblem, MissingDependency, Interrupted])
def test_a_name_as_long_as_a_book_is_shown_in_part(kind):
    said = str(kind(f"rows.csv: column {'x' * 10**5!r} is not there. Name another one."))
    assert said == f"rows.csv: column '{'x' * 59}... is not there. Name another one."


def test_of_a_long_list_both_ends_are_shown():
    said = str(KDBIRLError(f"The columns are {' '.join(map(str, range(10**4)))}. Choose one."))
    assert len(said) < 2100
    assert said.startswith("The columns are 0 1 2")
    assert said.endswith("9999. Choose one.")


def test_a_path_of_some_length_is_whole():
    path = "/" + "folder/" * 200
    assert str(FileProblem(f"{path}: there is no such file.")) == f"{path}: there is no such file."
