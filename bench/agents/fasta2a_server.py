"""The bench agent on fasta2a, served the way its documentation shows: its app under uvicorn."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage

GAP_SECONDS = 0.005
# A worker's loop runs one task at a time; this many let as many tasks run together as the
# bench has connections, which the other servers do by themselves.
WORKER_LOOPS = 64


def result(text: str) -> Artifact:
    return Artifact(artifact_id="result", parts=[Part(text=text)])


class BenchWorker(Worker[list[Message]]):
    """Echoes; `chunks N` and `spaced N` stream N chunks, `hang` never ends."""

    async def run_task(self, params: TaskSendParams) -> None:
        task_id, context_id = params["id"], params["context_id"]
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")

        text = "".join(part.get("text", "") for part in params["message"]["parts"])
        command, _, count = text.partition(" ")
        if command in ("chunks", "spaced"):
            text = await self.write_chunks(params, int(count), spaced=command == "spaced")
        else:
            answer = "w0 " if command == "hang" else text
            await self.publish_artifact(task_id, context_id, result(answer))
        if command == "hang":
            # A run that returns without a final state leaves its stream open, which spares
            # this server a waiting worker loop for every idle stream.
            return
        await self.storage.update_task(task_id, state="completed", new_artifacts=[result(text)])

    async def write_chunks(self, params: TaskSendParams, count: int, *, spaced: bool) -> str:
        chunks = []
        for number in range(count):
            if spaced and number:
                await asyncio.sleep(GAP_SECONDS)
            chunks.append(f"w{number} ")
            await self.publish_artifact(
                params["id"],
                params["context_id"],
                result(chunks[-1]),
                append=number > 0,
                last_chunk=number == count - 1,
            )
        return "".join(chunks)

    async def cancel_task(self, params: TaskIdParams) -> None:
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [result]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", choices=["memory:"], default="memory:")
    options = parser.parse_args()

    storage, broker = InMemoryStorage(), InMemoryBroker()
    worker = BenchWorker(storage=storage, broker=broker)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, AsyncExitStack() as loops:
            for _ in range(WORKER_LOOPS):
                await loops.enter_async_context(worker.run())
            yield

    app = FastA2A(
        storage=storage,
        broker=broker,
        name="Bench",
        url=f"http://127.0.0.1:{options.port}/",
        lifespan=lifespan,
    )
    # No access log: nobody in this comparison writes one.
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
