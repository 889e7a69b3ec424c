"""Pieces of HTML. Whatever is given as text is escaped here, and nowhere else; what is given as HTML is ours."""

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MISSING = "\N{EN DASH}"
COLOURS = {"green": "✓", "amber": "!", "red": "✕", "not assessed": "?"}


def escaped(text: object) -> str:
    """Text as HTML that shows exactly it; `<bdi>` would be for direction, see `isolated`."""
    return html.escape(str(text), quote=True)


def isolated(text: object) -> str:
    """A user's name inside our sentence: right-to-left letters turn nothing around them."""
    return f"<bdi>{escaped(text)}</bdi>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text; `kind` is a class of the style sheet, such as "note"."""
    return f"<p{_class(kind)}>{_prose(text)}</p>"


def bullets(lines: Iterable[str]) -> str:
    """A list of plain sentences; nothing for none."""
    items = "".join(f"<li>{_prose(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _prose(text: str) -> str:
    """A sentence of ours; what stands between backticks is something to type."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return isolated(text)
    typed = (f"<code>{escaped(part)}</code>" if i % 2 else escaped(part) for i, part in enumerate(parts))
    return f"<bdi>{''.join(typed)}</bdi>"


def cards(card: Mapping[str, Sequence[str]]) -> str:
    """The report card: a tile for each finding, with a word and a sign beside its colour."""
    return f'<div class="cards">{"".join(_tile(name, *found) for name, found in card.items())}</div>'


def _tile(name: str, colour: str, sentence: str) -> str:
    known = colour if colour in COLOURS else "not assessed"
    kind = known.replace(" ", "-")
    return f'<article class="card {kind}"><h3>{isolated(name)} {badge(known)}</h3>{paragraph(sentence)}</article>'


def badge(colour: str, words: str = "") -> str:
    """A colour of `COLOURS` with its sign and a word, which is its name if not given."""
    sign = f'<span aria-hidden="true">{COLOURS[colour]}</span>'
    return (
        f'<span class="{colour.replace(" ", "-")}"><span class="badge">{sign} {escaped(words or colour)}</span></span>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", identifier: str = "") -> str:
    """A table of plain values: the first cell of a row names it, numbers are aligned; wide ones can be scrolled."""
    lines = list(rows)
    first: Sequence[object] = lines[0] if lines else [""] * len(head)
    kinds = ["", *(_kind(value) for value in first[1:])]
    top = "".join(f'<th scope="col"{kind}>{isolated(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    body = "".join(f"<tr>{_row(row)}</tr>" for row in lines)
    title = f'<caption class="hidden">{escaped(caption)}</caption>' if caption else ""
    # what is seen of it stands above the part that can be scrolled, so that a phone shows all of it
    seen = f'<p class="caption" aria-hidden="true">{isolated(caption)}</p>' if caption else ""
    name = f' id="{escaped(identifier)}"' if identifier else ""
    content = f"<table{name}>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return seen + scrolled(content, caption or "table")


def scrolled(content: str, label: str) -> str:
    """Something wide, which a keyboard can scroll too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(label)}">{content}</div>'


def _row(row: Sequence[object]) -> str:
    first, *others = row
    return f'<th scope="row">{isolated(first)}</th>' + "".join(
        f"<td{_kind(v)}>{isolated(shown(v))}</td>" for v in others
    )


def _kind(value: object) -> str:
    return "" if isinstance(value, str) else ' class="number"'


def shown(value: object) -> str:
    """A number with four digits; anything else as it is; a dash for what is not there."""
    if value is None or (isinstance(value, float) and value != value):
        return MISSING
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:.4g}"


def words(entries: Mapping[str, str], caption: str) -> str:
    """Names and texts side by side."""
    rows = "".join(
        f'<tr><th scope="row">{escaped(n)}</th><td>{isolated(text)}</td></tr>' for n, text in entries.items()
    )
    return scrolled(f'<table class="words"><caption class="hidden">{escaped(caption)}</caption>{rows}</table>', caption)


def code(text: str) -> str:
    """Something to type."""
    return scrolled(f"<pre><code>{escaped(text)}</code></pre>", "command")


def folded(summary: str, body: str, opened: bool = False) -> str:
    """Body (HTML) behind a line that opens it."""
    return f"<details{' open' if opened else ''}><summary>{escaped(summary)}</summary>{body}</details>"


def picture(figure: Any, text: str) -> str:
    """A Matplotlib figure with its caption, which also stands for it where it cannot be seen."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130, bbox_inches="tight", metadata={"Software": None})
    return png(stream.getvalue(), text)


def png(content: bytes, text: str) -> str:
    """The bytes of a PNG file with its caption."""
    data = base64.b64encode(content).decode()
    image = f'<img alt="{escaped(text)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{isolated(text)}</figcaption></figure>"


def _class(kind: str) -> str:
    return f' class="{escaped(kind)}"' if kind else ""
