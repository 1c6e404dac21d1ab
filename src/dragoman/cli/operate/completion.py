"""`dragoman completion`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="bash, zsh or fish.")],
    /,
) -> None:
    """Print a script that completes commands and flags in your shell.

    bash: `dragoman completion bash > ~/.local/share/bash-completion/completions/dragoman`

    zsh: `dragoman completion zsh > "${fpath[1]}/_dragoman"`

    fish: `dragoman completion fish > ~/.config/fish/completions/dragoman.fish`
    """
    from .. import build

    print(build().generate_completion(prog_name="dragoman", shell=shell), end="")
