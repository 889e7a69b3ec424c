"""`page`: title and sections as one HTML file that opens from disk, without a network, and runs nothing but our script.

The policy in its head lets no other script run than ours and the chart library's (by their SHA-256), and nothing be
fetched from anywhere: were a name in a user's file ever not escaped, it still could do nothing.
"""

import base64
import contextlib
import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any

from kdbirl.archive import write_text
from kdbirl.errors import FileProblem, InputError
from kdbirl.installation import cache_home
from kdbirl.report.page.elements import escaped, isolated, paragraph

# Vega-Lite, the chart library (BSD licence), as one script for the inside of a page.
#
# It comes from the installed package `vl-convert-python`, which takes seconds to put it together: the result is kept in
# the user's cache, by version.

PACKAGE = "vl-convert-python"


@cache
def vega_bundle() -> str:
    """vega, vegaLite and vegaEmbed as globals; the same text for the same version of the package."""
    kept = cache_home() / f"vega-{version(PACKAGE)}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    made = _put_together()
    with contextlib.suppress(OSError, FileProblem):  # a cache that cannot be written only costs time
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, made)
    return made


def _put_together() -> str:
    import vl_convert

    make: Any = vl_convert.javascript_bundle  # whose stub asks for a snippet that it need not have
    script = str(make()).replace("\r\n", "\n")
    # Were these in it, HTML would end or swallow the script; `\\x3c` is the same letter in JavaScript's strings
    return script.replace("</script", "\\x3c/script").replace("<!--", "\\x3c!--")


IDENTIFIER = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Section:
    """A part of a page. title: plain text. body: HTML, made with `elements`. folded: only its title is seen first."""

    identifier: str
    title: str
    body: str
    folded: bool = False

    def __post_init__(self) -> None:
        if not IDENTIFIER.fullmatch(self.identifier):
            raise InputError(f"A section's identifier is of small letters, digits and dashes, not {self.identifier!r}.")


def page(
    title: str,
    sections: Sequence[Section],
    lead: str = "",
    content: Mapping[str, Any] | None = None,
    marks: Mapping[str, str] | None = None,
    forms: bool = False,
    above: str = "",
) -> str:
    """The page as text. lead: a sentence below the title; content: data of charts (none: no script); marks: <meta>.

    forms: whether it may send forms to where it came from, as pages of the studio do. above: HTML above the title.
    """
    scripts = [] if content is None else [vega_bundle(), own("page.js")]
    body = [
        '<a class="skip" href="#main">Skip to the content</a>',
        f"<header>{above}<h1>{isolated(title)}</h1>{paragraph(lead) if lead else ''}</header>",
        _navigation(sections),
        f'<main id="main">{"".join(_section(section) for section in sections)}</main>',
    ]
    if content is not None:
        body.append(f'<script type="application/json" id="content">{json_in_html(content)}</script>')
    body += [f"<script>{script}</script>" for script in scripts]
    top = "\n".join(_head(title, scripts, marks or {}, forms))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{top}\n</head>\n<body>\n{chr(10).join(body)}\n</body>\n</html>\n'
    )


def json_in_html(content: Any) -> str:
    """JSON that ends no <script>: `<`, `>` and `&` as escapes, which mean the same inside JSON's strings."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@cache
def own(name: str) -> str:
    """A file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _head(title: str, scripts: Sequence[str], marks: Mapping[str, str], forms: bool) -> list[str]:
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    target = "'self'" if forms else "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action {target}"
    )
    return [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        *(f'<meta name="{escaped(name)}" content="{escaped(value)}">' for name, value in marks.items()),
        f"<title>{escaped(title)}</title>",
        f"<style>{own('style.css')}</style>",
    ]


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _navigation(sections: Sequence[Section]) -> str:
    links = "".join(f'<a href="#{section.identifier}">{escaped(section.title)}</a>' for section in sections)
    return f'<nav aria-label="Sections"><div>{links}</div></nav>' if len(sections) > 1 else ""


def _section(section: Section) -> str:
    heading = f"<h2>{escaped(section.title)}</h2>"
    if section.folded:
        inside = f"<details><summary>{heading}</summary>{section.body}</details>"
    else:
        inside = heading + section.body
    return f'<section id="{section.identifier}">{inside}</section>\n'


# The command that repeats a run, from the configuration in its manifest.

AGAIN = "run-again"
NOT_ARGUMENTS = ("as_json", "quiet", "out")  # how it spoke, and where it went, change no number


def command_of(configuration: Mapping[str, Any], command: str = "kdbirl fit", again: str = AGAIN) -> str:
    """The command on several lines, quoted for a shell."""
    words = []
    for name, value in configuration.items():
        if name not in NOT_ARGUMENTS and value is not None and value is not False:
            for one in value if isinstance(value, list) else [value]:
                words.append(_option(name, one))
    return " \\\n    ".join([command, *words, f"--out {again}"])


def _option(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    # with an equals sign, so that a value that starts with a dash is no option
    return option if value is True else f"{option}={shlex.quote(str(value))}"
