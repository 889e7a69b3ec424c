"""What this installation consists of, and whether it works: versions, device, precision, memory, optional extras.

Everything is read from the installed package's own metadata, so `pyproject.toml` is the only list of dependencies.
"""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from kdbirl import __version__
from kdbirl._jax import cores, float64

Status = Literal["ok", "note", "problem"]
_EXTRAS_FOR_DEVELOPERS = {"all", "bench", "dev", "docs", "test"}


@dataclass(frozen=True)
class Check:
    """One finding: `problem` means that the package cannot work, `note` that something optional is missing."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Installation:
    """All findings about this installation."""

    version: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.status != "problem" for check in self.checks)

    @property
    def sentence(self) -> str:
        problems = [f"{check.name} ({check.detail})" for check in self.checks if check.status == "problem"]
        if not problems:
            return "Everything that kdbirl needs is here and works."
        return f"kdbirl cannot work here until this is mended: {'; '.join(problems)}."

    def to_dict(self) -> dict[str, object]:
        return {"kdbirl": self.version, "ok": self.ok, "checks": [asdict(check) for check in self.checks]}


def inspect_installation(cache_directory: Path) -> Installation:
    """Look at everything; takes the second or two that importing JAX takes."""
    checks = [_python(), *_packages(), _jax_device(), _double_precision(), _cores(), _memory()]
    return Installation(__version__, (*checks, _cache(cache_directory), *_extras()))


def package_versions() -> dict[str, str]:
    """Version of Python, of this package and of every dependency that is installed, for a run's manifest."""
    found = {"python": platform.python_version(), "kdbirl": __version__}
    for requirement in _requirements(extra=""):
        installed = _installed(requirement.name)
        if installed:
            found[requirement.name] = installed
    return found


def _python() -> Check:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("python", "ok", detail) if sys.version_info >= (3, 11) else Check("python", "problem", detail)


def _packages() -> list[Check]:
    required = _requirements(extra="")
    if not required:
        return [Check("kdbirl", "problem", "its own metadata is missing: install it with pip, as README.md shows")]
    return [_package(requirement) for requirement in required]


def _package(requirement: Requirement) -> Check:
    installed = _installed(requirement.name)
    if installed is None:
        return Check(requirement.name, "problem", f"not installed: pip install '{requirement}'")
    if not requirement.specifier.contains(installed, prereleases=True):
        return Check(requirement.name, "problem", f"{installed} is too old: pip install '{requirement}'")
    return Check(requirement.name, "ok", installed)


def _requirements(extra: str) -> list[Requirement]:
    """What `kdbirl[extra]` adds to plain `kdbirl`; with `extra=""`, what plain `kdbirl` needs."""
    try:
        declared = [Requirement(line) for line in requires("kdbirl") or ()]
    except PackageNotFoundError:
        return []
    plain = [r for r in declared if r.marker is None or r.marker.evaluate({"extra": ""})]
    if not extra:
        return [_without_marker(r) for r in plain]
    added = [r for r in declared if r not in plain and r.marker and r.marker.evaluate({"extra": extra})]
    return [_without_marker(r) for r in added]


def _without_marker(requirement: Requirement) -> Requirement:
    requirement.marker = None
    return requirement


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _extras() -> Iterator[Check]:
    from importlib.metadata import metadata

    try:
        extras = metadata("kdbirl").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return
    for extra in sorted(set(extras) - _EXTRAS_FOR_DEVELOPERS):
        missing = [r.name for r in _requirements(extra) if _package(r).status != "ok"]
        advice = f"{', '.join(missing)} missing: pip install 'kdbirl[{extra}]'"
        yield Check(f"extra {extra}", "note" if missing else "ok", advice if missing else "installed")


def _jax_device() -> Check:
    try:
        import jax

        devices = jax.devices()
    except Exception as problem:  # a broken jaxlib raises whatever its loader raises
        return Check("JAX device", "problem", f"{type(problem).__name__}: {_first_line(problem)}")
    return Check("JAX device", "ok", f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})")


def _double_precision() -> Check:
    try:
        residue = _one_plus_a_little()
    except Exception as problem:  # as above
        return Check("float64", "problem", f"{type(problem).__name__}: {_first_line(problem)}")
    if abs(residue / 1e-12 - 1.0) < 1e-3:
        return Check("float64", "ok", f"(1 + 1e-12) - 1 = {residue:.4g}")
    return Check("float64", "problem", f"(1 + 1e-12) - 1 = {residue:.4g}: this device rounds to single precision")


@float64
def _one_plus_a_little() -> float:
    """(1 + 1e-12) - 1 computed on the device: 0 in single precision, 1e-12 to four digits in double."""
    import jax
    import jax.numpy as jnp

    one, little = jnp.asarray(1.0), jnp.asarray(1e-12)
    # Two programs, because a compiler may simplify one.
    return float(jax.jit(jnp.subtract)(jax.jit(jnp.add)(one, little), one))


def _cores() -> Check:
    return Check("cores", "ok", f"{cores()}")


def _memory() -> Check:
    gibibyte = 2.0**30
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / gibibyte
    except (AttributeError, OSError, ValueError):
        return Check("memory", "note", "unknown on this system")
    return Check("memory", "ok", f"{total:.1f} GiB")


def _cache(directory: Path) -> Check:
    if is_writable(directory):
        return Check("compilation cache", "ok", str(directory))
    advice = "set KDBIRL_CACHE_DIR to a directory that is, or every command compiles its programs anew"
    return Check("compilation cache", "note", f"{directory} is not writable: {advice}")


def cache_home() -> Path:
    """Where things are kept that can be made again: KDBIRL_CACHE_DIR, else kdbirl in XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("KDBIRL_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "kdbirl"


def is_writable(directory: Path) -> bool:
    """Whether a file can be made in `directory`, which is made if need be. Tried, since root ignores permissions."""
    probe = directory / f".probe-{os.getpid()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [""])[0]
