# %% [markdown]
# # Is my posterior good?
#
# A notebook as a plain script. The same question is asked of two posteriors from the same rows: one with bandwidths
# that leave-one-task-out chose, one with bandwidths that are far too narrow. Held-out tasks tell them apart.

# %% Tasks whose behaviour depends smoothly on their reward, and an expert
import numpy as np

import kdbirl as kb

rng = np.random.default_rng(0)
rewards = rng.uniform(-1, 1, (24, 2))
tasks = np.repeat(np.arange(24), 40)
bank = kb.TaskBank.from_arrays(
    states=rewards[tasks] + rng.normal(0, 0.6, (len(tasks), 2)),
    actions=None,
    tasks=tasks,
    rewards=rewards,
    state_names=["x", "y"],
    reward_names=["w_x", "w_y"],
)
expert = kb.Demonstrations(states=rng.normal([0.5, -0.5], 0.6, (30, 2)), state_names=["x", "y"])

# %% Two models
prior = kb.Uniform(-1, 1)
models = {
    "loto": kb.KDBIRL(prior=prior).fit(bank),
    "too narrow": kb.KDBIRL(prior=prior, bandwidth=(0.1, 0.05), power=1.0).fit(bank),
}

# %% What the tasks inform, and how often 90 % intervals hold the known reward of a task that was left out
found = {name: model.calibration(n=expert.n_rows) for name, model in models.items()}
for name, calibration in found.items():
    print(name, models[name].identifiability().sentence, *calibration.describe(), sep="\n  ")
    kb.plot_calibration(calibration)

# %% Would another choice give another answer?
moved = models["loto"].sensitivity(expert)
print("\n".join(moved.describe()))
kb.plot_sensitivity(moved)

# %% The numbers that a test looks at
covered = {name: float(calibration.headline[1]) for name, calibration in found.items()}
numbers = {
    "covered_by_loto": covered["loto"],
    "covered_by_too_narrow": covered["too narrow"],
    "largest_shift": abs(moved.largest[2]),
}
print(numbers)
