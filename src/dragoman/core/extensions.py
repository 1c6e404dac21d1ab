"""The URIs of our A2A extensions, and the metadata keys that they define.

Each one has a page in `docs/extensions/`, which says what it adds and what a peer without it sees.
"""

from __future__ import annotations

CURSOR = "urn:dragoman:cursor:1"
"""A stream carries the sequence number of each event in the task's log, and can resume after a
given one. gRPC has no field for the number beside the message, so there it is in the event's
metadata, under this URI."""
IDEMPOTENCY = "urn:dragoman:idempotency:1"
"""A send that is repeated under the same key is executed once."""
SENDER_KEY = f"{IDEMPOTENCY}/key"
"""In the metadata of a message: the key under which its sender sent it, so that the sender finds
its task on a list. Only the next hop sees it."""
SKILLS = "urn:dragoman:skills:1"
"""The card holds JSON Schemas of the parameters and results of the skills."""
TRANSITIONS = "urn:dragoman:transitions:1"
"""A task lists the states that it has been in."""
DIALECTS = "urn:dragoman:dialects:1"
"""The card names the addresses of the dialects that are not A2A bindings."""
WORK = "urn:dragoman:work:1"
"""A caller sees the thoughts, logs, progress, tools and approvals of a run."""

PROGRESS = f"{WORK}/progress"
"""In the metadata of an event: how far the run is."""
QUESTION = f"{WORK}/question"
"""In the metadata of a data part: the part describes a question (see `core.questions`)."""
TOOLS = f"{WORK}/tools"
"""In the metadata of a request: the tools that the caller offers."""
DETACHED = f"{WORK}/detached"
"""In the metadata of an event: a blocking send does not wait any longer after it."""
