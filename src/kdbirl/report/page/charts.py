"""A chart: a Vega-Lite specification, the words that stand for it, and what links it to others.

Fields of a specification have names of ours (`x`, `name`, `low`): a user's text is only ever a value or a title.
"""

import base64
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from kdbirl.features.maps import Standardize
from kdbirl.posterior.result import Posterior
from kdbirl.report.page.elements import escaped, isolated
from kdbirl.report.page.shell import Section
from kdbirl.report.run_files import Run

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


# Draws for the inside of a page: as many as an eye can use, two bytes each.

MOST_DRAWS, MOST_NUMBERS = 3000, 400_000  # 1 MB at most


def thinned(posterior: Posterior) -> Float[np.ndarray, "draws q"]:
    """Every s-th draw of each chain, with s as small as the two limits allow."""
    flat = posterior.flat
    most = max(100, min(MOST_DRAWS, MOST_NUMBERS // flat.shape[1]))
    step = math.ceil(len(flat) / most)
    return flat[::step]


def packed(draws: Float[np.ndarray, "draws q"]) -> list[dict[str, Any]]:
    """Each parameter as 16-bit steps between its least and its largest draw, in base64."""
    return [_column(np.asarray(column)) for column in draws.T]


def _column(values: Float[np.ndarray, " draws"]) -> dict[str, Any]:
    low, high = float(values.min()), float(values.max())
    step = (high - low) / 65535 or 1.0
    whole = np.round((values - low) / step).astype("<u2")
    return {"low": low, "step": step, "packed": base64.b64encode(whole.tobytes()).decode()}


def sentence(posterior: Posterior, shown: int) -> str:
    """How many draws the page holds, and what the numbers are made from."""
    total = len(posterior.flat)
    if shown == total:
        return f"All {total:,} draws are in this page."
    return (
        f"Histograms and numbers are made from all {total:,} draws. {shown:,} of them, evenly spaced, are in this page "
        "for brushing: numbers under a brush are made from those."
    )


# Expert rows in the units of the user's tables, where the density saw them standardised.

AS_IN_TABLES = "in the units of the tables; the density sees quantities with mean 0 and sd 1 over the training rows"
STANDARDISED = "standardised: in units of the training rows' standard deviation, from their mean"


def in_own_units(run: Run) -> tuple[Float[np.ndarray, "n d"], str]:
    """The expert's features, and what they are measured in, if that has to be said: x = mean + sd phi."""
    rows = run.posterior.expert_features
    if run.posterior.settings.get("features") != Standardize.__name__:
        return rows, ""
    fitted = None if run.model is None else run.model.fitted
    features = None if fitted is None else fitted.features
    if not isinstance(features, Standardize) or len(features.mean) != rows.shape[1]:
        return rows, STANDARDISED
    return np.asarray(features.mean) + np.asarray(features.scale) * rows, AS_IN_TABLES
