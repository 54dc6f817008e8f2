"""An agent on fasta2a; see ../README.md."""

import asyncio
import socket
import uuid
from contextlib import asynccontextmanager

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage


class Script(Worker):
    """Answers with the text of the message, or fails."""

    async def run_task(self, params):
        task = await self.storage.load_task(params["id"])
        await self.storage.update_task(task["id"], state="working")
        text = "".join(part.get("text", "") for part in params["message"]["parts"])
        if text == "fail":
            await self.storage.update_task(task["id"], state="failed")
            return
        artifact = {"artifact_id": str(uuid.uuid4()), "name": "answer", "parts": self.build(text)}
        await self.publish_artifact(task["id"], task["context_id"], artifact)
        await self.storage.update_task(task["id"], state="completed", new_artifacts=[artifact])

    @staticmethod
    def build(text):
        return [{"kind": "text", "text": text}]

    async def cancel_task(self, params):
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return []


async def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    storage, broker = InMemoryStorage(), InMemoryBroker()
    worker = Script(storage=storage, broker=broker)

    @asynccontextmanager
    async def lifespan(app):
        async with app.task_manager, worker.run():
            yield

    app = FastA2A(storage=storage, broker=broker, url=f"http://127.0.0.1:{port}", lifespan=lifespan)
    print(port, flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
