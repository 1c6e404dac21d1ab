"""A skill that needs a person's yes. Silence is a no."""

from dragoman import Agent, Turn

agent = Agent("Shop", description="Orders things, if you agree.")


@agent.skill("order", description="Orders something.", examples=["a kettle"])
async def order(turn: Turn) -> dict[str, object]:
    item = turn.text or await turn.ask("What shall I order?")
    if not await turn.approve(f"Order {item} for 30 EUR?", details={"item": item, "price": 30}):
        raise turn.reject("Not approved, nothing was ordered.")
    receipt = await turn.step("pay", pay, 30, turn.key("pay"))  # recorded: never paid twice
    return {"item": item, "receipt": receipt}


async def pay(amount: int, key: str) -> str:
    """Stands for a payment; the key lets the other system recognise a repeat."""
    return f"paid {amount} EUR"
