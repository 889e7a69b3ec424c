"""Charts of what is behind the report card: directions, coverage, sensitivity, influence."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kdbirl.posterior.result import Posterior
from kdbirl.report.influence import Influence
from kdbirl.report.page.charts import CHOSEN, POSTERIOR, PRIOR, ROW, SOFT, Chart, named, quantity, values
from kdbirl.trust.directions import axis_in_words
from kdbirl.trust.identifiability import kept_words, principal_contractions
from kdbirl.trust.sensitivity import MOVED

MOST_DIRECTIONS, MOST_ITEMS = 24, 15
LEARNT = "share of the prior's variance that is gone"


def directions(posterior: Posterior, found: Mapping[str, Any]) -> Chart | None:
    """How much was learnt along each direction; None where neither directions nor prior draws are on record."""
    if not len(posterior.prior_draws):
        return None
    informed = np.asarray(found.get("informed", ()), dtype=float)
    if "informed" not in found:
        return _of_parameters(posterior)
    rows = []
    if len(informed):
        shares, turned = principal_contractions(posterior.flat, posterior.prior_draws, informed)
        rows = [
            {"name": axis_in_words(d, posterior.names), "share": max(0.0, s)}
            for s, d in zip(shares, turned, strict=True)
        ]
    phrases = [str(text) for text in found.get("uninformed_in_words", ())]
    fallen = found.get("uninformed_contractions") or [0.0] * len(phrases)  # not on record in older files
    kept = [{"name": n, "share": max(0.0, s), "words": kept_words(s)} for n, s in zip(phrases, fallen, strict=True)]
    rows = [*rows[: MOST_DIRECTIONS - min(len(kept), 8)], *kept][:MOST_DIRECTIONS]
    text = f"How much was learnt along each of {len(rows)} directions of the reward: {LEARNT}."
    return _shares("directions", rows, text)


def _of_parameters(posterior: Posterior) -> Chart:
    """For many parameters: those that narrowed most and least."""
    gone = 1 - posterior.flat.var(axis=0) / np.maximum(posterior.prior_draws.var(axis=0), 1e-300)
    order = np.argsort(-gone, kind="stable")
    half = MOST_DIRECTIONS // 2
    picked = [*order[:half], *order[-half:]] if len(order) > MOST_DIRECTIONS else [*order]
    rows = [{"name": posterior.names[j], "share": max(0.0, float(gone[j]))} for j in picked]
    return _shares("directions", rows, f"What was learnt most and least about: {LEARNT}.")


def _shares(identifier: str, rows: Sequence[Mapping[str, Any]], text: str) -> Chart:
    encoding = {"x": quantity("share", LEARNT, zero=True, scale={"domain": [0, 1]}), "y": named()}
    bars = {
        "mark": {"type": "bar", "color": POSTERIOR, "height": {"band": 0.62}},
        "encoding": {"tooltip": [{"field": "name", "title": "direction"}, {"field": "share", "format": ".2f"}]},
    }
    words = {"calculate": "datum.words || format(datum.share, '.0%')", "as": "label"}
    label = {
        "transform": [words],
        "mark": {"type": "text", "align": "left", "dx": 5},
        "encoding": {"text": {"field": "label"}},
    }
    spec = {"height": max(40, ROW * len(rows)), "data": values(rows), "encoding": encoding, "layer": [bars, label]}
    return Chart(identifier, spec, text)


def coverage(found: Mapping[str, Any]) -> Chart:
    """How often intervals held the truth, against how often they should."""
    columns = ("levels", "pooled", "pooled_low", "pooled_high")
    rows = [
        dict(zip(("level", "seen", "low", "high"), row, strict=True))
        for row in zip(*(found[c] for c in columns), strict=True)
    ]
    share = {"domain": [0, 1], "nice": False}
    x = quantity("level", "promised share", scale=share, axis={"format": "%", "tickCount": 5})
    y = quantity("seen", "share of truths inside", scale=share, axis={"format": "%", "tickCount": 5, "grid": True})
    tips = [{"field": name, "format": ".0%"} for name in ("level", "seen", "low", "high")]
    diagonal = {
        "data": values([{"level": 0, "seen": 0}, {"level": 1, "seen": 1}]),
        "mark": {"type": "line", "color": SOFT, "strokeDash": [4, 3]},
        "encoding": {"x": x, "y": y},
    }
    spread = {
        "mark": {"type": "rule", "color": POSTERIOR, "strokeWidth": 2},
        "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
    }
    dots = {
        "mark": {"type": "point", "filled": True, "size": 70, "color": POSTERIOR},
        "encoding": {"x": x, "y": y, "tooltip": tips},
    }
    text = (
        f"Coverage over {found.get('n_tasks', '?')} tasks with known rewards: on the dashed line intervals hold the "
        "truth as often as promised, below it too seldom. Bars are 95 % intervals."
    )
    return Chart("coverage", {"height": 230, "data": values(rows), "layer": [diagonal, spread, dots]}, text)


def sensitivity(found: Mapping[str, Any]) -> Chart:
    """How far each mean moves, in sds, under each other choice: a dot for each parameter."""
    rows = [
        {"name": change, "parameter": name, "shift": shift, "ratio": ratio}
        for change, shifts, ratios in zip(found["changes"], found["shift"], found["ratio"], strict=True)
        for name, shift, ratio in zip(found["names"], shifts, ratios, strict=True)
    ]
    tips = [
        {"field": "parameter"},
        {"field": "shift", "title": "shift of the mean, in sd", "format": ".2f"},
        {"field": "ratio", "title": "sd, times", "format": ".2f"},
    ]
    band = {
        "data": values([{"a": -MOVED, "b": MOVED}]),
        "mark": {"type": "rect", "color": PRIOR, "opacity": 0.18},
        "encoding": {"x": {"field": "a", "type": "quantitative"}, "x2": {"field": "b"}},
    }
    far = {"condition": {"test": f"abs(datum.shift) >= {MOVED}", "value": CHOSEN}, "value": POSTERIOR}
    dots = {
        "data": values(rows),
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.8},
        "encoding": {
            "x": quantity("shift", "shift of the posterior mean, in sd"),
            "y": named(),
            "color": far,
            "tooltip": tips,
        },
    }
    text = (
        "How far each mean would move under another choice, a dot for each parameter; within the grey band, less than "
        "one posterior sd."
    )
    return Chart("sensitivity-chart", {"height": max(60, ROW * len(found["changes"])), "layer": [band, dots]}, text)


def influence(identifier: str, found: Influence, labels: Sequence[str], names: Sequence[str], what: str) -> Chart:
    """The items without which the answer would move most."""
    rows = [
        {
            "name": labels[i],
            "shift": found.shift[i],
            "parameter": names[found.parameter[i]],
            "words": f"{found.shift[i]:.2g}{' or more' if found.beyond[i] else ''}",
        }
        for i in found.order[:MOST_ITEMS]
    ]
    room = {"domain": [0, 1.15 * max(float(row["shift"]) for row in rows) or 1.0], "nice": False}
    encoding = {"x": quantity("shift", "shift of a mean without it, in sd", zero=True, scale=room), "y": named()}
    tips = [{"field": "name"}, {"field": "words", "title": "shift, in sd"}, {"field": "parameter", "title": "of"}]
    bars = {
        "mark": {"type": "bar", "color": POSTERIOR, "height": {"band": 0.62}},
        "encoding": {"tooltip": tips},
    }
    label = {
        "mark": {"type": "text", "align": "left", "dx": 5},
        "encoding": {"text": {"field": "label"}},
    }
    spec = {"height": max(40, ROW * len(rows)), "data": values(rows), "encoding": encoding, "layer": [bars, label]}
    first = rows[0]
    text = (
        f"The {len(rows)} {what} that decide most: how far a posterior mean would move without each, in sd. First "
        f"{first['name']}: {first['words']} ({first['parameter']})."
    )
    return Chart(identifier, spec, text)
