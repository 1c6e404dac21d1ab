// A sub-agent in Node.js, without Dragoman and without packages: it dials the host over a
// WebSocket, registers, and answers `execute`.
//
//   IAT_SECRET=... IAT_HOST_NAME=engine node agent.mjs ws://127.0.0.1:8420/iat/ws
//
// It thinks, streams chunks, calls the host's tool `size`, asks for approval, and is done. The
// handshake proves that we have the secret, by signing the first frame; it is never sent.
import { createHash, createHmac, randomBytes, randomUUID } from "node:crypto";
import http from "node:http";

const url = new URL(process.argv[2] ?? "ws://127.0.0.1:8420/iat/ws");
const secret = process.env.IAT_SECRET ?? "";
const me = process.env.IAT_AGENT ?? "node-agent";
const hostName = process.env.IAT_HOST_NAME ?? "host"; // what is signed names whom it is for

// ---- A WebSocket client in a page (RFC 6455): text frames, ping, close. ----

function dial(url, proof) {
  return new Promise((resolve, reject) => {
    const key = randomBytes(16).toString("base64");
    const request = http.request({
      host: url.hostname,
      port: url.port,
      path: url.pathname,
      headers: {
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        ...proof,
      },
    });
    request.on("error", reject);
    request.on("response", (answer) => reject(new Error(`refused with ${answer.statusCode}`)));
    request.on("upgrade", (answer, socket, head) => {
      const wanted = createHash("sha1")
        .update(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
        .digest("base64");
      if (answer.headers["sec-websocket-accept"] !== wanted) reject(new Error("not a WebSocket"));
      else resolve([socket, head]);
    });
    request.end();
  });
}

function frame(opcode, payload) {
  const mask = randomBytes(4);
  const size = payload.length;
  const head =
    size < 126
      ? Buffer.from([0x80 | opcode, 0x80 | size])
      : size < 65536
        ? Buffer.from([0x80 | opcode, 0xfe, size >> 8, size & 255])
        : Buffer.concat([Buffer.from([0x80 | opcode, 0xff]), big(size)]);
  const masked = Buffer.from(payload.map((byte, i) => byte ^ mask[i % 4]));
  return Buffer.concat([head, mask, masked]);
}

function big(size) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(size));
  return bytes;
}

function* frames(state) {
  for (;;) {
    const have = state.buffer;
    if (have.length < 2) return;
    let size = have[1] & 127;
    let at = 2;
    if (size === 126) {
      if (have.length < 4) return;
      size = have.readUInt16BE(2);
      at = 4;
    } else if (size === 127) {
      if (have.length < 10) return;
      size = Number(have.readBigUInt64BE(2));
      at = 10;
    }
    if (have.length < at + size) return;
    state.buffer = have.subarray(at + size);
    yield [have[0] & 15, have.subarray(at, at + size), Boolean(have[0] & 128)];
  }
}

// ---- IAT: envelopes with a header, metadata and a payload. ----

class Agent {
  constructor() {
    this.write = () => {};
    this.token = ""; // of the session, once the host has given us one
    this.waiting = new Map();
  }

  envelope(type, payload, parent = "", id = randomUUID(), to = "") {
    const metadata = { trace_id: "", ttl: 3 };
    if (this.token) metadata.auth_token = `bearer ${this.token}`;
    const timestamp = Math.floor(Date.now() / 1000);
    const header = { msg_id: id, parent_id: parent, type, from: me, to, timestamp };
    return JSON.stringify({ header, metadata, payload });
  }

  say(...said) {
    this.write(this.envelope(...said));
  }

  answered(id) {
    return new Promise((resolve) => this.waiting.set(id, resolve));
  }

  ask(payload, parent = "", to = "") {
    const id = randomUUID();
    this.say("request", payload, parent, id, to);
    return this.answered(id);
  }

  // The first frame, and the headers of the handshake that sign it.
  hello(id) {
    const payload = {
      action: "register",
      agent_id: me,
      name: "Node sub-agent",
      version: "1.0.0",
      tools: [
        {
          name: "measure",
          description: "Measures a path",
          parameters: { type: "object", properties: { query: { type: "string" } } },
          returns: { type: "string" },
        },
      ],
      actions: ["execute", "pulse"],
    };
    const said = this.envelope("request", payload, "", id, hostName);
    const stamp = String(Math.floor(Date.now() / 1000));
    const signature = createHmac("sha256", secret).update(`${stamp}.${said}`).digest("hex");
    return [said, { "x-iat-timestamp": stamp, "x-iat-signature": signature }];
  }

  async register(id, said) {
    const answer = new Promise((resolve) =>
      this.waiting.set(id, (welcome) => {
        // At once: the host's first request may stand right behind its answer.
        this.token = welcome.session_token ?? "";
        resolve(welcome);
      }),
    );
    this.write(said);
    const welcome = await answer;
    if (welcome.error) throw new Error(welcome.error.message);
    console.log(`registered as ${me}`);
  }

  hear({ header, metadata, payload }) {
    const answered = this.waiting.get(header.parent_id);
    if (header.type === "response") {
      this.waiting.delete(header.parent_id);
      if (answered) answered(payload);
      return;
    }
    // The host shows who it is with the same token. Nobody else is obeyed.
    if ((metadata?.auth_token ?? "") !== `bearer ${this.token}`) return;
    if (payload.action === "pulse") this.say("response", { action: "pulse", ok: true }, header.msg_id, undefined, header.from);
    else if (payload.action === "execute") this.execute(header, payload).catch(console.error);
  }

  async execute({ msg_id: parent, from: host }, { query }) {
    const tell = (type, payload) => this.say(type, payload, parent, undefined, host);
    tell("notification", { action: "think", thought_text: `How large is ${query}?` });
    const tool = { action: "call_tool", tool_name: "size", arguments: { path: query } };
    const { result, error } = await this.ask(tool, parent, host);
    if (error) {
      tell("response", { action: "done", error });
      return;
    }
    let index = 0;
    for (const text of [query, " has ", `${result} bytes`]) tell("chunk", { index: index++, text });
    tell("notification", { action: "log", level: "info", message: "measured" });
    const answer = await this.ask(
      {
        action: "require_approval",
        approval_id: randomUUID(),
        operation: "Delete it?",
        risk: "high",
        details: { path: query },
      },
      parent,
      host,
    );
    const summary = answer.approved === true ? "deleted" : "kept";
    tell("chunk", { index, text: `, ${summary}` });
    tell("response", { action: "done", result_summary: summary, usage_stats: { tokens: 7 } });
  }
}

// ---- Dial, and dial again. ----

async function session() {
  const agent = new Agent();
  const id = randomUUID();
  const [hello, proof] = agent.hello(id);
  const [socket, head] = await dial(url, proof);
  const state = { buffer: head ?? Buffer.alloc(0) };
  let parts = [];
  agent.write = (said) => socket.write(frame(1, Buffer.from(said)));
  const take = () => {
    for (const [opcode, body, last] of frames(state)) {
      if (opcode === 8) return socket.end();
      if (opcode === 9) socket.write(frame(10, body));
      if (opcode > 2) continue;
      parts.push(body);
      if (last) agent.hear(JSON.parse(Buffer.concat(parts).toString()));
      if (last) parts = [];
    }
  };
  socket.on("data", (data) => {
    state.buffer = Buffer.concat([state.buffer, data]);
    take();
  });
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.on("close", resolve));
  take();
  try {
    await Promise.race([agent.register(id, hello), closed]);
    await closed;
  } finally {
    socket.destroy();
  }
}

for (let pause = 250; ; pause = Math.min(pause * 2, 10_000)) {
  try {
    const began = Date.now();
    await session();
    if (Date.now() - began > 5000) pause = 250;
  } catch (error) {
    console.error(String(error.message ?? error));
  }
  await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
}
