"""The paper's conditional kernel density estimate of p(s, a | R) (Eq. 5), compressed exactly by task.

With S[i, k] = log sum_{j in task k} K_h(x_i, x_j) and b_k(R) = log K'(d_r(R, R_k) / h'),

    log p(x_i | R) = LSE_k( S[i, k] + b_k(R) ) - LSE_k( log n_k + b_k(R) ),

equal to the double sum over training rows. One evaluation costs n*K, whatever the number of training rows. Both terms
are mixtures over tasks (`TaskMixture`), evaluated as one matrix-vector product where that cannot underflow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.likelihood.distances import cosine, euclidean, manhattan
from kdbirl.likelihood.kernels import PROFILES, PairKernel, RadialKernel, SimpleKernel
from kdbirl.likelihood.large_sums import AllRows
from kdbirl.likelihood.sums import collapse_by_task, distinct_rows, log_sum_exp, padded_size, rounded_up, task_log_sums
from kdbirl.progress import Progress

REWARDS_AT_ONCE = 16  # rewards whose pointwise likelihoods are computed together
LARGEST_SAFE_RANGE = 650.0  # XLA's exp is zero from e^-708 down: what is lost is below e^-58 of a sum of e^-650

Conditional = Literal["state-action", "action"]
TaskWeights = Literal["rows", "equal"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TaskMixture:
    """log sum_k exp(table[i, k] + b_k) for every row i.

    In matrix form `table` holds exp(table - offset), so that an evaluation is log(table @ exp(b)), one product with K
    exponentials; otherwise it holds the logs themselves, and `offset` is zero.
    """

    table: Float[Array, "u K"]
    offset: Float[Array, " u"]
    matrix_form: bool = field(metadata={"static": True})

    def __call__(self, b: Float[Array, " K"]) -> Float[Array, " u"]:
        if not self.matrix_form:
            return log_sum_exp(self.table + b[None, :], axis=1)
        largest = jax.lax.stop_gradient(jnp.max(b))
        largest = jnp.where(jnp.isfinite(largest), largest, 0.0)  # R out of reach of every task
        total = self.table @ jnp.exp(b - largest)
        positive = total > 0
        logs = jnp.log(jnp.where(positive, total, 1.0)) + self.offset + largest
        return jnp.where(positive, logs, -jnp.inf)

    @classmethod
    def from_logs(cls, logs: Float[np.ndarray, "u K"], matrix_form: bool) -> "TaskMixture":
        """The mixture of a table of logs, of which every row has a finite entry."""
        offset = logs.max(axis=1)
        if matrix_form:
            return cls(jnp.asarray(np.exp(logs - offset[:, None])), jnp.asarray(offset), True)
        return cls(jnp.asarray(logs), jnp.zeros(len(logs)), False)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CKDELikelihood:
    """log p(expert rows | R) as a function of R alone: what a sampler sees.

    `counts (u,)` says how often each distinct expert row occurs; padding rows have count zero.
    """

    numerator: TaskMixture
    denominator: TaskMixture
    counts: Float[Array, " u"]
    task_rewards: Float[Array, "K q"]
    h_reward: Float[Array, ""]
    reward_kernel: SimpleKernel = field(metadata={"static": True})

    def pointwise(self, reward: Float[Array, " q"]) -> Float[Array, " u"]:
        """log p(x_i | R) of each distinct expert row, up to the constant of K_h; -inf where R is out of reach."""
        b = jax.vmap(self.reward_kernel.log, (None, 0, None))(reward, self.task_rewards, self.h_reward)
        numerator, denominator = self.numerator(b), self.denominator(b)
        inside = jnp.isfinite(numerator) & jnp.isfinite(denominator)
        return jnp.where(inside, jnp.where(inside, numerator, 0.0) - jnp.where(inside, denominator, 0.0), -jnp.inf)

    def __call__(self, reward: Float[Array, " q"]) -> Float[Array, ""]:
        """sum_i log p(x_i | R)."""
        return jnp.sum(jnp.where(self.counts > 0, self.counts * self.pointwise(reward), 0.0))


@dataclass(frozen=True)
class CKDE:
    """The training rows as the estimator needs them: distinct rows with weights, sorted by task.

    `state_columns` are the feature columns of the state alone, for `conditional="action"`: p(a | s, R), which does
    not mind where the expert's episodes start. Where there are `all_rows`, `rows` are only a sample of them, each with
    the number of rows that it stands for, and tables of kernel sums are those of all rows.
    """

    rows: Float[np.ndarray, "m d"]
    weights: Float[np.ndarray, " m"]
    tasks: Int[np.ndarray, " m"]
    task_rewards: Float[np.ndarray, "K q"]
    kernel: PairKernel
    reward_kernel: SimpleKernel
    conditional: Conditional = "state-action"
    task_weights: TaskWeights = "rows"
    state_columns: tuple[int, ...] = ()
    all_rows: AllRows | None = None

    @classmethod
    def from_rows(
        cls,
        rows: Float[np.ndarray, "u d"],
        tasks: Int[np.ndarray, " m"],
        task_rewards: Float[np.ndarray, "K q"],
        kernel: PairKernel,
        reward_kernel: SimpleKernel,
        conditional: Conditional = "state-action",
        task_weights: TaskWeights = "rows",
        state_columns: tuple[int, ...] = (),
        index: Int[np.ndarray, " m"] | None = None,
    ) -> "CKDE":
        """Collapse identical rows of each task; with an index, row j of the bank is `rows[index[j]]`."""
        distinct, weights, of_task = collapse_by_task(rows, tasks, index)
        kernels = kernel, reward_kernel, conditional, task_weights, state_columns
        return cls(distinct, weights, of_task, task_rewards, *kernels)

    @property
    def n_tasks(self) -> int:
        """K."""
        return len(self.task_rewards)

    @property
    def rows_per_task(self) -> Float[np.ndarray, " K"]:
        """n_k: the weight of each task's rows."""
        if self.all_rows is not None:
            return self.all_rows.rows_per_task.astype(np.float64)
        return np.bincount(self.tasks, weights=self.weights, minlength=self.n_tasks)

    @property
    def in_memory(self) -> "CKDE":
        """The estimator of the rows that it holds: itself, or that of a sample, for searches over bandwidths."""
        return self if self.all_rows is None else replace(self, all_rows=None)

    def task_log_sums(
        self,
        expert: Float[np.ndarray, "u c"],
        kernel: PairKernel,
        h: Float[np.ndarray, " parts"],
        columns: tuple[int, ...],
        progress: Progress | None = None,
    ) -> Float[np.ndarray, "u K"]:
        """S of expert rows on some feature columns, over all training rows."""
        if self.all_rows is not None:
            return self.all_rows.task_log_sums(expert, kernel, h, columns, progress)
        rows = self.rows[:, list(columns)]
        return task_log_sums(expert, rows, self.weights, self.tasks, self.n_tasks, kernel, h, progress)

    @float64
    def likelihood(
        self,
        expert: Float[np.ndarray, "n d"],
        h: Float[np.ndarray, " parts"],
        h_reward: float,
        box: tuple[np.ndarray, np.ndarray],
        matrix_form: bool | None = None,
        progress: Progress | None = None,
    ) -> CKDELikelihood:
        """The likelihood of expert feature rows. `box` is where R will be asked for, and decides the form."""
        if expert.shape[1] != self.rows.shape[1]:
            raise InputError(f"The expert has {expert.shape[1]} features, but the bank has {self.rows.shape[1]}.")
        values, index, counts = distinct_rows(expert)
        numerator, denominator = self.tables(values, h, progress)
        reached = np.isfinite(numerator).any(axis=1) & np.isfinite(denominator).any(axis=1)
        if not reached.all():
            raise InputError(self.out_of_reach(np.flatnonzero(~reached[index]), h))
        form = self.matrix_form_is_safe(numerator, denominator, h_reward, box) if matrix_form is None else matrix_form
        missing = padded_size(len(values)) - len(values)
        return CKDELikelihood(
            TaskMixture.from_logs(_padded(numerator, missing), form),
            TaskMixture.from_logs(denominator if len(denominator) == 1 else _padded(denominator, missing), form),
            jnp.asarray(np.concatenate([counts, np.zeros(missing)])),
            jnp.asarray(self.task_rewards),
            jnp.asarray(h_reward, dtype=float),
            self.reward_kernel,
        )

    def tables(
        self, rows: Float[np.ndarray, "u d"], h: Float[np.ndarray, " parts"], progress: Progress | None = None
    ) -> tuple[Float[np.ndarray, "u K"], Float[np.ndarray, "v K"]]:
        """The logs that the two mixtures are made of; the denominator has one row where it is the same for all."""
        numerator = self._sums(rows, self.kernel, h, tuple(range(rows.shape[1])), progress)
        return numerator, self._denominator(rows, h, progress)

    def informed_directions(self) -> Float[np.ndarray, "rank q"] | None:
        """Orthonormal rows spanning the reward directions that the likelihood can see; None where no form is known.

        For a Gaussian on Euclidean distance the likelihood depends on R only through R.(R_k - mean): an SVD.
        """
        if self.reward_kernel != RadialKernel("gaussian", euclidean):
            return None
        centred = self.task_rewards - self.task_rewards.mean(axis=0)
        _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
        scale = max(float(np.abs(self.task_rewards).max()), np.finfo(float).tiny)
        return np.asarray(directions[sizes > 1e-10 * scale * np.sqrt(len(centred))])

    def _sums(
        self, expert: np.ndarray, kernel: PairKernel, h: np.ndarray, columns: tuple[int, ...], progress: Progress | None
    ) -> np.ndarray:
        """S (u, K) on some feature columns, with the tasks weighted as asked."""
        table = self.task_log_sums(expert[:, list(columns)], kernel, h, columns, progress)
        return table - np.log(self.rows_per_task)[None, :] if self.task_weights == "equal" else table

    def _denominator(self, expert: np.ndarray, h: np.ndarray, progress: Progress | None) -> np.ndarray:
        """log n_k (1, K) for the joint density, or the state's own sums (u, K) for p(a | s, R)."""
        if self.conditional == "state-action":
            logs = np.zeros(self.n_tasks) if self.task_weights == "equal" else np.log(self.rows_per_task)
            return logs[None, :]
        kernel, kept = self.kernel.restricted(self.state_columns)
        return self._sums(expert, kernel, h[kept], self.state_columns, progress)

    def matrix_form_is_safe(
        self, numerator: np.ndarray, denominator: np.ndarray, h_reward: float, box: tuple[np.ndarray, np.ndarray]
    ) -> bool:
        """Whether exp cannot underflow: either the table or b(R) spans less than a double's range.

        sum_k exp(table_k - max) exp(b_k - max) is at least exp(-range) if *one* of the two ranges is small.
        """
        return tables_are_narrow(numerator, denominator) or self.rewards_are_narrow(h_reward, box)

    def rewards_are_narrow(self, h_reward: float, box: tuple[np.ndarray, np.ndarray]) -> bool:
        """Whether b(R) spans less than a double's range for R in the box."""
        return reward_kernel_range(self.reward_kernel, self.task_rewards, h_reward, box) < LARGEST_SAFE_RANGE

    def out_of_reach(self, rows: np.ndarray, h: np.ndarray) -> str:
        shown = ", ".join(str(r + 1) for r in rows[:5]) + (", ..." if len(rows) > 5 else "")
        widths = ", ".join(f"{value:g}" for value in h)
        cure = "Use a wider h, a kernel without an edge (gaussian or laplace), or leave these rows out."
        if not any(part.kernel.compact for part in self.kernel.parts):
            cure = "This kernel has no edge: these rows have numbers beyond all others. Check them, or leave them out."
        return (
            f"No training row is within reach of expert row {shown} ({len(rows)} in all): the kernel is zero there for "
            f"h = {widths}. {cure}"
        )


def tables_are_narrow(*tables: Float[np.ndarray, "_ K"]) -> bool:
    """Whether every row of the tables spans less than a double's range."""
    return max(float((table.max(axis=1) - table.min(axis=1)).max()) for table in tables) < LARGEST_SAFE_RANGE


def _padded(table: np.ndarray, missing: int) -> np.ndarray:
    return np.concatenate([table, np.repeat(table[-1:], missing, axis=0)])


@float64
def reward_kernel_range(
    kernel: SimpleKernel, task_rewards: Float[np.ndarray, "K q"], h: float, box: tuple[np.ndarray, np.ndarray]
) -> float:
    """An upper bound of max_k b_k(R) - min_k b_k(R) for R in the box."""
    low, high = (np.asarray(side, dtype=float) for side in box)
    smallest, largest = task_rewards.min(axis=0), task_rewards.max(axis=0)
    reach = np.maximum(high - smallest, largest - low)  # how far R can be from a training reward, per parameter
    if not isinstance(kernel, RadialKernel) or kernel.compact:
        return float("inf")
    if kernel == RadialKernel("gaussian", euclidean):  # b is linear in R up to a shared term
        differs = largest > smallest  # a parameter that all tasks share says nothing, even where R is unbounded
        return float(np.sum((largest - smallest)[differs] * reach[differs]) / h**2)
    furthest = {euclidean: float(np.linalg.norm(reach)), manhattan: float(np.sum(reach)), cosine: 2.0}
    if kernel.distance not in furthest:
        return float("inf")
    return float(-PROFILES[kernel.profile](jnp.asarray(furthest[kernel.distance] / h)))


@jax.jit
def _pointwise_batches(likelihood: CKDELikelihood, rewards: Array) -> Array:
    return jax.lax.map(likelihood.pointwise, rewards, batch_size=REWARDS_AT_ONCE)


def pointwise_of(likelihood: CKDELikelihood, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r u"]:
    """log p(x_i | R) of each distinct expert row for many rewards, padded to few sizes so that little is compiled."""
    if not len(rewards):
        return np.zeros((0, likelihood.counts.shape[0]))
    size = max(REWARDS_AT_ONCE, 2 ** int(np.ceil(np.log2(len(rewards)))))
    padded = np.concatenate([rewards, np.repeat(rewards[-1:], size - len(rewards), axis=0)])
    return np.asarray(_pointwise_batches(likelihood, jnp.asarray(padded)))[: len(rewards)]


# log K'(R, R_k) for many rewards at once.


@float64
def log_reward_kernel(
    kernel: SimpleKernel, rewards: Float[np.ndarray, "r q"], task_rewards: Float[np.ndarray, "K q"], h: np.ndarray
) -> Float[np.ndarray, "candidates r K"]:
    """log K'(R, R_k) for each bandwidth, reward and task."""
    return np.asarray(_table(jnp.asarray(rewards), jnp.asarray(task_rewards), jnp.asarray(h), kernel))


@partial(jax.jit, static_argnames="kernel")
def _table(
    rewards: Float[Array, "r q"], task_rewards: Float[Array, "K q"], h: Float[Array, " c"], kernel: SimpleKernel
) -> Float[Array, "c r K"]:
    of_pair = jax.vmap(jax.vmap(kernel.log, (None, 0, None)), (0, None, None))
    table: Array = jax.lax.map(lambda width: of_pair(rewards, task_rewards, width), h)
    return table


# The likelihoods of many experts over one bank: one table of kernel sums over all their distinct rows.

SIZE_BITS = 4  # leading bits of a table's number of rows: few sizes are compiled, padding is an eighth at most


@float64
def likelihood_of_each(
    ckde: CKDE,
    experts: Mapping[str, Float[np.ndarray, "n d"]],
    h: Float[np.ndarray, " parts"],
    h_reward: float,
    box: tuple[np.ndarray, np.ndarray],
    progress: Progress | None = None,
) -> Callable[[str], CKDELikelihood]:
    """As `CKDE.likelihood` of each by its name, with one call of the kernel sums; padded to few sizes.

    What is the bank's is the same array in all of them; what is an expert's own is another one at every call.
    """
    values, index, _ = distinct_rows(np.concatenate(list(experts.values())))
    numerator, denominator = ckde.tables(values, h, progress)
    reached = np.isfinite(numerator).any(axis=1) & np.isfinite(denominator).any(axis=1)
    ends = np.cumsum([len(rows) for rows in experts.values()])
    places = dict(zip(experts, np.split(index, ends[:-1]), strict=True))
    for name, own in places.items():
        if not reached[own].all():
            raise InputError(f"Test task {name!r}: {ckde.out_of_reach(np.flatnonzero(~reached[own]), h)}")
    joint = ckde.conditional == "state-action"
    rewards, width = jnp.asarray(ckde.task_rewards), jnp.asarray(h_reward, dtype=float)
    narrow_rewards = cache(lambda: ckde.rewards_are_narrow(h_reward, box))
    shared = cache(lambda form: TaskMixture.from_logs(denominator, form))

    def likelihood(name: str) -> CKDELikelihood:
        rows, counts = np.unique(places[name], return_counts=True)
        missing = rounded_up(len(rows), SIZE_BITS) - len(rows)
        padded = np.concatenate([rows, np.repeat(rows[-1:], missing)])
        own = numerator[padded], denominator if joint else denominator[padded]
        form = tables_are_narrow(*own) or narrow_rewards()  # by the task's own rows, whatever its company
        return CKDELikelihood(
            TaskMixture.from_logs(own[0], form),
            shared(form) if joint else TaskMixture.from_logs(own[1], form),
            jnp.asarray(np.concatenate([counts.astype(float), np.zeros(missing)])),
            rewards,
            width,
            ckde.reward_kernel,
        )

    return likelihood
