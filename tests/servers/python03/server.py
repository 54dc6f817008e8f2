"""An agent on the official Python SDK 0.3; see ../README.md."""

import asyncio
import socket

import grpc
import uvicorn
from a2a.grpc import a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import (
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    TextPart,
)
from a2a.utils import get_message_text, new_agent_text_message, new_task
from starlette.routing import Mount


class Script(AgentExecutor):
    """Does what the first word of a message says."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)

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
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if word == "ask":
            await updater.requires_input(updater.new_agent_message([part("which one?")]), final=True)
            return
        if word == "fail":
            await updater.failed(updater.new_agent_message([part("it broke")]))
            return
        pieces = [text]
        if word == "chunks":
            pieces = [f"{n};" for n in range(1, int(rest) + 1)]
        if word == "steps":
            pieces = ["1;", "2;"]
        for n, piece in enumerate(pieces):
            if word == "steps" and n > 0:
                await self.gate.acquire()
            await updater.add_artifact(
                [part(piece)],
                artifact_id="answer",
                append=n > 0,
                last_chunk=n + 1 == len(pieces),
            )
        if word == "release":
            self.gate.release()
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def part(text: str) -> Part:
    return Part(root=TextPart(text=text))


def card(url: str, grpc_address: str) -> AgentCard:
    return AgentCard(
        name="python03",
        description="Does what it is told",
        version="1.0.0",
        url=f"{url}/",
        preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(url=f"{url}/rest", transport="HTTP+JSON"),
            AgentInterface(url=grpc_address, transport="GRPC"),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supports_authenticated_extended_card=True,
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="script", name="Script", description="Obeys", tags=["test"])],
    )


async def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    public = card(f"http://127.0.0.1:{port}", grpc_address)
    extended = public.model_copy(update={"name": "python03 extended"})
    handler = DefaultRequestHandler(
        agent_executor=Script(),
        task_store=InMemoryTaskStore(),
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    rest = A2ARESTFastAPIApplication(
        agent_card=public, http_handler=handler, extended_agent_card=extended
    ).build()
    app = A2AStarletteApplication(
        agent_card=public, http_handler=handler, extended_agent_card=extended
    ).build(routes=[Mount("/rest", app=rest)])
    # The only card that gRPC has is the one for those who have said who they are.
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(extended, handler), grpc_server)
    await grpc_server.start()
    print(port, flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
