// An echo agent on the official JavaScript SDK with express, in memory: server.mjs --port PORT.

import { parseArgs } from "node:util";

import { AGENT_CARD_PATH, AgentCard, TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { agentCardHandler, jsonRpcHandler, UserBuilder } from "@a2a-js/sdk/server/express";
import express from "express";

const CHUNKS = 10;

/** Says it again; the prefixes are those of the public conformance suite. */
class Echo {
  async execute({ taskId, contextId, userMessage }, bus) {
    const status = (state) => ({ state, timestamp: new Date().toISOString(), message: undefined });
    const update = (state) =>
      bus.publish(
        AgentEvent.statusUpdate({ taskId, contextId, status: status(state), metadata: undefined }),
      );

    bus.publish(
      AgentEvent.task({
        id: taskId,
        contextId,
        status: status(TaskState.TASK_STATE_SUBMITTED),
        artifacts: [],
        history: [userMessage],
        metadata: undefined,
      }),
    );
    update(TaskState.TASK_STATE_WORKING);

    const text = userMessage.parts[0].content.value;
    if (text.startsWith("tck-cancel")) await new Promise(() => {});
    const chunks = text.startsWith("tck-stream-chunked")
      ? Array.from({ length: CHUNKS }, (_, n) => `chunk ${n} `)
      : [text];
    chunks.forEach((chunk, n) =>
      bus.publish(
        AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: artifact(chunk),
          append: n > 0,
          lastChunk: n + 1 === chunks.length,
          metadata: undefined,
        }),
      ),
    );
    update(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  }

  async cancelTask() {}
}

function artifact(text) {
  const part = {
    content: { $case: "text", value: text },
    metadata: undefined,
    filename: "",
    mediaType: "",
  };
  return {
    artifactId: "answer",
    name: "echo",
    description: "",
    parts: [part],
    metadata: undefined,
    extensions: [],
  };
}

const { port } = parseArgs({ options: { port: { type: "string" } } }).values;
const card = AgentCard.fromJSON({
  name: "js",
  description: "Echoes",
  version: "1.0.0",
  capabilities: { streaming: true },
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "echo", name: "Echo", description: "Says it again", tags: ["echo"] }],
  supportedInterfaces: [
    { url: `http://127.0.0.1:${port}/`, protocolBinding: "JSONRPC", protocolVersion: "1.0" },
  ],
});
const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Echo());
const app = express();
app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: handler }));
app.use(jsonRpcHandler({ requestHandler: handler, userBuilder: UserBuilder.noAuthentication }));
app.listen(Number(port), "127.0.0.1");
