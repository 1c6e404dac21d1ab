"""What a call costs the client of a2a-sdk:
`a2a_sdk_client.py URL CALLERS WARM_UP SECONDS send|stream`.

Made as its documentation shows, and with as many connections as callers.
"""

import asyncio
import sys
import time
from uuid import uuid4

import httpx
import uvloop
from a2a.client import ClientConfig, create_client
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest


async def main() -> None:
    url, callers, warm_up, seconds = sys.argv[1], *map(float, sys.argv[2:5])
    streams = sys.argv[5] == "stream"
    latencies: list[float] = []
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
    async with httpx.AsyncClient(limits=limits, timeout=30) as http:
        agent = await create_client(url, ClientConfig(streaming=streams, httpx_client=http))

        def request(text: str, **metadata: str) -> SendMessageRequest:
            said = Message(role=Role.ROLE_USER, message_id=uuid4().hex, parts=[Part(text=text)])
            said.metadata.update(metadata)
            return SendMessageRequest(message=said)

        async def send() -> None:
            async for answer in agent.send_message(request("hello there")):
                text = answer.task.artifacts[0].parts[0].text
            if text != "hello there":
                raise SystemExit(f"wrong answer: {answer}")

        async def stream() -> None:
            chunks = 0
            async for answer in agent.send_message(request("chunks 20", skillId="write")):
                chunks += bool(answer.artifact_update.artifact.parts)
            if chunks != 20:
                raise SystemExit(f"{chunks} chunks")

        call = stream if streams else send

        async def keep_busy(until: float) -> None:
            while (began := time.perf_counter()) < until:
                await call()
                latencies.append(time.perf_counter() - began)

        for duration in (warm_up, seconds):
            latencies.clear()
            began, cpu = time.perf_counter(), time.process_time()
            until = began + duration
            await asyncio.gather(*(keep_busy(until) for _ in range(int(callers))))
    spent, cpu = time.perf_counter() - began, time.process_time() - cpu
    latencies.sort()
    count = len(latencies)
    p50, p99 = latencies[count // 2], latencies[int(count * 0.99)]
    print(count, cpu, spent, p50, p99)


uvloop.run(main())
