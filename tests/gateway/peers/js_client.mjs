// What @a2a-js/sdk sees of the sub-agent in examples/iat-node: `js_client.mjs URL`, one JSON line.
// It offers the tool that the sub-agent calls, and answers what it is asked.
import { randomUUID } from "node:crypto";

import { Role, taskStateToJSON } from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";

const url = `${process.argv[2]}/`;
const WORK = "urn:dragoman:work:1";
const fetchImpl = (where, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("A2A-Extensions", WORK);
  return fetch(where, { ...init, headers });
};
const cardResolver = new DefaultAgentCardResolver({ fetchImpl });
const factory = new ClientFactory({
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver,
});
const card = await cardResolver.resolve(url);
const client = await factory.createFromUrl(url);

const part = ($case, value) => ({ content: { $case, value }, filename: "", mediaType: "" });
const send = (parts, taskId = "", metadata = undefined) =>
  client.sendMessage({
    tenant: "",
    metadata,
    message: {
      messageId: randomUUID(),
      role: Role.ROLE_USER,
      parts,
      taskId,
      contextId: "",
      extensions: [],
      referenceTaskIds: [],
    },
  });

const tools = [{ name: "size", description: "How large a file is." }];
let task = await send([part("text", "b.txt")], "", { [`${WORK}/tools`]: tools });
const asked = [];
for (const answer of [{ result: 5 }, { approved: true }]) {
  const about = task.status.message?.parts.find((each) => each.content?.$case === "data");
  asked.push([taskStateToJSON(task.status.state), about?.content.value.kind]);
  task = await send([part("data", answer)], task.id);
}
const text = task.artifacts.flatMap((made) => made.parts).map((each) => each.content?.value).join("");
console.log(JSON.stringify({ name: card.name, asked, state: taskStateToJSON(task.status.state), text }));
