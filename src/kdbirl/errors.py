"""Errors and warnings. Every message says what is wrong, where, what was expected and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class KDBIRLError(Exception):
    """Anything this package raises on purpose; the command line prints it as one sentence."""


class InputError(KDBIRLError, ValueError):
    """The data or an argument is wrong: the user can mend it."""


class FileProblem(InputError):
    """A file cannot be read or written, is damaged, or is not what its name says."""


class MissingDependency(KDBIRLError, ImportError):
    """An optional package is needed; the message names the extra to install."""


class SamplingError(KDBIRLError, RuntimeError):
    """The posterior cannot be sampled as asked, for example because its density is zero everywhere."""


class KDBIRLWarning(UserWarning):
    """The result stands, but read this first."""


class SupportWarning(KDBIRLWarning):
    """Expert rows lie outside what the training tasks have seen."""


class ConvergenceWarning(KDBIRLWarning):
    """The sampler's own diagnostics say that its draws should not be trusted yet."""


class IdentifiabilityWarning(KDBIRLWarning):
    """The training tasks say nothing about some reward directions: they keep their prior."""


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for the nearest candidate, or the list of what there is."""
    known = [str(c) for c in candidates]
    near = get_close_matches(name, known, n=1, cutoff=0.5) or [c for c in known if c.casefold() == name.casefold()]
    if near:
        return f" Did you mean {near[0]!r}?"
    shown = ", ".join(repr(c) for c in known[:12]) + (", ..." if len(known) > 12 else "")
    return f" There are: {shown}." if known else ""


class CalibrationWarning(KDBIRLWarning):
    """Nothing is known about how far the posterior's intervals can be trusted."""
