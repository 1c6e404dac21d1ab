"""The operations on webhooks."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.core.errors import BadParams, HookNotFound, PushUnsupported, TooMany
from dragoman.core.model import Hook
from dragoman.core.operations import DeleteHook, GetHook, HookPage, ListHooks, SetHook
from dragoman.core.peer import Context
from dragoman.store.interface import Scope, Store

from .runs.run import Run
from .webhook_queue import WebhookQueue


class Hooks:
    """Registers, shows and deletes webhooks, if the server delivers them."""

    def __init__(
        self,
        store: Store,
        webhooks: WebhookQueue | None,
        mine: Callable[[Scope, str], Run | None],
        scope_of: Callable[[Context], Scope],
    ) -> None:
        self._store = store
        self._webhooks = webhooks
        self._mine = mine
        self._scope_of = scope_of

    @property
    def webhooks(self) -> WebhookQueue:
        """Returns the queue that calls them. Raises `PushUnsupported` if there is none."""
        if self._webhooks is None:
            raise PushUnsupported()
        return self._webhooks

    async def checked(self, hook: Hook, ctx: Context) -> Hook:
        """Checks the address of a webhook, and returns the webhook with its caller's dialect."""
        await self.webhooks.sender.check(hook)
        return replace(hook, dialect=hook.dialect or ctx.dialect)

    def sealed(self, hook: Hook, task_id: str) -> Hook:
        """Returns a checked webhook in the form that is stored with a task."""
        return self.webhooks.sender.sealed(_named(hook, task_id))

    async def set(self, op: SetHook, ctx: Context) -> Hook:
        """Registers a webhook. The response shows the secrets that the caller sent; afterwards they
        are masked. A masked secret in a later registration keeps its stored value."""
        task_id = op.hook.task_id
        webhooks, scope = self.webhooks, self._scope_of(ctx)
        known = {hook.hook_id: hook for hook in await self._store.hooks(scope, task_id)}
        hook = _named(await self.checked(op.hook, ctx), task_id)
        if hook.hook_id not in known and len(known) >= webhooks.settings.max_hooks:
            raise TooMany("The task has too many webhooks; delete one first", taskId=task_id)
        stored = webhooks.sender.sealed(hook, known.get(hook.hook_id))
        await self._store.set_hook(scope, stored)
        run = self._mine(scope, task_id)
        if run is not None:
            run.writer.has_webhooks = True
        webhooks.wake()
        return hook

    async def get(self, op: GetHook, ctx: Context) -> Hook:
        """Returns one webhook of a task, with masked secrets."""
        for hook in await self._shown(op.task_id, ctx):
            if op.hook_id in ("", hook.hook_id):
                return hook
        raise HookNotFound(taskId=op.task_id)

    async def list(self, op: ListHooks, ctx: Context) -> HookPage:
        """Returns the webhooks of a task, with masked secrets."""
        hooks = await self._shown(op.task_id, ctx)
        if op.page_token and not (op.page_token.isascii() and op.page_token.isdecimal()):
            raise BadParams("This is no page token of ours", field="pageToken")
        start = int(op.page_token[:9] or 0)
        end = start + op.page_size if op.page_size else len(hooks)
        more = str(end) if end < len(hooks) else ""
        return HookPage(hooks=tuple(hooks[start:end]), next_token=more)

    async def delete(self, op: DeleteHook, ctx: Context) -> None:
        """Deletes a webhook."""
        await self._shown(op.task_id, ctx)  # the task must exist, the webhook need not
        await self._store.delete_hook(self._scope_of(ctx), op.task_id, op.hook_id)

    async def _shown(self, task_id: str, ctx: Context) -> tuple[Hook, ...]:
        masked = self.webhooks.sender.masked
        return tuple(map(masked, await self._store.hooks(self._scope_of(ctx), task_id)))


def _named(hook: Hook, task_id: str) -> Hook:
    # A webhook without an id gets the id of its task, so that registering it again replaces it.
    return replace(hook, task_id=task_id, hook_id=hook.hook_id or task_id)
