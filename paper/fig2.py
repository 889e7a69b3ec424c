"""Figure 2: the 10x10 grid with phi = [x, y]: w* and the posterior mean on the grid, and the joint density of w.

Beside it, the same task with a reward for each of the 100 states instead of two weights: does featurising help?
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kdbirl.data.demonstrations import TaskBank
from kdbirl.errors import KDBIRLWarning
from kdbirl.evaluation.cells import Cell, CellStore
from kdbirl.features import OneHot
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.priors import Uniform, parse_prior
from kdbirl.progress import Progress
from kdbirl.report.panels import INK, NORMAL, SMALL, TRUE
from kdbirl.worlds.gridworld import Gridworld
from kdbirl.worlds.planning import optimal_feature_expectations
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import feature_expectations
from paper.claims import Statement
from paper.experiment import Experiment, Part, Request, sized
from paper.grid_data import GridData
from paper.grid_posteriors import FULL, QUICK, Effort, kdbirl_cell
from paper.grid_settings import FIG2, GridSetting, angle, distance, map_error, signs_right
from paper.ledger import Claim

# The claims of the paper about Figure 2, for each w*, and whether featurising helps.

WHERE = "Section 6.4 (Feature-based reward function), Figure 2 and the paragraph before the sepsis environment"
MOST_DEGREES = 15.0  # relative sizes within a factor of 1.73 of each other where both are 1
SETTINGS = {(-1.0, 1.0): "a", (1.0, 1.0): "b"}  # the two w* of the figure


def statements(truth: tuple[float, float]) -> dict[str, Statement]:
    """What is claimed of one w*, by the measure that decides it."""
    letter, words = SETTINGS[truth], f"w* = [{truth[0]:g}, {truth[1]:g}]"
    return {
        "signs_right": Statement(
            f"signs-{letter}",
            f"in the 10x10 grid the signs of both weights are inferred, {words}",
            WHERE,
            "posterior mass of draws with both signs right",
            above=0.9,
        ),
        "angle": Statement(
            f"relative-size-{letter}",
            f"so is the relative size of the weights, {words}",
            WHERE,
            "angle between the posterior mean and w*, in degrees",
            below=MOST_DEGREES,
        ),
        "map_error": Statement(
            f"map-{letter}",
            f"the posterior mean projected on the grid is nearly identical to the truth's map, {words}",
            WHERE,
            "|R_mean - R*| / |R*| over the cells",
            below=0.25,
        ),
        "distance": Statement(
            f"concentrated-{letter}",
            f"the posterior is concentrated close to w*, {words}",
            WHERE,
            "E|w - w*| as a share of the prior's",
            below=0.5,
        ),
    }


FEATURISING = Statement(
    "featurising-helps",
    "features help: two weights of known features are inferred better than 100 state rewards from the same rows",
    "Section 4.2 (Feature-based reward function) and Section 6.4",
    "expected regret, a share of (best - random): 100 state rewards minus 2 weights, mean of both w*, paired by seed",
    above=0.0,
)


def claims(variant: str, rows: Sequence[dict[str, Any]], quick: bool) -> list[Claim]:
    """One ledger row for each claim and w*."""
    found = [claim for truth in SETTINGS for claim in _of(truth, variant, rows, quick)]
    apart = {name: _paired(rows, name) for name in ("regret", "regret_by_state")}
    why = f"regret {apart['regret'].mean():.3f} with 2 weights, {apart['regret_by_state'].mean():.3f} with 100 states"
    return [*found, FEATURISING.decide(NAME, variant, apart["regret_by_state"] - apart["regret"], why, quick)]


def _of(truth: tuple[float, float], variant: str, rows: Sequence[dict[str, Any]], quick: bool) -> list[Claim]:
    own = [row for row in rows if (row["w1"], row["w2"]) == truth]
    columns = {name: np.array([row[name] for row in own], dtype=float) for name in statements(truth)}
    columns["distance"] = columns["distance"] / np.array([row["prior_distance"] for row in own])
    mean = np.array([[row["mean_w1"], row["mean_w2"]] for row in own]).mean(axis=0)
    sd = np.array([[row["sd_w1"], row["sd_w2"]] for row in own]).mean(axis=0)
    why = f"posterior mean [{mean[0]:.2f}, {mean[1]:.2f}], sd [{sd[0]:.2f}, {sd[1]:.2f}], averaged over seeds"
    if any(row["rank"] < 2 for row in own):
        why += f"; this setting informs one direction of w only (seed 0: {own[0]['identifiability'].rstrip('.')})"
    return [made.decide(NAME, variant, columns[name], why, quick) for name, made in statements(truth).items()]


def _paired(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    """One number a seed: the mean of both w*."""
    seeds = sorted({row["seed"] for row in rows})
    return np.array([np.mean([row[name] for row in rows if row["seed"] == seed]) for seed in seeds])


# The 10x10 task with one reward for each of its 100 states, from the same rows: what featurising is compared with.
#
# The training rewards are the same functions, R_k(s) = w_k . phi(s), written out state by state; states and actions are
# one-hot; the prior is uniform over the range of all rewards that weights in [-1, 1] allow. The bandwidths are those of
# the paper's rule in every variant: no script has such an experiment, and `loto` cannot leave out one of few tasks in
# 100 dimensions.

PLANNED = 200  # draws whose policies are planned
FEW = 500  # iterations of each of two chains are enough for them


def state_cell(store: CellStore, setting: GridSetting, seed: int, effort: Effort) -> Cell:
    """The regret of KD-BIRL's draws with 100 state rewards."""
    key = {"method": "kdbirl by state", "setting": asdict(setting), "seed": seed, "effort": asdict(effort)}
    return store.get(key, partial(_measure, GridData(setting, seed, effort.discounts), effort))


def _measure(data: GridData, effort: Effort) -> Cell:
    world = Gridworld(data.setting.size, discount=data.world.discount)
    phi = np.asarray(data.world.features)
    bank, largest = data.bank, float(np.abs(phi).sum(axis=1).max())
    written_out = TaskBank(bank.demonstrations, bank.tasks, bank.rewards @ phi.T, bank.names, world.feature_names)
    prior = Uniform(-max(largest, float(np.abs(written_out.rewards).max())), largest)
    sampler = replace(effort, chains=2, warmup=min(effort.warmup, FEW), draws=min(effort.draws, FEW)).sampler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KDBIRLWarning)
        model = KDBIRL(prior=prior, features=OneHot(), bandwidth="paper", sampler=sampler).fit(written_out)
        posterior = model.posterior(data.expert, seed=data.seed)
    regret = regret_of(posterior.flat, world, phi @ np.asarray(data.setting.truth))
    return {"regret": regret, "rank": model.identifiability().rank, "sampler": posterior.sampler}


def regret_of(draws: Float[np.ndarray, "n q"], world: Gridworld, truth: Float[np.ndarray, " q"]) -> float:
    """Mean EVD of the draws as a share of (best - random): 0 is optimal, 1 no better than chance."""
    some = draws[np.linspace(0, len(draws) - 1, min(PLANNED, len(draws))).astype(int)]
    collected = optimal_feature_expectations(world, np.concatenate([truth[None], some]))
    random = feature_expectations(world, Policy.uniform(world.n_states, world.n_actions))
    best = collected[0] @ truth
    return float((best - collected[1:].mean(axis=0) @ truth) / (best - random @ truth))


NAME, SEEDS, QUICK_SEEDS = "fig2", 12, 2
PRIOR_DRAWS = 20_000
Row = dict[str, Any]


def measure(variant: str, request: Request, store: CellStore, progress: Progress) -> Part:
    """Both w* for every seed."""
    effort, seeds = request.size(FULL, QUICK), request.count(SEEDS, QUICK_SEEDS)
    truths = {truth: sized(settings[variant], request.quick) for truth, settings in FIG2.items()}
    rows: list[Row] = []
    shown: list[dict[str, Any]] = []
    for place, setting in enumerate(truths.values()):
        cells = []
        for seed in range(seeds):
            progress.update(NAME, place * seeds + seed, len(truths) * seeds, f"{variant}, w* = {list(setting.truth)}")
            cells.append(kdbirl_cell(store, setting, seed, effort))
            rows.append(measured(cells[-1], state_cell(store, setting, seed, effort), setting, seed, effort))
        shown.append(_shown(cells, setting, effort))
    progress.update(NAME, len(truths) * seeds, len(truths) * seeds, variant)
    settings = [asdict(setting) for setting in truths.values()]
    numbers = {
        "experiment": NAME,
        "variant": variant,
        "configuration": {"settings": settings, "effort": asdict(effort), "seeds": seeds, "quick": request.quick},
        "shown": shown,
        "rows": rows,
    }
    return _part(variant, numbers, seeds, request.quick)


def measured(cell: Cell, by_state: Cell, setting: GridSetting, seed: int, effort: Effort) -> Row:
    """One seed of one w*: everything that the claims are decided by."""
    data, truth = GridData(setting, seed, effort.discounts), np.asarray(setting.truth)
    draws, mean = np.asarray(cell["draws"]), np.asarray(cell["mean"])
    prior = parse_prior(setting.prior).for_parameters(2).sample(np.random.default_rng(seed), PRIOR_DRAWS)
    return {
        "variant": setting.variant,
        "w1": truth[0].item(),
        "w2": truth[1].item(),
        "seed": seed,
        "mean_w1": mean[0].item(),
        "mean_w2": mean[1].item(),
        "sd_w1": cell["sd"][0],
        "sd_w2": cell["sd"][1],
        "signs_right": signs_right(draws, truth),
        "angle": angle(mean, truth),
        "map_error": map_error(data.world, mean, truth),
        "distance": distance(draws, truth),
        "prior_distance": distance(prior, truth),
        "regret": regret_of(draws, data.world, truth),
        "regret_by_state": by_state["regret"],
        "tasks": cell["tasks"],
        "rank": cell["rank"],
        "identifiability": cell["identifiability"],
    }


def _shown(cells: Sequence[Cell], setting: GridSetting, effort: Effort) -> dict[str, Any]:
    """The seed of median distance from w*, as it is drawn."""
    truth = np.asarray(setting.truth)
    distances = [distance(np.asarray(cell["draws"]), truth) for cell in cells]
    seed = int(np.argsort(distances, kind="stable")[(len(distances) - 1) // 2])
    world = GridData(setting, seed, effort.discounts).world
    maps = (np.asarray(world.reward_table(w))[:, 0] for w in (truth, np.asarray(cells[seed]["mean"])))
    names = ("truth_map", "mean_map")
    return {
        "seed": seed,
        "truth": truth.tolist(),
        "prior": setting.prior,
        "draws": cells[seed]["draws"],
        **{name: values.round(6).tolist() for name, values in zip(names, maps, strict=True)},
    }


def _part(variant: str, numbers: dict[str, Any], seeds: int, quick: bool) -> Part:

    name = f"{NAME}-{variant}"
    drawn = " and ".join(str(part["seed"]) for part in numbers["shown"])
    silence = next((row["identifiability"] for row in numbers["rows"] if row["rank"] < 2), "")
    caption = (
        f"Figure 2, {variant}: the 10x10 grid with phi = [x, y]: w* projected on the grid, KD-BIRL's posterior mean, "
        f"and the joint density of the weights (dotted: the prior; cross: w*); seeds {drawn}, of median distance. "
        f"{silence}"
    )
    found = claims(variant, numbers["rows"], quick)
    return Part(
        name, numbers, seeds, found, {name: plot_weights(numbers["shown"])}, {name: numbers["rows"]}, {name: caption}
    )


EXPERIMENT = Experiment(
    NAME,
    "Figure 2: the 10x10 grid, two weights of known features",
    {variant: partial(measure, variant) for variant in ("printed", "released", "ours")},
)


# Figure 2 of the paper: for each w*, the reward on the grid, the posterior mean's, and the joint density of w.

CELLS = 60  # a side of the density's grid on [-1, 1]^2
SHARES = (0.9, 0.5)  # of the mass, inside contours


def plot_weights(shown: Sequence[Mapping[str, Any]]) -> Figure:
    """A row for each w*: truth on the grid, posterior mean on the grid, joint density with its prior."""
    figure = Figure(figsize=(6.9, 2.25 * len(shown) + 0.35), layout="constrained")
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for line, part in zip(axes, shown, strict=True):
        largest = float(np.abs(part["truth_map"]).max())
        words = f"$w^\\star = [{part['truth'][0]:g}, {part['truth'][1]:g}]$"
        _map(figure, line[0], np.asarray(part["truth_map"]), words, largest)
        _map(figure, line[1], np.asarray(part["mean_map"]), "posterior mean", largest)
        _joint(line[2], np.asarray(part["draws"]), part["truth"], part["prior"])
    handles = [
        Line2D([], [], color="#0072b2", lw=1.2, label="posterior, 50 % and 90 %"),
        Line2D([], [], color="#777777", lw=1.0, ls=":", label="prior, 50 % and 90 %"),
        Line2D([], [], color=TRUE, marker="X", ls="", ms=7, mec="white", label="$w^\\star$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=NORMAL, labelcolor=INK)
    return figure


def _map(figure: Figure, panel: Axes, values: Float[np.ndarray, " cells"], title: str, largest: float) -> None:
    side = round(len(values) ** 0.5)
    image = panel.imshow(values.reshape(side, side), origin="lower", cmap="RdBu_r", vmin=-largest, vmax=largest)
    panel.set_title(title, fontsize=NORMAL, color=INK, loc="left")
    panel.set_xticks([0, 3, 6, 9])
    panel.set_yticks([0, 3, 6, 9])
    panel.set_xlabel("x", fontsize=SMALL, color=INK)
    panel.set_ylabel("y", fontsize=SMALL, color=INK)
    panel.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    for spine in panel.spines.values():
        spine.set_color("#888888")
    bar = figure.colorbar(image, ax=panel, shrink=0.85, pad=0.03)
    bar.ax.tick_params(labelsize=SMALL, length=2, labelcolor=INK)
    bar.set_label("reward", fontsize=SMALL, color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]


def _joint(panel: Axes, draws: Float[np.ndarray, "n 2"], truth: Sequence[float], prior: str) -> None:
    """The density of the draws on [-1, 1]^2, without mass over the edge; contours of posterior and prior."""
    edges = np.linspace(-1, 1, CELLS + 1)
    centres, smooth = (edges[:-1] + edges[1:]) / 2, _smooth(draws, edges)
    panel.pcolormesh(edges, edges, smooth.T, cmap="Blues", rasterized=True, vmax=1.15 * smooth.max())
    panel.contour(centres, centres, smooth.T, levels=levels_of(smooth), colors="#0072b2", linewidths=1.1)
    before = _prior_density(prior, centres)
    panel.contour(
        centres, centres, before.T, levels=levels_of(before), colors="#777777", linewidths=0.9, linestyles=":"
    )
    panel.plot(*truth, marker="X", color=TRUE, ms=8, mec="white", mew=0.8, clip_on=False, zorder=6)
    panel.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
    panel.set_xticks([-1, 0, 1])
    panel.set_yticks([-1, 0, 1])
    panel.tick_params(labelsize=SMALL, length=2, labelcolor=INK)
    panel.axhline(0, color="#cccccc", lw=0.6, zorder=1)
    panel.axvline(0, color="#cccccc", lw=0.6, zorder=1)
    panel.set_title("joint posterior", fontsize=NORMAL, color=INK, loc="left")
    panel.set_xlabel("$w_1$", fontsize=NORMAL, color=INK)
    panel.set_ylabel("$w_2$", fontsize=NORMAL, color=INK, rotation=0, labelpad=6)


def _smooth(draws: Float[np.ndarray, "n 2"], edges: Float[np.ndarray, " e"]) -> Float[np.ndarray, "c c"]:
    """A histogram smoothed by a kernel that is reflected at the edges: no mass leaves the box."""
    from scipy.ndimage import gaussian_filter

    counts = np.histogram2d(draws[:, 0], draws[:, 1], bins=[edges, edges])[0]
    width = max(float(draws.std(axis=0).min()) * len(draws) ** (-1 / 6) * CELLS / 2, 0.8)
    return np.asarray(gaussian_filter(counts, width, mode="reflect"))


def _prior_density(prior: str, centres: Float[np.ndarray, " c"]) -> Float[np.ndarray, "c c"]:
    """The product of both marginals, each the slope of the inverse of its quantiles."""
    levels = np.linspace(0.0005, 0.9995, 1000)
    quantiles = parse_prior(prior).for_parameters(2).quantiles(np.stack([levels, levels], axis=1))
    assert quantiles is not None  # every family that has a text has them
    slopes = [np.interp(centres, values, np.gradient(levels, values)) for values in quantiles.T]
    return np.asarray(slopes[0][:, None] * slopes[1][None])


def levels_of(values: Float[np.ndarray, "a b"]) -> list[float]:
    """Heights whose contours hold `SHARES` of the mass."""
    ordered = np.sort(values.ravel())[::-1]
    inside = np.cumsum(ordered) / ordered.sum()
    return sorted({float(ordered[min(int(np.searchsorted(inside, share)), len(ordered) - 1)]) for share in SHARES})
