"""Columns as they are written on the command line: `x,y` and `x=pos_x,action=act`."""

from kdbirl.errors import InputError


def separated(text: str | None) -> list[str] | None:
    """The names in `x,y`; None where nothing was given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def one_or_more(text: str | None) -> str | list[str] | None:
    """A name, or a list where there are several."""
    names = separated(text)
    return names[0] if names and len(names) == 1 else names


def pairs(text: str | None) -> dict[str, str] | None:
    """`{our name: their name}` from `x=pos_x,action=act`."""
    found = {}
    for pair in separated(text) or ():
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            raise InputError(f"The pair of column names {pair!r} should read ours=theirs, such as x=pos_x.")
        found[ours] = theirs
    return found or None
