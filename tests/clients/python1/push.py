"""Registers webhooks with the official Python SDK 1.x and receives their deliveries with its types.

usage: push.py BASE_URL [--transport jsonrpc|rest|grpc]

The server must offer the `conformance` agent at BASE_URL and allow webhooks to 127.0.0.1. Every step prints
`ok` or `FAIL`; the exit code is 1 if any step failed.
"""

import argparse
import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

import httpx
from a2a.client import A2ACardResolver
from a2a.types import (
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, SendMessageConfiguration, SendMessageRequest, StreamResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.json_format import ParseDict

from scenario import (
    BINDINGS, COMPLETED, INPUT_REQUIRED, STEP_TIMEOUT, Scenario, check, equal, in_state, refused, text_of, user,
)

TOKEN = "a token of the receiver"
CREDENTIALS = "dXNlcjpwYXNz"


class Receiver(BaseHTTPRequestHandler):
    """Accepts a delivery as the receiver of the SDK's own tests does: by its token, as a `StreamResponse`."""

    protocol_version = "HTTP/1.1"
    lock = Lock()
    events = {}  # path to events
    faults = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            equal(self.headers["content-type"], "application/a2a+json", "content type")
            equal(self.headers["x-a2a-notification-token"], TOKEN, "token")
            scheme = f"Basic {CREDENTIALS}" if self.path == "/basic" else f"Bearer {TOKEN}"
            equal(self.headers["authorization"], scheme, "authorization")
            # Refuses unknown members.
            event = ParseDict(json.loads(body), StreamResponse())
            check(event.WhichOneof("payload"), "no payload")
            status = 200
        except Exception as error:
            status = 400
            with self.lock:
                self.faults.append(f"{error!r} for {body!r}")
        if status == 200:
            with self.lock:
                self.events.setdefault(self.path, []).append(event)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def state_of(event):
    name = event.WhichOneof("payload")
    holder = {"task": event.task, "status_update": event.status_update}.get(name)
    return holder.status.state if holder else None


async def received(path, state):
    """Waits for a delivery of this state on this path, and returns all deliveries there."""
    while True:
        with Receiver.lock:
            check(not Receiver.faults, "; ".join(Receiver.faults))
            events = list(Receiver.events.get(path, []))
        if events and state_of(events[-1]) == state:
            return events
        await asyncio.sleep(0.01)


class Push(Scenario):
    def __init__(self, base, binding, address):
        super().__init__(base, binding)
        self.hooks = f"http://127.0.0.1:{address[1]}"

    def config(self, path, **more):
        return TaskPushNotificationConfig(url=f"{self.hooks}{path}", token=TOKEN, **more)

    # The steps, in order.

    async def card_(self):
        async with httpx.AsyncClient(timeout=STEP_TIMEOUT) as http:
            self.card = await A2ACardResolver(http, self.base).get_agent_card()
        check(self.card.capabilities.push_notifications, "the card does not offer push notifications")

    async def inline(self):
        request = SendMessageRequest(
            message=user("tck-stream-chunked chunks=5 size=16 delay_ms=5"),
            configuration=SendMessageConfiguration(
                return_immediately=True, task_push_notification_config=self.config("/inline"),
            ),
        )
        async with self.client() as client:
            answers = [answer async for answer in client.send_message(request)]
        task_id = answers[0].task.id
        events = await received("/inline", COMPLETED)
        kinds = [event.WhichOneof("payload") for event in events]
        equal(kinds[0], "task", "first delivery")
        equal(events[0].task.id, task_id, "task")
        chunks = [event.artifact_update for event in events if event.HasField("artifact_update")]
        equal([chunk.append for chunk in chunks], [False] + [True] * 4, "append flags")
        text = "".join(text_of(chunk.artifact.parts) for chunk in chunks)
        stored = await self.look(task_id)
        equal(text, text_of(stored.artifacts[0].parts), "text of the artifact")

    async def configs(self):
        asked = await self.ask(user("tck-multi-turn"))
        in_state(asked, INPUT_REQUIRED, "first turn")
        basic = AuthenticationInfo(scheme="Basic", credentials=CREDENTIALS)
        async with self.client() as client:
            created = await client.create_task_push_notification_config(
                self.config("/late", task_id=asked.id)
            )
            check(created.id, "the config has no id")
            equal((created.task_id, created.url), (asked.id, f"{self.hooks}/late"), "created config")
            named = self.config("/basic", task_id=asked.id, id="mine", authentication=basic)
            mine = await client.create_task_push_notification_config(named)
            equal((mine.id, mine.authentication.scheme), ("mine", "Basic"), "named config")
            get = GetTaskPushNotificationConfigRequest(task_id=asked.id, id="mine")
            equal(await client.get_task_push_notification_config(get), mine, "config")
            listing = ListTaskPushNotificationConfigsRequest(task_id=asked.id)
            listed = await client.list_task_push_notification_configs(listing)
            equal(sorted(c.id for c in listed.configs), sorted([created.id, "mine"]), "listed configs")
            for path in ["/late", "/basic"]:
                first = (await received(path, INPUT_REQUIRED))[0]
                equal(first.WhichOneof("payload"), "task", "first delivery")
                check(first.task.status.message.parts, "the question is missing")
            delete = DeleteTaskPushNotificationConfigRequest(task_id=asked.id, id="mine")
            await client.delete_task_push_notification_config(delete)
            await refused(client.get_task_push_notification_config(get), TaskNotFoundError, "deleted config")
        done = await self.ask(user("done", task_id=asked.id))
        in_state(done, COMPLETED, "last turn")
        await received("/late", COMPLETED)
        equal(len(Receiver.events["/basic"]), 1, "deliveries to the deleted config")


async def main(base, binding):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    push = Push(base, binding, server.server_address)
    passed = failed = 0
    for step in [push.card_, push.inline, push.configs]:
        name = step.__name__.strip("_")
        try:
            await asyncio.wait_for(step(), STEP_TIMEOUT)
            passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            why = str(error) if isinstance(error, AssertionError) else repr(error)
            print(f"FAIL {name}: {' '.join(why.split())}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("--transport", choices=BINDINGS, default="jsonrpc")
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.base_url, BINDINGS[options.transport])))
