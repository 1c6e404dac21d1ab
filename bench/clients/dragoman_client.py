"""What a call costs our client: `dragoman_client.py URL CALLERS WARM_UP SECONDS send|stream`."""

import asyncio
import sys
import time

import uvloop

from dragoman import ArtifactChunk, connect


async def main() -> None:
    url, callers, warm_up, seconds = sys.argv[1], *map(float, sys.argv[2:5])
    latencies: list[float] = []
    async with connect(url) as agent:

        async def send() -> None:
            task = await agent.send("hello there")
            if task.text != "hello there":
                raise SystemExit(f"wrong answer: {task}")

        async def stream() -> None:
            chunks = 0
            async for event in agent.stream("chunks 20", skill="write"):
                chunks += isinstance(event.event, ArtifactChunk)
            if chunks != 20:
                raise SystemExit(f"{chunks} chunks")

        call = stream if sys.argv[5] == "stream" else send

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
