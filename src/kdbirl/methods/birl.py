"""BIRL: the posterior over a reward from demonstrations of its own task alone (Ramachandran and Amir 2007).

    p(R | expert)  ~  p(R) * prod_i p(a_i | s_i, R)                  (Eq. 1 and 2 of the paper; `birl_likelihood`)

It plans in a known world for every reward that it looks at, and uses no training tasks. The samplers share one density,
with the exact Q*: NUTS follows its gradient, which exists everywhere but on the boundaries between optimal policies;
there the density is continuous with a kink, which costs NUTS some acceptance and no correctness.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import minimize_scalar

from kdbirl._jax import float64
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError, did_you_mean
from kdbirl.likelihood.sums import distinct_rows
from kdbirl.methods.arguments import (
    is_number,
    require_bank_of,
    reward_rows,
    state_action_pairs,
    visit_counts,
    whole_seed,
    world_reward_features,
)
from kdbirl.methods.diagnosed import log_priors
from kdbirl.methods.fitted import drawn_prior
from kdbirl.methods.optimal_values import FORMS, BIRLLikelihood, OptimalValues
from kdbirl.methods.policy_walk import PolicyWalk
from kdbirl.posterior.auto import SAMPLERS, as_sampler
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.target import Draws, Problem, Sampler, Target
from kdbirl.progress import Progress, Silent
from kdbirl.worlds.dynamics import dynamics_of
from kdbirl.worlds.planning import many_action_values
from kdbirl.worlds.policy_value import on_one_thread
from kdbirl.worlds.tabular import TabularMDP

REWARDS_AT_ONCE = 16  # rewards that are planned for together when the likelihood of the draws is written down
BLOCK = 256  # of them in one compiled call


@dataclass
class BIRL:
    """BIRL with all its choices. `posterior(expert, seed=0)` for each test task; `fit(bank)` is accepted, and unused.

    mdp: a kb.TabularMDP without a horizon; its features say what the reward parameters are (one per state, or w.phi).
    prior: over the reward, required. alpha: the inverse temperature of the expert, required (the paper takes 1).
    likelihood: "policy", exp(alpha Q*) normalised over actions; "joint", over states and actions (Eq. 2 of the paper);
        "unnormalized", not at all (as PolicyWalk was published).
    sampler: "auto" (exact grid up to three parameters, else NUTS), "policywalk", "metropolis", "nuts", any other name,
        or a sampler object such as kb.NUTS(chains=4) or kb.PolicyWalk(step=0.1).
    """

    mdp: Any
    prior: Any
    alpha: Any
    likelihood: Any = "policy"
    sampler: Any = "auto"
    optimal_values: OptimalValues = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.mdp, TabularMDP):
            raise InputError(
                f"mdp={type(self.mdp).__name__}: BIRL plans for every reward it looks at, so it needs a kb.TabularMDP, "
                "such as kb.Gridworld(5)."
            )
        if not isinstance(self.prior, Prior):
            raise InputError(f"prior={self.prior!r} is not a prior; give one such as kb.Uniform(0, 1).")
        if not (is_number(self.alpha) and 0 < self.alpha < np.inf):
            raise InputError(f"alpha={self.alpha!r} should be a positive number; the paper takes 1.")
        if self.likelihood not in FORMS:
            raise InputError(f"likelihood={self.likelihood!r} is unknown.{did_you_mean(str(self.likelihood), FORMS)}")
        _sampler(self.sampler)
        self.prior = self.prior.for_parameters(self.mdp.n_parameters, self.mdp.feature_names)
        self.optimal_values = OptimalValues.of(self.mdp)

    def fit(self, bank: Any, n: Any = None, seed: int = 0, progress: Progress | None = None) -> "BIRL":
        """Nothing is learnt from training tasks; a bank of another world's rewards is refused."""
        require_bank_of(self.mdp, bank)
        return self

    def posterior(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Posterior:
        """The posterior over the reward of the task that `expert` demonstrates."""
        pairs = np.stack(state_action_pairs(self.mdp, expert), axis=1)
        seed, progress = whole_seed(seed), progress or Silent()
        likelihood = self._likelihood(pairs)
        draws = self._drawn(likelihood, seed, progress)
        progress.close()
        return self._result(expert, pairs, likelihood, draws, seed)

    @on_one_thread
    @float64
    def log_likelihood(self, expert: Any, rewards: Any) -> Any:
        """sum_i log p(expert row i | R) for each reward (r, q)."""
        table = reward_rows(rewards, self.mdp.feature_names)
        pairs = np.stack(state_action_pairs(self.mdp, expert), axis=1)
        values = _of_rows(self._likelihood(pairs), table, self._places(pairs)).sum(axis=1)
        return values[0] if np.ndim(rewards) == 1 else values

    def _likelihood(self, pairs: Int[np.ndarray, "rows 2"]) -> BIRLLikelihood:
        visits = visit_counts(self.mdp, pairs[:, 0], pairs[:, 1])
        return BIRLLikelihood.of(self.optimal_values, float(self.alpha), visits, self.likelihood)

    def _places(self, pairs: Int[np.ndarray, "rows 2"]) -> Int[np.ndarray, " rows"]:
        """Where the pairs stand in the likelihood's list of all pairs of live states and actions."""
        live = np.full(self.mdp.n_states, -1)
        live[dynamics_of(self.mdp).live] = np.arange(dynamics_of(self.mdp).n)
        return live[pairs[:, 0]] * self.mdp.n_actions + pairs[:, 1]

    @on_one_thread
    @float64
    def _drawn(self, likelihood: BIRLLikelihood, seed: int, progress: Progress) -> Draws:
        problem = Problem(Target.build(self.prior, likelihood), self.prior)
        return _sampler(self.sampler).sample(problem, seed, progress)

    @on_one_thread
    @float64
    def _result(
        self,
        expert: Demonstrations,
        pairs: Int[np.ndarray, "rows 2"],
        likelihood: BIRLLikelihood,
        draws: Draws,
        seed: int,
    ) -> Posterior:
        chains, per_chain, q = draws.draws.shape
        flat = draws.draws.reshape(-1, q)
        distinct, index, counts = distinct_rows(pairs.astype(np.float64))
        pointwise = _of_rows(likelihood, flat, self._places(distinct.astype(np.int64)))
        lp = log_priors(Target.build(self.prior, likelihood), flat) + pointwise @ counts
        return Posterior(
            draws=draws.draws,
            names=self.mdp.feature_names,
            method="BIRL",
            sampler=draws.sampler,
            seed=seed,
            sample_stats={**draws.stats, "lp": lp.reshape(chains, per_chain)},
            prior_draws=drawn_prior(self.prior, seed),
            log_likelihood=pointwise.reshape(chains, per_chain, -1),
            expert_index=index,
            expert_features=pairs.astype(np.float64),
            feature_names=("state", "action"),
            settings=self._settings(expert, draws),
            reward_features=world_reward_features(self.mdp, expert),
        )

    def _settings(self, expert: Demonstrations, draws: Draws) -> dict[str, Any]:
        """Everything else that a reader of the result may ask for."""
        from kdbirl.installation import package_versions

        sampler = _sampler(self.sampler)
        chosen: dict[str, Any] = asdict(sampler)  # type: ignore[call-overload]
        return {
            "prior": self.prior.describe(),
            "world": self.mdp.describe(),
            "alpha": float(self.alpha),
            "likelihood": self.likelihood,
            "action_values": "optimal (hard maximum)",
            "sampler": {"asked": sampler.name, **chosen},
            "sampler_facts": draws.facts,
            "notes": list(draws.notes),
            "expert": expert.fingerprint(),
            "versions": package_versions(),
            **({"pareto_k": draws.facts["pareto_k"]} if "pareto_k" in draws.facts else {}),
        }


def _sampler(sampler: Any) -> Sampler:
    """As every method takes samplers, with PolicyWalk besides."""
    if isinstance(sampler, str) and sampler.lower() == "policywalk":
        return PolicyWalk()
    if isinstance(sampler, str) and sampler.lower() not in SAMPLERS:
        raise InputError(f"There is no sampler called {sampler!r}.{did_you_mean(sampler, (*SAMPLERS, 'policywalk'))}")
    return as_sampler(sampler)


@jax.jit
def _batches(likelihood: BIRLLikelihood, rewards: Array, places: Array) -> Array:
    return jax.lax.map(lambda reward: likelihood.pointwise(reward)[places], rewards, batch_size=REWARDS_AT_ONCE)


def _of_rows(
    likelihood: BIRLLikelihood, rewards: Float[np.ndarray, "r q"], places: Int[np.ndarray, " u"]
) -> Float[np.ndarray, "r u"]:
    """log p of the rows at `places` for many rewards, in blocks of one size: one program is compiled."""
    wide = 2 ** int(np.ceil(np.log2(max(len(places), 1))))
    index = jnp.asarray(np.concatenate([places, np.repeat(places[-1:], wide - len(places))]))
    padded = np.concatenate([rewards, np.repeat(rewards[-1:], -len(rewards) % BLOCK, axis=0)])
    parts = [_batches(likelihood, jnp.asarray(part), index) for part in padded.reshape(-1, BLOCK, rewards.shape[1])]
    return np.concatenate([np.asarray(part) for part in parts])[: len(rewards), : len(places)]


# How rational are demonstrators? BIRL's inverse temperature from training tasks, whose rewards are known.
#
#     alpha = argmax_alpha  sum_k sum_{i in task k}  log [ exp(alpha Q*_k(s_i, a_i)) / sum_b exp(alpha Q*_k(s_i, b)) ]
#
# The sum is concave in alpha. Demonstrators who never err have no finite maximum: the largest allowed alpha is taken.

SMALLEST, LARGEST = 1e-3, 1e3


def likeliest_alpha(mdp: TabularMDP, bank: Any, largest: float = LARGEST) -> float:
    """The inverse temperature under which the bank's own actions are the likeliest, from 0.001 to `largest`."""
    if not isinstance(bank, TaskBank):
        raise InputError(f"likeliest_alpha needs a TaskBank, not {type(bank).__name__}: see kb.read_task_bank.")
    advantages, chosen = _advantages(mdp, bank)

    def surprise(log_alpha: float) -> float:
        scaled = np.exp(log_alpha) * advantages
        return float(np.log(np.exp(scaled).sum(axis=1)).sum() - np.exp(log_alpha) * chosen.sum())

    bounds = np.log(SMALLEST), np.log(largest)
    found = minimize_scalar(surprise, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    best = min((surprise(bounds[1]), bounds[1]), (float(found.fun), float(found.x)))[1]
    return float(np.exp(best))


def _advantages(mdp: TabularMDP, bank: TaskBank) -> tuple[Float[np.ndarray, "m A"], Float[np.ndarray, " m"]]:
    """Q* - max Q* of every action in the state of each row, under its task's reward; and of the action taken."""
    tables = many_action_values(mdp, bank.rewards)
    tables = tables - tables.max(axis=2, keepdims=True)
    states, actions = state_action_pairs(mdp, bank.demonstrations)
    rows = tables[bank.tasks, states]
    return rows, rows[np.arange(len(rows)), actions]
