"""Sepsis with learnt features, end to end. Synthetic or tabular patients: not for clinical use.

1. Randomly treated patients of `SepsisSim`; a VAE learns three features phi(s, a) from them.
2. One network learns the policies of all rewards w.phi; a patient's stay under two of them.
3. In `ICUSepsis`, with a phi learnt there: training tasks, an expert whose reward is hidden, the posterior, its EVD.

`python examples/sepsis.py --out sepsis-run` writes the pictures of docs/sepsis.md; `--quick` takes small networks.
"""

# %% Everything that it needs
import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import kdbirl as kb

TRUE = np.array([0.7, -0.6, 0.4])  # of the expert in part 3
TASKS = 20


# %% 1. Features that a VAE learns
def learn_features(out: Path, quick: bool) -> tuple[kb.SepsisSim, kb.VAE, dict[str, float]]:
    """The simulator with stays of 18 steps, so that no weight can pay for an early death, and phi."""
    world = kb.SepsisSim(memory=False, ending="never")
    rows, new = (kb.rollout(world, "random", episodes=100 if quick else 1500, horizon=18, seed=s) for s in (0, 1))
    phi = kb.VAE(steps=500 if quick else 20_000).fit(rows)
    found, plain = kb.diagnose_latents(phi, new), kb.diagnose_latents(kb.PCA(3).fit(rows), new)
    print(phi.course.sentence, found.sentence, sep="\n")
    kb.plot_latents(found, phi.course).savefig(out / "sepsis-latents.png", dpi=150)
    kept = {"vae_kept": found.r_squared, "pca_kept": plain.r_squared, "action_control": found.total_control}
    return world, phi, kept | {"collapsed": len(found.collapsed)}


# %% 2. One patient under two rewards
def treat(out: Path, world: kb.SepsisSim, phi: kb.VAE, quick: bool) -> dict[str, float]:
    """The same patient under the policies of two rewards, which are each other's opposite."""
    simulator = world.with_features(kb.in_jax(phi, world.n_actions), names=phi.names)
    small = {"hidden": (32, 32), "updates": 1000, "evaluate_every": 500}
    policies = kb.DeepQ(**small if quick else {}).plan_conditioned(simulator, kb.Uniform(-1, 1), seed=0)
    weights = {"w = (1, 1, 1)": np.ones(3), "w = (-1, -1, -1)": -np.ones(3)}
    stays = {
        name: kb.rollout(simulator, policies.policy(w), episodes=20, horizon=18, seed=3) for name, w in weights.items()
    }
    kb.plot_patient(stays).savefig(out / "sepsis-patient.png", dpi=150)
    first, second = (phi(rows).sum(axis=1).mean() for rows in stays.values())
    return {"phi_wanted": float(first), "phi_unwanted": float(second)}


# %% 3. A hidden reward, in the world of real patients' dynamics
def infer(out: Path, quick: bool) -> dict[str, float]:
    """Training tasks and 100 rows of an expert in the world of real patients' dynamics.

    The learnt phi hardly knows the treatment, so the kernel sees fluid and vasopressor beside it.
    """
    world = kb.ICUSepsis(kb.PCA(3) if quick else kb.VAE())
    bank = kb.make_bank(world, np.random.default_rng(0).uniform(-1, 1, (TASKS, 3)), episodes=60, horizon=20, seed=0)
    expert = kb.rollout(world, kb.plan(world, TRUE), episodes=20, horizon=20, seed=1).take(slice(100))
    phi = kb.Function(world.features_of, names=world.feature_names) + kb.Function(levels, names=("fluid", "drug"))
    post = kb.KDBIRL(prior=kb.Uniform(-1, 1), features=phi).fit(bank).posterior(expert, seed=0)
    kb.plot_marginals(post, true=TRUE).savefig(out / "sepsis-posterior.png", dpi=150)
    mean, before = (float(kb.evd(draws, world, TRUE).mean) for draws in (post.flat[::40], post.prior_draws[:100]))
    return {"evd": mean, "prior_evd": before}


def levels(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Fluid and vasopressor, 0 to 2."""
    return np.column_stack(np.divmod(actions, 5)) / 2


def main(out: Path, quick: bool = False) -> dict[str, float]:
    """Run the example; gives its numbers."""
    out.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"figure.max_open_warning": 0}):
        world, phi, numbers = learn_features(out, quick)
        numbers |= treat(out, world, phi, quick) | infer(out, quick)
    plt.close("all")
    for name, value in numbers.items():
        print(f"{name}: {value:.4g}")
    return numbers


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("sepsis-run"))
    parser.add_argument("--quick", action="store_true", help="small networks, for a look and for tests")
    choices = parser.parse_args()
    main(choices.out, choices.quick)
