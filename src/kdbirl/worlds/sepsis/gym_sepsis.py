"""`GymSepsis`: the original gym-sepsis (Kiani et al. 2019), from the three weight files that a user has."""

import warnings
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl._jax import float64
from kdbirl.archive import Arrays, Attributes, read_arrays, read_hdf5
from kdbirl.errors import FileProblem, InputError, KDBIRLWarning, did_you_mean
from kdbirl.worlds.sepsis.covariates import (
    COLUMN,
    COVARIATES,
    LEVELS,
    MEMORY_COLUMNS,
    MEMORY_ROWS,
    FeatureFunction,
    named_columns,
    names_of,
    treatment_names,
)
from kdbirl.worlds.sepsis.simulator import DISCOUNT, HORIZON, SepsisOutcome, SepsisSim, remember

# Recurrent networks that Keras 2 saved as HDF5, read as plain arrays and computed in JAX.
#
# A file has the group `model_weights` (or is that group), whose attribute `layer_names` lists the layers; a layer's
# group lists its arrays in `weight_names`. Layers without weights are passed over. What is expected here is
#
#     LSTM(50, tanh, recurrent hard_sigmoid), Dense(128, relu), Dense(outputs, linear or softmax)
#
# with Keras' order of the gates: input, forget, cell, output.

UNITS, HIDDEN = 50, 128
EXPECTED = "it should be one of gym-sepsis' three Keras networks"


class LSTMWeights(NamedTuple):
    """Of the three layers, in the order in which Keras stores them."""

    kernel: Float[np.ndarray, "inputs 200"]
    recurrent: Float[np.ndarray, "50 200"]
    bias: Float[np.ndarray, " 200"]
    hidden: Float[np.ndarray, "50 128"]
    hidden_bias: Float[np.ndarray, " 128"]
    output: Float[np.ndarray, "128 outputs"]
    output_bias: Float[np.ndarray, " outputs"]


def hard_sigmoid(x: Array) -> Array:
    """clip(0.2 x + 0.5, 0, 1), as Keras 2 had it; Keras 3 has x / 6 + 0.5, which would change what was trained."""
    return jnp.clip(0.2 * x + 0.5, 0.0, 1.0)


def lstm_output(weights: LSTMWeights, rows: Float[Array, "n time inputs"]) -> Float[Array, "n outputs"]:
    """The network's answer to the last of the rows, before any softmax."""
    kernel, recurrent, bias, hidden, hidden_bias, output, output_bias = (jnp.asarray(w, rows.dtype) for w in weights)
    given = jnp.swapaxes(rows @ kernel + bias[None, None], 0, 1)  # all times at once: only the recurrence is a loop

    def move(carry: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], None]:
        said, cell = carry
        enter, forget, fresh, leave = jnp.split(now + said @ recurrent, 4, axis=1)
        cell = hard_sigmoid(forget) * cell + hard_sigmoid(enter) * jnp.tanh(fresh)
        return (hard_sigmoid(leave) * jnp.tanh(cell), cell), None

    nothing = jnp.zeros((rows.shape[0], UNITS), rows.dtype)
    (said, _), _ = jax.lax.scan(move, (nothing, nothing), given)
    return jax.nn.relu(said @ hidden + hidden_bias[None]) @ output + output_bias[None]


def read_lstm(path: Path, inputs: int, outputs: int) -> LSTMWeights:
    """The weights of one file, of the shapes that this many inputs and outputs ask for."""
    attributes, stored = read_hdf5(path, EXPECTED, "a Keras 2 network in HDF5")
    try:
        arrays = _arrays(attributes, stored, "model_weights/" if "model_weights" in attributes else "")
    except (KeyError, TypeError) as error:
        reason = str(error).strip("'\"")
        raise FileProblem(f"{path}: it cannot be read as a Keras 2 network in HDF5 ({reason} is missing).") from error
    return _checked(path, arrays, inputs, outputs)


def _arrays(attributes: Attributes, stored: Arrays, group: str) -> list[np.ndarray]:
    """All weights in the order of the layers."""
    layers = [f"{group}{layer}" for layer in attributes[group.rstrip("/")]["layer_names"]]
    places = [f"{layer}/{name}" for layer in layers for name in attributes[layer]["weight_names"]]
    return [np.asarray(stored[place], dtype=np.float64) for place in places]


def _checked(path: Path, arrays: list[np.ndarray], inputs: int, outputs: int) -> LSTMWeights:
    gates = 4 * UNITS
    expected = [(inputs, gates), (UNITS, gates), (gates,), (UNITS, HIDDEN), (HIDDEN,), (HIDDEN, outputs), (outputs,)]
    shapes = [array.shape for array in arrays]
    if shapes != expected:
        raise FileProblem(
            f"{path}: weights of shapes {shapes}, expected {expected}: LSTM({UNITS}) of {inputs} inputs, "
            f"Dense({HIDDEN}), Dense({outputs})."
        )
    if not all(np.isfinite(array).all() for array in arrays):
        raise FileProblem(f"{path}: some of its weights are not finite numbers; the file is damaged.")
    return LSTMWeights(*arrays)


FILES = ("sepsis_states.model", "sepsis_termination.model", "sepsis_outcome.model")
STARTS = "sepsis_starting_states.npz"
# The original holds seven covariates at their first values (sex was forgotten); 18 were constant in every stay.
PINNED = {
    "original": ("age", *COVARIATES[30:36]),
    "static": COVARIATES[28:],
    "none": (),
}
TERMINATIONS = ("argmax", "bernoulli")
SYNTHETIC = 4096  # starts, where there is no file of them


class GymSepsisState(NamedTuple):
    """The last ten (covariates, action, step index), the covariates now and at the start, and the steps taken."""

    memory: Float[Array, "n 10 48"]
    observation: Float[Array, "n 46"]
    first: Float[Array, "n 46"]
    step: Int[Array, " n"]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GymSepsis:
    """gym-sepsis' three Keras networks as a vectorised simulator. Not for clinical use; bring your own files.

    Neither weights nor patients' starting states are part of this package: the original has no licence, and its starts
    may not be passed on. Know what it is before you use it: an action moves the next state by less than two per cent of
    a standard deviation, and episodes end after nine or ten steps whatever happens. `SepsisSim` is the alternative.

    ## States
    The 46 covariates in the order of `SepsisSim`, as z-scores whose constants were never published. The networks see
    the last ten rows of covariates, action and (but for the state) index of the step; `state.memory (n, 10, 48)`.

    ## Actions
    24 codes, a = 5 * fluid + vasopressor; the networks see the code as a number.

    ## Rewards
    R(s, a) = w.phi(s, a) with `features` as of `SepsisSim`; SOFA, lactate and MAP are z-scores, doses are levels / 4.
    With "outcome" and w = (15, -15) the reward is the original's (in expectation where endings are drawn).

    ## Start and end
    Starts are rows of `starts`, else of sepsis_starting_states.npz in the directory, else synthetic ones (with a
    warning). `termination`: "argmax" ends an episode where that is the likelier, in the likelier outcome, as the
    original does; "bernoulli" draws both. Truncated after `horizon` steps.

    ## Arguments
    path: the directory with sepsis_states.model, sepsis_termination.model and sepsis_outcome.model. starts: an npz file
    with one array `(n, 47)`, of which the last column is dropped, or `(n, 46)`. pinned: covariates held at their first
    values: "original" (7), "static" (the 18 that were constant in every stay) or "none". first_index: of the step, 0 as
    in the original or 1 as its networks were trained. The rest as of `SepsisSim`.
    """

    features: str | FeatureFunction
    outcome: bool
    discount: float
    horizon: int | None
    termination: str
    first_index: int
    names: tuple[str, ...]
    feature_names: tuple[str, ...]
    pinned: Bool[np.ndarray, " 46"]
    networks: tuple[LSTMWeights, LSTMWeights, LSTMWeights]
    starts: Float[np.ndarray, "starts 46"]

    def __init__(
        self,
        path: str | Path,
        features: str | FeatureFunction = "sofa-lactate-map",
        outcome: bool = False,
        discount: float | int = DISCOUNT,
        horizon: int | None = HORIZON,
        pinned: str = "original",
        termination: str = "argmax",
        first_index: int = 0,
        starts: str | Path | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        _check_settings(discount, horizon, pinned, termination, first_index)
        directory = Path(path)
        if not directory.is_dir():
            raise FileProblem(f"{directory}: not a directory; give the one that has {', '.join(FILES)}.")
        sizes = ((47, 46), (48, 2), (48, 2))
        own = {
            "features": features,
            "outcome": outcome,
            "discount": float(discount),
            "horizon": horizon,
            "termination": termination,
            "first_index": first_index,
            "names": tuple(names),
            "feature_names": names_of(features, outcome, tuple(names)),
            "pinned": np.isin(COVARIATES, PINNED[pinned]),
            "networks": tuple(read_lstm(directory / file, *size) for file, size in zip(FILES, sizes, strict=True)),
            "starts": _starts(directory, starts),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def n_actions(self) -> int:
        return LEVELS**2 - 1

    @property
    def observation_names(self) -> tuple[str, ...]:
        return COVARIATES

    @property
    def action_names(self) -> tuple[str, ...]:
        return treatment_names(self.n_actions)

    def with_features(self, features: str | FeatureFunction, names: tuple[str, ...] = ()) -> "GymSepsis":
        """The same world with another phi, as of `SepsisSim.with_features`; no file is read again."""
        other = copy(self)
        own = {"features": features, "names": tuple(names)}
        for name, value in (own | {"feature_names": names_of(features, self.outcome, tuple(names))}).items():
            object.__setattr__(other, name, value)
        return other

    def reset(self, key: Array, n: int) -> tuple[GymSepsisState, Float[Array, "n 46"]]:
        """n starts, drawn with equal chances."""
        first = jnp.asarray(self.starts, jnp.zeros(0).dtype)[jax.random.randint(key, (n,), 0, len(self.starts))]
        memory = jnp.zeros((n, MEMORY_ROWS, MEMORY_COLUMNS))
        return GymSepsisState(memory, first, first, jnp.zeros(n, jnp.int32)), first

    @partial(jax.jit, static_argnums=0)
    def step(self, state: GymSepsisState, action: Int[Array, " n"], key: Array) -> SepsisOutcome:
        """One row more in every memory, and what the networks make of it."""
        memory = remember(state.memory, state.observation, action, state.step + self.first_index)
        following, (ends, releases) = self.predicted(memory)
        observation = jnp.where(jnp.asarray(self.pinned)[None], state.first, following)
        if self.termination == "argmax":
            ends, releases = (ends > 0.5).astype(ends.dtype), (releases > 0.5).astype(ends.dtype)
        p_death, p_release = ends * (1 - releases), ends * releases
        chance = jax.random.uniform(key, ends.shape, ends.dtype)
        terminated, died = chance < ends, chance < p_death
        step = state.step + 1
        late = jnp.zeros_like(terminated) if self.horizon is None else step >= self.horizon
        info = {"p_death": p_death, "p_release": p_release, "died": died, "released": terminated & ~died}
        features = self._features(state.observation, action, p_release, p_death)
        after = GymSepsisState(memory, observation, state.first, step)
        return SepsisOutcome(after, observation, features, terminated, late & ~terminated, info)

    def predicted(
        self, memory: Float[Array, "n 10 48"]
    ) -> tuple[Float[Array, "n 46"], tuple[Float[Array, " n"], Float[Array, " n"]]]:
        """The networks' own answers: the next covariates, P(the stay ends), P(release if it does)."""
        states, termination, outcome = self.networks
        ends, releases = (
            jax.nn.softmax(lstm_output(network, memory), axis=1)[:, 1] for network in (termination, outcome)
        )
        return lstm_output(states, memory[:, :, :-1]), (ends, releases)

    def _features(self, seen: Array, action: Array, survived: Array, died: Array) -> Float[Array, "n q"]:
        """phi of the covariates before the action."""
        columns = {name: seen[:, COLUMN[column]] for name, column in _SEEN.items()}
        columns |= {"fluid": (action // LEVELS).astype(seen.dtype) / (LEVELS - 1)}
        columns |= {"vasopressor": (action % LEVELS).astype(seen.dtype) / (LEVELS - 1)}
        columns |= {"survived": survived, "died": died}
        if isinstance(self.features, str):
            return named_columns(self.feature_names, columns)
        own = jnp.asarray(self.features(seen, action))
        return jnp.concatenate([own, *(columns[name][:, None] for name in self.feature_names[own.shape[1] :])], axis=1)


_SEEN = {"SOFA": "SOFA", "lactate": "lactate", "MAP": "MeanBP"}


def _check_settings(
    discount: float | int, horizon: int | None, pinned: str, termination: str, first_index: int
) -> None:
    if not 0 <= discount <= 1:
        raise InputError(f"discount={discount!r} should be a number from 0 to 1.")
    if horizon is not None and horizon < 1:
        raise InputError(f"horizon={horizon!r} should be a whole number of steps, at least 1, or None.")
    for name, value, known in (("pinned", pinned, tuple(PINNED)), ("termination", termination, TERMINATIONS)):
        if value not in known:
            raise InputError(f"{name}={value!r} is unknown.{did_you_mean(str(value), known)}")
    if first_index not in (0, 1):
        raise InputError(f"first_index={first_index!r} should be 0, as in the original, or 1, as it was trained.")


def _starts(directory: Path, given: str | Path | None) -> Float[np.ndarray, "starts 46"]:
    """The user's starting states, those beside the networks, or synthetic ones."""
    path = directory / STARTS if given is None else Path(given)
    if given is not None or path.is_file():
        return _read_starts(path)
    warnings.warn(
        f"{directory} has no {STARTS}: patients start from standardised draws of kb.SepsisSim instead, not from those "
        "of gym-sepsis; give starts=... to use real ones.",
        KDBIRLWarning,
        stacklevel=3,
    )
    return _synthetic_starts()


def _read_starts(path: Path) -> Float[np.ndarray, "starts 46"]:
    arrays: dict[str, Any] = read_arrays(path, "expected an npz file of starting states")
    name = Path(STARTS).stem
    if name not in arrays and len(arrays) != 1:
        raise FileProblem(f"{path}: it has the arrays {sorted(arrays)}; expected one, or one called {name!r}.")
    table = np.asarray(arrays.get(name, next(iter(arrays.values()))))
    width = len(COVARIATES)
    if table.ndim != 2 or len(table) == 0 or table.shape[1] not in (width, width + 1):
        raise FileProblem(f"{path}: starting states of shape {table.shape}, expected (n, {width + 1}).")
    if table.dtype.kind not in "fiu" or not np.isfinite(table[:, :width]).all():
        raise FileProblem(f"{path}: starting states should be finite numbers.")
    return table[:, :width].astype(np.float64)


@float64
def _synthetic_starts() -> Float[np.ndarray, "starts 46"]:
    """Starts of the simulator, each column of mean 0 and deviation 1."""
    _, seen = SepsisSim(memory=False).reset(jax.random.key(0, impl="threefry2x32"), SYNTHETIC)
    table = np.asarray(seen)
    return (table - table.mean(axis=0)) / table.std(axis=0)
