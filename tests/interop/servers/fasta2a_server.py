"""A small agent on fasta2a 2.1.1: `fasta2a_server.py RPC_PORT`.

Its worker keeps tasks in the storage; what it publishes goes only to open streams. A message to a
task opens another one in the same context: it has no tasks that go on.
"""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage

PORT = int(sys.argv[1])
LOOPS = 8
"""A worker's loop runs one task at a time, and a cancel waits for a free one."""


def result(*parts: Part) -> Artifact:
    return Artifact(artifact_id="result", parts=list(parts))


def question() -> Message:
    return Message(
        role="agent", parts=[Part(text="Which city?")], kind="message", message_id="question"
    )


class Desk(Worker[list[Message]]):
    """Echoes in capitals; `count N`, `ask`, `parts` and `slow` do something else."""

    async def run_task(self, params: TaskSendParams) -> None:
        task_id, context_id = params["id"], params["context_id"]
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        parts = params["message"]["parts"]
        text = "".join(part.get("text", "") for part in parts)
        command, _, rest = text.partition(" ")
        asked = await self.storage.load_context(context_id)
        made = result(Part(text=f"A trip to {text}" if asked else text.upper()))
        if command == "ask":
            await self.storage.update_context(context_id, [question()])
            said = [question()]
            await self.storage.update_task(task_id, state="input-required", new_messages=said)
            return
        if command == "slow":
            for _ in range(600):
                await asyncio.sleep(0.1)  # until it is canceled
                task = await self.storage.load_task(task_id)
                if task is not None and task["status"]["state"] == "canceled":
                    return
        elif command == "count":
            made = await self.count(params, int(rest))
        else:
            if command == "parts":
                made = result(*filter(None, map(turned, parts)))
            await self.publish_artifact(task_id, context_id, made)
        await self.storage.update_task(task_id, state="completed", new_artifacts=[made])

    async def count(self, params: TaskSendParams, many: int) -> Artifact:
        chunks = [f"{number} " for number in range(many)]
        for number, chunk in enumerate(chunks):
            await self.publish_artifact(
                params["id"],
                params["context_id"],
                result(Part(text=chunk)),
                append=number > 0,
                last_chunk=number == many - 1,
            )
            await asyncio.sleep(0.01)  # its work
        return result(Part(text="".join(chunks)))

    async def cancel_task(self, params: TaskIdParams) -> None:
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [result]


def turned(part: Part) -> Part | None:
    if "raw" in part:
        back = base64.b64encode(base64.b64decode(part["raw"])[::-1]).decode()
        return Part(raw=back, filename="back.bin")
    return Part(data={"got": part["data"]}) if "data" in part else None


def main() -> None:
    storage, broker = InMemoryStorage(), InMemoryBroker()
    worker = Desk(storage=storage, broker=broker)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, AsyncExitStack() as loops:
            for _ in range(LOOPS):
                await loops.enter_async_context(worker.run())
            yield

    app = FastA2A(
        storage=storage,
        broker=broker,
        name="Desk on fasta2a 2.1.1",
        url=f"http://127.0.0.1:{PORT}/",
        lifespan=lifespan,
    )
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")


if __name__ == "__main__":
    main()
