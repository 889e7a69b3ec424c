"""Double precision in our own computations although JAX's global switch is, and stays, off."""

import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl._jax import float64
from kdbirl.likelihood.bandwidths import RULES, by_rule, pair_distances
from kdbirl.likelihood.ckde import log_reward_kernel, reward_kernel_range
from kdbirl.likelihood.distances import euclidean
from kdbirl.likelihood.sums import task_log_sums

from .problems import BOX, estimator, named, problem

GAUSSIAN, LAPLACE = named("gaussian", "euclidean"), named("laplace", "euclidean")
OF = problem(seed=31)
CKDE = estimator(OF, LAPLACE, LAPLACE)
H = np.array([0.7])

CALLS: dict[str, Callable[[], object]] = {
    "likelihood": lambda: jax.tree.leaves(CKDE.likelihood(OF.expert, H, 0.5, BOX)),
    "likelihood (log sums)": lambda: jax.tree.leaves(CKDE.likelihood(OF.expert, H, 0.5, BOX, matrix_form=False)),
    "kernel sums": lambda: [task_log_sums(OF.expert, CKDE.rows, CKDE.weights, CKDE.tasks, 3, CKDE.kernel, H)],
    "reward kernel": lambda: [log_reward_kernel(LAPLACE, OF.asked, OF.rewards, H)],
    "distances": lambda: [pair_distances(OF.rows, euclidean)],
    "range": lambda: [np.asarray(reward_kernel_range(LAPLACE, OF.rewards, 0.5, BOX))],
    **{rule: lambda rule=rule: [by_rule(rule, CKDE).h, np.asarray(by_rule(rule, CKDE).h_reward)] for rule in RULES},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_float64_outside_of_any_scope(call: Callable[[], list]) -> None:
    """Types and digits are those of a computation inside the scope."""
    assert not jax.config.jax_enable_x64
    outside = call()
    assert not jax.config.jax_enable_x64
    assert jnp.asarray(1.0).dtype == jnp.float32
    with jax.enable_x64(True):
        inside = call()
    assert {str(result.dtype) for result in outside} == {"float64"}
    for ours, theirs in zip(map(np.asarray, outside), map(np.asarray, inside), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        fractions = ours[ours != np.round(8 * ours) / 8]
        assert not len(fractions) or (fractions != fractions.astype(np.float32)).any()  # beyond single precision


def test_the_scope_ends_with_the_call_even_when_it_fails() -> None:
    @float64
    def fails() -> None:
        assert jax.config.jax_enable_x64
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fails()
    assert not jax.config.jax_enable_x64


def test_the_scope_is_that_of_the_thread() -> None:
    seen: list[bool] = []

    @float64
    def look_elsewhere() -> bool:
        """What another thread, the user's own, sees meanwhile."""
        thread = threading.Thread(target=lambda: seen.append(bool(jax.config.jax_enable_x64)))
        thread.start()
        thread.join()
        return bool(jax.config.jax_enable_x64)

    assert look_elsewhere()
    assert seen == [False]
    assert look_elsewhere.__name__ == "look_elsewhere"
