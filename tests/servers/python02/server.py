"""An agent on the official Python SDK 0.2; see ../README.md."""

import asyncio
import socket

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCard, Part, TextPart
from a2a.utils import get_message_text, new_agent_text_message, new_task


class Script(AgentExecutor):
    """Does what the first word of a message says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = get_message_text(context.message)
        word, _, rest = text.partition(" ")
        if word == "reply":
            await event_queue.enqueue_event(new_agent_text_message(rest, context.context_id))
            return
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, context.context_id)
        await updater.start_work()
        if word == "ask":
            await updater.requires_input(updater.new_agent_message([part("which one?")]), final=True)
            return
        if word == "fail":
            await updater.failed(updater.new_agent_message([part("it broke")]))
            return
        pieces = [f"{n};" for n in range(1, int(rest) + 1)] if word == "chunks" else [text]
        for n, piece in enumerate(pieces):
            await updater.add_artifact(
                [part(piece)],
                artifact_id="answer",
                append=n > 0,
                last_chunk=n + 1 == len(pieces),
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def part(text: str) -> Part:
    return Part(root=TextPart(text=text))


async def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    card = AgentCard.model_validate(
        {
            "name": "python02",
            "description": "Does what it is told",
            "version": "1.0.0",
            "url": f"http://127.0.0.1:{port}/",
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "script", "name": "Script", "description": "Obeys", "tags": ["test"]}],
        }
    )
    handler = DefaultRequestHandler(agent_executor=Script(), task_store=InMemoryTaskStore())
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    print(port, flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
