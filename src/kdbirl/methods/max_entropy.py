"""Maximum causal entropy IRL (Ziebart 2010): the one reward whose soft-optimal policy collects the expert's features.

Of all policies that collect what the expert collects it takes the most random one, which is the soft-optimal policy of
some w; that w is found by L-BFGS with exact gradients (`max_entropy_matching`). A point estimate: its `Posterior` has
one draw, and says nothing about uncertainty. It uses no training tasks, and knows the world.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import Demonstrations
from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError, did_you_mean
from kdbirl.methods.arguments import is_number, require_bank_of, whole_seed
from kdbirl.methods.max_entropy_matching import Matching, Objective, of_episodes, of_expectations, of_rows, soft_optimum
from kdbirl.methods.reward_features import world_reward_features
from kdbirl.methods.tabular_expert import state_action_pairs
from kdbirl.planners.dynamics import dynamics_of
from kdbirl.planners.linear_solve import on_one_thread
from kdbirl.planners.policy import Policy
from kdbirl.posterior.result import Posterior
from kdbirl.progress import Progress

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
