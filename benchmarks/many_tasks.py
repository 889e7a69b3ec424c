"""(h) Many test tasks: 1,000 of 50 rows over one bank of 100 tasks, against one by one and against a process each.

Two problems: three reward parameters, where `auto` takes exact draws from the grid for a single task, and five, where
it takes NUTS. Bandwidths and power are chosen by `loto`, once, before anything is timed (a process does it itself).
`posteriors` is timed from arrays to all posteriors with their report cards but convergence, which neither side computes
here; the first call, with compilation, and a second one. One by one: single tasks once warm; a process: from its start
to the posterior in its memory, with a warm cache of compiled programs. Both are measured on a few tasks and scaled.
Processor seconds, of both cores together, are recorded beside: on a busy machine they are what can be compared.
Right means: |z| of means and sds of the two posteriors of the same tasks.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import kdbirl as kb
from benchmarks.effective import agreement
from benchmarks.measuring import Spread, seconds_of

TASKS, ROWS, BANK_TASKS, BANK_ROWS = 1000, 50, 100, 100
PARAMETERS = (3, 5)
ALONE, PROCESSES = 12, 2  # tasks measured one by one, and processes


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Seconds, ratios and agreement for each number of parameters."""
    tasks = 40 if quick else TASKS
    found = {f"{q} parameters": _measured(q, tasks, repeats) for q in PARAMETERS}
    return {
        "problem": {"tasks": tasks, "rows": ROWS, "bank_tasks": BANK_TASKS, "bank_rows_of_each": BANK_ROWS},
        **found,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def make_bank(q: int) -> kb.TaskBank:
    """Rewards in [-1, 1]^q; features around them."""
    rng = np.random.default_rng(q)
    rewards = rng.uniform(-1, 1, (BANK_TASKS, q))
    of = np.repeat(np.arange(BANK_TASKS), BANK_ROWS)
    return kb.TaskBank.from_arrays(
        states=rewards[of] + rng.normal(0, 0.7, (len(of), q)), actions=None, tasks=of, rewards=rewards
    )


def make_expert(q: int, number: int) -> kb.Demonstrations:
    """Rows of a test task of its own."""
    rng = np.random.default_rng([q, number])
    return kb.Demonstrations(states=rng.uniform(-0.5, 0.5, q) + rng.normal(0, 0.7, (ROWS, q)))


def fitted(q: int) -> kb.KDBIRL:
    """With loto's choice for 50 rows."""
    model = kb.KDBIRL(prior=kb.Uniform(-1.5, 1.5), features=kb.Identity())
    return model.fit(make_bank(q), n=ROWS)


def _measured(q: int, tasks: int, repeats: int) -> dict[str, Any]:
    model, experts = fitted(q), {str(i): make_expert(q, i) for i in range(tasks)}
    kept: dict[str, kb.Posteriors] = {}
    first = seconds_of(lambda: kept.update(all=model.posteriors(experts, seed=0)))
    began = time.process_time()
    again = [seconds_of(lambda: model.posteriors(experts, seed=0)) for _ in range(max(repeats - 1, 1))]
    used = (time.process_time() - began) / len(again) / tasks
    together = kept["all"]
    model.posterior(experts["0"], seed=0)
    alone: list[kb.Posterior] = []
    began = time.process_time()
    warm = Spread(
        tuple(seconds_of(lambda i=i: alone.append(model.posterior(experts[str(i)], seed=i))) for i in range(ALONE))
    )
    one_by_one = (time.process_time() - began) / ALONE
    processes = Spread(tuple(_process(q, i) for i in range(PROCESSES + 1))[1:])  # the first one fills the cache
    compared = [agreement(together.of(str(i)).draws, one.draws) for i, one in enumerate(alone)]
    taken = [together.of(name).sampler for name in together]
    checked = [together.of(str(i)).convergence for i in range(min(tasks, 100))]
    seconds = Spread((first, *again))
    return {
        "one_by_one_sampler": alone[0].sampler,
        "samplers": {name: taken.count(name) for name in sorted(set(taken))},
        "seconds": {
            "all tasks, first call": first,
            "all tasks": seconds.record(),
            "one task, warm": warm.record(),
            "one task, a process": processes.record(),
        },
        "processor_seconds_per_task": {"together": used, "one by one": one_by_one},
        "ratios": {
            "over warm fits one by one, by processor time": Spread((one_by_one / used,)).record(),
            "over warm fits one by one": Spread(tuple(tasks * warm.median / s for s in seconds.values)).record(),
            "over a process each": Spread(tuple(tasks * processes.median / s for s in seconds.values)).record(),
        },
        "converged": sum(check.ok for check in checked),
        "checked": len(checked),
        "smallest_effective": float(min(np.fmin(c.ess_bulk, c.ess_tail).min() for c in checked)),
        "largest_z": max(float(str(one["largest_z"])) for one in compared),
        "comparisons": 2 * q * len(compared),
        "agree": all(one["agree"] for one in compared),
    }


def _process(q: int, number: int) -> float:
    """Seconds of a fresh process that fits and answers one task."""
    root, cache = Path(__file__).resolve().parents[1], Path(tempfile.gettempdir()) / "kdbirl-benchmark-cache"
    words = [sys.executable, "-m", "benchmarks.many_tasks", json.dumps([q, number, str(cache)])]
    return seconds_of(lambda: subprocess.run(words, cwd=root, check=True, capture_output=True))


if __name__ == "__main__":
    import jax

    parameters, task, place = json.loads(sys.argv[1])
    jax.config.update("jax_compilation_cache_dir", place)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    fitted(parameters).posterior(make_expert(parameters, task), seed=0)
