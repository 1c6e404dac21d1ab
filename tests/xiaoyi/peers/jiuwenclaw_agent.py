"""jiuwenclaw's XiaoYi channel as an agent, on two links to URL: it repeats what it is told.

Runs in the environment of `peers.JIUWENCLAW`: URL AK SK AGENT_ID. It sends each frame over both
links, with ids of its own. To `where` it sends a command to the phone, and says what came of it; of
a file it says the content that it has downloaded.
"""

import asyncio
import sys
import time
import types
from importlib.util import find_spec
from pathlib import Path

# The package loads every channel of the product, and what those ask for is not installed here.
channels = types.ModuleType("jiuwenclaw.channel")
product = Path(find_spec("jiuwenclaw").origin).parent
channels.__path__ = [str(product / "channel")]
sys.modules["jiuwenclaw.channel"] = channels

from jiuwenclaw.channel.base import RobotMessageRouter  # noqa: E402
from jiuwenclaw.channel.xiaoyi_channel import XiaoyiChannel, XiaoyiChannelConfig  # noqa: E402
from jiuwenclaw.schema.message import EventType, Message  # noqa: E402

INTENT = "GetCurrentLocation"


async def main(url: str, ak: str, sk: str, agent_id: str) -> None:
    told: asyncio.Queue = asyncio.Queue()
    config = XiaoyiChannelConfig(
        enabled=True, ak=ak, sk=sk, agent_id=agent_id, ws_url1=url, ws_url2=url
    )
    channel = XiaoyiChannel(config, RobotMessageRouter())

    def take(message: Message) -> bool:
        told.put_nowait(message)
        return True

    channel.on_message(take)
    results: asyncio.Queue = asyncio.Queue()
    channel.register_data_event_handler(INTENT, results.put_nowait)
    await channel.start()
    print("dialled", flush=True)

    async def say(message: Message, text: str, *, last: bool = False) -> None:
        kind = EventType.CHAT_FINAL  # deltas would be thoughts
        await channel.send(
            Message(
                id=message.id,
                type="event",
                channel_id=message.channel_id,
                session_id=message.session_id,
                params={},
                timestamp=time.time(),
                ok=True,
                payload={"content": text, "is_complete": last},
                event_type=kind,
                metadata=message.metadata,
            )
        )

    while True:
        message = await told.get()
        query, about = message.params["query"], message.metadata
        session, task = about["xiaoyi_session_id"], about["xiaoyi_task_id"]
        if query == "where":
            command = {
                "header": {"namespace": "Common", "name": "Action"},
                "payload": {"executeParam": {"intentName": INTENT}},
            }
            await channel.send_xiaoyi_phone_tools_command(session, task, message.id, command)
            event = await results.get()
            query = f"{event.intent_name} {event.outputs['code']}"
        for word in query.split():
            await say(message, f"{word} ")
        await say(message, "", last=True)


asyncio.run(main(*sys.argv[1:]))
