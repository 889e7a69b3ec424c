"""One self-contained HTML page for a posterior: it opens from disk, without a network."""

import base64
import html
import io
from typing import Any

from kdbirl.posterior.result import Posterior
from kdbirl.report.plots import plot_intervals, plot_marginals, plot_pairs, plot_trace

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; height: auto; background: #fff; }
.scroll { overflow-x: auto; }
.card { border-left: .4rem solid #888; padding: .3rem 1rem; margin: .5rem 0; }
.green { border-color: #2e7d32; } .amber { border-color: #b26a00; } .red { border-color: #c62828; }
"""
MOST_PARAMETERS_ONE_BY_ONE = 8


def report_page(posterior: Posterior, title: str) -> str:
    """The page as text. Everything that came from the user's files is escaped."""
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(question(posterior))}</p>",
        *(_card(name, *card) for name, card in posterior.report_card().items()),
        "<h2>The reward</h2>",
        _summary_table(posterior),
        *(_figure(figure, text) for figure, text in _figures(posterior)),
        "<h2>How it was made</h2>",
        _settings_table(posterior),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    joined = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{joined}\n</body></html>\n'


def question(posterior: Posterior) -> str:
    """What was asked, in a sentence."""
    tasks, rows = len(posterior.task_names), int(posterior.task_rows.sum())
    return (
        f"The reward of a new task ({len(posterior.names)} parameters) from {len(posterior.expert_features)} expert rows, "
        f"given {rows} rows of {tasks} training tasks with known rewards."
    )


def _card(name: str, colour: str, sentence: str) -> str:
    return (
        f'<div class="card {html.escape(colour)}"><strong>{html.escape(name)}: {html.escape(colour)}.</strong> '
        f"{html.escape(sentence)}</div>"
    )


def _summary_table(posterior: Posterior) -> str:
    table = posterior.summary()
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = ("".join(f"<td>{_cell(value)}</td>" for value in row) for row in table.iter_rows())
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def _figures(posterior: Posterior) -> list[tuple[Any, str]]:
    few = len(posterior.names) <= MOST_PARAMETERS_ONE_BY_ONE
    first = plot_marginals(posterior) if few else plot_intervals(posterior)
    figures = [(first, "Posterior of each parameter, with the prior behind it.")]
    if len(posterior.names) > 1:
        figures.append((plot_pairs(posterior), "Pairs of parameters."))
    return [*figures, (plot_trace(posterior), "The draws in their order.")]


def _figure(figure: Any, text: str) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130, bbox_inches="tight")
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<figure><img alt="{html.escape(text)}" src="data:image/png;base64,{data}"><figcaption>{html.escape(text)}</figcaption></figure>'


def _settings_table(posterior: Posterior) -> str:
    rows = []
    for name, value in how_it_was_made(posterior).items():
        text = "; ".join(value) if isinstance(value, list) else str(value)
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>")
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def how_it_was_made(posterior: Posterior) -> dict[str, Any]:
    """Every choice that the numbers depend on: defaults too are always told."""
    settings = posterior.settings
    width = posterior.h if isinstance(posterior.h, tuple) else (posterior.h,)
    return {
        "method": posterior.method,
        "prior": settings.get("prior", ""),
        "features": f"{settings.get('features', '')} ({len(posterior.feature_names)} columns)",
        "kernel": f"{settings.get('kernel', '')}, h = {', '.join(f'{w:.4g}' for w in width if w is not None)}",
        "reward kernel": f"{settings.get('reward_kernel', '')}, h' = {posterior.h_reward:.4g}"
        if posterior.h_reward is not None
        else "",
        "bandwidths by": posterior.bandwidth_rule,
        "power": f"{posterior.power:g}",
        "sampler": posterior.sampler,
        "seed": posterior.seed,
        "notes": settings.get("notes", []),
    }
