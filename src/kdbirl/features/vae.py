"""`VAE`: features phi(s, a) learnt by a variational autoencoder, as in the paper's sepsis experiment."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.features.autoencoder import Autoencoder
from kdbirl.features.base import SILENT, Features
from kdbirl.features.pca import Inputs, LatentMap, is_positive, is_whole, with_fitted_inputs
from kdbirl.progress import Course, Progress
from kdbirl.random_streams import stream


@dataclass(frozen=True)
class VAE(LatentMap):
    """phi(s, a) = mean of q(z | s, a): a few numbers from which states and action can be reconstructed.

    The defaults are the paper's: 3 latents, two hidden layers of 100 LeakyReLU units on either side, summed squared
    error + KL, Adam with 1e-3; with 46 covariates and an action there are 47 inputs, all standardised (`LatentMap`
    tells how the action stands among them). `fit` learns from the rows it is given: the bank's, in `KDBIRL.fit`, or
    others, such as random rollouts, kept by `Fixed(VAE().fit(rollouts))`.

    hidden: units of each of the encoder's hidden layers; the decoder has them in reverse. kl_weight: 1 is the ELBO
        (of a normal likelihood of variance 1/2); less keeps more latents in use.
    steps: at most, of `batch` rows each. held_out: the share of the rows (whole episodes, where there are enough) on
        which the reconstruction is watched; learning stops when it has not improved for `patience` times 250 steps,
        and the best network is kept. 0: no rows are held out. Learning starts at principal components, so that what
        is kept reconstructs no worse than they do: with few rows or linear ones it may be they that are kept.
    `vae.course` tells how learning went, `diagnose_latents(vae, rows)` which latents are used and what for.
    """

    kind: ClassVar[str] = "vae"
    prefix: ClassVar[str] = "z"
    latents: Any = 3
    hidden: Any = (100, 100)
    kl_weight: Any = 1.0
    learning_rate: Any = 1e-3
    batch: Any = 128
    steps: Any = 20_000
    patience: Any = 10
    held_out: Any = 0.2
    seed: Any = 0
    network: Autoencoder | None = None
    course: Course | None = None

    def __post_init__(self) -> None:
        hidden = self.hidden if isinstance(self.hidden, tuple | list) else (self.hidden,)
        if not hidden or not all(is_whole(units, 1) for units in hidden):
            raise InputError(f"VAE(hidden={self.hidden!r}) should give the units of each hidden layer: (100, 100).")
        object.__setattr__(self, "hidden", tuple(int(units) for units in hidden))
        self._check_counts()
        self._check_shares()
        self._check_inputs()

    def _check_counts(self) -> None:
        for name in ("latents", "batch", "steps", "patience", "seed"):
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if not is_whole(value, least):
                raise InputError(f"VAE({name}={value!r}) should be a whole number, {least} or more.")
            object.__setattr__(self, name, int(value))

    def _check_shares(self) -> None:
        if not is_positive(self.learning_rate) or not (self.kl_weight == 0 or is_positive(self.kl_weight)):
            raise InputError(
                f"VAE(learning_rate={self.learning_rate!r}, kl_weight={self.kl_weight!r}): the first should be a "
                "positive number, the second one that is not negative."
            )
        if not (self.held_out == 0 or (is_positive(self.held_out) and self.held_out < 1)):
            raise InputError(f"VAE(held_out={self.held_out!r}) should be a share of the rows, from 0 to below 1.")

    @property
    def is_fitted(self) -> bool:
        """Whether the network is trained."""
        return self.network is not None

    @property
    def width(self) -> int:
        """How many latents."""
        return int(self.latents)

    def encode(self, demonstrations: Demonstrations | TaskBank) -> tuple[Features, Features]:
        """Mean (this is phi) and variance of q(z | s, a) for each row."""
        mean, log_variance = self._network.encode(self.inputs_of(demonstrations))
        return mean, np.exp(log_variance)

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "VAE":
        """A copy with a network that is trained on these rows; the same seed gives the same numbers."""
        from kdbirl.features.vae_network import learnt  # here, since they import JAX
        from kdbirl.training import Schedule

        fitted = with_fitted_inputs(self, rows, progress)
        inputs = fitted._read(rows)
        aside = _aside(rows, float(self.held_out), np.random.default_rng(stream(self.seed, "rows held out of the VAE")))
        schedule = Schedule(self.steps, float(self.learning_rate), patience=self.patience)
        sizes = self.hidden, self.latents, float(self.kl_weight), self.batch
        network, course = learnt(inputs[~aside], inputs[aside], *sizes, schedule, self.seed, progress)
        return replace(fitted, network=network, course=course)

    def _latents(self, inputs: Inputs) -> Features:
        return self._network.encode(inputs)[0]

    def _reconstructed(self, latents: Features) -> Inputs:
        return self._network.decode(latents)

    @property
    def _network(self) -> Autoencoder:
        self._require_fitted()
        assert self.network is not None
        return self.network


def _aside(rows: Demonstrations, share: float, rng: np.random.Generator) -> Bool[np.ndarray, " rows"]:
    """Which rows are held out: whole episodes, since rows of one episode resemble each other, or rows of too few."""
    names, unit = np.unique(rows.episodes, return_inverse=True)
    if len(names) * share < 1:
        names, unit = np.arange(rows.n_rows), np.arange(rows.n_rows)
    chosen = rng.permutation(len(names))[: int(len(names) * share)]
    return np.asarray(np.isin(unit.reshape(-1), chosen))
