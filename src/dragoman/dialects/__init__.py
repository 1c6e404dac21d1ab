"""Every way to speak that we know. Contract, pair and matrix tests run over this list."""

from dragoman.core.session import Dialect

from .a2a import A2A_0_1, A2A_0_3, A2A_0_3_REST, A2A_1_0, A2A_1_0_REST, A2A_GO
from .iat import IAT, IAT_FLAT

DIALECTS: tuple[Dialect, ...] = (
    *(A2A_1_0, A2A_0_3, A2A_0_1, A2A_GO),
    *(A2A_1_0_REST, A2A_0_3_REST),
    *(IAT, IAT_FLAT),
)

__all__ = ["DIALECTS"]
