"""A chart: a Vega-Lite specification, the words that stand for it, and what links it to others.

Fields of a specification have names of ours (`x`, `name`, `low`): a user's text is only ever a value or a title.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kdbirl.report.page.elements import escaped, isolated
from kdbirl.report.page.shell import Section

POSTERIOR, PRIOR, CHOSEN, INK, SOFT, LINE = (
    f"var(--{name})" for name in ("posterior", "prior", "chosen", "ink", "soft", "line")
)
ROW = 22  # pixels of a named row
LABEL = {"expr": "min(340, 0.36 * windowSize()[0])"}  # pixels of a name, less on a phone


@dataclass(frozen=True)
class Chart:
    """identifier: of its place on the page. links: role and data for `page.js`, by which it follows a brush."""

    identifier: str
    spec: Mapping[str, Any]
    description: str
    links: Mapping[str, Any] = field(default_factory=dict)
    draggable: bool = False

    def figure(self, caption: str = "", heading: str = "") -> str:
        """Where the chart will be drawn, with its caption (by default its description) below or above it."""
        kind = "chart draggable" if self.draggable else "chart"
        label = f'role="img" aria-label="{escaped(self.description)}"'
        place = f'<div id="{escaped(self.identifier)}" class="{kind}" {label}></div>'
        if heading:
            return f"<figure><figcaption>{isolated(heading)}</figcaption>{place}</figure>"
        return f"<figure>{place}<figcaption>{isolated(caption or self.description)}</figcaption></figure>"

    def content(self) -> dict[str, Any]:
        """For `page.js`."""
        spec = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        return plain({"spec": {**spec, **self.spec}, **self.links})


def content_of(charts: Iterable[Chart]) -> dict[str, Any]:
    """All charts of a page, by identifier."""
    return {chart.identifier: chart.content() for chart in charts}


def values(rows: Iterable[Mapping[str, Any]], name: str = "") -> dict[str, Any]:
    """Data of a specification."""
    return {"values": [dict(row) for row in rows], **({"name": name} if name else {})}


def quantity(field_name: str, title: str | None = None, zero: bool = False, **more: Any) -> dict[str, Any]:
    """A channel with a number."""
    axis = {"tickCount": 6, **more.pop("axis", {})}
    scale = {"zero": zero, **more.pop("scale", {})}
    return {"field": field_name, "type": "quantitative", "title": title, "scale": scale, "axis": axis, **more}


def named(field_name: str = "name", **more: Any) -> dict[str, Any]:
    """A channel with a row for each name, in the order given."""
    axis = {"ticks": False, "domain": False, "labelPadding": 8, "labelOverlap": False, "labelLimit": LABEL}
    return {"field": field_name, "type": "nominal", "sort": None, "title": None, "axis": axis, **more}


def plain(content: Any) -> Any:
    """Numbers with six digits, which no eye tells from more, and null for what is not finite."""
    if isinstance(content, Mapping):
        return {str(name): plain(value) for name, value in content.items()}
    if isinstance(content, list | tuple | np.ndarray):
        return [plain(value) for value in content]
    if isinstance(content, float | np.floating):
        return float(f"{content:.6g}") if np.isfinite(content) else None
    return content.item() if isinstance(content, np.generic) else content


class Part(NamedTuple):
    """A section and the charts in it."""

    section: Section
    charts: tuple[Chart, ...] = ()
