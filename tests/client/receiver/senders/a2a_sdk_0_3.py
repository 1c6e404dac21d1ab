"""Runs in the environment of a2a-sdk 0.3.26: its own sender tells the whole task, twice."""

import asyncio
import sys

import httpx
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore
from a2a.types import Artifact, Part, PushNotificationConfig, Task, TaskState, TaskStatus, TextPart


async def main(url: str, token: str) -> None:
    store = InMemoryPushNotificationConfigStore()
    await store.set_info("t-1", PushNotificationConfig(url=url, token=token))
    artifact = Artifact(artifact_id="a", parts=[Part(root=TextPart(text="hi"))])
    async with httpx.AsyncClient() as http:
        sender = BasePushNotificationSender(http, store)
        for state in (TaskState.working, TaskState.completed):
            status = TaskStatus(state=state)
            task = Task(id="t-1", context_id="c-1", status=status, artifacts=[artifact])
            await sender.send_notification(task)


asyncio.run(main(*sys.argv[1:]))
