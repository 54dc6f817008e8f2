"""Registers webhooks with the official Python SDK 0.3.x and receives their deliveries with its types.

usage: push.py BASE_URL [--transport jsonrpc|rest|grpc]

The server must offer the `conformance` agent at BASE_URL and allow webhooks to 127.0.0.1. Every step prints
`ok` or `FAIL`; the exit code is 1 if any step failed. This client has no calls that list and delete configs.
"""

import argparse
import asyncio
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskPushNotificationConfigParams, PushNotificationAuthenticationInfo, PushNotificationConfig, Task,
    TaskPushNotificationConfig, TaskState,
)

from scenario import STEP_TIMEOUT, TRANSPORTS, Scenario, check, equal, in_state, text_of, user

TOKEN = "a token of the receiver"
CREDENTIALS = "dXNlcjpwYXNz"


class Receiver(BaseHTTPRequestHandler):
    """Accepts a delivery as the receiver of the SDK's own tests does: by its token, as a `Task`."""

    protocol_version = "HTTP/1.1"
    lock = Lock()
    tasks = {}  # path to tasks
    faults = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            equal(self.headers["content-type"], "application/json", "content type")
            equal(self.headers["x-a2a-notification-token"], TOKEN, "token")
            scheme = f"Basic {CREDENTIALS}" if self.path == "/basic" else f"Bearer {TOKEN}"
            equal(self.headers["authorization"], scheme, "authorization")
            task = Task.model_validate_json(body)
            equal(task.kind, "task", "kind")
            status = 200
        except Exception as error:
            status = 400
            with self.lock:
                self.faults.append(f"{error!r} for {body!r}")
        if status == 200:
            with self.lock:
                self.tasks.setdefault(self.path, []).append(task)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


async def received(path, state):
    """Waits for a delivery of this state on this path, and returns all deliveries there."""
    while True:
        with Receiver.lock:
            check(not Receiver.faults, "; ".join(Receiver.faults))
            tasks = list(Receiver.tasks.get(path, []))
        if tasks and tasks[-1].status.state == state:
            return tasks
        await asyncio.sleep(0.01)


class Push(Scenario):
    def __init__(self, base, transport, address):
        super().__init__(base, transport)
        self.hooks = f"http://127.0.0.1:{address[1]}"

    def config(self, path, **more):
        return PushNotificationConfig(url=f"{self.hooks}{path}", token=TOKEN, **more)

    # The steps, in order.

    async def card_(self):
        async with httpx.AsyncClient(timeout=STEP_TIMEOUT) as http:
            self.card = await A2ACardResolver(http, self.base).get_agent_card()
        check(self.card.capabilities.push_notifications, "the card does not offer push notifications")

    async def inline(self):
        async with httpx.AsyncClient(timeout=STEP_TIMEOUT) as http:
            config = ClientConfig(
                streaming=False, polling=True, httpx_client=http, supported_transports=[self.transport],
                grpc_channel_factory=grpc.aio.insecure_channel,
                push_notification_configs=[self.config("/inline")],
            )
            client = ClientFactory(config).create(self.card)
            message = user("tck-stream-chunked chunks=5 size=16 delay_ms=5")
            answers = [answer async for answer in client.send_message(message)]
        task_id = answers[0][0].id
        tasks = await received("/inline", TaskState.completed)
        equal({task.id for task in tasks}, {task_id}, "task")
        stored = await self.look(task_id)
        last = tasks[-1].artifacts
        equal(text_of(last[0].parts), text_of(stored.artifacts[0].parts), "text of the artifact")

    async def configs(self):
        asked = await self.ask(user("tck-multi-turn"))
        in_state(asked, TaskState.input_required, "first turn")
        basic = PushNotificationAuthenticationInfo(schemes=["Basic"], credentials=CREDENTIALS)
        async with self.client() as client:
            for config in [self.config("/late", id="late"), self.config("/basic", id="mine", authentication=basic)]:
                created = await client.set_task_callback(
                    TaskPushNotificationConfig(task_id=asked.id, push_notification_config=config)
                )
                equal(created.task_id, asked.id, "task of the config")
                got = created.push_notification_config
                equal((got.id, got.url), (config.id, config.url), "created config")
            get = GetTaskPushNotificationConfigParams(id=asked.id, push_notification_config_id="mine")
            equal(await client.get_task_callback(get), created, "config")
        for path in ["/late", "/basic"]:
            first = (await received(path, TaskState.input_required))[0]
            check(first.status.message and first.status.message.parts, "the question is missing")
        done = await self.ask(user("done", task_id=asked.id, context_id=asked.context_id))
        in_state(done, TaskState.completed, "last turn")
        for path in ["/late", "/basic"]:
            await received(path, TaskState.completed)


async def main(base, transport):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    push = Push(base, transport, server.server_address)
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
    parser.add_argument("--transport", choices=TRANSPORTS, default="jsonrpc")
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.base_url, TRANSPORTS[options.transport])))
