"""A2A 0.3 §9.5: leave a webhook with the message, go away, and be called.

The receiver checks the token and the signature of every call, and tells each thing once.
"""

import asyncio
import secrets
import sys

from granian.constants import Interfaces
from granian.server.embed import Server

from dragoman import Agent, State, Turn, connect
from dragoman.client.receiver import Notice, Proof, Receiver
from dragoman.core.model import Hook

TOKEN = secrets.token_urlsafe()
agent = Agent("Print shop", description="Calls you when it is printed.")


@agent.skill("print", description="Prints something.", examples=["a poster"])
async def print_it(turn: Turn) -> str:
    await asyncio.sleep(0.2)
    return f"Printed {turn.text}"


async def talk(
    address: str = "http://127.0.0.1:8420", dialect: str = "", port: str = "8425"
) -> tuple[str, str]:
    """The state that the last call told, and the result that was then fetched."""
    notices: asyncio.Queue[Notice] = asyncio.Queue(100)
    receiver = Receiver(notices.put, Proof(tokens=(TOKEN,)))
    server = Server(receiver, port=int(port), interface=Interfaces.ASGI, log_enabled=False)
    serving = asyncio.create_task(server.serve())
    try:
        async with connect(address, dialect=dialect) as shop:
            url = f"http://127.0.0.1:{port}/"
            hook = Hook(hook_id="", task_id="", url=url, token=TOKEN)
            await shop.send("a poster", wait=False, hook=hook)
            async with asyncio.timeout(30):
                while (notice := await notices.get()).state is not State.COMPLETED:
                    pass
            task = await shop.get(notice.task_id)
            return notice.state.value, task.text
    finally:
        server.stop()  # type: ignore[no-untyped-call]  # Granian's
        await serving


if __name__ == "__main__":
    print(asyncio.run(talk(*sys.argv[1:])))
