"""One self-contained HTML page for a posterior: it opens from disk, without a network."""

import base64
import html
import io
from typing import Any

from kdbirl.posterior.result import Posterior
from kdbirl.report.choices import how_it_was_made, question
from kdbirl.report.plots import plot_intervals, plot_marginals, plot_pairs, plot_trace

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, .words td { text-align: left; }
.words th { font-weight: normal; vertical-align: top; white-space: nowrap; opacity: .75; }
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
    head = [
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
    ]
    return "\n".join(['<!doctype html>\n<html lang="en"><head>', *head, "</head>\n<body>", *body, "</body></html>", ""])


def _card(name: str, colour: str, sentence: str) -> str:
    return (
        f'<div class="card {html.escape(colour)}"><strong>{html.escape(name)}: {html.escape(colour)}.</strong> '
        f"{html.escape(sentence)}</div>"
    )


def _summary_table(posterior: Posterior) -> str:
    table = posterior.summary()
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.columns)
    rows = ("".join(f"<td>{_cell(*cell)}</td>" for cell in row.items()) for row in table.iter_rows(named=True))
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'


def _cell(column: str, value: Any) -> str:
    digits = {"r_hat": ".3f", "ess_bulk": ".0f", "ess_tail": ".0f"}.get(column, ".4g")
    return f"{value:{digits}}" if isinstance(value, float) else html.escape(str(value))


def _figures(posterior: Posterior) -> list[tuple[Any, str]]:
    few = len(posterior.names) <= MOST_PARAMETERS_ONE_BY_ONE
    first = plot_marginals(posterior) if few else plot_intervals(posterior)
    figures = [(first, "Posterior of each parameter, with the prior behind it.")]
    if len(posterior.names) > 1:
        figures.append((plot_pairs(posterior), "Pairs of parameters."))
    return [*figures, (plot_trace(posterior), "The draws in their order.")]


def _figure(figure: Any, text: str) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130, bbox_inches="tight", metadata={"Software": None})
    data, words = base64.b64encode(stream.getvalue()).decode(), html.escape(text)
    image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"


def _settings_table(posterior: Posterior) -> str:
    choices = how_it_was_made(posterior) | {"made with": _versions(posterior)}
    rows = [
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(text)}</td></tr>'
        for name, text in choices.items()
    ]
    return f'<div class="scroll"><table class="words">{"".join(rows)}</table></div>'


def _versions(posterior: Posterior) -> str:
    versions = posterior.settings.get("versions", {})
    return ", ".join(f"{name} {versions[name]}" for name in ("kdbirl", "python", "jax", "blackjax") if name in versions)
