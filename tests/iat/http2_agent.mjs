// An IAT sub-agent on Node's plain `http2` (HTTP/2 alone, no limit of concurrent streams announced),
// written from the source text: it registers at the host with its own address and is called back.
//
//   IAT_SECRET=... IAT_HOST_NAME=engine node http2_agent.mjs http://127.0.0.1:8420/iat
//
// It calls the host's tool `size` within the stream of `execute`, and the host posts the result.
import { createHmac, randomUUID } from "node:crypto";
import http from "node:http";
import http2 from "node:http2";

const [host] = process.argv.slice(2);
const secret = process.env.IAT_SECRET;
const me = process.env.IAT_AGENT;
const waiting = new Map();

const say = (type, parent_id, to, payload) => ({
  header: { msg_id: randomUUID(), parent_id, type, from: me, to, timestamp: Date.now() / 1000 | 0 },
  metadata: { trace_id: "", ttl: 3 },
  payload,
});

const server = http2.createServer();
server.on("stream", (stream, headers) => {
  const chunks = [];
  stream.on("error", () => {});
  stream.on("data", (chunk) => chunks.push(chunk));
  stream.on("end", () => {
    if (headers[":method"] !== "POST" || headers[":path"] !== "/iat") {
      stream.respond({ ":status": 404 });
      stream.end();
      return;
    }
    serve(stream, JSON.parse(Buffer.concat(chunks)));
  });
});

function reply(stream, said, payload) {
  stream.respond({ ":status": 200, "content-type": "application/json" });
  stream.end(JSON.stringify(say("response", said.header.msg_id, said.header.from, payload)));
}

async function serve(stream, said) {
  const { action } = said.payload;
  if (said.header.type === "response") {
    waiting.get(said.header.parent_id)?.(said.payload);
    stream.respond({ ":status": 204 });
    stream.end();
  } else if (action === "HELO") {
    reply(stream, said, { action, agent_id: me, tools: [], session_token: randomUUID() });
  } else if (action === "pulse") {
    reply(stream, said, { action, ok: true });
  } else if (action === "execute") {
    await execute(stream, said);
  } else {
    reply(stream, said, { action: "error", error: { code: "unknown_action", message: action } });
  }
}

async function execute(stream, said) {
  stream.respond({ ":status": 200, "content-type": "text/event-stream" });
  const tell = (type, payload) => {
    const told = say(type, said.header.msg_id, said.header.from, payload);
    stream.write(`event: ${type}\ndata: ${JSON.stringify(told)}\n\n`);
    return told.header.msg_id;
  };
  const path = said.payload.query;
  const found = await new Promise((resolve) => {
    const id = tell("request", { action: "call_tool", tool_name: "size", arguments: { path } });
    waiting.set(id, resolve);
  });
  const text = `${path} has ${found.result} bytes`;
  tell("chunk", { index: 0, text });
  tell("response", { action: "done", result_summary: text });
  stream.end();
}

server.listen(0, "127.0.0.1", () => {
  const body = JSON.stringify(say("request", "", process.env.IAT_HOST_NAME, {
    action: "register", agent_id: me, name: me, version: "1",
    endpoint: `http://127.0.0.1:${server.address().port}/iat`, tools: [],
  }));
  const stamp = String(Date.now() / 1000 | 0);
  const signature = createHmac("sha256", secret).update(`${stamp}.${body}`).digest("hex");
  const request = http.request(host, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "x-iat-timestamp": stamp,
      "x-iat-signature": signature,
    },
  });
  request.on("response", (answer) => { console.log(answer.statusCode); answer.resume(); });
  request.end(body);
});
