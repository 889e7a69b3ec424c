"""What the sepsis figures are made of, as cells: the EVD of KD-BIRL's posterior and of AVRIL's agents against n.

KD-BIRL's posterior is computed on equally weighted points of its prior, so that

    EVD = sum_p  posterior(p)  w*.(mu* - mu_p)

is an expectation over the posterior without a sampler's noise; mu_p are feature expectations of the optimal policy for
point p, computed once. AVRIL's EVD is that of its agent's own treatments, as the paper's appendix has it here. Both
are shares of (best - random), so that 0 is optimal and 1 is chance.
"""

import warnings
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import KDBIRLWarning
from kdbirl.evaluation.cells import Cell, CellStore, get_all
from kdbirl.methods.avril import AVRIL
from kdbirl.methods.avril_draws import RewardPrior, informative_prior
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.priors import parse_prior, prior_points
from paper.patient_worlds import PatientSetting, PatientWorld, Scale
from paper.theory_world import posteriors_of_first_rows

ROWS = (10, 30, 100, 300, 1000)
ROLLOUTS = 50  # per task, from which rows are sampled one by one (the scripts have 1,000; 5 rows of each are taken)
DIGITS = 6
SEEDS_TOGETHER = 2  # whose AVRIL is trained side by side, with every w* and n of each


@dataclass(frozen=True)
class Effort:
    """worlds: which. stars: how many of the test weights. points: of the prior. avril_steps: of training. rows: n.
    scale: of the world's own learning."""

    worlds: tuple[str, ...]
    stars: int
    points: int
    avril_steps: int
    rows: tuple[int, ...]
    scale: Scale


@dataclass(frozen=True, eq=False)
class Study:
    """One world under one setting, with its cells."""

    world: PatientWorld
    setting: PatientSetting
    effort: Effort
    store: CellStore

    def table(self) -> tuple[Float[np.ndarray, "P q"], Float[np.ndarray, "P q"]]:
        """Points of the prior, and feature expectations of the policies that they lead to."""
        points = prior_points(parse_prior(self.setting.prior).for_parameters(3), self.effort.points)
        key = self._key("policies") | {"prior": self.setting.prior}
        found = self.store.get(key, lambda: {"mu": self.world.policies(points).tolist()})
        return points, np.asarray(found["mu"])

    def kdbirl(self, seed: int) -> list[Cell]:
        """A row for each test weight and n."""
        key = self._key("kdbirl") | {"setting": asdict(self.setting), "seed": seed}
        return list(self.store.get(key, partial(self._kdbirl, seed))["rows"])

    def avril(self, seeds: int, informative: bool) -> list[list[Cell]]:
        """The same for AVRIL, for all seeds; with its own prior it sees no training task, and settings of one box share
        it."""
        key = self._key("avril") | {"low": self.setting.low, "steps": self.effort.avril_steps}
        priors = [self._informative(seed) if informative else RewardPrior() for seed in range(seeds)]
        keys = [key | {"seed": seed, "prior": asdict(prior)} for seed, prior in enumerate(priors)]
        cells = get_all(self.store, keys, lambda group: self._avril({s: priors[s] for s in group}), SEEDS_TOGETHER)
        return [list(cell["rows"]) for cell in cells]

    def posterior(self, seed: int, star: int, n: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """About `count` points of the prior, and KD-BIRL's posterior over them; more than policies are planned for."""
        points = prior_points(parse_prior(self.setting.prior).for_parameters(3), count)
        return points, posteriors_of_first_rows(self._fitted(seed), self._expert(star, seed), (n,), points)[0][0]

    def _key(self, what: str) -> dict[str, Any]:
        effort = {
            "stars": self.effort.stars,
            "points": self.effort.points,
            "rows": list(self.effort.rows),
            "scale": asdict(self.effort.scale),
        }
        return {"what": what, "world": self.world.name, "phi": self.setting.phi, **effort}

    def _kdbirl(self, seed: int) -> Cell:
        points, collected = self.table()
        model, shown = self._fitted(seed), []
        for star, truth in enumerate(self.setting.stars()[: self.effort.stars]):
            expert, away = self._expert(star, seed), np.sum((points - truth) ** 2, axis=1)
            posteriors, choice = posteriors_of_first_rows(model, expert, self.effort.rows, points)
            for n, weights in zip(self.effort.rows, posteriors, strict=True):
                spread = {"distance": float(np.sqrt(weights @ away)), "effective": 1 / float(weights @ weights)}
                shown.append(({"star": star, "n": n, **choice, **spread}, weights))
        means = self.world.policies(np.stack([weights @ points for _, weights in shown]))  # all planned at once
        rows = []
        for (record, weights), mean in zip(shown, means, strict=True):
            lost = self._lost(record["star"], collected)
            found = {"evd": float(weights @ lost), "prior_evd": float(lost.mean())}
            found["evd_of_mean"] = float(self._lost(record["star"], mean))
            rows.append({**record, **found})
        return {"rows": [_rounded(row) for row in rows]}

    def _avril(self, priors: dict[int, RewardPrior]) -> list[Cell]:
        """A cell for each seed; the trainings of all seeds, w* and n side by side."""
        cases = [(seed, star, n) for seed in priors for star in range(self.effort.stars) for n in self.effort.rows]
        each = {(seed, star): self._expert(star, seed) for seed, star, _ in cases}
        shown = [self.world.seen(each[seed, star].take(np.arange(n))) for seed, star, n in cases]
        models = [self._model(priors[seed]) for seed, _, _ in cases]
        lanes = SEEDS_TOGETHER * self.effort.stars * len(self.effort.rows)
        AVRIL.train_together(models, shown, [seed for seed, _, _ in cases], lanes)
        found: dict[int, list[Cell]] = {seed: [] for seed in priors}
        for (seed, star, n), model, expert in zip(cases, models, shown, strict=True):
            agent = model.policy(expert, seed=seed)
            lost = float(self._lost(star, self.world.agent(agent)))
            found[seed].append(_rounded({"star": star, "n": n, "evd": lost, "outcome": agent.course.outcome}))
        return [{"rows": rows} for rows in found.values()]

    def _model(self, prior: RewardPrior) -> AVRIL:
        return AVRIL(discount=1.0, beta=1.0, td_weight=1.0, steps=self.effort.avril_steps, prior=prior)

    def _informative(self, seed: int) -> RewardPrior:
        learnt = informative_prior(self._bank(seed), self.world.phi)
        return RewardPrior(learnt.mean, learnt.sd)

    @cached_property
    def _best(self) -> Float[np.ndarray, "5 q"]:
        return np.asarray(self.world.policies(self.setting.stars()))

    def _lost(self, star: int, collected: Float[np.ndarray, "*p q"]) -> Float[np.ndarray, "*p"]:
        """EVD of policies that collect these features, as a share of (best - random)."""
        best, truth = self._best[star], self.setting.stars()[star]
        return np.asarray((best - collected) @ truth / ((best - self.world.random) @ truth))

    def _fitted(self, seed: int) -> KDBIRL:
        setting = self.setting
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KDBIRLWarning)  # four tasks inform three directions at most: known
            model = KDBIRL(parse_prior(setting.prior), features=self.world.phi, bandwidth=setting.bandwidth)
            return model.fit(self._bank(seed), seed=seed)

    @lru_cache(maxsize=64)  # noqa: B019 - a study lives as long as the run, and three methods ask for a seed's bank
    def _bank(self, seed: int) -> TaskBank:
        weights = self.setting.weights(seed)
        if self.setting.sampled:
            every = -(-self.setting.rows // len(weights))
            return _rows_of_each(self.world.demonstrated(weights, ROLLOUTS, seed), every, seed)
        shown = self.world.demonstrated(weights, episodes_for(self.setting.rows), seed)
        return _first_rows(shown, self.setting.rows)

    @lru_cache(maxsize=16)  # noqa: B019
    def _expert(self, star: int, seed: int) -> Demonstrations:
        """Whole episodes in order, of patients that no training task saw."""
        most, truth = max(self.effort.rows), self.setting.stars()[star]
        shown = self.world.demonstrated(truth[None], episodes_for(most), 10_000 + 100 * seed + star)
        return shown.demonstrations.take(np.arange(most))


def episodes_for(rows: int) -> int:
    """So many that they have these rows: stays last 9 steps in the mean, and some are short."""
    return 20 + -(-rows // 5)


def _first_rows(bank: TaskBank, rows: int) -> TaskBank:
    keep = np.concatenate([np.flatnonzero(bank.tasks == task)[:rows] for task in range(bank.n_tasks)])
    return _kept(bank, keep)


def _rows_of_each(bank: TaskBank, rows: int, seed: int) -> TaskBank:
    """Rows sampled one by one, without order, as the scripts do."""
    random = np.random.default_rng([seed, 7])
    chosen = [random.choice(np.flatnonzero(bank.tasks == task), rows) for task in range(bank.n_tasks)]
    return _kept(bank, np.concatenate(chosen))


def _kept(bank: TaskBank, index: np.ndarray) -> TaskBank:
    return TaskBank(bank.demonstrations.take(index), bank.tasks[index], bank.rewards, bank.names, bank.reward_names)


def _rounded(row: Cell) -> Cell:
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in row.items()}
