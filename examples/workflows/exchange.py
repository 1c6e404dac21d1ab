"""A2A 0.3 §9.6: a file goes in, two come back: one carried along, one as an address."""

import asyncio
import sys

from dragoman import Agent, Blob, Link, Turn, connect

agent = Agent("Scanner", description="Counts what is in a file.")


@agent.skill("scan", description="Counts the lines of a file.")
async def scan(turn: Turn) -> list[object]:
    file = next(file for file in turn.files if isinstance(file, Blob))
    lines = file.content.splitlines()
    report = "\n".join(f"{number}: {len(line)}" for number, line in enumerate(lines, 1))
    return [
        Blob(report.encode(), filename=f"{file.filename}.report", media_type="text/plain"),
        Link("https://files.example/manual.pdf", media_type="application/pdf"),
    ]


async def talk(address: str = "http://127.0.0.1:8420", dialect: str = "") -> list[str]:
    """The files that came back."""
    async with connect(address, dialect=dialect) as scanner:
        sent = Blob(b"one\nthree\n", filename="words.txt", media_type="text/plain")
        task = await scanner.send("count", sent)
        heard: list[str] = []
        for part in task.parts:
            if isinstance(part, Blob):
                heard.append(f"{part.filename} ({part.media_type}): {part.content.decode()}")
            elif isinstance(part, Link):
                heard.append(f"{part.media_type} at {part.url}")
        return heard


if __name__ == "__main__":
    print(asyncio.run(talk(*sys.argv[1:])))
