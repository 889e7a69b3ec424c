"""Good files, made by kdbirl itself: what the fuzzer begins with."""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import polars as pl

import kdbirl as kb
from kdbirl.posterior.result import Posterior
from kdbirl.worlds.named import WorldFile

ROWS = "task,episode,step,x,y,action\n" + "".join(
    f"{task},{episode},{step},{x},{y},{action}\n"
    for task, (x, y, action) in zip("aabb", [(0, 1, "l"), (1, 0, "r"), (0.5, 2, "l"), (3, 0.25, "r")], strict=True)
    for episode in range(2)
    for step in range(2)
)


def tables() -> list[bytes]:
    """CSV as people have it: separators, a BOM, quotes, decimal commas, gzip."""
    import gzip

    semicolons = ROWS.replace(",", ";").replace("0.5", "0,5")
    quoted = '"task","episode","step","x","y","action"\n"a ""1""",0,0,1,2,"l"\n'
    texts = [ROWS, semicolons, "\ufeff" + ROWS, quoted, "sep=;\n" + semicolons, "task,w_x,w_y\na,1,0\nb,0,1\n"]
    return [*(text.encode() for text in texts), gzip.compress(ROWS.encode(), mtime=0), ROWS.encode("utf-16")]


def parquets() -> list[bytes]:
    """Plain, packed in several ways, with lists, labels and our own notes."""
    frame = pl.read_csv(io.StringIO(ROWS))
    lists = frame.select("episode", "step", x=pl.concat_list("x", "y"), y="y", action="action", task="task")
    found = []
    for table in (frame, lists, frame.with_columns(pl.col("action").cast(pl.Enum(["l", "r"])))):
        for packed in ("zstd", "snappy", "uncompressed"):
            stream = io.BytesIO()
            table.write_parquet(stream, compression=packed, metadata={"kdbirl": json.dumps({"state": ["x", "y"]})})
            found.append(stream.getvalue())
    return found


def bank() -> kb.TaskBank:
    """Three tasks, two parameters."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(3), 6)
    rewards = np.array([[0.1, 0.2], [0.9, 0.1], [0.5, 0.9]])
    return kb.TaskBank.from_arrays(states=rng.normal(size=(18, 2)), actions=tasks % 2, tasks=tasks, rewards=rewards)


def models(folder: Path) -> list[bytes]:
    """Fitted models with different priors, features and kernels."""
    chosen = [
        {"prior": kb.Uniform(0, 1), "bandwidth": (0.7, 0.6), "sampler": kb.NUTS(chains=2, warmup=5, draws=5)},
        {"prior": kb.Product([kb.Normal(0, 1), kb.Beta(1, 2, 0, 1)]), "kernel": "laplace", "features": kb.Identity()},
        {"prior": kb.Laplace(0, 1), "bandwidth": "silverman", "features": kb.PCA(1), "sampler": kb.SMC(particles=16)},
        {"prior": kb.TruncatedNormal(0, 1, -1, 1), "bandwidth": "loto"},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, settings in enumerate(chosen):
            kb.KDBIRL(**settings).fit(bank()).save(folder / f"{i}.npz")
    return [(folder / f"{i}.npz").read_bytes() for i in range(len(chosen))]


def posterior(**fields: object) -> Posterior:
    """A small one with everything in it."""
    rng = np.random.default_rng(0)
    given = {
        "draws": rng.normal(size=(2, 6, 2)),
        "names": ("w_x", "w_y"),
        "method": "KDBIRL",
        "sampler": "Grid",
        "seed": 3,
        "sample_stats": {"lp": rng.normal(size=(2, 6))},
        "prior_draws": rng.normal(size=(8, 2)),
        "expert_features": np.ones((3, 2)),
        "feature_names": ("x", "y"),
        "task_rewards": np.arange(6.0).reshape(3, 2),
        "task_names": ("a", "b", "c"),
        "task_rows": np.array([4, 5, 6]),
        "h": 0.5,
        "h_reward": 0.4,
        "bandwidth_rule": "given",
        "settings": {"prior": "normal:0,1", "features": "Identity", "notes": ["independent draws"]},
    }
    return Posterior(**given | fields)  # type: ignore[arg-type]


def posteriors(folder: Path) -> list[bytes]:
    """netCDF files, one as ArviZ's users may write it again: packed."""
    import h5py

    posterior().save(folder / "plain.nc")
    with h5py.File(folder / "packed.nc", "w") as file:
        file.create_dataset("a/b", data=np.arange(40.0).reshape(4, 10), chunks=(2, 5), compression="gzip", shuffle=True)
        file.create_dataset("text", data=["a", "b"])
        file["a"].attrs["names"] = ["x", "y"]
        file["link"] = h5py.SoftLink("/a/b")
        file["outside"] = h5py.ExternalLink("/etc/hostname", "/")
        file["again"] = file["a"]
    return [(folder / name).read_bytes() for name in ("packed.nc", "plain.nc")]  # not what a killed worker left beside


def worlds() -> list[bytes]:
    """world.json of small worlds."""
    grid = WorldFile(
        "gridworld:2", 0.9, None, 5, tuple(f"cell {i}" for i in range(4)), (0.0, 0.0, 0.0, 1.0), {"seed": 0}
    )
    lake = WorldFile("FrozenLake-v1", 0.9, 10, 5, tuple(f"state {i}" for i in range(16)), (0.0,) * 16)
    return [grid.to_json().encode(), lake.to_json().encode()]


def records() -> list[bytes]:
    """The JSON files of a run directory."""
    card = {"report_card": {"convergence": ["green", "All is well."], "support": ["not assessed", "Nobody looked."]}}
    manifest = {"written": "2026-01-01T00:00:00", "choices": {"method": "KDBIRL"}, "configuration": {"seed": 0}}
    return [json.dumps(content).encode() for content in (card, manifest)]


def policies(folder: Path) -> list[bytes]:
    """A weight-conditioned policy that nobody trained."""
    import jax
    import jax.numpy as jnp

    from kdbirl._jax import single_precision
    from kdbirl.worlds.sepsis.q_episodes import Scales
    from kdbirl.worlds.sepsis.q_network import ActionValueNetwork
    from kdbirl.worlds.sepsis.q_policy import ConditionedQ, Learning, LearntValues

    @single_precision
    def untrained() -> ConditionedQ:
        network = ActionValueNetwork(4, (3, 2), 2, 2, 20.0, jax.random.key(0))
        scales = Scales(jnp.zeros(2), jnp.ones(2), jnp.eye(2))
        learning = Learning(False, "Not trained.", 0, 0, (0.0, 1.0), 1.0, 0.0, 0.1)
        return ConditionedQ(learning, LearntValues(network, scales, ("x", "y"), ("u", "v"), 2, None), np.ones(2))

    untrained().save(folder / "policy.npz")
    return [(folder / "policy.npz").read_bytes()]


def minari_metadata(folder: Path) -> list[bytes]:
    """Of a data set that Minari made in `folder`, whose observations stay beside it."""
    import gymnasium
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    box, two = gymnasium.spaces.Box(-1, 1, (2,), dtype=np.float32), gymnasium.spaces.Discrete(2)
    buffer = EpisodeBuffer(
        observations=[box.sample() for _ in range(4)], actions=[0, 1, 0], rewards=[0.0] * 3,
        terminations=[False, False, True], truncations=[False] * 3, infos={},
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not list(folder.rglob("metadata.json")):
            minari.create_dataset_from_buffers("fuzz/one-v0", [buffer], observation_space=box, action_space=two)
    return [next(folder.rglob("metadata.json")).read_bytes()]
