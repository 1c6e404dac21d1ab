"""Canonical values of every shape, for hypothesis."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.core.card import (
    ApiKey,
    Card,
    CardSkill,
    Extension,
    HttpAuth,
    Interface,
    MutualTls,
    OAuth2,
    OAuthFlow,
    OpenId,
    Provider,
    Signature,
)
from dragoman.core.events import (
    ArtifactChunk,
    Ask,
    Asked,
    Note,
    Noted,
    Opened,
    Snapshot,
    Stamped,
    StateChanged,
)
from dragoman.core.model import (
    Artifact,
    Blob,
    Data,
    Hook,
    Link,
    Message,
    Role,
    State,
    Status,
    Task,
    Text,
)
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    HookPage,
    Invoke,
    ListHooks,
    ListTasks,
    SendMessage,
    SetHook,
    TaskPage,
    Watch,
)
from dragoman.core.session import Call, Result, Update

words = st.text(max_size=12)
names = st.text(min_size=1, max_size=12)
# These keys mean something to a dialect, so they must be met.
keys = st.sampled_from(["filename", "mediaType", "data_part_compat", "value"]) | words
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
bags = st.none() | st.dictionaries(keys, values, max_size=3)
lists = st.lists(words, max_size=2).map(tuple)
times = st.integers(0, 253402300799999)

dress = {"filename": words, "media_type": words, "metadata": bags}
parts = st.one_of(
    st.builds(Text, words, **dress),
    st.builds(Blob, st.binary(max_size=20), **dress),
    st.builds(Link, words.map(lambda word: f"https://example.org/{quote(word)}"), **dress),
    st.builds(Data, values, **dress),
)
messages = st.builds(
    Message,
    message_id=names,
    role=st.sampled_from(Role),
    parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
    context_id=words,
    task_id=words,
    metadata=bags,
    extensions=lists,
    references=lists,
)
artifacts = st.builds(
    Artifact,
    artifact_id=names,
    parts=st.lists(parts, max_size=3).map(tuple),
    name=words,
    description=words,
    metadata=bags,
    extensions=lists,
)
states = st.sampled_from(State)
tasks = st.builds(
    Task,
    id=names,
    context_id=words,
    status=st.builds(Status, states, times, st.none() | messages),
    artifacts=st.lists(artifacts, max_size=2).map(tuple),
    history=st.lists(messages, max_size=2).map(tuple),
    metadata=bags,
)
pages = st.builds(
    TaskPage,
    tasks=st.lists(tasks, max_size=2).map(tuple),
    next_token=words,
    page_size=st.integers(1, 100),
    total=st.integers(0, 1000),
)
interfaces = st.builds(
    Interface,
    url=names,
    binding=names,
    version=st.sampled_from(["1.0", "0.3", "2.7"]),
    tenant=words,
)
flows = st.builds(
    OAuthFlow,
    kind=st.sampled_from(["authorizationCode", "clientCredentials", "implicit", "password"]),
    token_url=words,
    authorization_url=words,
    refresh_url=words,
    scopes=st.dictionaries(words, words, max_size=2),
    pkce_required=st.booleans(),
)
schemes = st.one_of(
    st.builds(ApiKey, name=words, location=names, description=words),
    st.builds(HttpAuth, scheme=words, bearer_format=words, description=words),
    # 1.0 has room for one flow; the others are 0.3's alone.
    st.builds(OAuth2, flows=st.tuples(flows), metadata_url=words, description=words),
    st.builds(OpenId, url=words, description=words),
    st.builds(MutualTls, description=words),
)
requirements = st.lists(
    # 0.3's spelling of a scheme called so reads like 1.0's spelling of anything.
    st.dictionaries(words.filter(lambda name: name != "schemes"), lists, max_size=2),
    max_size=2,
).map(tuple)
cards = st.builds(
    Card,
    name=words,
    description=words,
    version=words,
    interfaces=st.lists(interfaces, max_size=4, unique=True).map(tuple),
    provider=st.none() | st.builds(Provider, words, words),
    documentation_url=words,
    icon_url=words,
    streaming=st.booleans(),
    push=st.booleans(),
    extended=st.booleans(),
    extensions=st.lists(
        st.builds(Extension, uri=words, description=words, required=st.booleans(), params=bags),
        max_size=2,
    ).map(tuple),
    input_modes=lists,
    output_modes=lists,
    skills=st.lists(
        st.builds(
            CardSkill,
            id=words,
            name=words,
            description=words,
            tags=lists,
            examples=lists,
            input_modes=lists,
            output_modes=lists,
            security=requirements,
        ),
        max_size=2,
    ).map(tuple),
    schemes=st.dictionaries(words, schemes, max_size=2),
    security=requirements,
    signatures=st.lists(st.builds(Signature, words, words, bags), max_size=2).map(tuple),
)
hooks = st.builds(
    Hook,
    hook_id=words,
    task_id=names,
    url=names,
    token=words,
    scheme=words,
    credentials=words,
    dialect=words,
).flatmap(
    # Further schemes come after a first one.
    lambda hook: st.lists(names, max_size=2 if hook.scheme else 0).map(
        lambda others: replace(hook, other_schemes=tuple(others))
    )
)

lengths = st.none() | st.integers(0, 2**31 - 1)
sends = st.builds(
    SendMessage,
    message=messages,
    wait=st.booleans(),
    history_length=lengths,
    accepts=lists,
    hook=st.none() | hooks,
    metadata=bags,
)
watches = st.builds(Watch, task_id=names)
gets = st.builds(GetTask, task_id=names, history_length=lengths)
listings = st.builds(
    ListTasks,
    context_id=words,
    # Unknown is no filter: 1.0 has no name for it but "unspecified".
    state=st.none() | st.sampled_from([state for state in State if state is not State.UNKNOWN]),
    since=st.none() | times,
    page_size=st.integers(1, 100),
    page_token=words,
    history_length=lengths,
    with_artifacts=st.booleans(),
)
cancels = st.builds(CancelTask, task_id=names, metadata=bags)
setting_hooks = st.builds(SetHook, hook=hooks)
getting_hooks = st.builds(GetHook, task_id=names, hook_id=names)
listing_hooks = st.builds(
    ListHooks, task_id=names, page_size=st.integers(0, 1000), page_token=words
)
deleting_hooks = st.builds(DeleteHook, task_id=names, hook_id=names)
hook_pages = st.builds(HookPage, hooks=st.lists(hooks, max_size=2).map(tuple), next_token=words)
own_names = st.from_regex(r"[a-z]{1,5}\.[a-z0-9-]{1,5}/[A-Za-z:/.%-]{1,8}", fullmatch=True)
invokes = st.builds(Invoke, method=own_names, params=st.none() | bags | values)

events = st.one_of(
    st.builds(Opened, message=messages, metadata=bags, skill=words, accepts=lists),
    st.builds(
        StateChanged,
        state=states,
        message=st.none() | messages,
        heard=st.none() | messages,
        metadata=bags,
    ),
    st.builds(Asked, question=names, kind=st.sampled_from(Ask), message=messages, body=values),
    st.builds(
        ArtifactChunk,
        artifact=artifacts,
        append=st.booleans(),
        last=st.booleans(),
        metadata=bags,
    ),
    st.builds(Noted, kind=st.sampled_from(Note), body=values),
    st.builds(Snapshot, task=tasks),
)
entries = st.builds(Stamped, words, words, st.integers(1, 2**53), times, events)

ids = names | st.integers(0, 2**40) | st.floats(allow_nan=False, allow_infinity=False)
calls = st.one_of(
    st.builds(Call, ids, sends | gets | listings | cancels | st.just(GetExtendedCard())),
    st.builds(Call, ids, sends | watches, st.just(True)),
)
exchanges = st.one_of(
    st.tuples(sends, tasks | messages),
    st.tuples(gets | cancels, tasks),
    st.tuples(listings, pages),
    st.tuples(st.just(GetExtendedCard()), cards),
    st.tuples(setting_hooks | getting_hooks, hooks),
    st.tuples(listing_hooks, hook_pages),
    st.tuples(deleting_hooks, st.none()),
    st.tuples(invokes, values),
).flatmap(lambda pair: ids.map(lambda id: (Call(id, pair[0]), Result(id, pair[1]))))
streams = st.tuples(sends | watches, entries | messages).flatmap(
    lambda pair: ids.map(lambda id: (Call(id, pair[0], True), Update(id, pair[1])))
)
