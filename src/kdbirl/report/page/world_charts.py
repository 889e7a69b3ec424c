"""Charts of a reward on the cells of a square grid, of the policy it leads to, and of what acting on it costs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.report.page.charts import POSTERIOR, PRIOR, ROW, Chart, named, quantity, values

ARROWS = {"NO ACTION": "•", "UP": "↑", "RIGHT": "→", "LEFT": "←", "DOWN": "↓"}
SIDE = 260  # pixels of a map
MOST_LABELS = 100  # cells that have room for a number


def cell_map(
    identifier: str,
    numbers: Float[np.ndarray, " cells"],
    title: str,
    labels: Sequence[str] | None = None,
    follows: str | None = None,
    scheme: str = "viridis",
) -> Chart:
    """Numbers of the cells (0 at the lower left) in colours; `labels` in place of the numbers; follows: mean or sd."""
    side = round(len(numbers) ** 0.5)
    words = labels if labels is not None else [""] * len(numbers)
    cells = [
        {"x": c % side, "y": c // side, "cell": c, "value": v, "words": w, "parameter": c}
        for c, (v, w) in enumerate(zip(numbers, words, strict=True))
    ]
    place = {"type": "ordinal", "title": None, "axis": {"labelAngle": 0, "domain": False, "ticks": False}}
    fill = {
        "field": "value",
        "type": "quantitative",
        "scale": {"scheme": scheme},
        "legend": {"title": None, "gradientLength": 120, "format": ".3~g", "tickCount": 3},
    }
    tips = [{"field": "cell"}, {"field": "value", "title": title, "format": ".4g"}]
    layers: list[Any] = [{"mark": {"type": "rect"}, "encoding": {"color": fill, "tooltip": tips}}]
    if len(numbers) <= MOST_LABELS:
        text = {"field": "words"} if labels is not None else {"field": "value", "format": ".2~g"}
        # a dark rim makes white letters readable on every colour of the scale
        halo = {"type": "text", "fontSize": _size(side, labels), "stroke": "#000b", "strokeWidth": 3}
        layers += [
            {"mark": halo, "encoding": {"text": text}},
            {"mark": {**halo, "stroke": None, "color": "white"}, "encoding": {"text": text}},
        ]
    spec = {
        "width": SIDE,
        "height": SIDE,
        "autosize": {"type": "pad"},
        "data": values(cells, "cells"),
        "encoding": {"x": {"field": "x", **place}, "y": {"field": "y", "sort": "descending", **place}},
        "layer": layers,
    }
    best = int(np.argmax(numbers))
    largest = f"largest at cell {best}: {numbers[best]:.3g}"
    text_of = f"{title.capitalize()}, on {side} x {side} cells, cell 0 at the lower left; {largest}."
    links = {} if follows is None else {"role": "map", "shows": follows, "cells": cells}
    return Chart(identifier, spec, text_of, links)


def _size(side: int, labels: Sequence[str] | None) -> int:
    return min(16, SIDE // side // 2) if labels is not None else min(13, SIDE // side // 3)


def loss(found: Mapping[str, Any]) -> Chart:
    """EVD of the draws, posterior beside prior: the mean with its 95 % interval, and where 90 % of the draws are."""
    rows = []
    for name in ("posterior", "prior"):
        if part := found.get(name):
            quantiles = part["quantiles_of_draws"]
            low, high = part["interval_95"]
            rows.append(
                {
                    "name": name,
                    "mean": part["mean"],
                    "low": low,
                    "high": high,
                    "q05": quantiles["q05"],
                    "q95": quantiles["q95"],
                }
            )
    title = "value lost by acting on a draw"
    colour = {"condition": {"test": "datum.name == 'prior'", "value": PRIOR}, "value": POSTERIOR}
    tips = [{"field": name, "format": ".4g"} for name in ("mean", "low", "high", "q05", "q95")]

    def bar(low: str, high: str, thick: float | int) -> dict[str, Any]:
        x = {"x": quantity(low, title, zero=True), "x2": {"field": high}}
        return {"mark": {"type": "rule", "strokeWidth": thick}, "encoding": {**x, "color": colour}}

    dot = {
        "type": "point",
        "filled": True,
        "size": 90,
        "stroke": "white",
        "strokeWidth": 2,
        "opacity": 1,
    }
    layers = [
        bar("q05", "q95", 2),
        bar("low", "high", 8),
        {"mark": dot, "encoding": {"x": quantity("mean", title, zero=True), "color": colour, "tooltip": tips}},
    ]
    text = (
        "Expected value difference: the dot is the mean, the thick bar its 95 % interval, the thin line the central "
        "90 % of the draws."
    )
    return Chart("evd", {"height": 80, "data": values(rows), "encoding": {"y": named()}, "layer": layers}, text)


def policy_shares(found: Mapping[str, Any]) -> Chart:
    """The share of the posterior that leads to each kind of policy."""
    names, rows = found["parameters"], []
    for number, (share, collected) in enumerate(zip(found["shares"], found["feature_expectations"], strict=True), 1):
        most = np.sort(np.argsort(-np.abs(np.asarray(collected)), kind="stable")[:3])
        what = ", ".join(f"{names[j]} {collected[j]:.3g}" for j in most)
        rows.append({"name": f"kind {number}", "share": share, "collects": what})
    tips = [{"field": "name"}, {"field": "share", "format": ".0%"}, {"field": "collects"}]
    x = quantity("share", "share of the posterior", zero=True, scale={"domain": [0, 1]}, axis={"format": "%"})
    bars = {
        "mark": {"type": "bar", "color": POSTERIOR, "height": {"band": 0.62}},
        "encoding": {"x": x, "tooltip": tips},
    }
    label = {
        "mark": {"type": "text", "align": "left", "dx": 5, "limit": 420},
        "encoding": {"x": x, "text": {"field": "collects"}},
    }
    spec = {
        "height": max(40, ROW * len(rows)),
        "data": values(rows),
        "encoding": {"y": named()},
        "layer": [bars, label],
    }
    return Chart(
        "policies",
        spec,
        "The kinds of policy that the draws lead to, the commonest first, with what each collects most of.",
    )
