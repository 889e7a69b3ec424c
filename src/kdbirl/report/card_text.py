"""The report card for a terminal: a table of 80 columns; a word for each colour, so that no colour is needed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kdbirl.report.terminal import WIDTH

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {"green": "bold green", "amber": "bold yellow", "red": "bold red", "not assessed": "dim"}
WORDS = {"green": "GREEN", "amber": "AMBER", "red": "RED", "not assessed": "not assessed"}


def card_table(card: Mapping[str, tuple[str, str]]) -> "Table":
    """The card as a table of Rich: part, colour in words and in colour, sentence."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, width=WIDTH, pad_edge=False, show_header=False, padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for name, (colour, sentence) in card.items():
        # Text, not markup: a user's parameter may be called "[red]"
        table.add_row(Text(name), Text(WORDS[colour], style=STYLES[colour]), Text(sentence))
    return table


def card_text(card: Mapping[str, tuple[str, str]], colour: bool = False) -> str:
    """The card as text of at most 80 columns, with or without terminal colours."""
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    console = Console(
        file=stream,
        width=WIDTH,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
    )
    console.print(card_table(card))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n")
