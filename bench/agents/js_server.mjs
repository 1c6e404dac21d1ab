// The bench agent on @a2a-js/sdk, served the way its documentation shows: express.
//
// The packages are looked up in the node project named by BENCH_PROJECT, since this file lies
// outside of it.
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";

const require = createRequire(join(process.env.BENCH_PROJECT, "package.json"));
const express = require("express");
const { TaskState } = require("@a2a-js/sdk");
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = require("@a2a-js/sdk/server");
const { UserBuilder, agentCardHandler, jsonRpcHandler } = require("@a2a-js/sdk/server/express");

const GAP_MILLISECONDS = 5;
const pause = () => new Promise((resume) => setTimeout(resume, GAP_MILLISECONDS));

const statusOf = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });

const textPart = (text) => ({
  content: { $case: "text", value: text },
  metadata: undefined,
  filename: "",
  mediaType: "",
});

// Echoes; `chunks N` and `spaced N` stream N chunks, `hang` never ends.
class BenchExecutor {
  async execute({ taskId, contextId, userMessage }, bus) {
    const report = (state) =>
      bus.publish(
        AgentEvent.statusUpdate({ taskId, contextId, status: statusOf(state), metadata: undefined }),
      );
    const write = (text, append, lastChunk) =>
      bus.publish(
        AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: {
            artifactId: "result",
            name: "",
            description: "",
            parts: [textPart(text)],
            metadata: undefined,
            extensions: [],
          },
          append,
          lastChunk,
          metadata: undefined,
        }),
      );

    bus.publish(
      AgentEvent.task({
        id: taskId,
        contextId,
        status: statusOf(TaskState.TASK_STATE_SUBMITTED),
        artifacts: [],
        history: [userMessage],
        metadata: undefined,
      }),
    );
    report(TaskState.TASK_STATE_WORKING);

    const text = userMessage.parts
      .map(({ content }) => (content?.$case === "text" ? content.value : ""))
      .join("");
    const [command, count] = text.split(" ");
    if (command === "chunks" || command === "spaced") {
      const total = Number(count);
      for (let number = 0; number < total; number++) {
        if (command === "spaced" && number) await pause();
        write(`w${number} `, number > 0, number === total - 1);
      }
    } else if (command === "hang") {
      write("w0 ", false, false);
      await new Promise(() => {});
    } else {
      write(text, false, true);
    }
    report(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  }

  async cancelTask() {}
}

const { values: options } = parseArgs({
  options: { port: { type: "string" }, store: { type: "string", default: "memory:" } },
});
if (options.store !== "memory:") throw new Error(`no such store here: ${options.store}`);

const card = {
  name: "Bench",
  description: "Echoes and streams for the bench.",
  supportedInterfaces: [
    {
      url: `http://127.0.0.1:${options.port}/`,
      protocolBinding: "JSONRPC",
      tenant: "",
      protocolVersion: "1.0",
    },
  ],
  provider: undefined,
  version: "1.0.0",
  capabilities: { streaming: true, pushNotifications: false, extensions: [] },
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [
    {
      id: "echo",
      name: "echo",
      description: "Says it back.",
      tags: ["bench"],
      examples: [],
      inputModes: [],
      outputModes: [],
      securityRequirements: [],
    },
  ],
  signatures: [],
};
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new BenchExecutor());
const app = express();
app.use(
  "/.well-known/agent-card.json",
  agentCardHandler({ agentCardProvider: requestHandler }),
);
app.use(jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(Number(options.port), "127.0.0.1");
