"""Registers webhooks with the official Python SDK 0.3.x and receives their deliveries with its types.

usage: push.py BASE_URL [--transport jsonrpc|rest|grpc]

The server must offer the `conformance` agent at BASE_URL and allow webhooks to 127.0.0.1. Every step prints
`ok` or `FAIL`; the exit code is 1 if any step failed. This client has no calls that list and delete configs.
"""

import asyncio
import sys

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskPushNotificationConfigParams, PushNotificationAuthenticationInfo, PushNotificationConfig, Task,
    TaskPushNotificationConfig, TaskState,
)

from scenario import STEP_TIMEOUT, TRANSPORTS, Scenario, check, command_line, equal, in_state, run, text_of, user
from webhook_receiver import CREDENTIALS, TOKEN, Receiver


def read(body):
    """Accepts a delivery as the receiver of the SDK's own tests does: as a `Task`."""
    task = Task.model_validate_json(body)
    equal(task.kind, "task", "kind")
    return task


class Push(Scenario):
    def __init__(self, base, transport):
        super().__init__(base, transport)
        self.receiver = Receiver("application/json", read, lambda task: task.status.state)

    def config(self, path, **more):
        return PushNotificationConfig(url=f"{self.receiver.base}{path}", token=TOKEN, **more)

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
        tasks = await self.receiver.received("/inline", TaskState.completed)
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
            first = (await self.receiver.received(path, TaskState.input_required))[0]
            check(first.status.message and first.status.message.parts, "the question is missing")
        done = await self.ask(user("done", task_id=asked.id, context_id=asked.context_id))
        in_state(done, TaskState.completed, "last turn")
        for path in ["/late", "/basic"]:
            await self.receiver.received(path, TaskState.completed)


async def main(base, transport):
    push = Push(base, transport)
    return await run([push.card_, push.inline, push.configs])


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*command_line(TRANSPORTS))))
