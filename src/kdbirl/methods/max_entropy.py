"""Maximum causal entropy IRL (Ziebart 2010): the one reward whose soft-optimal policy collects the expert's features.

Of all policies that collect what the expert collects it takes the most random one, which is the soft-optimal policy of
some w; that w is found by L-BFGS with exact gradients (`max_entropy_matching`). A point estimate: its `Posterior` has
one draw, and says nothing about uncertainty. It uses no training tasks, and knows the world.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError, did_you_mean
from kdbirl.methods.arguments import (
    is_number,
    require_bank_of,
    state_action_pairs,
    visit_counts,
    whole_seed,
    world_reward_features,
)
from kdbirl.methods.avril_elbo import succession
from kdbirl.posterior.result import Posterior
from kdbirl.progress import Progress
from kdbirl.worlds.dynamics import Dynamics, dynamics_of
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import collected_features, mean_rows, on_one_thread, systems
from kdbirl.worlds.tabular import TabularMDP

# What maximum causal entropy IRL matches, and how well a reward does it: a smooth function of w and its slope.
#
#     F(w) = [ c . V_w - w . f ] / temperature + l2 / 2 |w|^2          V_w: soft-optimal values (`soft_value_iteration`)
#     dF   = [ sum_s c(s) mu_w(s) - f ] / temperature + l2 w          mu_w(s): features that pi_w collects from s on
#
# so that at the minimum the policy collects what the expert did. c is a weight of each state, f a sum of features:
#
#     expectations  c = start distribution,                 f = mu of the expert                     (Ziebart 2010)
#     episodes      c = the episodes' first states,         f = mean_e sum_t discount^t phi(s_t, a_t)
#                   - discount^T P(. | last s, a) of episodes that were cut after T steps: pi_w goes on from there;
#                   given that the episode goes on, where the rows say so
#     rows          c = visits - discount * (where they lead to),  f = sum of phi: then F is -log prod_i pi_w(a_i | s_i)
#
# V_w is convex in w, so F is where no c is negative: always for expectations, and where all episodes end.

TOLERANCE = 1e-10  # of soft-optimal values, relative to their size, before the last step
ITERATIONS = 200
ROUNDING = 1e-9  # of a chance that is 0 or 1


@dataclass(frozen=True, eq=False)
class Matching:
    """c `(n,)` over the live states and f `(q,)`, both per episode.

    doubtful: episodes after whose last row the world may have ended them, where no row says whether it did.
    """

    from_states: Float[np.ndarray, " n"]
    features: Float[np.ndarray, " q"]
    doubtful: int = 0

    @property
    def convex(self) -> bool:
        """Whether the minimum of F is the only one for certain."""
        return bool((self.from_states >= 0).all())


def of_expectations(mdp: TabularMDP, features: Float[np.ndarray, " q"]) -> Matching:
    """Match given feature expectations from the world's own start."""
    return Matching(dynamics_of(mdp).start, features)


def of_episodes(mdp: TabularMDP, expert: Any) -> Matching:
    """Match the discounted features of each episode, from the states where they began."""
    states, actions = state_action_pairs(mdp, expert)
    dynamics, follows = dynamics_of(mdp), succession(expert)
    step, parts = _steps(follows.part), int(follows.part.max()) + 1
    weight = mdp.discount ** step.astype(np.float64) / parts
    here = _live_places(dynamics)[states]
    from_states = np.bincount(here, (step == 0) / parts, minlength=dynamics.n)
    cut = (follows.following < 0) & ~follows.terminated
    after = dynamics.rows[dynamics.row_of[here[cut], actions[cut]]]
    known, chance = _known_to_go_on(expert)[cut], after.sum(axis=1)
    doubtful = ~known & (chance > ROUNDING) & (chance < 1 - ROUNDING)
    after = np.where(known[:, None], _given_no_end(after), after)
    from_states = from_states - mdp.discount * (weight[cut] @ after)
    return Matching(from_states, weight @ mdp.features_of(states, actions), int(doubtful.sum()))


def _known_to_go_on(expert: Demonstrations) -> Bool[np.ndarray, " rows"]:
    """Rows after which the episode is known not to have ended, if they are its last."""
    if expert.terminated is not None:
        return ~expert.terminated
    return np.zeros(expert.n_rows, dtype=bool) if expert.truncated is None else expert.truncated


def _given_no_end(after: Float[np.ndarray, "cut n"]) -> Float[np.ndarray, "cut n"]:
    """Chances of the next live state where the episode goes on: those that it ended are other, terminated rows."""
    going_on = after.sum(axis=1, keepdims=True)
    return np.divide(after, going_on, out=np.zeros_like(after), where=going_on > 0)


def of_rows(mdp: TabularMDP, expert: Any) -> Matching:
    """Make the expert's actions likely, each in its state, wherever the rows come from."""
    states, actions = state_action_pairs(mdp, expert)
    dynamics = dynamics_of(mdp)
    visits = visit_counts(mdp, states, actions)[None] / (int(succession(expert).part.max()) + 1)
    leaving = visits[0].sum(axis=1) - mdp.discount * dynamics.pushed(visits)[0]
    return Matching(leaving, collected_features(dynamics, visits)[0])


def _live_places(dynamics: Dynamics) -> Int[np.ndarray, " S"]:
    places = np.full(dynamics.n_states, -1)
    places[dynamics.live] = np.arange(dynamics.n)
    return places


def _steps(part: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """How many rows of its episode come before each row."""
    order = np.argsort(part, kind="stable")
    step = np.empty(len(part), dtype=np.int64)
    step[order] = np.arange(len(part)) - np.searchsorted(part[order], part[order])
    return step


class SoftOptimum(NamedTuple):
    """`values (n,)`, the policy's `chances (n, A)`, and its system I - discount P_pi `(n, n)`."""

    values: Float[np.ndarray, " n"]
    chances: Float[np.ndarray, "n A"]
    system: Float[np.ndarray, "n n"]


def soft_optimum(
    dynamics: Dynamics, table: Float[np.ndarray, "n A"], temperature: float, guess: Float[np.ndarray, " n"]
) -> SoftOptimum:
    """The fixed point of soft value iteration, and its policy, by Newton's method (soft policy iteration).

    Each step evaluates the softmax policy of the last values, its entropy included, by one linear solve: a handful of
    steps, also with a discount near 1, where sweeps take thousands. The last step squares an error that is small.
    """
    values = guess
    for _ in range(ITERATIONS):
        q_values = table + dynamics.discount * dynamics.expected(values[:, None])[dynamics.row_of][:, :, 0]
        best = q_values.max(axis=1, keepdims=True)
        advantages = (q_values - best) / temperature
        log_sums = np.log(np.exp(advantages).sum(axis=1, keepdims=True))
        better = (best + temperature * log_sums)[:, 0]
        log_chances = advantages - log_sums  # not q - better: with values of 1e9 chances would not sum to one
        chances = np.exp(log_chances)
        size = np.abs(table).max() + temperature + np.abs(better).max()
        near = bool(np.abs(better - values).max() <= TOLERANCE * size)
        system = systems(dynamics, mean_rows(dynamics, chances[None]))[0]
        values = np.linalg.solve(system, (chances * (table - temperature * log_chances)).sum(axis=1))
        if near:
            break
    return SoftOptimum(values, chances, system)


@dataclass(eq=False)
class Objective:
    """F and its slope, with the last values kept: the next w is near, so its values are a few Newton steps away."""

    dynamics: Dynamics
    matching: Matching
    temperature: float
    l2: float
    values: Float[np.ndarray, " n"] = field(init=False)

    def __post_init__(self) -> None:
        self.values = np.zeros(self.dynamics.n)

    def __call__(self, w: Float[np.ndarray, " q"]) -> tuple[float, Float[np.ndarray, " q"]]:
        """F(w), dF(w)."""
        table = self.dynamics.tables(w[None])[:, :, 0]
        self.values, chances, system = soft_optimum(self.dynamics, table, self.temperature, self.values)
        visits = np.linalg.solve(system.T, self.matching.from_states)
        collected = collected_features(self.dynamics, (visits[:, None] * chances)[None])[0]
        gap = self.matching.from_states @ self.values - self.matching.features @ w
        slope = (collected - self.matching.features) / self.temperature + self.l2 * w
        return float(gap / self.temperature + 0.5 * self.l2 * w @ w), slope


MATCHINGS = {"episodes": of_episodes, "rows": of_rows}
STEPS = 2000  # of L-BFGS, at most
SMALL_SLOPE = 1e-5  # of the gradient, relative to the features that are matched


@dataclass(frozen=True, eq=False)
class Found:
    """The weights, and how the search for them ended: the objective there, its steepest component, and what is wanted.

    Values are sums over many steps, so rounding leaves a slope that grows with the features.
    """

    w: Float[np.ndarray, " q"]
    objective: float
    slope: float
    wanted: float
    evaluations: int
    convex: bool
    doubtful: int = 0

    @property
    def converged(self) -> bool:
        return self.slope <= self.wanted

    @property
    def notes(self) -> list[str]:
        """What a reader must know."""
        found = []
        if not self.converged:
            found.append(
                f"The search stopped after {self.evaluations} evaluations where the gradient was still {self.slope:.2g}"
                f" (below {self.wanted:.2g} is wanted): raise l2."
            )
        if not self.convex:
            found.append(
                "Episodes that were cut, or single rows, make the objective one that need not be convex: this is a "
                "minimum near w = 0, perhaps not the only one."
            )
        if self.doubtful:
            found.append(
                f"No row says how {self.doubtful} episode{'s' * (self.doubtful > 1)} ended, and this world ends some "
                'by chance, so w may be far off: give the column terminated, or use match="rows".'
            )
        return found


@dataclass
class MaxCausalEntropy:
    """Maximum causal entropy IRL. `posterior(expert)` has one draw, w; `policy(expert)` is its soft-optimal policy.

    mdp: a kb.TabularMDP without a horizon; its features say what the reward parameters are (one per state, or w.phi).
    l2: weight of |w|^2 / 2 beside the objective of one episode. It must be positive: an expert who never errs would
        have an infinite w. temperature: of the policy; it only sets the scale of w (with l2 / temperature^2 as l2).
    match: "episodes", discounted features of whole episodes, from where these began (a cut one is continued by the
        policy itself; `terminated` says which were not); "rows", the likelihood of each action in its state, for rows
        that are no whole episodes.
    """

    mdp: Any
    l2: Any = 1e-3
    temperature: Any = 1.0
    match: Any = "episodes"

    def __post_init__(self) -> None:
        if not isinstance(self.mdp, TabularMDP):
            raise InputError(
                f"mdp={type(self.mdp).__name__}: maximum entropy plans for every reward it looks at, so it needs a "
                "kb.TabularMDP, such as kb.Gridworld(5)."
            )
        if self.mdp.horizon is not None:
            raise InputError(f"mdp: it has horizon={self.mdp.horizon}; maximum entropy needs a world without one.")
        for name in ("l2", "temperature"):
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < np.inf):
                raise InputError(f"{name}={value!r} should be a positive number.")
        if self.match not in MATCHINGS:
            raise InputError(f"match={self.match!r} is unknown.{did_you_mean(str(self.match), MATCHINGS)}")

    def fit(self, bank: Any, n: Any = None, seed: int = 0, progress: Progress | None = None) -> "MaxCausalEntropy":
        """Nothing is learnt from training tasks; a bank of another world's rewards is refused."""
        require_bank_of(self.mdp, bank)
        return self

    def posterior(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Posterior:
        """w as a `Posterior` of one draw. Nothing is random: the seed is only recorded."""
        seed = whole_seed(seed)
        found = self._search(MATCHINGS[self.match](self.mdp, expert))
        return Posterior(
            draws=found.w[None, None],
            names=self.mdp.feature_names,
            method="MaxCausalEntropy",
            sampler="Point estimate",
            seed=seed,
            sample_stats={"lp": np.array([[-found.objective]])},
            expert_features=np.stack(state_action_pairs(self.mdp, expert), axis=1).astype(np.float64),
            feature_names=("state", "action"),
            expert_episodes=expert.episodes,
            settings=self._settings(found, expert),
            reward_features=world_reward_features(self.mdp, expert),
        )

    def policy(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Policy:
        """The soft-optimal policy of w: as random as the expert was."""
        return self.soft_policy(self._search(MATCHINGS[self.match](self.mdp, expert)).w)

    @on_one_thread
    def soft_policy(self, reward: Any) -> Policy:
        """The policy that the method supposes for a reward (q,)."""
        dynamics, w = dynamics_of(self.mdp), self.mdp.as_rewards(reward)
        table = dynamics.tables(w)[:, :, 0]
        chances = np.full((self.mdp.n_states, self.mdp.n_actions), 1.0 / self.mdp.n_actions)
        chances[dynamics.live] = soft_optimum(dynamics, table, float(self.temperature), np.zeros(dynamics.n)).chances
        return Policy(chances)

    def weights_from(self, feature_expectations: Any) -> Float[np.ndarray, " q"]:
        """w from known feature expectations (q,) of an expert, such as `kb.feature_expectations(mdp, policy)`."""
        mu = self.mdp.as_rewards(feature_expectations)[0]
        return self._search(of_expectations(self.mdp, mu)).w

    @on_one_thread
    def _search(self, matching: Matching) -> Found:
        from scipy.optimize import minimize

        objective = Objective(dynamics_of(self.mdp), matching, float(self.temperature), float(self.l2))
        wanted = SMALL_SLOPE * (1.0 + float(np.abs(matching.features).max()) / float(self.temperature))
        options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 0.0, "gtol": 0.01 * wanted, "maxcor": 30}
        start = np.zeros(self.mdp.n_parameters)
        result = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        slope = float(np.abs(result.jac).max())
        ended = float(result.fun), slope, wanted, int(result.nfev)
        return Found(np.asarray(result.x), *ended, matching.convex, matching.doubtful)

    def _settings(self, found: Found, expert: Demonstrations) -> dict[str, Any]:
        """Everything else that a reader of the result may ask for."""
        from kdbirl.installation import package_versions

        search = {name: value for name, value in asdict(found).items() if name != "w"}
        return {
            "prior": "none",
            "world": self.mdp.describe(),
            "l2": float(self.l2),
            "temperature": float(self.temperature),
            "match": self.match,
            "search": {**search, "converged": found.converged},
            "notes": ["A point estimate: it has no uncertainty.", *found.notes],
            "expert": expert.fingerprint(),
            "versions": package_versions(),
        }
