// The matrix as @a2a-js/sdk 1.3.0 sees it, read from standard input so that node finds its packages:
//   node --input-type=module - FOLDER URL TOKEN JSONRPC|HTTP+JSON|GRPC 1.0|0.3 < a2a_js.mjs

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

import { Role, TaskState } from "@a2a-js/sdk";
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import { TaskNotFoundError } from "@a2a-js/sdk/errors";

const PATIENCE = 20_000;
const CARD = "/.well-known/agent-card.json";
const [HOOK_TOKEN, HOOK_CREDENTIALS] = ["token-of-the-webhook", "credentials-of-the-webhook"];
const SECRET_SKILL = "hidden";
const [, url, token, binding, version] = process.argv.slice(2);
const LEGACY = version === "0.3";
const FACTORIES = {
  JSONRPC: JsonRpcTransportFactory,
  "HTTP+JSON": RestTransportFactory,
  GRPC: GrpcTransportFactory,
};

class Cannot extends Error {}
class Partly extends Error {}

/** Every call on the wire counts, over fetch and over gRPC. */
let asked = 0;
const counted = (...args) => (asked++, fetch(...args));

const received = [];
const receiver = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const { "x-a2a-notification-token": proof, authorization } = request.headers;
  received.push({ path: request.url, proof, authorization, body: JSON.parse(body) });
  response.writeHead(204).end();
});
await new Promise((ready) => receiver.listen(0, "127.0.0.1", ready));
const address = () => `http://127.0.0.1:${receiver.address().port}/${randomUUID()}`;

class Caller {
  async connect() {
    const options = { fetchImpl: counted, legacyCompat: { enabled: LEGACY } };
    this.resolver = new DefaultAgentCardResolver(options);
    this.raw = await this.resolver.resolve(url);
    if (LEGACY) {
      // The card as a 0.3 reader takes it: no version asked for, new members unknown.
      const { supportedInterfaces: _, ...card } = await (await fetch(url + CARD)).json();
      this.raw = card;
    }
    this.card = this.resolver.normalizeAgentCard(this.raw);
    this.client = await this.made([{ before: bear, after: async () => {} }], options);
    this.stranger = await this.made([], options);
    assert.equal(this.client.protocolVersion, version, "version spoken");
    return this;
  }

  made(interceptors, options) {
    const grpcCallOptions = { interceptors: [(o, next) => (asked++, next(o))] };
    const transports = [new FACTORIES[binding]({ ...options, grpcCallOptions })];
    const clientConfig = { interceptors };
    const factory = new ClientFactory({ transports, cardResolver: this.resolver, clientConfig });
    return factory.createFromAgentCard(this.raw);
  }

  send(text, skill) {
    return this.client.sendMessage({ tenant: "", message: said(text, skill) });
  }

  /** A task that goes on after its stream was left. */
  async start(text) {
    const stream = this.client.sendMessageStream({ tenant: "", message: said(text, "slow") });
    for await (const event of stream) return event.payload.value.id;
  }

  async hook(text) {
    const config = {
      tenant: "",
      id: "h1",
      taskId: await this.start(text),
      url: address(),
      token: HOOK_TOKEN,
      authentication: { scheme: "Bearer", credentials: HOOK_CREDENTIALS },
    };
    const made = await this.client.createTaskPushNotificationConfig(config);
    assert.deepEqual([made.taskId, made.id, made.url], [config.taskId, "h1", config.url]);
    return config;
  }
}

/** The token, in whatever the binding has for headers. */
async function bear(args) {
  const { serviceParameters, ...rest } = args.options ?? {};
  const Authorization = `Bearer ${token}`;
  args.options = { ...rest, serviceParameters: { ...serviceParameters, Authorization } };
}

const said = (text, skill, taskId = "") => ({
  messageId: randomUUID(),
  role: Role.ROLE_USER,
  parts: [{ content: { $case: "text", value: text }, filename: "", mediaType: "" }],
  metadata: skill ? { skillId: skill } : undefined,
  taskId,
  contextId: "",
  extensions: [],
  referenceTaskIds: [],
});
const textOf = (parts) => parts.map((part) => part.content?.value ?? "").join("");
const skillsOf = (card) => card.skills.map((skill) => skill.id).sort();

async function heard(stream) {
  const events = [];
  for await (const event of stream) events.push(event.payload);
  return events;
}

async function refused(action) {
  let found;
  try {
    found = await action;
  } catch (error) {
    return error;
  }
  assert.fail(`not refused: ${JSON.stringify(found)}`);
}

/** It throws by itself, and nothing has left for the server. */
async function refusesItself(action) {
  const before = asked;
  const error = await refused((async () => action())());
  assert.equal(asked, before, `it asked the server first: ${error}`);
  throw new Cannot("the client throws and sends nothing");
}

async function send(caller) {
  const task = await caller.send("hello 你好");
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(textOf(task.artifacts[0].parts), "HELLO 你好");
}

async function stream(caller) {
  const message = said("one two three", "write");
  const events = await heard(caller.client.sendMessageStream({ tenant: "", message }));
  assert.equal(events[0].$case, "task", "first event");
  const chunks = events.filter((event) => event.$case === "artifactUpdate");
  assert.equal(chunks.map((e) => textOf(e.value.artifact.parts)).join(""), "one two three ");
  assert.equal(events.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED, "last state");
}

async function get(caller) {
  const sent = await caller.send("again");
  const found = await caller.client.getTask({ tenant: "", id: sent.id });
  assert.deepEqual([found.id, found.contextId], [sent.id, sent.contextId]);
  assert.equal(textOf(found.artifacts[0].parts), "AGAIN");
}

async function list_tasks(caller) {
  const { id, contextId } = await caller.send("listed");
  const status = TaskState.TASK_STATE_UNSPECIFIED;
  const list = () => caller.client.listTasks({ tenant: "", contextId, status, pageToken: "" });
  if (LEGACY) await refusesItself(list);
  assert.deepEqual((await list()).tasks.map((task) => task.id), [id]);
}

async function cancel(caller) {
  const id = await caller.start("300");
  const gone = await caller.client.cancelTask({ tenant: "", id });
  assert.deepEqual([gone.id, gone.status.state], [id, TaskState.TASK_STATE_CANCELED]);
}

async function resubscribe(caller) {
  const id = await caller.start("10");
  const events = await heard(caller.client.resubscribeTask({ tenant: "", id }));
  assert.equal(events.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED, "last state");
  assert.ok(events.length > 5, `${events.length} events`);
}

const push_set = (caller) => caller.hook("3");

async function push_get(caller) {
  const { taskId, url } = await caller.hook("3");
  const found = await caller.client.getTaskPushNotificationConfig({ tenant: "", taskId, id: "h1" });
  assert.deepEqual([found.taskId, found.id, found.url], [taskId, "h1", url]);
  assert.ok(!JSON.stringify(found).includes(HOOK_CREDENTIALS), "a secret came back");
}

async function push_list(caller) {
  const { taskId, url } = await caller.hook("3");
  const asking = { tenant: "", taskId, pageSize: 0, pageToken: "" };
  const { configs } = await caller.client.listTaskPushNotificationConfig(asking);
  assert.deepEqual(configs.map((config) => [config.id, config.url]), [["h1", url]]);
}

async function push_delete(caller) {
  const { taskId } = await caller.hook("3");
  const which = { tenant: "", taskId, id: "h1" };
  await caller.client.deleteTaskPushNotificationConfig(which);
  await refused(caller.client.getTaskPushNotificationConfig(which));
}

async function webhook(caller) {
  const { taskId, url } = await caller.hook("5");
  const done = LEGACY ? '"completed"' : '"TASK_STATE_COMPLETED"';
  let mine = [];
  while (!mine.some((one) => JSON.stringify(one.body).includes(done))) {
    await sleep(50); // and looks again
    mine = received.filter((one) => url.endsWith(one.path));
  }
  for (const { proof, authorization, body } of mine) {
    assert.deepEqual([proof, authorization], [HOOK_TOKEN, `Bearer ${HOOK_CREDENTIALS}`]);
    if (LEGACY) assert.deepEqual([body.kind, body.id], ["task", taskId]);
    else assert.equal(body.task?.id ?? Object.values(body)[0].taskId, taskId);
  }
}

async function unknown_task(caller) {
  const id = randomUUID();
  const message = said("hello", "", id);
  let vague = "";
  for (const action of [
    () => caller.client.getTask({ tenant: "", id }),
    () => caller.client.cancelTask({ tenant: "", id }),
    () => heard(caller.client.resubscribeTask({ tenant: "", id })),
    () => caller.client.sendMessage({ tenant: "", message }),
  ]) {
    const error = await refused(action());
    const told = [error, error.cause].some((each) => each instanceof TaskNotFoundError);
    const named = LEGACY && binding === "GRPC" && error.message.includes("TaskNotFoundError");
    assert.ok(told || named, `${action}: ${error.stack}`);
    if (!told) vague = "errors have a status and a text but no class: 0.3 gives it no details";
  }
  if (vague) throw new Partly(vague);
}

async function extended_card(caller) {
  const before = skillsOf(caller.card);
  assert.ok(!before.includes(SECRET_SKILL), before);
  const error = await refused(caller.stranger.transport.getExtendedAgentCard({ tenant: "" }));
  assert.match(`${error} ${error.cause ?? ""}`, /401|uthentic|Credentials are missing/);
  const card = await caller.client.getAgentCard();
  assert.deepEqual(skillsOf(card), [...before, SECRET_SKILL].sort());
}

const OPERATIONS = [
  ...[send, stream, get, list_tasks, cancel, resubscribe],
  ...[push_set, push_get, push_list, push_delete, webhook, unknown_task, extended_card],
];
for (const operation of OPERATIONS) {
  const line = { scenario: operation.name, ok: true, cannot: "", but: "", detail: "" };
  // The limit.
  const late = sleep(PATIENCE, undefined, { ref: false }).then(() => {
    throw new Error(`not done after ${PATIENCE} ms`);
  });
  try {
    await Promise.race([new Caller().connect().then(operation), late]);
  } catch (error) {
    if (error instanceof Cannot) line.cannot = error.message;
    else if (error instanceof Partly) line.but = error.message;
    else Object.assign(line, { ok: false, detail: `${error.stack}\n${error.cause?.stack ?? ""}` });
  }
  console.log(JSON.stringify(line));
}
process.exit(0);
