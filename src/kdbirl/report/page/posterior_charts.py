"""Charts of the posterior: marginals, intervals, pairs. All follow a brush, and most can be brushed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl.posterior.result import Posterior
from kdbirl.report import panels
from kdbirl.report.page.charts import CHOSEN, POSTERIOR, PRIOR, ROW, SOFT, Chart, named, quantity, values
from kdbirl.report.page.elements import shown

MOST_MARGINALS, MOST_INTERVALS = 12, 120
MOST_TICKS = 4000
BINS = 40
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NAMES = ("q05", "q25", "median", "q75", "q95")

Index = Int[np.ndarray, " shown"]
Layer = dict[str, Any]


def most_narrowed(posterior: Posterior, most: int) -> Index:
    """The parameters that the data narrowed most, in their own order; all of them where they are few enough."""
    q = len(posterior.names)
    if q <= most:
        return np.arange(q)
    before = posterior.prior_draws.std(axis=0) if len(posterior.prior_draws) else np.ones(q)
    narrowing = before / np.maximum(posterior.flat.std(axis=0), 1e-300)
    return np.sort(np.argsort(-narrowing, kind="stable")[:most])


def marginal(posterior: Posterior, j: int, bounds: panels.Limits = panels.EVERYWHERE) -> Chart:
    """Histogram of one parameter over its prior's, its 90 % interval below; brush it to filter the draws.

    bounds: of the prior; no bin reaches beyond them, where there can be no draw.
    """
    drawn, before = posterior.flat[:, j], _prior(posterior, j)
    low, high = panels.limits_of(drawn, before, central=1.0 if len(drawn) < 1000 else 0.998)
    edges = np.linspace(max(low, bounds[0]), min(high, bounds[1]), BINS + 1)
    width = float(edges[1] - edges[0])
    tables = [np.histogram(sample, bins=edges)[0] / max(1, len(sample)) / width for sample in (drawn, before)]
    bins = [
        {"a": a, "b": b, "posterior": p, "prior": r, "chosen": 0.0}
        for a, b, p, r in zip(edges[:-1], edges[1:], *tables, strict=True)
    ]
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    x = quantity("a", scale={"domain": [edges[0], edges[-1]], "nice": False}, axis={"tickCount": 4}, bin="binned")
    height = {"field": "", "type": "quantitative", "axis": None, "scale": {"domainMin": 0}}

    def bars(column: str, colour: str, opacity: float) -> Layer:
        mark = {"type": "bar", "color": colour, "opacity": opacity, "binSpacing": 0}
        return {"mark": mark, "encoding": {"x": x, "x2": {"field": "b"}, "y": {**height, "field": column}}}

    brush = {
        "name": "brush",
        "select": {
            "type": "interval",
            "encodings": ["x"],
            "mark": {"fill": CHOSEN, "fillOpacity": 0.12, "stroke": CHOSEN},
        },
    }
    outline = {"mark": {"type": "line", "interpolate": "step-after", "color": POSTERIOR, "strokeWidth": 1.5}}
    edge = {name: part for name, part in x.items() if name != "bin"}
    outline["encoding"] = {"x": edge, "y": {**height, "field": "posterior"}}
    at_zero = {"y": {"value": 90}}
    line = {
        "data": values([{"low": low, "high": high}]),
        "mark": {"type": "rule", "strokeWidth": 5, "color": POSTERIOR, "strokeCap": "round"},
        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, **at_zero},
    }
    point = {
        "data": values([{"middle": middle}]),
        "mark": {"type": "point", "filled": True, "color": "white", "stroke": POSTERIOR, "size": 45},
        "encoding": {"x": {"field": "middle", "type": "quantitative"}, **at_zero},
    }
    layers = [
        bars("prior", PRIOR, 0.45),
        {**bars("posterior", POSTERIOR, 0.35), "params": [brush]},
        outline,
        bars("chosen", CHOSEN, 0.65),
        line,
        point,
    ]
    name = posterior.names[j]
    text = f"{name}: median {shown(float(middle))}, central 90 % from {shown(float(low))} to {shown(float(high))}."
    links = {"role": "marginal", "parameter": int(j), "low": edges[0], "width": width, "bins": bins}
    spec = {"height": 90, "data": values(bins, "bins"), "layer": layers}
    return Chart(f"marginal-{j}", spec, text, links, draggable=True)


def intervals(posterior: Posterior, index: Index) -> Chart:
    """Parameters on one scale: median, 50 % and 90 %; the prior's 90 % and the training tasks' rewards behind."""
    names = [posterior.names[j] for j in index]
    tables = dict(zip(NAMES, np.quantile(posterior.flat[:, index], QUANTILES, axis=0), strict=True))
    rows = [{"name": name, **{q: table[i] for q, table in tables.items()}} for i, name in enumerate(names)]
    y = named(scale={"domain": names})
    title, ends = "reward parameter", _ends(posterior, index)

    def bar(data: object, low: str, high: str, thick: float | int, colour: str, **look: object) -> Layer:
        mark = {"type": "rule", "strokeWidth": thick, "color": colour, **look}
        return {
            "data": data,
            "mark": mark,
            "encoding": {"x": quantity(low, title, scale=ends), "x2": {"field": high}, "y": y},
        }

    def dot(data: object, colour: str, **look: object) -> Layer:
        mark = {"type": "point", "filled": True, "size": 50, "color": "white", "stroke": colour, **look}
        tips = [{"field": "name", "title": "parameter"}, *({"field": q, "format": ".4g"} for q in NAMES)]
        return {
            "data": data,
            "mark": mark,
            "encoding": {"x": quantity("median", title, scale=ends), "y": y, "tooltip": tips},
        }

    own, chosen = values(rows), {"name": "chosen", "values": []}
    layers = [
        *_behind(posterior, index, names, bar),
        *_known_rewards(posterior, index, names, quantity("reward", title, scale=ends), y),
        bar(own, "q05", "q95", 1.8, POSTERIOR),
        bar(own, "q25", "q75", 5, POSTERIOR, strokeCap="round"),
        dot(own, POSTERIOR),
        bar(chosen, "q05", "q95", 1.8, CHOSEN, yOffset=7),
        dot(chosen, CHOSEN, yOffset=7),
    ]
    text = f"Median, central 50 % and 90 % of {len(names)} parameters on one scale; the prior's 90 % in grey"
    text += "; small ticks are the known rewards of the training tasks." if len(posterior.task_rewards) else "."
    spec = {"height": max(60, ROW * len(names)), "layer": layers}
    return Chart("intervals", spec, text, {"role": "intervals", "parameters": [int(j) for j in index]})


def _ends(posterior: Posterior, index: Index) -> Layer:
    """The range of everything that may be drawn, given at once: a brush must not move the axis."""
    samples = [np.quantile(posterior.flat[:, index], [0.005, 0.995], axis=0).ravel()]
    samples.append(posterior.task_rewards[:, index].ravel())
    if len(posterior.prior_draws):
        samples.append(np.quantile(posterior.prior_draws[:, index], [0.05, 0.95], axis=0).ravel())
    return {"domain": list(panels.limits_of(*samples, central=1.0)), "nice": False}


def _behind(posterior: Posterior, index: Index, names: Sequence[str], bar: Callable[..., Layer]) -> list[Layer]:
    """The prior's central 90 %."""
    if not len(posterior.prior_draws):
        return []
    low, high = np.quantile(posterior.prior_draws[:, index], [0.05, 0.95], axis=0)
    rows = [{"name": n, "low": a, "high": b} for n, a, b in zip(names, low, high, strict=True)]
    return [bar(values(rows), "low", "high", 13, PRIOR, opacity=0.3)]


def _known_rewards(posterior: Posterior, index: Index, names: Sequence[str], x: Layer, y: Layer) -> list[Layer]:
    """A tick for each known reward, unless they are too many to be seen."""
    if not 0 < len(posterior.task_rewards) * len(names) <= MOST_TICKS:
        return []
    rows = [
        {"name": n, "reward": r}
        for n, j in zip(names, index, strict=True)
        for r in np.unique(posterior.task_rewards[:, j])
    ]
    mark = {"type": "tick", "color": SOFT, "opacity": 0.7, "thickness": 1, "size": 13}
    return [{"data": values(rows), "mark": mark, "encoding": {"x": x, "y": y}}]


def pair_chart(posterior: Posterior) -> Chart:
    """Two parameters against each other; `page.js` puts in the draws of those that are chosen."""
    brush = {
        "name": "brush",
        "select": {"type": "interval", "mark": {"fill": CHOSEN, "fillOpacity": 0.08, "stroke": CHOSEN}},
    }
    cloud = {
        "data": {"name": "points"},
        "params": [brush],
        "mark": {"type": "point", "filled": True, "size": 9},
        "encoding": {
            "color": {"condition": {"test": "datum.in", "value": POSTERIOR}, "value": PRIOR},
            "opacity": {"condition": {"test": "datum.in", "value": 0.45}, "value": 0.25},
        },
    }
    dashed = {"type": "rule", "color": SOFT, "strokeDash": [4, 3]}
    across = {"data": {"name": "limits across"}, "mark": dashed, "encoding": {"x": {"field": "a"}, "y": None}}
    up = {"data": {"name": "limits up"}, "mark": dashed, "encoding": {"y": {"field": "b"}, "x": None}}
    spec = {
        "height": 320,
        # fields called x or y would share the names of the brush's own signals
        "encoding": {"x": quantity("across", axis={"tickCount": 5}), "y": quantity("up", axis={"tickCount": 5})},
        "layer": [cloud, across, up],
    }
    central = np.quantile(posterior.flat, [0.05, 0.95], axis=0).T
    return Chart(
        "pair", spec, "Two parameters against each other.", {"role": "pair", "central": central}, draggable=True
    )


def correlations(posterior: Posterior, index: Index) -> tuple[Chart, tuple[int, int]]:
    """The correlation of each pair, and the pair with the strongest one."""
    with np.errstate(all="ignore"):
        table = np.nan_to_num(np.corrcoef(posterior.flat[:, index].T))
    cells = [
        {
            "row": posterior.names[i],
            "column": posterior.names[j],
            "r": table[a, b],
            "size": abs(table[a, b]),
            "i": int(i),
            "j": int(j),
        }
        for a, i in enumerate(index)
        for b, j in enumerate(index)
        if b < a
    ]
    strongest = max(cells, key=lambda cell: abs(cell["r"]))
    names = [posterior.names[j] for j in index]
    small = {"labelLimit": 90, "ticks": False, "domain": False, "labelAngle": -40 if len(names) > 4 else 0}
    encoding = {
        "x": named("column", scale={"domain": names[:-1]}) | {"axis": small},
        "y": named("row", scale={"domain": names[1:]}) | {"axis": small | {"labelAngle": 0}},
    }
    fill = {"condition": {"test": "datum.r < 0", "value": CHOSEN}, "value": POSTERIOR}
    strength = {
        "field": "size",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [0.06, 0.85]},
        "legend": None,
    }
    tips = [{"field": "row"}, {"field": "column"}, {"field": "r", "title": "correlation", "format": ".2f"}]
    layers: list[object] = [
        {
            "mark": {"type": "rect", "cursor": "pointer"},
            "encoding": {"color": fill, "opacity": strength, "tooltip": tips},
        }
    ]
    if len(names) <= 9:
        label = {"type": "text", "fontSize": 11, "cursor": "pointer"}
        layers.append({"mark": label, "encoding": {"text": {"field": "r", "format": ".2f"}}})
    height = min(320, max(60, 34 * (len(names) - 1)))
    strongest_words = f"{strongest['r']:.2f}, is that of {strongest['row']} and {strongest['column']}."
    text = f"Correlations of {len(names)} parameters; the strongest, {strongest_words}"
    spec = {"height": height, "data": values(cells), "encoding": encoding, "layer": layers}
    return Chart("correlations", spec, text, {"picks": True}), (strongest["j"], strongest["i"])


def _prior(posterior: Posterior, j: int) -> Float[np.ndarray, " p"]:
    return posterior.prior_draws[:, j] if len(posterior.prior_draws) else np.zeros(0)
