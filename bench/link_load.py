"""The load of XiaoYi links: many agents that have dialled in, each of which gets a task every
second, sends its heartbeats, and expects its pings to be answered."""

import asyncio
import json
import random
import re
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from websockets.asyncio.client import ClientConnection, connect

from dragoman.dialects.xiaoyi.signing import handshake_headers
from dragoman.dialects.xiaoyi.wire import PATH

from .load import HOST, Burst, Connection, connections
from .peers import Server
from .proxies import LINK_KEYS, linked_agents
from .sample import CONNECTIONS, SETTLE, Pace, Sample, sample_of
from .wire import A2A_1_0, ECHO_TEXT, Requests, WrongAnswer, task_sent

HEARTBEAT = 20.0
"""The seconds between two heartbeats of an agent, as in the source document."""
PATIENCE = 5.0
"""The seconds in which the server must have answered a ping behind a heartbeat."""
WARM = 10
"""The agents that dial in first, so that what a server loads once is not the memory of a link."""
LIMIT = 60.0
"""The seconds in which all agents must be served."""
_FRAMES = {
    "init": '{{"msgType":"clawd_bot_init","agentId":"{0}"}}',
    "heartbeat": '{{"msgType":"heartbeat","agentId":"{0}"}}',
}


def links(count: int) -> Callable[[Server, Pace], Awaitable[Sample]]:
    """A task every second on each of so many links: the CPU of one, and the memory of a link."""

    async def run(server: Server, pace: Pace) -> Sample:
        _allow_files(2 * count)
        agents = [LinkedAgent(agent_id) for agent_id in linked_agents(count)]
        # Long enough for every agent to send two heartbeats.
        seconds = 2.2 * HEARTBEAT if pace.warm_up_share == 1.0 else 5.0
        async with AsyncExitStack() as stack:
            await _dial(stack, server.port, agents[:WARM])
            async with _calls(server.port) as calls:
                await _served(calls, server.port, agents[:WARM])
                await _tasks(calls, server.port, agents[:WARM], 2.0)
            before = server.rss_kib()
            await _dial(stack, server.port, agents[WARM:])
            async with _calls(server.port) as calls:
                await _served(calls, server.port, agents)
                memory = server.rss_kib() - before
                await _tasks(calls, server.port, agents, 2.0)
                cpu = server.cpu_seconds()
                burst = await _tasks(calls, server.port, agents, seconds)
                await asyncio.sleep(SETTLE)
                cpu = server.cpu_seconds() - cpu
                still = await _open_links(calls, server.port)
        missed = sum(agent.missed for agent in agents) + abs(count - still)
        sample = sample_of(burst, cpu, units=burst.count)
        return Sample(
            cpu_us=sample.cpu_us,
            per_second=sample.per_second,
            p50_ms=sample.p50_ms,
            p99_ms=sample.p99_ms,
            load_share=sample.load_share,
            requests=burst.count,
            kib=memory / (count - WARM),
            missed=missed,
        )

    return run


@asynccontextmanager
async def _calls(port: int) -> AsyncIterator[asyncio.Queue[Connection]]:
    """The connections on which no call runs."""
    async with connections(port, CONNECTIONS) as opened:
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in opened:
            free.put_nowait(connection)
        yield free


class LinkedAgent:
    """An agent that has dialled in, and repeats what it is told."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.missed = 0

    async def live(self, socket: ClientConnection) -> None:
        """Answers, and sends heartbeats, until it is canceled."""
        beats = asyncio.create_task(self._beat(socket))
        try:
            async for body in socket:
                request = json.loads(body)
                if request["method"] == "message/stream":
                    await socket.send(self._answer(request["params"]))
            self.missed += 1  # the server has closed the link
        finally:
            beats.cancel()

    async def _beat(self, socket: ClientConnection) -> None:
        await asyncio.sleep(random.uniform(0, HEARTBEAT))
        while True:
            due = time.perf_counter() + HEARTBEAT
            await socket.send(_FRAMES["heartbeat"].format(self.agent_id))
            try:
                async with asyncio.timeout(PATIENCE):
                    await (await socket.ping())
            except Exception:  # whatever happened to the link
                self.missed += 1
                return
            await asyncio.sleep(due - time.perf_counter())

    def _answer(self, params: dict[str, str]) -> str:
        task, session = params["id"], params["sessionId"]
        result = {
            "taskId": task,
            "kind": "artifact-update",
            "append": False,
            "lastChunk": True,
            "final": True,
            "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": ECHO_TEXT}]},
        }
        detail = {"jsonrpc": "2.0", "id": task, "result": result}
        return json.dumps(
            {
                "msgType": "agent_response",
                "agentId": self.agent_id,
                "sessionId": session,
                "taskId": task,
                "msgDetail": json.dumps(detail),
            }
        )


async def _dial(stack: AsyncExitStack, port: int, agents: list[LinkedAgent]) -> None:
    """Opens a link of each agent, one after the other."""
    for agent in agents:
        headers = handshake_headers(*LINK_KEYS, agent.agent_id, time.time_ns() // 1_000_000)
        socket = await stack.enter_async_context(
            connect(
                f"ws://{HOST}:{port}{PATH}",
                additional_headers=headers,
                compression=None,
                ping_interval=None,
                proxy=None,
            )
        )
        await socket.send(_FRAMES["init"].format(agent.agent_id))
        stack.callback(asyncio.create_task(agent.live(socket)).cancel)


async def _served(calls: asyncio.Queue[Connection], port: int, agents: list[LinkedAgent]) -> None:
    """Waits until each agent answers."""
    deadline = time.perf_counter() + LIMIT
    for number, agent in enumerate(agents):
        while True:
            try:
                await _task(calls, port, agent, -number - 1)
                break
            except Exception:  # it is not mounted yet: HTTP 404
                if time.perf_counter() > deadline:
                    raise
                await asyncio.sleep(0.05)


async def _task(
    calls: asyncio.Queue[Connection], port: int, agent: LinkedAgent, number: int
) -> float:
    """Has an agent do a task, and returns the seconds."""
    requests = Requests(A2A_1_0, port, stream_skill=None, path=f"/agents/{agent.agent_id}/")
    connection = await calls.get()
    try:
        began = time.perf_counter()
        body = await connection.start(requests.send(number, ECHO_TEXT))
        task_sent(body, A2A_1_0, early=False)
        return time.perf_counter() - began
    finally:
        calls.put_nowait(connection)


async def _tasks(
    calls: asyncio.Queue[Connection], port: int, agents: list[LinkedAgent], seconds: float
) -> Burst:
    """Has every agent do a task each second, not all in the same moment."""
    clock = time.perf_counter
    began, load_cpu = clock(), time.process_time()
    latencies: list[float] = []

    async def keep_busy(number: int, agent: LinkedAgent) -> None:
        due = began + number / len(agents)
        while due < began + seconds:
            await asyncio.sleep(due - clock())
            latencies.append(await _task(calls, port, agent, int(due * 1000)))
            due += 1.0

    async with asyncio.TaskGroup() as group:
        for number, agent in enumerate(agents):
            group.create_task(keep_busy(number, agent))
    return Burst(latencies, clock() - began, time.process_time() - load_cpu)


async def _open_links(calls: asyncio.Queue[Connection], port: int) -> int:
    """Returns how many links the server has, none of which was opened twice."""
    connection = await calls.get()
    request = f"GET /metrics HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n"
    text = (await connection.start(request.encode())).decode()
    found = {
        name: sum(int(n) for n in re.findall(rf"(?m)^dragoman_{name}{{.*}} (\d+)$", text))
        for name in ("xiaoyi_links", "xiaoyi_links_opened_total")
    }
    if len(set(found.values())) != 1:
        raise WrongAnswer(f"links were lost and opened again: {found}")
    return found["xiaoyi_links"]


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
