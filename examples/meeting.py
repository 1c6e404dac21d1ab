"""An agent for a chat room: people mention it, other agents send it tasks with markers.

    dragoman lite serve examples/meeting.py --channel loopback --user minutes --room team
    dragoman chat 'lite+loopback://local/team'

It asks for a title, and before it posts the minutes.
"""

from dragoman import Agent, Turn

agent = Agent("Minutes", description="Writes the minutes of a meeting.", version="1.0.0")


@agent.skill("minutes", examples=["Tea is at four. Anna brings the cake."], tags=["notes"])
async def minutes(turn: Turn) -> None:
    """Turns what was said into minutes."""
    await turn.progress(0.5)
    lines = [line.strip() for line in turn.text.replace("\n", ".").split(".") if line.strip()]
    title = await turn.ask("What is the title of the meeting?")
    notes = "\n".join([f"# {title}", *(f"- {line}" for line in lines)])
    if not await turn.approve("Post the minutes?", details={"lines": len(lines)}):
        raise turn.reject("They were not posted.")
    await turn.artifact(notes, name="minutes")
