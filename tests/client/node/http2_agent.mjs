// An A2A 1.0 agent on Node's plain `http2`, which announces no MAX_CONCURRENT_STREAMS.
//
//   node http2_agent.mjs [CERT KEY]
//
// It prints its port. "wait" opens a stream that stays open until the task is canceled; any other
// text is returned as it came.
import { readFileSync } from "node:fs";
import http2 from "node:http2";

const [cert, key] = process.argv.slice(2);
const server = cert
  ? http2.createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) })
  : http2.createServer();
let sessions = 0;
let next = 0;
const open = new Map(); // the streams of tasks that wait

const scheme = cert ? "https" : "http";
const url = () => `${scheme}://127.0.0.1:${server.address().port}/`;
const card = () => ({
  name: "Node", description: "Waits.", version: "1", skills: [],
  capabilities: { streaming: true },
  defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
  supportedInterfaces: [{ url: url(), protocolBinding: "JSONRPC", protocolVersion: "1.0" }],
});
const task = (id, state, text) => ({
  id, contextId: `c-${id}`, status: { state },
  ...(text === undefined ? {} : { artifacts: [{ artifactId: "a", parts: [{ text }] }] }),
});

server.on("session", () => { sessions += 1; });
server.on("stream", (stream, headers) => {
  const chunks = [];
  stream.on("error", () => {});
  stream.on("data", (chunk) => chunks.push(chunk));
  stream.on("end", () => answer(stream, headers, Buffer.concat(chunks)));
});

function json(stream, value, status = 200) {
  stream.respond({ ":status": status, "content-type": "application/json" });
  stream.end(JSON.stringify(value));
}

function answer(stream, headers, body) {
  if (headers[":method"] === "GET") {
    if (headers[":path"] === "/sessions") return json(stream, { sessions });
    if (headers[":path"] === "/.well-known/agent-card.json") return json(stream, card());
    return json(stream, {}, 404);
  }
  const { id, method, params } = JSON.parse(body);
  const result = (value) => ({ jsonrpc: "2.0", id, result: value });
  const text = params.message?.parts?.[0]?.text;
  const name = `t${(next += 1)}`;
  if (method === "SendMessage") {
    return json(stream, result({ task: task(name, "TASK_STATE_COMPLETED", text) }));
  }
  if (method === "SendStreamingMessage") {
    stream.respond({ ":status": 200, "content-type": "text/event-stream" });
    const tell = (value) => stream.write(`data: ${JSON.stringify(result(value))}\n\n`);
    tell({ task: task(name, "TASK_STATE_WORKING") });
    open.set(name, { stream, tell });
    return undefined;
  }
  if (method === "CancelTask") {
    const waiting = open.get(params.id);
    waiting?.tell({
      statusUpdate: {
        taskId: params.id, contextId: `c-${params.id}`, status: { state: "TASK_STATE_CANCELED" },
      },
    });
    waiting?.stream.end();
    return json(stream, result(task(params.id, "TASK_STATE_CANCELED")));
  }
  return json(stream, { jsonrpc: "2.0", id, error: { code: -32601, message: "no" } });
}

server.listen(0, "127.0.0.1", () => console.log(server.address().port));
