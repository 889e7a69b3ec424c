# %% [markdown]
# # A gridworld, from demonstrations to what acting on the posterior would cost
#
# A notebook as a plain script: editors and Jupytext show the cells that start with `# %%`, and
# `python examples/gridworld.py` runs them all. The tutorial "A gridworld" in docs/ explains each step.

# %% The world, training tasks with known rewards, and an expert whose reward is to be found
import numpy as np

import kdbirl as kb

grid = kb.Gridworld(5, features="xy", discount=0.9)  # a cell at (x, y) pays w.(x, y)
weights = np.random.default_rng(0).uniform(-1, 1, (20, 2))
wanted = [0.8, -0.4]
bank = kb.make_bank(grid, weights, episodes=20, horizon=8, seed=0)
expert = kb.rollout(grid, kb.plan(grid, wanted), episodes=5, horizon=8, seed=1)
print(bank, expert, sep="\n")

# %% The posterior, from the rows alone
model = kb.KDBIRL(prior=kb.Uniform(-1, 1), features=kb.GridCoordinates(5)).fit(bank)
post = model.posterior(expert, seed=0)
print(post.summary())

# %% Can it be trusted?
card = post.report_card()
for name, (colour, sentence) in card.items():
    print(f"{name}: {colour}. {sentence}")

# %% What would an agent lose by acting on it?
evd = kb.evd(post, grid, wanted)
print(evd)

# %% Look
kb.plot_marginals(post, true=wanted)
kb.plot_reward_maps(post, grid, true=wanted)
kb.plot_policy(kb.plan(grid, post.mean()), grid)

# %% The numbers that a test looks at
angle = np.degrees(np.arccos(post.mean() @ wanted / np.linalg.norm(post.mean()) / np.linalg.norm(wanted)))
numbers = {
    "degrees_from_truth": float(angle),
    "lost_by_the_mean": float(evd.of_mean),
    "lost_by_draws": float(evd.mean),
    "green": sum(colour == "green" for colour, _ in card.values()),
}
print(numbers)
