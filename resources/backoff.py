"""How long to wait before trying again: exponential backoff with full jitter.

Formula: a uniform draw from `[0, min(cap, base * 2**n)]`, "full jitter" in M. Brooker, "Exponential Backoff And Jitter", AWS
Architecture Blog, 2015.
"""

from __future__ import annotations

import random


def full_jitter_s(failures: int, *, base_s: float, cap_s: float, rng: random.Random) -> float:
    """Seconds to wait after the `failures`-th failure in a row (1 or more)."""
    return rng.uniform(0.0, _ceiling_s(failures, base_s=base_s, cap_s=cap_s))


def later_run_s(failures: int, *, base_s: float, cap_s: float, rng: random.Random) -> float:
    """Seconds until a later run may try: jittered, but never less than half the ceiling, so that runs stay minutes apart."""
    ceiling = _ceiling_s(failures, base_s=base_s, cap_s=cap_s)
    return rng.uniform(ceiling / 2, ceiling)


def _ceiling_s(failures: int, *, base_s: float, cap_s: float) -> float:
    return min(cap_s, base_s * 2.0 ** min(max(failures - 1, 0), 32))
