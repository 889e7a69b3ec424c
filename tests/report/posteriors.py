"""Posteriors made by hand, for what is done with one: pages, run directories, text."""

import numpy as np

from kdbirl.posterior.result import Posterior


def posterior(names=("w_x", "w_y"), shape=(4, 250), sampler="Grid", **fields):
    """Independent normal draws, with everything that a method would put beside them."""
    rng, q = np.random.default_rng(0), len(names)
    given = {
        "draws": rng.normal(size=(*shape, len(names))),
        "names": tuple(names),
        "method": "KDBIRL",
        "sampler": sampler,
        "seed": 3,
        "sample_stats": {"lp": rng.normal(size=shape)},
        "prior_draws": rng.normal(size=(1000, q)),
        "expert_features": np.ones((5, 2)),
        "feature_names": ("x", "y"),
        "task_rewards": np.arange(3.0 * q).reshape(3, q),
        "task_names": ("a", "b", "c"),
        "task_rows": np.array([4, 5, 6]),
        "h": 0.5,
        "h_reward": 0.4,
        "bandwidth_rule": "given",
        "settings": {"prior": "normal:0,1", "features": "Identity", "notes": ["independent draws"]},
    }
    return Posterior(**given | fields)
