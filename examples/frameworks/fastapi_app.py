"""An agent inside a FastAPI application, which has routes and a lifespan of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from dragoman import Agent, Turn
from dragoman.adapters.starlette import mount

agent = Agent("Desk", description="Plans trips")


@agent.skill("plan", description="Plans a trip")
async def plan(turn: Turn, city: str) -> str:
    return f"Three days in {city}"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.orders = ["tea"]
    yield


app = FastAPI(lifespan=lifespan)
mount(app, "/desk", agent)


@app.get("/orders")
def orders() -> list[str]:
    return list(app.state.orders)
