"""What was asked and every choice that the numbers depend on, in words: for the page, the terminal and JSON."""

from typing import Any

from kdbirl.posterior.result import Posterior

MOST_NAMES = 12


def question(posterior: Posterior) -> str:
    """What was asked, in a sentence."""
    q, n, rows = len(posterior.names), len(posterior.expert_features), int(posterior.task_rows.sum())
    return (
        f"The reward of a new task ({_count(q, 'parameter')}) from {_count(n, 'expert row')}, "
        f"given {_count(rows, 'row')} of {_count(len(posterior.task_names), 'training task')} with known rewards."
    )


def how_it_was_made(posterior: Posterior) -> dict[str, str]:
    """Every choice that the numbers depend on: defaults too are always told."""
    settings = posterior.settings
    choices = {
        "method": posterior.method,
        "prior": settings.get("prior", ""),
        "features": _features(posterior),
        "kernel": _kernel(settings.get("kernel", ""), "h", posterior.h),
        "reward kernel": _kernel(settings.get("reward_kernel", ""), "h'", posterior.h_reward),
        "bandwidths": posterior.bandwidth_rule,
        "conditional": _or_paper(settings.get("conditional", ""), "state-action"),
        "task weights": _or_paper(settings.get("task_weights", ""), "rows"),
        "power": _or_paper(f"{posterior.power:g}", "1"),
        "sampler": _sampler(posterior),
        "seed": str(posterior.seed),
        "notes": "; ".join(str(note) for note in _list(settings.get("notes"))),
    }
    return {name: str(text) for name, text in choices.items() if text}  # settings come from a file: any JSON


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _features(posterior: Posterior) -> str:
    names = list(posterior.feature_names)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{posterior.settings.get('features', 'given')}: {', '.join(names[:MOST_NAMES])}{more}"


def _kernel(kernel: str, symbol: str, widths: Any) -> str:
    if widths is None:
        return kernel
    numbers = widths if isinstance(widths, tuple) else (widths,)
    return f"{kernel}, {symbol} = {', '.join(f'{width:.4g}' for width in numbers)}"


def _or_paper(choice: str, paper: str) -> str:
    return f"{choice} (the paper)" if choice == paper else choice


def _sampler(posterior: Posterior) -> str:
    chains, draws, _ = posterior.draws.shape
    settings = posterior.settings.get("sampler")
    asked = settings.get("asked", "") if isinstance(settings, dict) else ""
    chosen = ", chosen by auto" if asked == "auto" else ""
    return f"{posterior.sampler}{chosen}: {_count(chains, 'chain')} of {_count(draws, 'draw')}"
