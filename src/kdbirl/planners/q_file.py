"""Weight-conditioned action values on disk: one npz file of plain arrays and a JSON text. No pickle.

record    JSON text: kind, version, names, sizes of the network, how the training went
units     (q,), and centre, spread, mixing of the scales
leaf 0... the network's weights in the order of its leaves
states    (S, d), only of a tabular world
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kdbirl.errors import FileProblem
from kdbirl.files import whole_or_not_at_all
from kdbirl.planners.q_episodes import Scales
from kdbirl.planners.q_network import network_form
from kdbirl.planners.q_policy import ConditionedQ, Learning, LearntValues
from kdbirl.precision import single_precision
from kdbirl.reading import read_arrays

KIND, VERSION = "kdbirl.ConditionedQ", 2
EXPECTED = "expected a file written by ConditionedQ.save"


def save_conditioned(conditioned: ConditionedQ, path: str | Path) -> None:
    """Write it whole or not at all."""
    values = conditioned.values
    record = {
        "kind": KIND,
        "version": VERSION,
        "observation_names": values.observation_names,
        "feature_names": values.feature_names,
        "n_actions": values.n_actions,
        "hidden": [layer.out_features for layer in values.network.layers],
        "horizon": values.network.horizon,
        "limit": values.limit,
        "learning": asdict(conditioned.learning),
    }
    arrays: dict[str, Any] = {f"leaf {i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(values.network))}
    arrays |= {name: np.asarray(array) for name, array in values.scales._asdict().items()}
    arrays |= {"units": conditioned.units} | ({} if values.states is None else {"states": values.states})
    with whole_or_not_at_all(Path(path)) as unfinished, unfinished.open("wb") as stream:
        np.savez(stream, record=np.array(json.dumps(record)), **arrays)


@single_precision
def load_conditioned(path: str | Path) -> ConditionedQ:
    """What `ConditionedQ.save` wrote: the same policies to the last bit, without training again."""
    place = Path(path)
    arrays = read_arrays(place, EXPECTED)
    try:
        record = json.loads(str(arrays["record"]))
        if record["kind"] != KIND or record["version"] != VERSION:
            found = f"{record['kind']} version {record['version']}"
            raise FileProblem(f"{place} holds {found}; {EXPECTED}, version {VERSION}.")
        return _built(record, arrays)
    except FileProblem:
        raise
    except Exception as error:  # a record or an array of the wrong kind can fail anywhere
        reason = " ".join(str(error).split())[:200]
        raise FileProblem(f"{place} holds no weight-conditioned policy ({reason}); {EXPECTED}.") from error


def _built(record: dict[str, Any], arrays: dict[str, Any]) -> ConditionedQ:
    names = tuple(record["observation_names"]), tuple(record["feature_names"])
    inputs, p = sum(map(len, names)), len(names[1])
    # its form alone: a file may name sizes that no memory holds, and only those of its own arrays are ever made
    sizes = inputs, record["hidden"], record["n_actions"], p, record["horizon"]
    like = network_form(*sizes, jax.random.key(0, impl="threefry2x32"), record["limit"])
    leaves, form = jax.tree.flatten(like)
    found = [arrays[f"leaf {i}"] for i in range(len(leaves))]
    if [leaf.shape for leaf in found] != [leaf.shape for leaf in leaves]:
        raise ValueError("the network's arrays are not of the sizes that it names")
    scales = Scales(*(jnp.asarray(arrays[name]) for name in Scales._fields))
    network = jax.tree.unflatten(form, [jnp.asarray(leaf) for leaf in found])
    values = LearntValues(network, scales, *names, record["n_actions"], arrays.get("states"))
    learning = Learning(**record["learning"] | {"returns": tuple(record["learning"]["returns"])})
    return ConditionedQ(learning, values, arrays["units"])
