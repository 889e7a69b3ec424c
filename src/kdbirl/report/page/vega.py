"""Vega-Lite, the chart library (BSD licence), as one script for the inside of a page.

It comes from the installed package `vl-convert-python`, which takes seconds to put it together: the result is kept in
the user's cache, by version.
"""

import contextlib
from functools import cache
from importlib.metadata import version
from typing import Any

from kdbirl.errors import FileProblem
from kdbirl.files import write_text
from kdbirl.installation import cache_home

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
