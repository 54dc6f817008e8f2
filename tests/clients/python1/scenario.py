"""Drives a running A2A 1.0 server with the official Python SDK 1.x.

usage: scenario.py BASE_URL [--transport jsonrpc|rest|grpc]

The server must offer the `conformance` agent at BASE_URL. Every step prints `ok` or `FAIL`;
the exit code is 1 if any step failed.
"""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Part, Role,
    SendMessageRequest, SubscribeToTaskRequest, TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

sys.path.append(str(Path(__file__).parent.parent))
from client_steps import STEP_TIMEOUT, check, command_line, equal, run  # noqa: E402

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}

WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
CANCELED = TaskState.TASK_STATE_CANCELED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


def in_state(task, state, what):
    equal(TaskState.Name(task.status.state), TaskState.Name(state), what)


async def refused(call, error, what):
    """Awaits `call` and insists that it raises `error`."""
    try:
        result = await call
    except error:
        return
    except Exception as other:
        raise AssertionError(f"{what}: got {other!r}, want {error.__name__}") from other
    raise AssertionError(f"{what}: got {result!r}, want {error.__name__}")


def user(text, *more, **ids):
    parts = [Part(text=text), *more]
    return Message(role=Role.ROLE_USER, message_id=str(uuid4()), parts=parts, **ids)


def text_of(parts):
    return "".join(part.text for part in parts)


class Scenario:
    def __init__(self, base, binding):
        self.base, self.binding = base, binding
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
                supported_protocol_bindings=[self.binding],
            )
            client = ClientFactory(config).create(self.card)
            try:
                yield client
            finally:
                await client.close()

    async def ask(self, message):
        """Sends and waits: the answer must be a task."""
        async with self.client() as client:
            request = SendMessageRequest(message=message)
            answers = [answer async for answer in client.send_message(request)]
        equal([a.WhichOneof("payload") for a in answers], ["task"], "answer")
        return answers[0].task

    async def look(self, task_id):
        async with self.client() as client:
            return await client.get_task(GetTaskRequest(id=task_id))

    # The steps, in order. A step may use what an earlier one left behind.

    async def card_(self):
        async with httpx.AsyncClient(timeout=STEP_TIMEOUT) as http:
            self.card = await A2ACardResolver(http, self.base).get_agent_card()
        offered = [(i.protocol_binding, i.protocol_version) for i in self.card.supported_interfaces]
        check((self.binding, "1.0") in offered, f"no {self.binding} 1.0 among {offered}")
        check(self.card.capabilities.streaming, "the card does not offer streaming")

    async def send(self):
        task = await self.ask(user("tck-complete-task hello"))
        in_state(task, COMPLETED, "task")
        self.finished = task

    async def stream(self):
        message = user("tck-stream-chunked chunks=10 size=16 delay_ms=5")
        async with self.client(streaming=True) as client:
            events = [e async for e in client.send_message(SendMessageRequest(message=message))]
        kinds = [event.WhichOneof("payload") for event in events]
        equal(kinds[0], "task", "first event")
        equal(kinds.count("task"), 1, "number of task events")
        first_chunk = kinds.index("artifact_update")
        before = [e.status_update.status.state for e in events[1:first_chunk]]
        check(WORKING in [events[0].task.status.state, *before], "never working before the first chunk")
        chunks = [e.artifact_update for e in events if e.HasField("artifact_update")]
        equal(kinds[first_chunk:], ["artifact_update"] * 10 + ["status_update"], "events from the first chunk")
        equal(len({chunk.artifact.artifact_id for chunk in chunks}), 1, "number of artifacts")
        equal([chunk.append for chunk in chunks], [False] + [True] * 9, "append flags")
        equal([len(text_of(c.artifact.parts).encode()) for c in chunks], [16] * 10, "chunk sizes")
        in_state(events[-1].status_update, COMPLETED, "last event")
        text = "".join(text_of(chunk.artifact.parts) for chunk in chunks)
        self.streamed = (events[0].task.id, message, text)

    async def get(self):
        check(self.streamed, "needs the task of step stream")
        task_id, message, text = self.streamed
        task = await self.look(task_id)
        in_state(task, COMPLETED, "task")
        equal(len(task.artifacts), 1, "number of artifacts")
        equal(text_of(task.artifacts[0].parts), text, "text of the artifact")
        mine = [m for m in task.history if m.message_id == message.message_id]
        equal([text_of(m.parts) for m in mine], [text_of(message.parts)], "user message in history")

    async def list_(self):
        tasks = [await self.ask(user("tck-complete-task 1"))]
        context = tasks[0].context_id
        for n in "23":
            tasks.append(await self.ask(user(f"tck-complete-task {n}", context_id=context)))
        async with self.client() as client:
            whole = await client.list_tasks(ListTasksRequest(context_id=context))
            ids = [task.id for task in whole.tasks]
            equal(sorted(ids), sorted(task.id for task in tasks), "tasks of the context")
            equal(whole.total_size, 3, "total size")
            walked, token = [], ""
            for _ in ids:
                request = ListTasksRequest(context_id=context, page_size=1, page_token=token)
                page = await client.list_tasks(request)
                walked += [task.id for task in page.tasks]
                token = page.next_page_token
        equal(walked, ids, "tasks page by page")
        equal(token, "", "token after the last page")

    async def cancel(self):
        check(self.finished, "needs the task of step send")
        async with self.client() as other, self.client(streaming=True) as client:
            task_id, canceled, last = None, None, None
            request = SendMessageRequest(message=user("tck-cancel"))
            async for event in client.send_message(request):
                last = event.status_update if event.HasField("status_update") else event.task
                task_id = task_id or event.task.id
                if last.status.state == WORKING and not canceled:
                    canceled = await other.cancel_task(CancelTaskRequest(id=task_id))
            check(canceled, "the task never reported working")
            in_state(canceled, CANCELED, "answer to cancel")
            in_state(last, CANCELED, "last event of the stream")
            in_state(await self.look(task_id), CANCELED, "task afterwards")
            again = other.cancel_task(CancelTaskRequest(id=self.finished.id))
            await refused(again, TaskNotCancelableError, "cancel of a completed task")

    async def subscribe(self):
        task_id, seen = None, 0
        async with self.client(streaming=True) as client:
            request = SendMessageRequest(message=user("tck-stream-chunked chunks=20 size=8 delay_ms=100"))
            async for event in client.send_message(request):
                task_id = task_id or event.task.id
                seen += event.HasField("artifact_update")
                if seen == 3:
                    break
        # The pool is closed here, and with it the socket of the stream.
        async with self.client(streaming=True) as client:
            events = [e async for e in client.subscribe(SubscribeToTaskRequest(id=task_id))]
        equal(events[0].WhichOneof("payload"), "task", "first event")
        snapshot = events[0].task
        in_state(snapshot, WORKING, "snapshot")
        in_state(events[-1].status_update, COMPLETED, "last event")
        task = await self.look(task_id)
        equal(len(task.artifacts[0].parts), 20, "chunks in the artifact")
        text = text_of(task.artifacts[0].parts)
        later = [text_of(e.artifact_update.artifact.parts) for e in events[1:]]
        known = [part for artifact in snapshot.artifacts for part in artifact.parts]
        check(len(known) >= 3, f"snapshot holds {len(known)} chunks, fewer than were seen before")
        equal(text_of(known) + "".join(later), text, "snapshot and later chunks")

    async def multi_turn(self):
        asked = await self.ask(user("tck-multi-turn"))
        in_state(asked, INPUT_REQUIRED, "first turn")
        more = await self.ask(user("more", task_id=asked.id))
        in_state(more, INPUT_REQUIRED, "second turn")
        done = await self.ask(user("done", task_id=asked.id, context_id=asked.context_id))
        in_state(done, COMPLETED, "third turn")
        equal([more.id, done.id], [asked.id] * 2, "task ids")
        equal([more.context_id, done.context_id], [asked.context_id] * 2, "context ids")
        task = await self.look(asked.id)
        said = [text_of(m.parts) for m in task.history if m.role == Role.ROLE_USER]
        equal(said, ["tck-multi-turn", "more", "done"], "user messages in history")

    async def approval(self):
        asked = await self.ask(user("tck-auth-required"))
        in_state(asked, TaskState.TASK_STATE_AUTH_REQUIRED, "question")
        equal(text_of(asked.status.message.parts), "Please sign in", "text of the question")
        done = await self.ask(user("allowed", task_id=asked.id))
        in_state(done, COMPLETED, "after the answer")
        equal(done.id, asked.id, "task id")

    async def errors(self):
        check(self.finished, "needs the task of step send")
        await refused(self.look(str(uuid4())), TaskNotFoundError, "get of an unknown task")
        late = user("too late", task_id=self.finished.id)
        await refused(self.ask(late), UnsupportedOperationError, "send to a completed task")
        async with self.client(streaming=True) as client:
            late = user("too late", task_id=self.finished.id)
            stream = client.send_message(SendMessageRequest(message=late))
            await refused(anext(stream), UnsupportedOperationError, "stream to a completed task")
            stream = client.subscribe(SubscribeToTaskRequest(id=self.finished.id))
            await refused(anext(stream), UnsupportedOperationError, "subscribe to a completed task")

    async def parts(self):
        data = {"n": 1, "pi": 3.5, "none": None, "list": [1, "zwei", True, {"鍵": "値"}]}
        message = user(
            "tck-complete-task 👩‍👩‍👧‍👦 e\u0301 漢字 \u202eשלום \"\\\n\u2028 end",
            Part(data=ParseDict(data, Value()), media_type="application/json"),
            Part(raw=bytes(range(256)), filename="ümlaut 文.bin", media_type="application/octet-stream"),
        )
        task = await self.ask(message)
        in_state(task, COMPLETED, "task")
        stored = await self.look(task.id)
        mine = [m for m in stored.history if m.message_id == message.message_id]
        equal(len(mine), 1, "user messages in history")
        equal(list(mine[0].parts), list(message.parts), "parts")


async def main(base, binding):
    scenario = Scenario(base, binding)
    steps = [
        scenario.card_, scenario.send, scenario.stream, scenario.get, scenario.list_, scenario.cancel,
        scenario.subscribe, scenario.multi_turn, scenario.approval, scenario.errors, scenario.parts,
    ]
    return await run(steps, lambda: scenario.card)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*command_line(BINDINGS))))
