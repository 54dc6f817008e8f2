"""An agent on the official Python SDK 1.x; see ../README.md."""

import asyncio
import socket

import grpc
import uvicorn
from a2a.helpers import get_message_text, new_task, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
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
    Role,
    TaskState,
    a2a_pb2_grpc,
)
from starlette.applications import Starlette


class Script(AgentExecutor):
    """Does what the first word of a message says."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = get_message_text(context.message)
        word, _, rest = text.partition(" ")
        if word == "reply":
            answer = new_text_message(rest, context_id=context.context_id, role=Role.ROLE_AGENT)
            await event_queue.enqueue_event(answer)
            return
        if context.current_task is None:
            task = new_task(
                context.task_id,
                context.context_id,
                TaskState.TASK_STATE_SUBMITTED,
                history=[context.message],
            )
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        if word == "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part("which one?")]))
            return
        if word == "fail":
            await updater.failed(updater.new_agent_message([new_text_part("it broke")]))
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
                [new_text_part(piece)],
                artifact_id="answer",
                append=n > 0,
                last_chunk=n + 1 == len(pieces),
            )
        if word == "release":
            self.gate.release()
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url: str, grpc_address: str) -> AgentCard:
    bindings = [("JSONRPC", f"{url}/"), ("HTTP+JSON", f"{url}/rest"), ("GRPC", grpc_address)]
    return AgentCard(
        name="python1",
        description="Does what it is told",
        version="1.0.0",
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="script", name="Script", description="Obeys", tags=["test"])],
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
            for binding, url in bindings
        ],
    )


async def any_url(_: str) -> bool:
    return True


async def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    public = card(f"http://127.0.0.1:{port}", grpc_address)
    extended = card(f"http://127.0.0.1:{port}", grpc_address)
    extended.name = "python1 extended"
    handler = DefaultRequestHandler(
        agent_executor=Script(),
        task_store=InMemoryTaskStore(),
        agent_card=public,
        push_config_store=InMemoryPushNotificationConfigStore(),
        push_url_validator=any_url,
        extended_agent_card=extended,
    )
    routes = [
        *create_agent_card_routes(public),
        *create_jsonrpc_routes(handler, "/"),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), grpc_server)
    await grpc_server.start()
    print(port, flush=True)
    config = uvicorn.Config(Starlette(routes=routes), log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
