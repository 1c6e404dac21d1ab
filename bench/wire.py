"""What the bench says to a server, and how it makes sure the answer is right.

Every answer is decoded and checked: a server that is quick because it fails, joins chunks into
one event or leaves some out must not win.
"""

from dataclasses import dataclass

import msgspec

ECHO_TEXT = "Say it back, please: thirty-two connections are listening."


class WrongAnswer(Exception):
    """A server answered something else than the scenario asks for."""


@dataclass(frozen=True, slots=True)
class Words:
    """The spellings in which the servers differ."""

    send: str
    stream: str
    get: str
    user: str
    completed: str


A2A_1_0 = Words(
    "SendMessage", "SendStreamingMessage", "GetTask", "ROLE_USER", "TASK_STATE_COMPLETED"
)
# fasta2a also takes the 1.0 names, by rewriting them to these first; its own are cheaper for it.
FASTA2A = Words("message/send", "message/stream", "tasks/get", "user", "completed")


class Part(msgspec.Struct):
    text: str = ""


class Artifact(msgspec.Struct):
    parts: list[Part]


class Status(msgspec.Struct):
    state: str


class Task(msgspec.Struct):
    id: str
    status: Status
    artifacts: list[Artifact] = []


class ArtifactUpdate(msgspec.Struct):
    artifact: Artifact


class StatusUpdate(msgspec.Struct):
    status: Status


class Outcome(msgspec.Struct, rename="camel"):
    task: Task | None = None
    artifact_update: ArtifactUpdate | None = None
    status_update: StatusUpdate | None = None


# An error has no result, so nothing more need be read to tell the two apart.
class Answer(msgspec.Struct):
    result: Outcome | None = None


class TaskAnswer(msgspec.Struct):
    result: Task | None = None


_decode_answer = msgspec.json.Decoder(Answer).decode
_decode_task_answer = msgspec.json.Decoder(TaskAnswer).decode


def text_of(artifact: Artifact) -> str:
    return "".join(part.text for part in artifact.parts)


class Requests:
    """Ready-made HTTP requests for one server; only the numbers and the text are filled in."""

    def __init__(
        self, words: Words, port: int, *, stream_skill: str | None, path: str = "/"
    ) -> None:
        self._words = words
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            "Accept: %s\r\nA2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n%s"
        )
        self._stream_skill = stream_skill

    def send(self, number: int, text: str, *, webhook: str = "") -> bytes:
        body = self._message(self._words.send, number, text)
        if webhook:
            config = f'"configuration":{{"taskPushNotificationConfig":{{"url":"{webhook}"}}}}'
            body = f"{body[:-2]},{config}}}}}"
        return self._request("application/json", body)

    def stream(self, number: int, text: str) -> bytes:
        body = self._message(self._words.stream, number, text, skill=self._stream_skill)
        return self._request("text/event-stream", body)

    def get(self, number: int, task_id: str) -> bytes:
        return self.about(self._words.get, number, task_id)

    def about(self, method: str, number: int, task_id: str, *, stream: bool = False) -> bytes:
        """A request about a task, by a name of A2A 1.0."""
        body = (
            f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{{"id":"{task_id}"}}}}'
        )
        return self._request("text/event-stream" if stream else "application/json", body)

    def _message(self, method: str, number: int, text: str, *, skill: str | None = None) -> str:
        metadata = f',"metadata":{{"skillId":"{skill}"}}' if skill else ""
        return (
            f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{{"message":'
            f'{{"messageId":"bench-{number}","role":"{self._words.user}",'
            f'"parts":[{{"text":"{text}"}}]{metadata}}}}}}}'
        )

    def _request(self, accept: str, body: str) -> bytes:
        return (self._head % (accept, len(body), body)).encode()


class RestRequests:
    """The same over HTTP+JSON 1.0, header for header."""

    def __init__(self, port: int) -> None:
        self._head = (
            f"%s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            "Accept: application/json\r\nA2A-Version: 1.0\r\n"
        )

    def send(self, number: int, text: str) -> bytes:
        body = (
            f'{{"message":{{"messageId":"bench-{number}","role":"ROLE_USER",'
            f'"parts":[{{"text":"{text}"}}]}}}}'
        )
        head = self._head % "POST /message:send"
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    def get(self, task_id: str) -> bytes:
        return (self._head % f"GET /tasks/{task_id}" + "\r\n").encode()


def enveloped(body: bytes) -> bytes:
    """A REST answer as the checks know it. An error has no task, so it does not pass for one."""
    return b'{"result":%b}' % body


def task_sent(body: bytes, words: Words, *, early: bool) -> str:
    """The id of the task that a send answered with, completed with the echo unless `early`."""
    answer = _decode_answer(body)
    if answer.result is None or answer.result.task is None:
        raise WrongAnswer(f"no task in {body!r}")
    task = answer.result.task
    if not early:
        _check_echo(task, words, body)
    return task.id


def read_event(event: bytes) -> Outcome:
    """What an event of a stream says."""
    outcome = _decode_answer(event).result
    if outcome is None:
        raise WrongAnswer(f"no result in {event!r}")
    return outcome


def check_canceled(body: bytes) -> None:
    """Raise unless the answer to a cancel is the task, canceled."""
    answer = _decode_task_answer(body)
    if answer.result is None or answer.result.status.state != "TASK_STATE_CANCELED":
        raise WrongAnswer(f"not canceled: {body!r}")


def check_task_got(body: bytes, words: Words) -> None:
    """Raise unless the answer to a get holds the echo, completed."""
    answer = _decode_task_answer(body)
    if answer.result is None:
        raise WrongAnswer(f"no task in {body!r}")
    _check_echo(answer.result, words, body)


def _check_echo(task: Task, words: Words, body: bytes) -> None:
    if task.status.state != words.completed:
        raise WrongAnswer(f"not completed: {body!r}")
    if [text_of(artifact) for artifact in task.artifacts] != [ECHO_TEXT]:
        raise WrongAnswer(f"not the echo: {body!r}")


class StreamCheck:
    """Reads one stream's events and knows whether every chunk came alone and in its place."""

    __slots__ = ("_completed", "_ended", "chunks", "events")

    def __init__(self, words: Words) -> None:
        self._completed = words.completed
        self._ended = False
        self.chunks = 0
        self.events = 0

    def read(self, event: bytes) -> None:
        outcome = read_event(event)
        self.events += 1
        if outcome.artifact_update is not None:
            # An event that only marks the end of the artifact carries no text.
            if text := text_of(outcome.artifact_update.artifact):
                if text != f"w{self.chunks} ":
                    raise WrongAnswer(f"expected chunk {self.chunks} alone: {event!r}")
                self.chunks += 1
        elif outcome.status_update is not None:
            self._ended = outcome.status_update.status.state == self._completed

    def finish(self, chunks: int) -> None:
        """Raise unless all the chunks came and the task completed after them."""
        if self.chunks != chunks or not self._ended:
            ended = "completed" if self._ended else "never completed"
            raise WrongAnswer(f"{self.chunks} of {chunks} chunks arrived, {ended}")


def sample_answer() -> bytes:
    """An answer to a send as long as a usual one, for when there is no real one to take."""
    task_id, context_id = "t" * 36, "c" * 36
    ids = {"messageId": "bench-1", "contextId": context_id, "taskId": task_id}
    parts = [{"text": ECHO_TEXT}]
    task = {
        "id": task_id,
        "contextId": context_id,
        "status": {"state": A2A_1_0.completed, "timestamp": "2026-01-01T00:00:00.000Z"},
        "artifacts": [{"artifactId": "result", "parts": parts}],
        "history": [{**ids, "role": A2A_1_0.user, "parts": parts}],
    }
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": {"task": task}})
