"""What the sepsis figures are made of, as cells: the EVD of KD-BIRL's posterior and of AVRIL's agents against n.

KD-BIRL's posterior is computed on equally weighted points of its prior, so that

    EVD = sum_p  posterior(p)  w*.(mu* - mu_p)

is an expectation over the posterior without a sampler's noise; mu_p are feature expectations of the optimal policy for
point p, computed once. AVRIL's EVD is that of its agent's own treatments, as the paper's appendix has it here. Both
are shares of (best - random), so that 0 is optimal and 1 is chance.
"""

import warnings
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.errors import KDBIRLWarning
from kdbirl.experiments.cell_store import Cell, CellStore
from kdbirl.experiments.patient_settings import PatientSetting
from kdbirl.experiments.patient_worlds import PatientWorld, Scale
from kdbirl.methods.avril import AVRIL
from kdbirl.methods.informative_prior import RewardPrior, informative_prior
from kdbirl.methods.kdbirl import KDBIRL
from kdbirl.posterior.prior_points import prior_points
from kdbirl.posterior.priors import parse_prior

ROWS = (10, 30, 100, 300, 1000)
ROLLOUTS = 50  # per task, from which rows are sampled one by one (the scripts have 1,000; 5 rows of each are taken)
DIGITS = 6


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

    def avril(self, seed: int, informative: bool) -> list[Cell]:
        """The same for AVRIL; with its own prior it sees no training task, and settings of one box share it."""
        key = self._key("avril") | {"low": self.setting.low, "seed": seed, "steps": self.effort.avril_steps}
        prior = RewardPrior()
        if informative:
            learnt = informative_prior(self._bank(seed), self.world.phi)
            prior = RewardPrior(learnt.mean, learnt.sd)
        return list(self.store.get(key | {"prior": asdict(prior)}, partial(self._avril, seed, prior))["rows"])

    def posterior(self, seed: int, star: int, n: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """About `count` points of the prior, and KD-BIRL's posterior over them; more than policies are planned for."""
        points = prior_points(parse_prior(self.setting.prior).for_parameters(3), count)
        return points, _posterior(self._fitted(seed), self._expert(star, seed).take(np.arange(n)), points)[0]

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
            for n in self.effort.rows:
                weights, record = _posterior(model, expert.take(np.arange(n)), points)
                record |= {"distance": float(np.sqrt(weights @ away)), "effective": 1 / float(weights @ weights)}
                shown.append(({"star": star, "n": n, **record}, weights))
        means = self.world.policies(np.stack([weights @ points for _, weights in shown]))  # all planned at once
        rows = []
        for (record, weights), mean in zip(shown, means, strict=True):
            lost = self._lost(record["star"], collected)
            found = {"evd": float(weights @ lost), "prior_evd": float(lost.mean())}
            found["evd_of_mean"] = float(self._lost(record["star"], mean))
            rows.append({**record, **found})
        return {"rows": [_rounded(row) for row in rows]}

    def _avril(self, seed: int, prior: RewardPrior) -> Cell:
        rows = []
        for star in range(self.effort.stars):
            expert = self._expert(star, seed)
            for n in self.effort.rows:
                model = AVRIL(discount=1.0, beta=1.0, td_weight=1.0, steps=self.effort.avril_steps, prior=prior)
                agent = model.policy(self.world.seen(expert.take(np.arange(n))), seed=seed)
                lost = float(self._lost(star, self.world.agent(agent)))
                rows.append({"star": star, "n": n, "evd": lost, "outcome": agent.course.outcome})
        return {"rows": [_rounded(row) for row in rows]}

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

    def _bank(self, seed: int) -> TaskBank:
        weights = self.setting.weights(seed)
        if self.setting.sampled:
            every = -(-self.setting.rows // len(weights))
            return _rows_of_each(self.world.demonstrated(weights, ROLLOUTS, seed), every, seed)
        shown = self.world.demonstrated(weights, episodes_for(self.setting.rows), seed)
        return _first_rows(shown, self.setting.rows)

    def _expert(self, star: int, seed: int) -> Demonstrations:
        """Whole episodes in order, of patients that no training task saw."""
        most, truth = max(self.effort.rows), self.setting.stars()[star]
        shown = self.world.demonstrated(truth[None], episodes_for(most), 10_000 + 100 * seed + star)
        return shown.demonstrations.take(np.arange(most))


def episodes_for(rows: int) -> int:
    """So many that they have these rows: stays last 9 steps in the mean, and some are short."""
    return 20 + -(-rows // 5)


def _posterior(
    model: KDBIRL, expert: Demonstrations, points: Float[np.ndarray, "P q"]
) -> tuple[Float[np.ndarray, " P"], dict[str, Any]]:
    """Posterior weights of equally weighted points of the prior, and what the model chose."""
    assert model.fitted is not None
    choice = model.fitted.choices.for_rows(expert.n_rows)
    log = choice.power * np.asarray(model.log_likelihood(expert, points))
    weights = np.exp(log - log.max())
    widths = choice.bandwidths
    record = {"h": float(np.mean(widths.h)), "h_reward": widths.h_reward, "power": choice.power, "rule": widths.rule}
    return weights / weights.sum(), record


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
