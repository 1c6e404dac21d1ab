// A small agent on @a2a-js/sdk 1.3.0: `node a2a_js.mjs FOLDER RPC_PORT REST_PORT GRPC_PORT`.
//
// JSON-RPC, REST and gRPC of 1.0, and of 0.3 by its own switch; webhooks from memory. The packages
// are looked up in FOLDER, since this file lies outside of it.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, rpcPort, restPort, grpcPort] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const express = require("express");
const grpc = require("@grpc/grpc-js");
const { Role, TaskState } = require("@a2a-js/sdk");
const { ContentTypeNotSupportedError } = require("@a2a-js/sdk/errors");
const {
  AgentEvent,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} = require("@a2a-js/sdk/server");
const { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } = require(
  "@a2a-js/sdk/server/express",
);
const { A2AService, UserBuilder: GrpcUsers, grpcService } = require("@a2a-js/sdk/server/grpc");
const { createLegacyAwarePushNotificationSender } = require("@a2a-js/sdk/compat/v0_3/server");
const { LegacyA2AService, legacyGrpcService } = require("@a2a-js/sdk/compat/v0_3/server/grpc");

const pause = (milliseconds) => new Promise((resume) => setTimeout(resume, milliseconds));
const part = ($case, value, filename = "", mediaType = "") => ({
  content: { $case, value },
  metadata: undefined,
  filename,
  mediaType,
});
const SKILLS = [
  ...["echo", "name", "greet", "count", "trip", "slow", "file", "data", "fail", "refuse"],
  ...["picky", "halves", "let-go"],
];
let messages = 0;

// The command of a message, and the text that belongs to it.
function asked(message) {
  const text = message.parts
    .map(({ content }) => (content?.$case === "text" ? content.value : ""))
    .join("");
  for (const { content } of message.parts) {
    if (content?.$case === "data" && content.value?.do) return [content.value.do, text];
  }
  const [command, rest] = text.split(" ");
  return ["ask", "count", "parts", "slow"].includes(command) ? [command, rest] : ["echo", text];
}

// Does what a data part names as `do`, or the first word of the text; else it echoes loudly.
class Desk {
  canceled = new Set();
  trips = new Map();
  waiting = [];

  async execute({ taskId, contextId, userMessage, task }, bus) {
    const said = (text, taskId, metadata) => ({
      messageId: `said-${++messages}`,
      role: Role.ROLE_AGENT,
      parts: [part("text", text)],
      taskId,
      contextId,
      extensions: [],
      metadata,
      referenceTaskIds: [],
    });
    const status = (state, text, metadata) => ({
      state,
      timestamp: new Date().toISOString(),
      message: text && said(text, taskId, metadata),
    });
    const report = (state, text, metadata) =>
      bus.publish(
        AgentEvent.statusUpdate({
          taskId,
          contextId,
          status: status(state, text, metadata),
          metadata: undefined,
        }),
      );
    const write = (artifactId, parts, append = false, lastChunk = true) =>
      bus.publish(
        AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: {
            artifactId,
            name: "",
            description: "",
            parts,
            metadata: undefined,
            extensions: [],
          },
          append,
          lastChunk,
          metadata: undefined,
        }),
      );

    const [command, text] = asked(userMessage);
    if (command === "greet") {
      bus.publish(AgentEvent.message(said("hello yourself", "")));
      return bus.finished();
    }
    if (command === "picky") throw new ContentTypeNotSupportedError("No pictures, please");
    bus.publish(
      AgentEvent.task(
        task ?? {
          id: taskId,
          contextId,
          status: status(TaskState.TASK_STATE_SUBMITTED),
          artifacts: [],
          history: [userMessage],
          metadata: undefined,
        },
      ),
    );
    report(TaskState.TASK_STATE_WORKING);
    if (!task && (command === "ask" || command === "trip")) {
      this.trips.set(taskId, [command]);
      report(TaskState.TASK_STATE_INPUT_REQUIRED, "Which city?");
      return bus.finished();
    }
    if (task) {
      const known = this.trips.get(taskId);
      known.push(text);
      if (known[0] === "trip" && known.length === 2) {
        report(TaskState.TASK_STATE_INPUT_REQUIRED, "How many days?");
        return bus.finished();
      }
      const trip = known[0] === "trip" ? `${known[2]} days in ${known[1]}` : `A trip to ${text}`;
      write("result", [part("text", trip)]);
    } else if (command === "fail") {
      report(TaskState.TASK_STATE_FAILED, "No paper left", { reason: "paper" });
      return bus.finished();
    } else if (command === "refuse") {
      report(TaskState.TASK_STATE_REJECTED, "Not for me");
      return bus.finished();
    } else if (command === "halves") {
      write("result", [part("text", "first ")], false, false);
      report(TaskState.TASK_STATE_WORKING, "half of it");
      await new Promise((resume) => this.waiting.push(resume));
      write("result", [part("text", "second")], true);
    } else if (command === "let-go") {
      for (const resume of this.waiting.splice(0)) resume();
      write("result", [part("text", "gone")]);
    } else if (command === "name") {
      write("result", [part("text", userMessage.metadata?.skillId ?? "")]);
    } else if (command === "slow") {
      report(TaskState.TASK_STATE_WORKING, "begun");
      for (let tries = 0; tries < 600 && !this.canceled.has(taskId); tries++) await pause(100);
      if (this.canceled.has(taskId)) {
        report(TaskState.TASK_STATE_CANCELED);
        return bus.finished();
      }
    } else if (command === "count") {
      const many = Number(text);
      for (let number = 0; number < many; number++) {
        if (number % 7 === 3) report(TaskState.TASK_STATE_WORKING, `at ${number}`);
        if (number % 11 === 5) write(`facts-${number}`, [part("data", { number })]);
        write("result", [part("text", `${number} `)], number > 0, number === many - 1);
        await pause(10);
      }
    } else if (["parts", "file", "data"].includes(command)) {
      const turned = userMessage.parts.flatMap(({ content }) => {
        if (content?.$case === "raw") {
          const turned = Buffer.from(content.value).reverse();
          return [part("raw", turned, "back.bin", "application/x-back")];
        }
        if (content?.$case !== "data" || content.value?.do) return [];
        return [part("data", { got: content.value })];
      });
      write("result", turned);
    } else {
      write("result", [part("text", text.toUpperCase())]);
    }
    report(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  }

  async cancelTask(taskId) {
    this.canceled.add(taskId);
  }
}

const bindings = {
  JSONRPC: `http://127.0.0.1:${rpcPort}/`,
  "HTTP+JSON": `http://127.0.0.1:${restPort}`,
  GRPC: `127.0.0.1:${grpcPort}`,
};
const modes = ["text/plain", "application/json", "application/octet-stream"];
const card = {
  name: "Desk on @a2a-js/sdk 1.3.0",
  description: "Echoes, and a little more.",
  supportedInterfaces: ["1.0", "0.3"].flatMap((protocolVersion) =>
    Object.entries(bindings).map(([protocolBinding, url]) => ({
      url,
      protocolBinding,
      tenant: "",
      protocolVersion,
    })),
  ),
  provider: undefined,
  version: "1.0.0",
  capabilities: { streaming: true, pushNotifications: true, extensions: [] },
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: modes,
  defaultOutputModes: modes,
  skills: SKILLS.map((name) => ({
    id: name,
    name,
    description: "Does it.",
    tags: ["a"],
    examples: [],
    inputModes: [],
    outputModes: [],
    securityRequirements: [],
  })),
  signatures: [],
};

const hooks = new InMemoryPushNotificationStore();
const requestHandler = new DefaultRequestHandler(
  card,
  new InMemoryTaskStore(),
  new Desk(),
  undefined,
  hooks,
  createLegacyAwarePushNotificationSender(hooks),
);
const old = { legacyCompat: { enabled: true } };
const cards = agentCardHandler({ agentCardProvider: requestHandler, ...old });
const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, ...old };
for (const [port, handler] of [
  [rpcPort, jsonRpcHandler(options)],
  [restPort, restHandler(options)],
]) {
  const app = express();
  app.use("/.well-known/agent-card.json", cards);
  app.use(handler);
  app.listen(Number(port), "127.0.0.1");
}
const server = new grpc.Server();
const calls = { requestHandler, userBuilder: GrpcUsers.noAuthentication };
server.addService(A2AService, grpcService(calls));
server.addService(LegacyA2AService, legacyGrpcService(calls));
server.bindAsync(`127.0.0.1:${grpcPort}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});
