"""QwenPaw's XiaoYi channel as an agent: it dials URL, and repeats what it is told, word by word.

Runs in the environment of `peers.QWENPAW`: URL AK SK AGENT_ID FOLDER. To `wait` it says one word,
and no more.
"""

import asyncio
import sys
from types import SimpleNamespace

from qwenpaw.app.channels import base

# Its settings file would ask for the packages that are left out.
base.load_config = lambda *_, **__: SimpleNamespace(tools=SimpleNamespace(builtin_tools={}))

from qwenpaw.app.channels.xiaoyi.channel import XiaoYiChannel  # noqa: E402


async def main(url: str, ak: str, sk: str, agent_id: str, folder: str) -> None:
    told: asyncio.Queue = asyncio.Queue()
    channel = XiaoYiChannel(
        process=None, enabled=True, ak=ak, sk=sk, agent_id=agent_id, ws_url=url, media_dir=folder
    )
    channel.set_enqueue(told.put_nowait)
    await channel.start()
    print("dialled", flush=True)
    while True:
        native = await told.get()
        meta, text = native["meta"], native["content_parts"][0].text
        session = meta["session_id"]
        if text == "wait":
            await channel.send(session, "begun", meta)
            continue
        for word in text.split():
            await channel.send(session, f"{word} ", meta)
        await channel.send_final_message(session, meta["task_id"], meta["message_id"])


asyncio.run(main(*sys.argv[1:]))
