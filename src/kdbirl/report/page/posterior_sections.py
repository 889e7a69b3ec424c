"""Sections of a report on the answer itself: report card, question and data, the posterior, the reward map."""

import shlex

import numpy as np

from kdbirl.posterior.result import Posterior
from kdbirl.report.choices import question
from kdbirl.report.page import elements
from kdbirl.report.page.charts import Chart, Part, in_own_units, sentence
from kdbirl.report.page.posterior_charts import (
    MOST_INTERVALS,
    MOST_MARGINALS,
    Index,
    correlations,
    intervals,
    marginal,
    most_narrowed,
    pair_chart,
)
from kdbirl.report.page.shell import Section
from kdbirl.report.page.world_charts import cell_map
from kdbirl.report.run_files import Run

MOST_TASKS = 200  # rows of the table of tasks
MOST_REWARDS = 8  # parameters in it
NUMBERS = {"mean": "mean", "sd": "sd", "q05": "5 %", "median": "median", "q95": "95 %"}
KEY = {"posterior": "posterior", "prior": "prior", "chosen": "draws in the brush"}
LEGEND = f'<ul class="legend">{"".join(f"<li class={k}>{text}</li>" for k, text in KEY.items())}</ul>'


def card_section(run: Run) -> Part:
    """Can it be trusted?"""
    here = shlex.quote(run.name)
    card = {
        name: (colour, text.replace("diagnose RUN", f"diagnose {here}")) for name, (colour, text) in run.card.items()
    }
    return Part(Section("card", "Report card", elements.cards(card)))


def question_section(run: Run, rows: bool) -> Part:
    """What was asked, of which tasks, rows and features."""
    posterior = run.posterior
    tables = _features(run, rows) if len(posterior.expert_features) else ""
    tables += _tasks(posterior) if len(posterior.task_rewards) else ""
    body = elements.paragraph(question(posterior)) + f'<div class="beside">{tables}</div>'
    return Part(Section("question", "The question and the data", body))


def _features(run: Run, rows: bool) -> str:
    table, units = in_own_units(run)
    columns = {"mean": table.mean(axis=0), "sd": table.std(axis=0)}
    if rows:  # a least or largest value is that of one patient
        columns |= {"least": table.min(axis=0), "largest": table.max(axis=0)}
    lines = [(name, *(float(c[j]) for c in columns.values())) for j, name in enumerate(run.posterior.feature_names)]
    caption = f"The expert's {len(table)} rows in each of {len(lines)} features" + (f", {units}" if units else "")
    content = elements.table(["feature", *columns], lines[:MOST_TASKS], caption)
    return f"<div>{content}</div>" if len(lines) <= 12 else elements.folded(caption, content)


def _tasks(posterior: Posterior) -> str:
    names = posterior.names[:MOST_REWARDS]
    lines = [
        (name, int(n), *(float(r) for r in rewards[: len(names)]))
        for name, n, rewards in zip(posterior.task_names, posterior.task_rows, posterior.task_rewards, strict=True)
    ]
    left = len(lines) - MOST_TASKS
    caption = f"The {len(lines)} training tasks: rows and known rewards" + (
        f" (without the last {left})" if left > 0 else ""
    )
    if len(posterior.names) > len(names):
        caption += f", {len(names)} of {len(posterior.names)} parameters"
    content = elements.table(["task", "rows", *names], lines[:MOST_TASKS], caption)
    return f"<div>{content}</div>" if len(lines) <= 8 else elements.folded(caption, content)


def posterior_section(run: Run, shown_draws: int) -> tuple[Part, tuple[int, int]]:
    """Numbers, marginals and pairs, and the pair that is shown first."""
    posterior = run.posterior
    index = most_narrowed(posterior, MOST_MARGINALS)
    q, n = len(posterior.names), len(index)
    bounds = _bounds(run)
    marginals = [marginal(posterior, int(j), (float(bounds[0][j]), float(bounds[1][j]))) for j in index]
    charts, pair = list(marginals), (0, 0)
    which = "" if n == q else f" The {n} of {q} parameters that the data narrowed most are shown."
    how = (
        "Drag over a chart to keep only the draws in that range, or type its ends below it: all other charts and the "
        "numbers follow. Escape clears it."
    )
    body = elements.paragraph(how + which) + LEGEND
    body += f'<div class="small-charts">{"".join(_small(posterior, chart) for chart in marginals)}</div>'
    body += _numbers(posterior, index) + _status() + elements.paragraph(sentence(posterior, shown_draws), "note")
    if n > 1:
        pairs, pair_charts, pair = _pairs(posterior, index)
        body += pairs
        charts += pair_charts
    return Part(Section("posterior", "The posterior", body), tuple(charts)), pair


def _pairs(posterior: Posterior, index: Index) -> tuple[str, list[Chart], tuple[int, int]]:
    """Two parameters against each other, and the table of correlations to choose them from where there are more."""
    table, pair = correlations(posterior, index)
    cloud = pair_chart(posterior)
    caption = "The draws of two parameters; the dashed lines are the central 90 % of each. Drag to brush both."
    if len(index) == 2:
        return (
            f"<h3>Pairs</h3>{_pair_controls(posterior, index)}{cloud.figure(f'{caption} {table.description}')}",
            [cloud],
            pair,
        )
    both = cloud.figure(caption) + table.figure(f"{table.description} Click on a pair to see it.")
    body = f'<h3>Pairs</h3>{_pair_controls(posterior, index)}<div class="beside">{both}</div>'
    return body, [cloud, table], pair


def _small(posterior: Posterior, chart: Chart) -> str:
    """A marginal with its name above it, and a range to type below it."""
    j = int(chart.links["parameter"])
    return f"<div>{chart.figure(heading=posterior.names[j])}{_range(j, posterior.names[j])}</div>"


def _bounds(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Of the prior, where the model is there to tell."""
    fitted = None if run.model is None else run.model.fitted
    if fitted is None or len(fitted.reward_names) != len(run.posterior.names):
        return np.full(len(run.posterior.names), -np.inf), np.full(len(run.posterior.names), np.inf)
    low, high = fitted.prior.support
    return np.asarray(low, dtype=float), np.asarray(high, dtype=float)


def _numbers(posterior: Posterior, index: Index) -> str:
    """The summary; each number follows the brush."""
    low, median, high = np.quantile(posterior.flat, [0.05, 0.5, 0.95], axis=0)
    columns = dict(zip(NUMBERS, (posterior.mean(), posterior.flat.std(axis=0), low, median, high), strict=True))
    top = "".join(f'<th scope="col" class="number">{name}</th>' for name in NUMBERS.values())
    lines = []
    for j in index:
        cells = "".join(_number(int(j), name, float(values[j])) for name, values in columns.items())
        lines.append(f'<tr><th scope="row">{elements.isolated(posterior.names[j])}</th>{cells}</tr>')
    head = f'<thead><tr><th scope="col">parameter</th>{top}</tr></thead>'
    title = '<caption class="hidden">Posterior summary</caption>'
    content = f'<table id="numbers">{title}{head}<tbody>{"".join(lines)}</tbody></table>'
    return elements.scrolled(content, "Posterior summary")


def _number(j: int, name: str, value: float) -> str:
    text = elements.shown(value)
    return (
        f'<td class="number"><output data-parameter="{j}" data-number="{name}" data-all="{text}">{text}</output></td>'
    )


def _range(j: int, name: str) -> str:
    ends = (("low", "at least"), ("high", "at most"))
    inputs = (
        f'<input type="number" step="any" data-parameter="{j}" data-end="{end}" '
        f'aria-label="{elements.escaped(name)}: {words}" placeholder="{words}">'
        for end, words in ends
    )
    return f'<div class="range">{"<span>to</span>".join(inputs)}</div>'


def _status() -> str:
    button = '<button type="button" id="clear">Clear the brush</button>'
    return f'<div class="status" id="status"><output aria-live="polite"></output>{button}</div>'


def _pair_controls(posterior: Posterior, index: Index) -> str:
    options = "".join(f'<option value="{int(j)}">{elements.escaped(posterior.names[j])}</option>' for j in index)
    selects = (
        f'<label>{axis} <select id="pair-{key}">{options}</select></label>'
        for key, axis in (("x", "across"), ("y", "up"))
    )
    return f'<div class="controls">{" ".join(selects)}</div>'


def weights_section(run: Run) -> Part:
    """The reward as a map where the parameters are the cells of a grid, and as weights on one scale."""
    posterior = run.posterior
    index = most_narrowed(posterior, MOST_INTERVALS)
    chart = intervals(posterior, index)
    maps = _cell_maps(posterior)
    left = (
        f" {len(index)} of {len(posterior.names)} parameters: those that the data narrowed most."
        if len(index) < len(posterior.names)
        else ""
    )
    body = f'<div class="beside">{"".join(m.figure() for m in maps)}</div>' if maps else ""
    title = "Reward map" if maps else "Weights against features"
    body += chart.figure(chart.description + left)
    return Part(Section("weights", title, body), (*maps, chart))


def _cell_maps(posterior: Posterior) -> list[Chart]:
    """For parameters called cell 0, cell 1, ... whose number is a square, as Gridworlds name them."""
    q = len(posterior.names)
    if q < 4 or round(q**0.5) ** 2 != q or posterior.names != tuple(f"cell {c}" for c in range(q)):
        return []
    return [
        cell_map("map-mean", posterior.mean(), "posterior mean", follows="mean"),
        cell_map("map-sd", posterior.flat.std(axis=0), "posterior sd", follows="sd", scheme="cividis"),
    ]
