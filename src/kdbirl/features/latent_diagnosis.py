"""What learnt features are worth: which latents are used, how much they keep of the inputs, what the action controls.

A collapsed latent is the same for every row (its KL is 0): distances do not see it, and its weight in w . phi cannot be
learnt. A phi on which the action has no hold makes rewards w . phi(s, a) that differ only through where actions lead.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.features.autoencoder import kl_to_standard_normal
from kdbirl.features.base import FeatureMap, Features
from kdbirl.features.maps import Fixed
from kdbirl.features.pca import Inputs, LatentMap
from kdbirl.features.vae import VAE
from kdbirl.random_streams import stream

COLLAPSED = 0.01  # variance of a latent's mean below which it is no active unit (Burda, Grosse and Salakhutdinov 2016)
LITTLE = 0.01  # share of the variance that is called hardly any

PerLatent = Float64[np.ndarray, " latents"]


@dataclass(frozen=True, eq=False)
class LatentDiagnosis:
    """One number a latent, but for the reconstruction.

    variance: of phi over the rows. kl: mean of KL(q(z|s,a) || N(0,1)) in nats; None for PCA.
    r_squared: share of all inputs' variance that the reconstruction keeps; input_r_squared: of each (NaN if constant).
    correlations (latents, inputs): of each latent with each input, which tells what it stands for.
    action_share: share of phi's variance explained by the action in these rows, where actions may follow the state:
        the adjusted R^2 of phi on the action (on its columns, if it is a vector).
    action_control: the share that changing the action changes, were it drawn whatever the state: with a, a' drawn from
        the rows' actions, E[(phi(s,a) - phi(s,a'))^2] / 2 Var[phi(s,a)] (Sobol's total index, Jansen's estimate).
    Both are None where there are no actions.
    """

    names: tuple[str, ...]
    input_names: tuple[str, ...]
    rows: int
    variance: PerLatent
    kl: PerLatent | None
    r_squared: float
    input_r_squared: Float64[np.ndarray, " inputs"]
    correlations: Float64[np.ndarray, "latents inputs"]
    action_share: PerLatent | None
    action_control: PerLatent | None

    @property
    def active(self) -> Bool[np.ndarray, " latents"]:
        """Which latents are used."""
        return np.asarray(self.variance >= COLLAPSED)

    @property
    def collapsed(self) -> tuple[str, ...]:
        """The names of the latents that are not."""
        return tuple(name for name, active in zip(self.names, self.active, strict=True) if not active)

    @property
    def total_control(self) -> float | None:
        """The action's control over all of phi: of the sum of the latents' variances."""
        if self.action_control is None or not self.variance.sum() > 0:
            return None
        return float(self.action_control @ self.variance / self.variance.sum())

    @property
    def sentence(self) -> str:
        """The findings in words."""
        kept = (
            f"{len(self.names)} features keep {self.r_squared:.1%} of the variance of {len(self.input_names)} inputs."
        )
        return " ".join([kept, self._use_in_words(), *self._control_in_words()])

    def _use_in_words(self) -> str:
        if not self.collapsed:
            return "All are in use."
        which = f"{', '.join(self.collapsed)} {'is' if len(self.collapsed) == 1 else 'are'} collapsed"
        return f"{which} (the same for all rows): take fewer latents, or a smaller kl_weight."

    def _control_in_words(self) -> list[str]:
        if self.total_control is None:
            return []
        told = f"The action controls {self.total_control:.1%} of their variance."
        hint = " That is hardly any: action_weight=3, or phi + kb.OneHotActions(), makes features speak of the action."
        return [told + hint * (self.total_control < LITTLE)]

    def describe(self) -> list[str]:
        """Lines for a terminal: the sentence, then one line a latent."""
        return [self.sentence, *(self._line(i) for i in range(len(self.names)))]

    def _line(self, i: int) -> str:
        strongest = np.argsort(-np.abs(self.correlations[i]))[:3]
        like = ", ".join(f"{self.input_names[j]} {self.correlations[i, j]:+.2f}" for j in strongest)
        kl = "" if self.kl is None else f", KL {self.kl[i]:.2f}"
        action = "" if self.action_control is None else f", action {self.action_control[i]:.1%}"
        return f"{self.names[i]}: variance {self.variance[i]:.3g}{kl}{action}; most like {like}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; NaN (a constant input) becomes None."""
        arrays = ("variance", "kl", "input_r_squared", "correlations", "action_share", "action_control")
        found = {name: getattr(self, name) for name in arrays}
        listed = {name: None if value is None else _without_nan(value.tolist()) for name, value in found.items()}
        same = {"names": list(self.names), "input_names": list(self.input_names), "rows": self.rows}
        told = {"collapsed": list(self.collapsed), "total_control": self.total_control, "sentence": self.sentence}
        return {**same, "r_squared": self.r_squared, **listed, **told}


def diagnose_latents(phi: FeatureMap, demonstrations: Demonstrations | TaskBank, seed: int = 0) -> LatentDiagnosis:
    """What a fitted `VAE` or `PCA` makes of these rows, best of rows that it did not learn from.

    `seed` is for swapping the actions.
    """
    phi = phi.inner if isinstance(phi, Fixed) else phi
    if not isinstance(phi, LatentMap):
        raise InputError(f"diagnose_latents takes a VAE or a PCA, not {type(phi).__name__}.")
    rows = demonstrations.demonstrations if isinstance(demonstrations, TaskBank) else demonstrations
    features, inputs = phi(rows), phi.inputs_of(rows)
    residuals, centred = inputs - phi.reconstruct(rows), inputs - inputs.mean(axis=0)
    with_actions = rows.actions is not None and set(phi._reader.groups) != {"state"}
    return LatentDiagnosis(
        names=phi.names,
        input_names=phi.input_names,
        rows=rows.n_rows,
        variance=features.var(axis=0),
        kl=_kl(phi, inputs),
        r_squared=float(1 - np.sum(residuals**2) / max(np.sum(centred**2), np.finfo(np.float64).tiny)),
        input_r_squared=1 - _ratio(np.sum(residuals**2, axis=0), np.sum(centred**2, axis=0)),
        correlations=_correlations(features, inputs),
        action_share=action_share(features, rows) if with_actions else None,
        action_control=action_control(phi, rows, seed) if with_actions else None,
    )


def action_share(features: Features, rows: Demonstrations) -> PerLatent:
    """Adjusted R^2 of each feature on the action: groups where it is discrete, its columns where it is a vector."""
    assert rows.actions is not None
    if rows.discrete_actions:
        levels, index = np.unique(rows.actions, return_inverse=True)
        design = np.eye(len(levels))[index.reshape(-1)]
    else:
        design = np.column_stack([np.ones(rows.n_rows), rows.actions])
    fitted, _, rank, _ = np.linalg.lstsq(design, features, rcond=None)
    left = np.sum((features - design @ fitted) ** 2, axis=0) / max(rows.n_rows - rank, 1)
    total = np.sum((features - features.mean(axis=0)) ** 2, axis=0) / max(rows.n_rows - 1, 1)
    # A feature that does not vary has nothing to explain.
    return np.nan_to_num(np.clip(1 - _ratio(left, total), 0.0, 1.0))


def action_control(phi: FeatureMap, rows: Demonstrations, seed: int) -> PerLatent:
    """Sobol's total index of the action, for states and actions drawn apart from the rows: see `LatentDiagnosis`."""
    rng = np.random.default_rng(stream(seed, "swapped actions"))
    first, second = (phi(_with_actions(rows, rng.permutation(rows.n_rows))) for _ in range(2))
    variance = (first.var(axis=0) + second.var(axis=0)) / 2
    return np.nan_to_num(_ratio(np.mean((first - second) ** 2, axis=0) / 2, variance))


def _with_actions(rows: Demonstrations, order: np.ndarray) -> Demonstrations:
    assert rows.actions is not None
    return replace(rows, actions=rows.actions[order])


def _kl(phi: LatentMap, inputs: Inputs) -> PerLatent | None:
    if not isinstance(phi, VAE):
        return None
    return kl_to_standard_normal(*phi._network.encode(inputs)).mean(axis=0)


def _correlations(features: Features, inputs: Inputs) -> Float64[np.ndarray, "latents inputs"]:
    """0 where either does not vary."""
    left, right = features - features.mean(axis=0), inputs - inputs.mean(axis=0)
    sizes = np.linalg.norm(left, axis=0)[:, None] * np.linalg.norm(right, axis=0)[None, :]
    return np.nan_to_num(_ratio(left.T @ right, sizes))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """above / below; NaN where below is 0."""
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below > 0)


def _without_nan(values: Any) -> Any:
    if isinstance(values, list):
        return [_without_nan(value) for value in values]
    return None if values != values else values
