"""Sections of a report on the world (where there was one), the sampler, and how the run was made."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kdbirl.errors import KDBIRLError
from kdbirl.posterior.convergence import is_independent
from kdbirl.report.choices import how_it_was_made
from kdbirl.report.page import elements
from kdbirl.report.page.charts import Chart, Part, quantity, values
from kdbirl.report.page.shell import Section, command_of
from kdbirl.report.page.world_charts import ARROWS, cell_map, loss, policy_shares
from kdbirl.report.run_files import Run

LARGEST_GRID = 20  # cells on a side that are planned for and drawn
MOST_TRACES, POINTS = 4, 300  # parameters, and draws of each chain
CHAIN_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d1f", "#777777")


def world_section(run: Run) -> Part | None:
    """EVD and policies; None where no environment was given."""
    evaluation, policies = run.evaluation, run.findings.get("policies")
    if evaluation is None and not policies:
        return None
    charts: list[Chart] = []
    body = ""
    if evaluation is not None:
        charts.append(loss(evaluation))
        body += _in_words(evaluation) + charts[-1].figure() + _evd_table(evaluation)
        maps = _grid(run, evaluation)
        charts += maps
        body += f'<div class="beside">{"".join(m.figure() for m in maps)}</div>' if maps else ""
    if policies:
        charts.append(policy_shares(policies))
        body += f"<h3>Policies</h3>{elements.paragraph(str(policies.get('sentence', '')))}{charts[-1].figure()}"
    return Part(Section("world", "In the world: value lost, and policies", body), tuple(charts))


def _in_words(found: Mapping[str, Any]) -> str:
    text = (
        f"In {found.get('env', 'the world')} (discount {found.get('discount', '?')}), the optimal agent earns "
        f"{found['best_value']:.4g} and a random one {found['random_value']:.4g} under the true reward. The expected "
        f"value difference (EVD) is what an agent loses by acting on a draw: {found['posterior']['mean']:.4g} on "
        f"average (standard error {found['posterior']['standard_error']:.2g})."
    )
    return elements.paragraph(text) + elements.bullets(str(note) for note in found.get("notes", ()))


def _evd_table(found: Mapping[str, Any]) -> str:
    parts = {name: found[name] for name in ("posterior", "prior") if found.get(name)}
    scale = abs(float(found["best_value"])) + abs(float(found["random_value"]))
    lines = [
        (words, *(_no_rounding(part.get(key), scale) for part in parts.values()))
        for words, key in (
            ("mean EVD", "mean"),
            ("standard error", "standard_error"),
            ("share of (optimal - random)", "normalised_regret"),
            ("EVD of the mean reward", "of_mean_reward"),
            ("draws", "draws"),
        )
    ]
    return elements.table(["", *parts], lines, "Expected value difference")


def _no_rounding(value: Any, scale: float) -> Any:
    """Zero for what is only rounding in a difference of numbers of this size."""
    return 0.0 if isinstance(value, float) and abs(value) < 1e-12 * scale else value


def _grid(run: Run, found: Mapping[str, Any]) -> list[Chart]:
    """Reward, and the policy that is best for the posterior mean, where the world is a Gridworld of moderate size."""
    from kdbirl.worlds.gridworld import Gridworld
    from kdbirl.worlds.named import named_world
    from kdbirl.worlds.planning import plan

    try:
        world = named_world(str(found["env"]), float(found["discount"]), found.get("planning_horizon"))
    except (KDBIRLError, KeyError, TypeError, ValueError):  # another version's, or not installed here
        return []
    if not isinstance(world, Gridworld) or world.size > LARGEST_GRID or world.n_parameters != len(run.posterior.names):
        return []
    cells = world.size**2
    mean = run.posterior.mean()
    table = plan(world, mean).probabilities
    best = (table if table.ndim == 2 else table[0])[:cells].argmax(axis=1)  # the first step's, with a horizon
    reward = np.asarray(world.reward_table(mean[None]))[0, :cells].mean(axis=1)
    arrows = [ARROWS.get(world.action_names[a], "?") for a in best]
    return [cell_map("policy-map", reward, "posterior mean reward, with its best policy", labels=arrows)]


def sampler_section(run: Run) -> Part:
    """Folded: convergence of each parameter and the draws in their order."""
    posterior, checks = run.posterior, run.posterior.convergence
    body = elements.paragraph(checks.sentence)
    lines = [
        (name, *(round(float(value), digits) for value, digits in zip(numbers, (3, 0, 0), strict=True)))
        for name, *numbers in zip(posterior.names, checks.r_hat, checks.ess_bulk, checks.ess_tail, strict=True)
    ]
    worst = np.argsort(-np.nan_to_num(checks.r_hat, nan=np.inf), kind="stable")
    shown = [lines[j] for j in worst[:50]]
    body += elements.table(["parameter", "R-hat", "bulk ESS", "tail ESS"], shown, "Convergence, the worst first")
    traces = [_trace(run, int(j)) for j in worst[:MOST_TRACES]]
    body += "".join(chart.figure(heading=posterior.names[int(chart.links["shown"])]) for chart in traces)
    return Part(Section("sampler", "Sampler diagnostics", body, folded=True), tuple(traces))


def _trace(run: Run, j: int) -> Chart:
    chains = run.posterior.draws[:, :, j]
    step = max(1, -(-chains.shape[1] // POINTS))
    rows = [
        {"draw": d, "value": chains[c, d], "chain": f"chain {c + 1}"}
        for c in range(min(len(chains), len(CHAIN_COLOURS)))
        for d in range(0, chains.shape[1], step)
    ]
    colour = {"field": "chain", "type": "nominal", "scale": {"range": list(CHAIN_COLOURS)}, "legend": None}
    # independent draws have no order that a line could show
    independent = is_independent(run.posterior.sampler)
    look = {"type": "point", "filled": True, "size": 6} if independent else {"type": "line", "strokeWidth": 0.8}
    spec = {
        "height": 110,
        "data": values(rows),
        "mark": look | {"opacity": 0.8},
        "encoding": {"x": quantity("draw", "draw"), "y": quantity("value", axis={"tickCount": 4}), "color": colour},
    }
    name = run.posterior.names[j]
    return Chart(f"trace-{j}", spec, f"Draws of {name} in their order, a colour for each chain.", {"shown": j})


def repeat_section(run: Run) -> Part:
    """Configuration, versions, seed, and the command that repeats it."""
    body = elements.words(how_it_was_made(run.posterior), "choices")
    configuration = run.manifest.get("configuration", {})
    if configuration:
        body += "<h3>To repeat it</h3>" + elements.code(command_of(configuration))
        where = run.manifest.get("working_directory")
        body += elements.paragraph(f"In {where}. The same seed gives the same numbers.", "note") if where else ""
    versions = run.manifest.get("versions") or run.posterior.settings.get("versions", {})
    record = {
        "written": str(run.manifest.get("written", "")),
        "versions": ", ".join(f"{n} {v}" for n, v in versions.items()),
    }
    seconds = run.manifest.get("timings", {})
    record["seconds"] = ", ".join(f"{name} {value}" for name, value in seconds.items())
    record |= {f"sha256 of {name}": str(digest) for name, digest in run.manifest.get("inputs", {}).items()}
    body += "<h3>Record</h3>" + elements.words({n: t for n, t in record.items() if t}, "record")
    return Part(Section("repeat", "How it was made", body))
