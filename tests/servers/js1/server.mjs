// An agent on the official JavaScript SDK 1.x; see ../README.md.

import { AGENT_CARD_PATH, AgentCard, Role, TaskState } from "@a2a-js/sdk";
import {
  AgentEvent,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from "@a2a-js/sdk/server";
import {
  agentCardHandler,
  jsonRpcHandler,
  restHandler,
  UserBuilder,
} from "@a2a-js/sdk/server/express";
import { A2AService, grpcService } from "@a2a-js/sdk/server/grpc";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import express from "express";

/** Does what the first word of a message says. */
class Script {
  /** Those who wait for `release`. */
  waiting = [];
  /** Who cancels a task. */
  buses = new Map();

  async execute({ taskId, contextId, userMessage, task }, bus) {
    const text = userMessage.parts[0].content.value;
    const [word, ...others] = text.split(" ");
    const rest = others.join(" ");
    if (word === "reply") {
      bus.publish(AgentEvent.message(message(rest, contextId, "")));
      bus.finished();
      return;
    }
    const update = (state, said) =>
      bus.publish(
        AgentEvent.statusUpdate({
          taskId,
          contextId,
          status: status(state, said && message(said, contextId, taskId)),
          metadata: undefined,
        }),
      );
    this.buses.set(taskId, { bus, contextId });
    if (!task) {
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
    }
    update(TaskState.TASK_STATE_WORKING);
    if (word === "ask" || word === "fail") {
      if (word === "ask") update(TaskState.TASK_STATE_INPUT_REQUIRED, "which one?");
      else update(TaskState.TASK_STATE_FAILED, "it broke");
      bus.finished();
      return;
    }
    let pieces = [text];
    if (word === "chunks") pieces = Array.from({ length: Number(rest) }, (_, n) => `${n + 1};`);
    if (word === "steps") pieces = ["1;", "2;"];
    for (const [n, piece] of pieces.entries()) {
      if (word === "steps" && n > 0) await new Promise((go) => this.waiting.push(go));
      bus.publish(
        AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: artifact(piece),
          append: n > 0,
          lastChunk: n + 1 === pieces.length,
          metadata: undefined,
        }),
      );
    }
    if (word === "release") this.waiting.shift()?.();
    update(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  }

  async cancelTask(taskId) {
    const { bus, contextId } = this.buses.get(taskId);
    // What it waited for will not come.
    this.waiting.pop();
    bus.publish(
      AgentEvent.statusUpdate({
        taskId,
        contextId,
        status: status(TaskState.TASK_STATE_CANCELED),
        metadata: undefined,
      }),
    );
    bus.finished();
  }
}

function status(state, said) {
  return { state, timestamp: new Date().toISOString(), message: said };
}

function part(text) {
  const content = { $case: "text", value: text };
  return { content, metadata: undefined, filename: "", mediaType: "" };
}

function message(text, contextId, taskId) {
  return {
    messageId: crypto.randomUUID(),
    contextId,
    taskId,
    role: Role.ROLE_AGENT,
    parts: [part(text)],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  };
}

function artifact(text) {
  return {
    artifactId: "answer",
    name: "answer",
    description: "",
    parts: [part(text)],
    metadata: undefined,
    extensions: [],
  };
}

function card(name, url, grpc) {
  const bindings = [
    ["JSONRPC", `${url}/`],
    ["HTTP+JSON", `${url}/rest`],
    ["GRPC", grpc],
  ];
  return AgentCard.fromJSON({
    name,
    description: "Does what it is told",
    version: "1.0.0",
    capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "script", name: "Script", description: "Obeys", tags: ["test"] }],
    supportedInterfaces: bindings.map(([protocolBinding, url]) => ({
      url,
      protocolBinding,
      protocolVersion: "1.0",
    })),
  });
}

const app = express();
const listener = app.listen(0, "127.0.0.1", () => {
  const server = new Server();
  server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, grpcPort) => {
    if (error) throw error;
    const { port } = listener.address();
    const [url, grpc] = [`http://127.0.0.1:${port}`, `127.0.0.1:${grpcPort}`];
    const handler = new DefaultRequestHandler(
      card("js1", url, grpc),
      new InMemoryTaskStore(),
      new Script(),
      undefined,
      new InMemoryPushNotificationStore(),
      undefined,
      card("js1 extended", url, grpc),
    );
    const options = { requestHandler: handler, userBuilder: UserBuilder.noAuthentication };
    app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: handler }));
    app.use("/rest", restHandler(options));
    app.use(jsonRpcHandler(options));
    server.addService(A2AService, grpcService(options));
    console.log(port);
  });
});
