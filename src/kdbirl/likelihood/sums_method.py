"""How sums of kernels are computed: exactly, in single precision, or within a tolerance."""

from dataclasses import dataclass
from typing import Any

from kdbirl.errors import InputError
from kdbirl.likelihood.boxed_sums import SMALLEST_TOLERANCE
from kdbirl.likelihood.kernel_sums import SINGLE_ERROR
from kdbirl.likelihood.kernels import PairKernel

MOST_COLUMNS = 3  # with four and more, sums are exact: so many boxes are opened that nothing is gained
PRECISIONS = ("double", "single")


@dataclass(frozen=True)
class KernelSums:
    """`KDBIRL(sums=kb.KernelSums(...))`; the default is exact. For the Gaussian kernel on Euclidean distance.

    precision: "double", or "single": kernels in single precision, added in double; log sums are within 1e-5.
    tolerance: 0 is exact; otherwise log sums are within this (at least 0.0002). Rows are put into boxes, once for each
        bandwidth; boxes that cannot matter are not opened, and full ones are condensed into fewer weighted points. For
        up to three features, and banks in memory; with more, sums are exact.
    The error that was really made is measured at a few expert rows, and noted on the posterior.
    """

    precision: Any = "double"
    tolerance: Any = 0.0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(f'KernelSums(precision={self.precision!r}) should be "double" or "single".')
        good = isinstance(self.tolerance, int | float) and (
            self.tolerance == 0 or 1 > self.tolerance >= SMALLEST_TOLERANCE
        )
        if not good:
            raise InputError(
                f"KernelSums(tolerance={self.tolerance!r}) should be 0 (exact) or from {SMALLEST_TOLERANCE:g} up to 1: "
                "it is the largest error of a log sum."
            )

    @property
    def exact(self) -> bool:
        """Whether sums are exact but for the rounding of doubles."""
        return self.precision == "double" and self.tolerance == 0

    @property
    def bound(self) -> float:
        """The largest error of a log sum that the method allows; 0 for an exact one."""
        return max(float(self.tolerance), SINGLE_ERROR if self.precision == "single" else 0.0)

    def boxed(self, kernel: PairKernel, columns: int) -> bool:
        """Whether boxes serve this kernel."""
        return self.tolerance > 0 and kernel.squared_exponential and columns <= MOST_COLUMNS


EXACT = KernelSums()
