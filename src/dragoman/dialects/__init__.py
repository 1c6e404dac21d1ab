"""Every way to speak that we know. Contract, pair and matrix tests run over this list."""

from dragoman.session import Dialect

from .a2a import A2A_0_3, A2A_1_0

DIALECTS: tuple[Dialect, ...] = (A2A_1_0, A2A_0_3)

__all__ = ["DIALECTS"]
