"""Files in and out: reads the text files it gets, gives back a Markdown summary and a CSV."""

from dragoman import Agent, Blob, Turn

agent = Agent("Counter", description="Counts the words in files.")


@agent.skill("count", description="Counts words.", input_modes=["text/plain"])
async def count(turn: Turn) -> None:
    texts = {file.filename: file.content.decode() for file in turn.files if isinstance(file, Blob)}
    if turn.text:
        texts["message"] = turn.text
    if not texts:
        raise turn.reject("Send text or a text file.")
    sizes = {name: len(text.split()) for name, text in texts.items()}
    table = "\n".join(("name,words", *(f"{name},{words}" for name, words in sizes.items())))
    await turn.artifact(f"# {sum(sizes.values())} words in all", name="summary")
    await turn.artifact(
        Blob(table.encode(), filename="words.csv", media_type="text/csv"), name="table"
    )
