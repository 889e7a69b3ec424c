"""Write docs/licences.md: the licence of every package that kdbirl installs, from the packages' own metadata.

    .venv/bin/python scripts/licences.py            write the page
    .venv/bin/python scripts/licences.py --check    fail where a dependency is missing from it

What `pip install 'kdbirl[all]'` brings is listed, direct dependencies first; tools of developers are not shipped to
anybody. No addresses: a package's own page is found by its name.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).resolve().parents[1] / "docs" / "licences.md"
EXTRAS = ("", "dask", "icu-sepsis", "minari")
HEAD = """# Licences of dependencies

`kdbirl` is under the MIT licence. It copies no code of others; `pip` installs these packages beside it, each under its
own licence, as its metadata names it. Written by `scripts/licences.py`, with the versions that were installed then.
"""
SHORT = 60


def needed() -> tuple[dict[str, str], set[str]]:
    """Every package that is installed with kdbirl and its extras, {name: version}, and the direct ones among them."""
    found: dict[str, str] = {}
    direct: set[str] = set()
    queue = [("kdbirl", extra) for extra in EXTRAS]
    seen = set(queue)
    while queue:
        name, extra = queue.pop()
        for requirement in _requirements(name, extra):
            own = canonicalize_name(requirement.name)
            try:
                found[own] = distribution(own).version
            except PackageNotFoundError:
                continue
            direct |= {own} if name == "kdbirl" else set()
            more = [(own, inner) for inner in ("", *requirement.extras) if (own, inner) not in seen]
            seen.update(more)
            queue += more
    found.pop("kdbirl", None)
    return found, direct


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def licence(name: str) -> str:
    """The SPDX expression, else the short name in the metadata, else the trove classifier."""
    about = distribution(name).metadata
    given = [about.get("License-Expression"), about.get("License")]
    plain = [text.strip() for text in given if text and len(text.strip()) <= SHORT and text.strip() != "UNKNOWN"]
    if plain:
        return plain[0]
    classified = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")
    ]
    long = [text.strip().splitlines()[0][:SHORT] for text in given if text and text.strip()]
    return ", ".join(classified) or (long[0] if long else "not named")


def page() -> str:
    found, direct = needed()
    lines = [HEAD]
    for title, names in (("Direct", direct), ("Brought by those", set(found) - direct)):
        lines += [f"## {title}", "", "| package | version | licence |", "|---|---|---|"]
        lines += [f"| {name} | {found[name]} | {licence(name)} |" for name in sorted(names)]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return
    text = PAGE.read_text(encoding="utf-8")
    missing = sorted(name for name in needed()[0] if f"| {name} |" not in text)
    if missing:
        sys.exit(f"docs/licences.md lacks {', '.join(missing)}; run scripts/licences.py.")


if __name__ == "__main__":
    main()
