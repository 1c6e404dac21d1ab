"""Typed parameters: checked before a task is opened, published as JSON Schema on the card.

They come from a data part, from a JSON object in the text, or (for one string) from the text.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman import Agent, Turn

agent = Agent("Converter", description="Converts temperatures.")


class Reading(Struct):
    """A temperature in both units."""

    celsius: float
    fahrenheit: float


@agent.skill("convert", description="Celsius to Fahrenheit.", examples=['{"celsius": 21}'])
async def convert(turn: Turn, celsius: Annotated[float, Meta(ge=-273.15)]) -> Reading:
    return Reading(celsius=celsius, fahrenheit=celsius * 9 / 5 + 32)


@agent.skill("average", description="The mean of some readings.")
async def average(turn: Turn, readings: list[float], digits: int = 1) -> float:
    if not readings:
        raise turn.reject("There are no readings.")
    return round(sum(readings) / len(readings), digits)
