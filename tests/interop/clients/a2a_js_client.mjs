// What the official JavaScript client sees of a running agent: one JSON line per scenario.
//
// Runs where `@a2a-js/sdk` is installed, never in our environment. Node looks for packages where it
// is started when the script comes from standard input:
//   node --input-type=module - URL 1.0|0.3[-rest] [SCENARIO...] < a2a_js_client.mjs
// The agent is `tests/interop/agent.py`. A failed scenario carries the exchange on the wire.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { Role, TaskState, taskStateToJSON } from "@a2a-js/sdk";
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError } from "@a2a-js/sdk/errors";

const SKILLS = ["echo", "files", "silent", "slow", "trip", "write"];
const PATIENCE = 20_000;
const CARD = "/.well-known/agent-card.json";

/** A fetch that passes everything on and keeps what went by. */
function recordingFetch(seen) {
  return async (url, init = {}) => {
    const version = new Headers(init.headers).get("A2A-Version") ?? "absent";
    seen.push(`> ${init.method ?? "GET"} ${url} (A2A-Version ${version})`, `> ${init.body ?? ""}`);
    const response = await fetch(url, init);
    seen.push(`< ${response.status} ${response.headers.get("content-type")}`);
    if (!response.body) return response;
    const decoder = new TextDecoder();
    const tap = new TransformStream({
      transform(chunk, controller) {
        seen.push(`< ${decoder.decode(chunk, { stream: true })}`);
        controller.enqueue(chunk);
      },
      flush: () => void seen.push("< end of body"),
    });
    return new Response(response.body.pipeThrough(tap), response);
  };
}

/** The agent as the client offers it, with the checks that every answer must pass. */
class Caller {
  constructor(url, version, seen) {
    this.url = url;
    this.version = version.replace("-rest", "");
    this.legacy = this.version === "0.3";
    this.rest = version.endsWith("-rest");
    this.fetch = recordingFetch(seen);
  }

  async connect() {
    const options = { fetchImpl: this.fetch, legacyCompat: { enabled: this.legacy } };
    const cardResolver = new DefaultAgentCardResolver(options);
    const factory = new ClientFactory({
      transports: [new (this.rest ? RestTransportFactory : JsonRpcTransportFactory)(options)],
      cardResolver,
    });
    if (this.legacy) {
      const card = await this.legacyCard();
      this.card = cardResolver.normalizeAgentCard(card);
      this.client = await factory.createFromAgentCard(card);
    } else {
      this.card = await cardResolver.resolve(`${this.url}/`); // or it would look beside the address, not below
      this.client = await factory.createFromUrl(`${this.url}/`);
    }
  }

  /** The card as a 0.3 reader takes it: no version asked for, new members unknown. */
  async legacyCard() {
    const { supportedInterfaces: _, ...card } = await (await this.fetch(this.url + CARD)).json();
    return card;
  }

  async send(message, configuration) {
    const task = await this.client.sendMessage({ tenant: "", message, configuration });
    assert.ok(!("messageId" in task), "a message came instead of a task");
    return task;
  }

  start(message) {
    return this.send(message, { acceptedOutputModes: [], returnImmediately: true });
  }

  stream(message) {
    return this.client.sendMessageStream({ tenant: "", message });
  }

  subscribe(id) {
    return this.client.resubscribeTask({ tenant: "", id });
  }

  get(id, historyLength) {
    return this.client.getTask({ tenant: "", id, historyLength });
  }

  cancel(id) {
    return this.client.cancelTask({ tenant: "", id });
  }
}

function part(kind, value, filename = "", mediaType = "") {
  return { content: { $case: kind, value }, filename, mediaType };
}

function said(text, skill, { taskId = "", contextId = "", parts = [] } = {}) {
  return {
    messageId: randomUUID(),
    role: Role.ROLE_USER,
    parts: [part("text", text), ...parts],
    metadata: skill ? { skillId: skill } : undefined,
    taskId,
    contextId,
    extensions: [],
    referenceTaskIds: [],
  };
}

const textOf = (holder) =>
  (holder?.parts ?? []).map((p) => (p.content?.$case === "text" ? p.content.value : "")).join("");
const resultText = (task) => task.artifacts.map(textOf).join("");
const stateOf = (holder) => taskStateToJSON(holder.status.state);
const kindOf = (event) => event.payload?.$case;

async function refused(action, wanted) {
  let found;
  try {
    found = await action;
  } catch (error) {
    // The client wraps an error that arrives inside a stream.
    if (error instanceof wanted || error.cause instanceof wanted) return;
    throw error;
  }
  assert.fail(`wanted ${wanted.name}, found ${JSON.stringify(found)}`);
}

async function heard(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

function lastState(events) {
  const { $case, value } = events.at(-1).payload;
  assert.ok(["statusUpdate", "task"].includes($case), `a stream ended with ${$case}`);
  return stateOf(value);
}

function checkIds(events, task) {
  for (const { payload } of events) {
    assert.ok(payload, "an event without content");
    const { $case, value } = payload;
    assert.equal($case === "task" ? value.id : value.taskId, task.id, `task id in ${$case}`);
    assert.equal(value.contextId, task.contextId, `context id in ${$case}`);
  }
}

/** What the slow skill said, from the snapshot and from the updates after it. */
function stepsHeard(events) {
  let told = [];
  for (const { payload } of events) {
    if (payload.$case === "task") {
      const { history, status } = payload.value;
      told = [...history.filter((m) => m.role === Role.ROLE_AGENT), status.message];
    } else if (payload.$case === "statusUpdate") {
      told.push(payload.value.status.message);
    }
  }
  return told.map(textOf).filter((text) => text.startsWith("step "));
}

/** Nothing lost, nothing twice; 0.3 does not promise the past to a late listener. */
function checkSteps(events, legacy) {
  const steps = stepsHeard(events);
  assert.ok(steps.length, "no step heard");
  const first = Number(steps[0].split(" ")[1]);
  if (!legacy) {
    assert.equal(kindOf(events[0]), "task", "first event of a subscription");
    assert.equal(first, 0, "first step");
  }
  assert.deepEqual(steps, steps.map((_, n) => `step ${first + n}`), "steps");
  return steps.length;
}

async function card(caller) {
  const plain = await new ClientFactory().createFromUrl(`${caller.url}/`); // everything at its default
  const events = await heard(plain.sendMessageStream({ tenant: "", message: said("hello") }));
  assert.equal(lastState(events), "TASK_STATE_COMPLETED");

  assert.equal(caller.card.name, "Interop desk");
  assert.deepEqual(caller.card.skills.map((skill) => skill.id).sort(), SKILLS);
  assert.ok(caller.card.capabilities.streaming, "streaming not announced");
  const versions = caller.card.supportedInterfaces
    .filter((i) => i.protocolBinding === (caller.rest ? "HTTP+JSON" : "JSONRPC"))
    .map((i) => i.protocolVersion);
  assert.ok(versions.some((v) => v.startsWith(caller.version)), `versions ${versions}`);
  assert.equal(caller.client.protocolVersion, caller.version, "version spoken");
}

async function send(caller) {
  const asked = said("hello, wörld 你好");
  const task = await caller.send(asked);
  assert.equal(stateOf(task), "TASK_STATE_COMPLETED");
  assert.equal(resultText(task), "HELLO, WÖRLD 你好");
  assert.ok(task.id, "no task id");
  assert.ok(task.contextId, "no context id");
  assert.deepEqual(task.history.map((m) => m.messageId), [asked.messageId]);
  assert.ok(!Number.isNaN(Date.parse(task.status.timestamp)), "no timestamp");
}

async function send_without_waiting(caller) {
  let task = await caller.start(said("5", "slow"));
  assert.notEqual(stateOf(task), "TASK_STATE_COMPLETED");
  while (stateOf(task) !== "TASK_STATE_COMPLETED") {
    await sleep(100); // and looks again
    task = await caller.get(task.id);
  }
  assert.equal(resultText(task), "5 steps");
}

async function stream(caller) {
  const words = ["one ", "two ", "three ", "four ", "five "];
  const events = await heard(caller.stream(said("one two three four five", "write")));
  assert.equal(kindOf(events[0]), "task", "first event");
  const task = events[0].payload.value;
  checkIds(events, task);
  assert.equal(lastState(events), "TASK_STATE_COMPLETED");

  const chunks = events.filter((e) => kindOf(e) === "artifactUpdate").map((e) => e.payload.value);
  assert.deepEqual(chunks.map((c) => textOf(c.artifact)).filter(Boolean), words);
  assert.equal(new Set(chunks.map((c) => c.artifact.artifactId)).size, 1, "one artifact");
  assert.deepEqual(chunks.map((c) => c.append), chunks.map((_, n) => n > 0), "append");
  const last = chunks.map((_, n) => n === chunks.length - 1);
  assert.deepEqual(chunks.map((c) => c.lastChunk), last, "last chunk");
  assert.equal(resultText(await caller.get(task.id)), words.join(""));
}

async function get(caller) {
  const sent = await caller.send(said("again"));
  const task = await caller.get(sent.id);
  assert.equal(task.id, sent.id);
  assert.equal(task.contextId, sent.contextId);
  assert.equal(stateOf(task), "TASK_STATE_COMPLETED");
  assert.equal(resultText(task), "AGAIN");
  assert.deepEqual(task.history.map(textOf), ["again"]);
  assert.equal((await caller.get(sent.id, 1)).history.length, 1, "history of length 1");
  if (!caller.legacy) {
    assert.equal((await caller.get(sent.id, 0)).history.length, 0, "history of length 0");
  }
}

async function list_tasks(caller) {
  const first = await caller.send(said("first"));
  const second = await caller.send(said("second", "", { contextId: first.contextId }));
  assert.equal(second.contextId, first.contextId);
  await caller.send(said("elsewhere"));

  const page = (fields) =>
    caller.client.listTasks({
      tenant: "",
      contextId: first.contextId,
      status: TaskState.TASK_STATE_UNSPECIFIED,
      pageToken: "",
      ...fields,
    });
  const ids = ({ tasks }) => tasks.map((task) => task.id);

  const everything = await page({});
  assert.deepEqual(ids(everything), [second.id, first.id], "tasks, newest first");
  assert.equal(everything.totalSize, 2);
  assert.equal(everything.nextPageToken, "");
  assert.ok(everything.tasks.every((t) => !t.artifacts.length), "artifacts nobody asked for");

  const whole = await page({ includeArtifacts: true, historyLength: 0 });
  assert.deepEqual(whole.tasks.map(resultText), ["SECOND", "FIRST"]);
  assert.ok(whole.tasks.every((t) => !t.history.length), "history nobody asked for");

  const one = await page({ pageSize: 1 });
  assert.deepEqual(ids(one), [second.id], "first page");
  assert.ok(one.nextPageToken, "no token");
  const two = await page({ pageSize: 1, pageToken: one.nextPageToken });
  assert.deepEqual(ids(two), [first.id], "second page");
  assert.equal(two.nextPageToken, "");

  assert.equal((await page({ status: TaskState.TASK_STATE_COMPLETED })).tasks.length, 2);
  assert.equal((await page({ status: TaskState.TASK_STATE_WORKING })).tasks.length, 0);
}

async function cancel(caller) {
  let task = await caller.start(said("300", "slow"));
  while (stateOf(task) !== "TASK_STATE_WORKING") task = await caller.get(task.id);
  const canceled = await caller.cancel(task.id);
  assert.equal(canceled.id, task.id);
  assert.equal(stateOf(canceled), "TASK_STATE_CANCELED");
  assert.equal(stateOf(await caller.get(task.id)), "TASK_STATE_CANCELED");
}

/** A stream is dropped, the task goes on, a new stream hears it to its end. */
async function resubscribe(caller) {
  const before = [];
  for await (const event of caller.stream(said("30", "slow"))) {
    before.push(event);
    if (stepsHeard(before).length >= 2) break;
  }

  const task = before[0].payload.value;
  const events = await heard(caller.subscribe(task.id));
  checkIds(events, task);
  const heardAfter = checkSteps(events, caller.legacy);
  if (!caller.legacy) assert.equal(heardAfter, 30, "steps");
  assert.equal(lastState(events), "TASK_STATE_COMPLETED");
  assert.equal(resultText(await caller.get(task.id)), "30 steps");
}

/** Two listeners hear the same task and the same end. */
async function resubscribe_until_canceled(caller) {
  const task = await caller.start(said("300", "slow"));
  const listen = () => {
    const events = [];
    let ready;
    const listening = new Promise((resolve) => (ready = resolve));
    const done = (async () => {
      for await (const event of caller.subscribe(task.id)) {
        events.push(event);
        if (stepsHeard(events).length >= 3) ready();
      }
      return events;
    })();
    return { done, listening: Promise.race([listening, done]) };
  };
  const listeners = [listen(), listen()];
  await Promise.all(listeners.map((listener) => listener.listening));
  assert.equal(stateOf(await caller.cancel(task.id)), "TASK_STATE_CANCELED");
  for (const events of await Promise.all(listeners.map((listener) => listener.done))) {
    checkIds(events, task);
    checkSteps(events, caller.legacy);
    assert.equal(lastState(events), "TASK_STATE_CANCELED");
  }
}

async function multi_turn(caller) {
  const asked = await caller.send(said("Plan a trip", "trip"));
  assert.equal(stateOf(asked), "TASK_STATE_INPUT_REQUIRED");
  assert.equal(textOf(asked.status.message), "Which city?");
  assert.equal(asked.status.message.role, Role.ROLE_AGENT);

  const answer = said("Kyoto", "", { taskId: asked.id, contextId: asked.contextId });
  const done = await caller.send(answer);
  assert.equal(done.id, asked.id);
  assert.equal(done.contextId, asked.contextId);
  assert.equal(stateOf(done), "TASK_STATE_COMPLETED");
  assert.equal(resultText(done), "A trip to Kyoto");
  assert.deepEqual(
    done.history.map((m) => [textOf(m), m.role]),
    [
      ["Plan a trip", Role.ROLE_USER],
      ["Which city?", Role.ROLE_AGENT],
      ["Kyoto", Role.ROLE_USER],
    ],
  );
}

/** The stream ends at the question; the answer names the task and not the context. */
async function multi_turn_stream(caller) {
  let events = await heard(caller.stream(said("Plan a trip", "trip")));
  assert.equal(lastState(events), "TASK_STATE_INPUT_REQUIRED");
  const task = events[0].payload.value;
  assert.equal(textOf(events.at(-1).payload.value.status.message), "Which city?");

  events = await heard(caller.stream(said("Lisbon", "", { taskId: task.id })));
  checkIds(events, task);
  assert.equal(lastState(events), "TASK_STATE_COMPLETED");
  const chunks = events.filter((e) => kindOf(e) === "artifactUpdate");
  assert.equal(chunks.map((e) => textOf(e.payload.value.artifact)).join(""), "A trip to Lisbon");
}

async function unknown_task(caller) {
  const nobody = randomUUID();
  await refused(caller.get(nobody), TaskNotFoundError);
  await refused(caller.cancel(nobody), TaskNotFoundError);
  await refused(heard(caller.subscribe(nobody)), TaskNotFoundError);
  await refused(caller.send(said("hello", "", { taskId: nobody })), TaskNotFoundError);
}

async function finished_task(caller) {
  const task = await caller.send(said("done"));
  await refused(caller.cancel(task.id), TaskNotCancelableError);
  if (!caller.legacy) {
    const more = said("more", "", { taskId: task.id });
    await refused(caller.send(more), UnsupportedOperationError);
    await refused(heard(caller.subscribe(task.id)), UnsupportedOperationError);
  }
}

/** Files and data arrive whole, and come back whole. */
async function parts(caller) {
  const raw = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
  const facts = { city: "Kyoto", days: 3, open: true, tags: ["a", "b"], none: null };
  const link = "https://example.com/report.pdf";
  const extra = [
    part("raw", raw, "bytes.bin", "application/octet-stream"),
    part("url", link, "report.pdf", "application/pdf"),
    part("data", facts),
  ];
  if (!caller.legacy) extra.push(part("data", [1, "two", null]));

  const task = await caller.send(said("look", "files", { parts: extra }));
  assert.equal(stateOf(task), "TASK_STATE_COMPLETED");
  const back = task.artifacts.flatMap((artifact) => artifact.parts);
  const kinds = ["data", "raw", "raw", "url", "data", ...(caller.legacy ? [] : ["data"])];
  assert.deepEqual(back.map((p) => p.content?.$case), kinds);
  const values = back.map((p) => p.content.value);
  assert.deepEqual(values[0], { files: 2, bytes: 256, facts }, "what it saw");
  assert.ok(Buffer.from(raw).reverse().equals(values[1]), "made bytes");
  assert.ok(raw.equals(values[2]), "bytes");
  assert.deepEqual([back[2].filename, back[2].mediaType], ["bytes.bin", "application/octet-stream"]);
  assert.equal(values[3], link);
  assert.deepEqual([back[3].filename, back[3].mediaType], ["report.pdf", "application/pdf"]);
  assert.deepEqual(values[4], facts);
  if (!caller.legacy) assert.deepEqual(values[5], [1, "two", null], "data that is no object");
}

const SCENARIOS = [
  card,
  send,
  send_without_waiting,
  stream,
  get,
  list_tasks,
  cancel,
  resubscribe,
  resubscribe_until_canceled,
  multi_turn,
  multi_turn_stream,
  unknown_task,
  finished_task,
  parts,
];
const NOT_IN_0_3 = [list_tasks];

async function run(scenario, url, version) {
  const seen = [];
  const caller = new Caller(url, version, seen);
  // The limit.
  const late = sleep(PATIENCE, undefined, { ref: false }).then(() => {
    throw new Error(`not done after ${PATIENCE} ms`);
  });
  let detail = "";
  try {
    await Promise.race([caller.connect().then(() => scenario(caller)), late]);
  } catch (error) {
    const wire = seen.slice(-40).map((line) => line.slice(0, 2000));
    detail = [error.stack ?? String(error), ...wire].join("\n");
  }
  console.log(JSON.stringify({ scenario: scenario.name, ok: !detail, detail }));
  return !detail;
}

const [url, version, ...only] = process.argv.slice(2);
const chosen = SCENARIOS.filter(
  (s) => (!only.length || only.includes(s.name)) && !(version.startsWith("0.3") && NOT_IN_0_3.includes(s)),
);
let good = true;
for (const scenario of chosen) good = (await run(scenario, url.replace(/\/$/, ""), version)) && good;
process.exit(good ? 0 : 1);
