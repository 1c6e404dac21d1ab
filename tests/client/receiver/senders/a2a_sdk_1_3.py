"""Runs in the environment of a2a-sdk 1.3: its own sender tells a task, a step and a chunk."""

import asyncio
import sys

import httpx
from a2a.server.context import ServerCallContext
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore
from a2a.types import a2a_pb2 as a2a


async def main(url: str, token: str) -> None:
    store = InMemoryPushNotificationConfigStore()
    config = a2a.TaskPushNotificationConfig(task_id="t-1", url=url, token=token)
    await store.set_info("t-1", config, ServerCallContext())
    working = a2a.TaskStatus(state=a2a.TASK_STATE_WORKING)
    done = a2a.TaskStatus(state=a2a.TASK_STATE_COMPLETED)
    artifact = a2a.Artifact(artifact_id="a", parts=[a2a.Part(text="hi")])
    events = (
        a2a.Task(id="t-1", context_id="c-1", status=working),
        a2a.TaskArtifactUpdateEvent(task_id="t-1", context_id="c-1", artifact=artifact),
        a2a.TaskStatusUpdateEvent(task_id="t-1", context_id="c-1", status=done),
    )
    async with httpx.AsyncClient() as http:
        sender = BasePushNotificationSender(http, store)
        for event in events:
            await sender.send_notification("t-1", event)


asyncio.run(main(*sys.argv[1:]))
