"""An echo agent on the official Python SDK, in memory: server.py --port PORT.

uvicorn runs with uvloop and httptools and without an access log: the fastest way the SDK's own
documentation leads to.
"""

import argparse
import asyncio

import uvicorn
from a2a.helpers import get_message_text, new_task, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    TaskState,
)
from starlette.applications import Starlette

CHUNKS = 10


class Echo(AgentExecutor):
    """Echoes a message; the prefixes are those of the public conformance suite."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = new_task(
            context.task_id,
            context.context_id,
            TaskState.TASK_STATE_SUBMITTED,
            history=[context.message],
        )
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        text = get_message_text(context.message)
        if text.startswith("tck-cancel"):
            await asyncio.Event().wait()
        chunked = text.startswith("tck-stream-chunked")
        chunks = [f"chunk {n} " for n in range(CHUNKS)] if chunked else [text]
        for n, chunk in enumerate(chunks):
            await updater.add_artifact(
                [new_text_part(chunk)],
                artifact_id="answer",
                name="echo",
                append=n > 0,
                last_chunk=n + 1 == len(chunks),
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(port: int) -> AgentCard:
    return AgentCard(
        name="python",
        description="Echoes",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            AgentSkill(id="echo", name="Echo", description="Says it again", tags=["echo"])
        ],
        supported_interfaces=[
            AgentInterface(
                url=f"http://127.0.0.1:{port}/",
                protocol_binding="JSONRPC",
                protocol_version="1.0",
            )
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    handler = DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card(port)
    )
    routes = [*create_agent_card_routes(card(port)), *create_jsonrpc_routes(handler, "/")]
    uvicorn.run(
        Starlette(routes=routes),
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
