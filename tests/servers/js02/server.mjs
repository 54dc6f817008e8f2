// An agent on the official JavaScript SDK 0.2; see ../README.md. Its card names no version.

import { A2AExpressApp, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import express from "express";

/** Does what the first word of a message says. */
class Script {
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
    for (const [n, piece] of pieces.entries()) {
      bus.publish({
        kind: "artifact-update",
        taskId,
        contextId,
        artifact: { artifactId: "answer", name: "answer", parts: [part(piece)] },
        append: n > 0,
        lastChunk: n + 1 === pieces.length,
      });
    }
    update("completed", true);
    bus.finished();
  }

  async cancelTask() {}
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

const app = express();
const listener = app.listen(0, "127.0.0.1", () => {
  const { port } = listener.address();
  const card = {
    name: "js02",
    description: "Does what it is told",
    version: "1.0.0",
    url: `http://127.0.0.1:${port}/`,
    capabilities: { streaming: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "script", name: "Script", description: "Obeys", tags: ["test"] }],
  };
  const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Script());
  new A2AExpressApp(handler).setupRoutes(app, "");
  console.log(port);
});
