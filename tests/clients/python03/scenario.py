"""Drives a running A2A server with the official Python SDK 0.3.x, as an A2A 0.3 client.

usage: scenario.py BASE_URL [--transport jsonrpc|rest|grpc]

The server must offer the `conformance` agent at BASE_URL. Every step prints `ok` or `FAIL`;
the exit code is 1 if any step failed. There is no step `list`: 0.3 has no such operation.
"""

import asyncio
import base64
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, A2AClientHTTPError, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    DataPart, FilePart, FileWithBytes, Message, Part, Role, TaskArtifactUpdateEvent, TaskIdParams,
    TaskQueryParams, TaskState, TextPart, TransportProtocol,
)

sys.path.append(str(Path(__file__).parent.parent))
from client_steps import STEP_TIMEOUT, check, command_line, equal, run  # noqa: E402

TRANSPORTS = {
    "jsonrpc": TransportProtocol.jsonrpc,
    "rest": TransportProtocol.http_json,
    "grpc": TransportProtocol.grpc,
}

NOT_FOUND, NOT_CANCELABLE, UNSUPPORTED = -32001, -32002, -32004


def in_state(task, state, what):
    equal(task.status.state.value, state.value, what)


async def refused(call, code, what):
    """Awaits `call` and insists that it fails with the A2A error `code`.

    The REST client of this SDK drops the body of an error and keeps only the HTTP status,
    for which 0.3 has no table: 404 is beyond dispute, the rest need only be the caller's fault.
    The gRPC client passes gRPC's own error on.
    """
    try:
        result = await call
    except A2AClientJSONRPCError as error:
        return equal(error.error.code, code, what)
    except A2AClientHTTPError as error:
        allowed = [404] if code == NOT_FOUND else range(400, 500)
        return check(error.status_code in allowed, f"{what}: {error}")
    except grpc.aio.AioRpcError as error:
        code = grpc.StatusCode.NOT_FOUND if code == NOT_FOUND else grpc.StatusCode.FAILED_PRECONDITION
        return equal(error.code(), code, what)
    raise AssertionError(f"{what}: got {result!r}, want error {code}")


def user(text, *more, **ids):
    parts = [Part(root=part) for part in (TextPart(text=text), *more)]
    return Message(role=Role.user, message_id=str(uuid4()), parts=parts, **ids)


def text_of(parts):
    return "".join(part.root.text for part in parts)


class Scenario:
    def __init__(self, base, transport):
        self.base, self.transport = base, transport
        self.card = None
        self.finished = None  # the task of step `send`
        self.streamed = None  # (task id, user message, text) of step `stream`

    @asynccontextmanager
    async def client(self, streaming=False):
        """A client with a connection pool of its own, torn down on the way out.

        In this SDK the way of sending is a property of the client, not of the call.
        """
        async with httpx.AsyncClient(timeout=STEP_TIMEOUT) as http:
            config = ClientConfig(
                streaming, httpx_client=http, grpc_channel_factory=grpc.aio.insecure_channel,
                supported_transports=[self.transport],
            )
            yield ClientFactory(config).create(self.card)

    async def ask(self, message):
        """Sends and waits: the answer must be a task."""
        async with self.client() as client:
            answers = [answer async for answer in client.send_message(message)]
        equal(len(answers), 1, "number of answers")
        check(isinstance(answers[0], tuple), f"answer: got {answers[0]!r}, want a task")
        return answers[0][0]

    async def look(self, task_id):
        # 0.3 leaves it to the server how much history comes unasked, so ask.
        async with self.client() as client:
            return await client.get_task(TaskQueryParams(id=task_id, history_length=100))

    # The steps, in order. A step may use what an earlier one left behind.

    async def card_(self):
        async with httpx.AsyncClient(timeout=STEP_TIMEOUT) as http:
            self.card = await A2ACardResolver(http, self.base).get_agent_card()
        offered = [i.transport for i in self.card.additional_interfaces or []]
        offered.append(self.card.preferred_transport)
        check(self.transport in offered, f"no {self.transport.value} among {offered}")
        check(self.card.protocol_version.startswith("0.3"), f"protocol {self.card.protocol_version}")
        check(self.card.capabilities.streaming, "the card does not offer streaming")

    async def send(self):
        task = await self.ask(user("tck-complete-task hello"))
        in_state(task, TaskState.completed, "task")
        self.finished = task

    async def stream(self):
        message = user("tck-stream-chunked chunks=10 size=16 delay_ms=5")
        states, events = [], []
        async with self.client(streaming=True) as client:
            # The SDK folds each event into a task of its own and hands out both. The task shares
            # the first chunk's artifact and grows it later, hence the copy.
            async for task, event in client.send_message(message):
                states.append(task.status.state)
                events.append((event or task).model_copy(deep=True))
        kinds = [event.kind for event in events]
        first_chunk = kinds.index("artifact-update")
        check(TaskState.working in states[:first_chunk], "never working before the first chunk")
        rest = ["artifact-update"] * 10 + ["status-update"]
        equal(kinds[first_chunk:], rest, "events from the first chunk")
        chunks, last = events[first_chunk:-1], events[-1]
        equal(len({chunk.artifact.artifact_id for chunk in chunks}), 1, "number of artifacts")
        equal([bool(chunk.append) for chunk in chunks], [False] + [True] * 9, "append flags")
        texts = [text_of(chunk.artifact.parts) for chunk in chunks]
        equal([len(text.encode()) for text in texts], [16] * 10, "chunk sizes")
        in_state(last, TaskState.completed, "last event")
        check(last.final, "the last event is not marked final")
        self.streamed = (last.task_id, message, "".join(texts))

    async def get(self):
        check(self.streamed, "needs the task of step stream")
        task_id, message, text = self.streamed
        task = await self.look(task_id)
        in_state(task, TaskState.completed, "task")
        equal(len(task.artifacts or []), 1, "number of artifacts")
        equal(text_of(task.artifacts[0].parts), text, "text of the artifact")
        mine = [m for m in task.history or [] if m.message_id == message.message_id]
        equal([text_of(m.parts) for m in mine], [text_of(message.parts)], "user message in history")

    async def cancel(self):
        check(self.finished, "needs the task of step send")
        async with self.client() as other, self.client(streaming=True) as client:
            canceled, task = None, None
            async for task, _ in client.send_message(user("tck-cancel")):
                if task.status.state == TaskState.working and not canceled:
                    canceled = await other.cancel_task(TaskIdParams(id=task.id))
            check(canceled, "the task never reported working")
            in_state(canceled, TaskState.canceled, "answer to cancel")
            in_state(task, TaskState.canceled, "end of the stream")
            in_state(await self.look(task.id), TaskState.canceled, "task afterwards")
            again = other.cancel_task(TaskIdParams(id=self.finished.id))
            await refused(again, NOT_CANCELABLE, "cancel of a completed task")

    async def resubscribe(self):
        task, seen = None, 0
        async with self.client(streaming=True) as client:
            message = user("tck-stream-chunked chunks=20 size=8 delay_ms=100")
            async for task, event in client.send_message(message):
                seen += isinstance(event, TaskArtifactUpdateEvent)
                if seen == 3:
                    break
        # The pool is closed here, and with it the socket of the stream.
        async with self.client(streaming=True) as client:
            stream = client.resubscribe(TaskIdParams(id=task.id))
            events = [(event or whole).model_copy(deep=True) async for whole, event in stream]
        later = [event for event in events if event.kind == "artifact-update"]
        check(later, "no chunk after the resubscription")
        in_state(events[-1], TaskState.completed, "last event")
        check(events[-1].final, "the last event is not marked final")
        stored = (await self.look(task.id)).artifacts[0].parts
        equal(len(stored), 20, "chunks in the artifact")
        text = text_of(stored)
        tail = "".join(text_of(chunk.artifact.parts) for chunk in later)
        # 0.3 leaves open whether a snapshot comes first. With one, nothing may be missing.
        if events[0].kind == "task":
            known = "".join(text_of(a.parts) for a in events[0].artifacts or [])
            equal(known + tail, text, "snapshot and later chunks")
        check(text.endswith(tail), f"later chunks: {tail!r} is not the end of {text!r}")

    async def multi_turn(self):
        asked = await self.ask(user("tck-multi-turn"))
        in_state(asked, TaskState.input_required, "first turn")
        more = await self.ask(user("more", task_id=asked.id))
        in_state(more, TaskState.input_required, "second turn")
        done = await self.ask(user("done", task_id=asked.id, context_id=asked.context_id))
        in_state(done, TaskState.completed, "third turn")
        equal([more.id, done.id], [asked.id] * 2, "task ids")
        equal([more.context_id, done.context_id], [asked.context_id] * 2, "context ids")
        task = await self.look(asked.id)
        said = [text_of(m.parts) for m in task.history or [] if m.role == Role.user]
        equal(said, ["tck-multi-turn", "more", "done"], "user messages in history")

    async def errors(self):
        check(self.finished, "needs the task of step send")
        await refused(self.look(str(uuid4())), NOT_FOUND, "get of an unknown task")
        late = user("too late", task_id=self.finished.id)
        await refused(self.ask(late), UNSUPPORTED, "send to a completed task")

    async def parts(self):
        data = {"n": 1, "pi": 3.5, "none": None, "list": [1, "zwei", True, {"鍵": "値"}]}
        content = base64.b64encode(bytes(range(256))).decode()
        file = FileWithBytes(bytes=content, name="ümlaut 文.bin", mime_type="application/octet-stream")
        message = user(
            "tck-complete-task 👩‍👩‍👧‍👦 e\u0301 漢字 \u202eשלום \"\\\n\u2028 end",
            DataPart(data=data), FilePart(file=file),
        )
        task = await self.ask(message)
        in_state(task, TaskState.completed, "task")
        stored = await self.look(task.id)
        mine = [m for m in stored.history or [] if m.message_id == message.message_id]
        equal(len(mine), 1, "user messages in history")
        equal([part.root.kind for part in mine[0].parts], ["text", "data", "file"], "parts")
        text, echoed, attached = [part.root for part in mine[0].parts]
        equal(text.text, message.parts[0].root.text, "text part")
        equal(echoed.data, data, "data part")
        equal(attached.file, file, "file part")


async def main(base, transport):
    scenario = Scenario(base, transport)
    steps = [
        scenario.card_, scenario.send, scenario.stream, scenario.get, scenario.cancel,
        scenario.resubscribe, scenario.multi_turn, scenario.errors, scenario.parts,
    ]
    return await run(steps, lambda: scenario.card)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*command_line(TRANSPORTS))))
