"""What the runs of all frameworks have in common: how their results are told."""

from __future__ import annotations

from typing import Any

from dragoman.agent import Turn


def plain(value: Any) -> object:
    """Returns the result of a framework as something that a skill may yield: the models of Pydantic
    become dictionaries."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


class TokenUsage:
    """Adds up the tokens that a run has used, and reports them to the caller."""

    def __init__(self) -> None:
        self.input = self.output = self.requests = 0

    def add(self, input_tokens: int | None, output_tokens: int | None, requests: int = 1) -> None:
        """Adds what one request, or several, to a model have used."""
        self.input += input_tokens or 0
        self.output += output_tokens or 0
        self.requests += requests

    async def report(self, turn: Turn) -> None:
        """Reports the sum with `turn.usage`, if the framework told any tokens."""
        if self.input or self.output:
            await turn.usage(
                input_tokens=self.input,
                output_tokens=self.output,
                total_tokens=self.input + self.output,
                requests=self.requests,
            )
