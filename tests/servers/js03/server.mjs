// An agent on the official JavaScript SDK 0.3; see ../README.md.

import { AGENT_CARD_PATH } from "@a2a-js/sdk";
import {
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
    const text = userMessage.parts[0].text;
    const [word, ...others] = text.split(" ");
    const rest = others.join(" ");
    if (word === "reply") {
      bus.publish(message(rest, contextId));
      bus.finished();
      return;
    }
    const update = (state, final, said) =>
      bus.publish({
        kind: "status-update",
        taskId,
        contextId,
        status: status(state, said && message(said, contextId, taskId)),
        final,
      });
    this.buses.set(taskId, { bus, contextId });
    if (!task) {
      const history = [userMessage];
      bus.publish({ kind: "task", id: taskId, contextId, status: status("submitted"), history });
    }
    update("working", false);
    if (word === "ask" || word === "fail") {
      if (word === "ask") update("input-required", true, "which one?");
      else update("failed", true, "it broke");
      bus.finished();
      return;
    }
    let pieces = [text];
    if (word === "chunks") pieces = Array.from({ length: Number(rest) }, (_, n) => `${n + 1};`);
    if (word === "steps") pieces = ["1;", "2;"];
    for (const [n, piece] of pieces.entries()) {
      if (word === "steps" && n > 0) await new Promise((go) => this.waiting.push(go));
      bus.publish({
        kind: "artifact-update",
        taskId,
        contextId,
        artifact: { artifactId: "answer", name: "answer", parts: [part(piece)] },
        append: n > 0,
        lastChunk: n + 1 === pieces.length,
      });
    }
    if (word === "release") this.waiting.shift()?.();
    update("completed", true);
    bus.finished();
  }

  async cancelTask(taskId) {
    const { bus, contextId } = this.buses.get(taskId);
    // What it waited for will not come.
    this.waiting.pop();
    bus.publish({
      kind: "status-update",
      taskId,
      contextId,
      status: status("canceled"),
      final: true,
    });
    bus.finished();
  }
}

function status(state, said) {
  return { state, timestamp: new Date().toISOString(), message: said };
}

function part(text) {
  return { kind: "text", text };
}

function message(text, contextId, taskId) {
  const parts = [part(text)];
  return { kind: "message", messageId: crypto.randomUUID(), role: "agent", contextId, taskId, parts };
}

function card(name, url, grpc) {
  return {
    protocolVersion: "0.3.0",
    name,
    description: "Does what it is told",
    version: "1.0.0",
    url: `${url}/`,
    preferredTransport: "JSONRPC",
    additionalInterfaces: [
      { url: `${url}/rest`, transport: "HTTP+JSON" },
      { url: grpc, transport: "GRPC" },
    ],
    capabilities: { streaming: true, pushNotifications: true },
    supportsAuthenticatedExtendedCard: true,
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "script", name: "Script", description: "Obeys", tags: ["test"] }],
  };
}

const app = express();
const listener = app.listen(0, "127.0.0.1", () => {
  const server = new Server();
  server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, grpcPort) => {
    if (error) throw error;
    const { port } = listener.address();
    const [url, grpc] = [`http://127.0.0.1:${port}`, `127.0.0.1:${grpcPort}`];
    const handler = new DefaultRequestHandler(
      card("js03", url, grpc),
      new InMemoryTaskStore(),
      new Script(),
      undefined,
      new InMemoryPushNotificationStore(),
      undefined,
      card("js03 extended", url, grpc),
    );
    const options = { requestHandler: handler, userBuilder: UserBuilder.noAuthentication };
    app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: handler }));
    app.use("/rest", restHandler(options));
    app.use(jsonRpcHandler(options));
    server.addService(A2AService, grpcService(options));
    console.log(port);
  });
});
