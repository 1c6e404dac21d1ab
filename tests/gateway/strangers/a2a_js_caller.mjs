// The scenarios of the gateway's matrix on @a2a-js/sdk 1.3.0, without a line of ours, read from
// standard input so that node finds its packages:
//   node --input-type=module - URL JSONRPC|HTTP+JSON|GRPC 1.0|0.3 < a2a_js_caller.mjs
// It prints a JSON line for each.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { Role, TaskState } from "@a2a-js/sdk";
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import { ContentTypeNotSupportedError } from "@a2a-js/sdk/errors";

const [url, binding, version] = process.argv.slice(2);
const PATIENCE = 60_000;
const LEGACY = version === "0.3";
const FACTORIES = {
  JSONRPC: JsonRpcTransportFactory,
  "HTTP+JSON": RestTransportFactory,
  GRPC: GrpcTransportFactory,
};

async function connect() {
  const options = { legacyCompat: { enabled: LEGACY } };
  const cardResolver = new DefaultAgentCardResolver(options);
  let card = await cardResolver.resolve(`${url}/`);
  if (LEGACY) {
    const { supportedInterfaces: _, ...old } = await (
      await fetch(`${url}/.well-known/agent-card.json`)
    ).json();
    card = old;
  }
  const transports = [new FACTORIES[binding](options)];
  const client = await new ClientFactory({ transports, cardResolver }).createFromAgentCard(card);
  assert.equal(client.protocolVersion, version, "version spoken");
  return client;
}

const part = ($case, value, about = {}) => ({
  content: { $case, value },
  filename: "",
  mediaType: "",
  ...about,
});
const text = (words) => part("text", words);
const message = (parts, about = {}) => ({
  messageId: randomUUID(),
  role: Role.ROLE_USER,
  parts,
  metadata: undefined,
  taskId: "",
  contextId: "",
  extensions: [],
  referenceTaskIds: [],
  ...about,
});
// A message for a skill, which names it for dialects that cannot.
const to = (skill, ...parts) =>
  message([part("data", { do: skill }), ...parts], { metadata: { skillId: skill } });
const ask = (client, message) => client.sendMessage({ tenant: "", message });
const stateOf = ({ state }) =>
  TaskState[state].replace("TASK_STATE_", "").toLowerCase().replace("_", "-");
const textOf = (parts = []) =>
  parts.map(({ content }) => (content?.$case === "text" ? content.value : "")).join("");
const result = (task) => task.artifacts.map(({ parts }) => textOf(parts)).join("");
const says = (task) => textOf(task.status.message?.parts);

function onlyPart(task) {
  const parts = task.artifacts.flatMap(({ parts }) => parts);
  assert.equal(parts.length, 1, JSON.stringify(task));
  return parts[0];
}

const SCENARIOS = {
  async send(client) {
    const task = await ask(client, to("echo", text("hi")));
    return { state: stateOf(task.status), text: result(task) };
  },
  async skill(client) {
    return { done_by: result(await ask(client, to("name", text("go")))) };
  },
  async "direct reply"(client) {
    const found = await ask(client, to("greet", text("hello")));
    if (found.messageId) return { kind: "message", text: textOf(found.parts) };
    return { kind: "task", text: result(found) || says(found) };
  },
  async stream(client) {
    const pieces = [];
    let state;
    const events = client.sendMessageStream({ tenant: "", message: to("count", text("4")) });
    for await (const { payload } of events) {
      if (payload.$case === "artifactUpdate") pieces.push(textOf(payload.value.artifact.parts));
      if (payload.$case === "statusUpdate") state = stateOf(payload.value.status);
    }
    return { pieces: pieces.filter((piece) => piece), state };
  },
  async "question and answer"(client) {
    const asked = [];
    let task = await ask(client, to("trip", text("go")));
    for (const answer of ["Rome", "3"]) {
      assert.equal(stateOf(task.status), "input-required", says(task));
      asked.push(says(task));
      const about = { taskId: task.id, contextId: task.contextId };
      task = await ask(client, message([text(answer)], about));
    }
    return { asked, state: stateOf(task.status), text: result(task) };
  },
  async cancel(client) {
    let id;
    const events = client.sendMessageStream({ tenant: "", message: to("slow", text("go")) });
    for await (const { payload } of events) {
      if (payload.$case === "task") id = payload.value.id;
      if (payload.$case === "statusUpdate" && stateOf(payload.value.status) === "working") break;
    }
    const before = stateOf((await client.getTask({ tenant: "", id })).status);
    return { before, after: stateOf((await client.cancelTask({ tenant: "", id })).status) };
  },
  async file(client) {
    const about = { filename: "a.bin", mediaType: "application/x-a" };
    const given = part("raw", Buffer.from([0, 255, 97, 98, 99]), about);
    const back = onlyPart(await ask(client, to("file", given)));
    assert.equal(back.content.$case, "raw");
    const content = Buffer.from(back.content.value).toString("hex");
    return { content, filename: back.filename, media_type: back.mediaType };
  },
  async data(client) {
    const given = part("data", { a: 1, b: [true, null, "x"] });
    return { value: onlyPart(await ask(client, to("data", given))).content.value };
  },
  async failure(client) {
    const task = await ask(client, to("fail", text("go")));
    const reason = task.status.message?.metadata?.reason ?? null;
    return { state: stateOf(task.status), says: says(task), reason };
  },
  async rejection(client) {
    const task = await ask(client, to("refuse", text("go")));
    return { state: stateOf(task.status), says: says(task) };
  },
  async error(client) {
    const about = { filename: "a.png", mediaType: "image/png" };
    const picture = part("raw", Buffer.from([137, 80, 78, 71]), about);
    try {
      const found = await ask(client, to("picky", picture));
      return { error: `a task that is ${stateOf(found.status)}` };
    } catch (error) {
      const told = [error, error.cause].some((e) => e instanceof ContentTypeNotSupportedError);
      if (told) return { error: "content type" };
      throw error;
    }
  },
  async get(client) {
    const sent = await ask(client, to("echo", text("again")));
    const found = await client.getTask({ tenant: "", id: sent.id });
    return { same: found.id === sent.id && found.contextId === sent.contextId, text: result(found) };
  },
  async resume(client) {
    let id, context;
    const events = client.sendMessageStream({ tenant: "", message: to("halves", text("go")) });
    for await (const { payload } of events) {
      if (payload.$case === "task") ({ id, contextId: context } = payload.value);
      if (payload.$case === "artifactUpdate" || payload.value.status?.message) break;
    }
    await ask(client, to("let-go", text(context)));
    try {
      for await (const _ of client.resubscribeTask({ tenant: "", id }));
    } catch {
      // It has ended before anybody asked for the rest.
    }
    const task = await client.getTask({ tenant: "", id });
    return { state: stateOf(task.status), text: result(task) };
  },
};

for (const [scenario, run] of Object.entries(SCENARIOS)) {
  const line = { scenario };
  const late = sleep(PATIENCE, undefined, { ref: false }).then(() => {
    throw new Error(`not done after ${PATIENCE} ms`);
  });
  try {
    line.seen = await Promise.race([connect().then(run), late]);
  } catch (error) {
    line.broken = `${error} ${error.cause ?? ""}`;
  }
  console.log(JSON.stringify(line));
}
process.exit(0);
