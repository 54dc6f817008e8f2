"""Registers webhooks with the official Python SDK 1.x and receives their deliveries with its types.

usage: push.py BASE_URL [--transport jsonrpc|rest|grpc]

The server must offer the `conformance` agent at BASE_URL and allow webhooks to 127.0.0.1. Every step prints
`ok` or `FAIL`; the exit code is 1 if any step failed.
"""

import asyncio
import json
import sys

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
    BINDINGS, COMPLETED, INPUT_REQUIRED, STEP_TIMEOUT, Scenario, check, command_line, equal, in_state, refused, run, text_of,
    user,
)
from webhook_receiver import CREDENTIALS, TOKEN, Receiver


def read(body):
    """Accepts a delivery as the receiver of the SDK's own tests does: as a `StreamResponse`. Refuses unknown members."""
    event = ParseDict(json.loads(body), StreamResponse())
    check(event.WhichOneof("payload"), "no payload")
    return event


def state_of(event):
    name = event.WhichOneof("payload")
    holder = {"task": event.task, "status_update": event.status_update}.get(name)
    return holder.status.state if holder else None


class Push(Scenario):
    def __init__(self, base, binding):
        super().__init__(base, binding)
        self.receiver = Receiver("application/a2a+json", read, state_of)

    def config(self, path, **more):
        return TaskPushNotificationConfig(url=f"{self.receiver.base}{path}", token=TOKEN, **more)

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
        events = await self.receiver.received("/inline", COMPLETED)
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
            equal((created.task_id, created.url), (asked.id, f"{self.receiver.base}/late"), "created config")
            named = self.config("/basic", task_id=asked.id, id="mine", authentication=basic)
            mine = await client.create_task_push_notification_config(named)
            equal((mine.id, mine.authentication.scheme), ("mine", "Basic"), "named config")
            get = GetTaskPushNotificationConfigRequest(task_id=asked.id, id="mine")
            equal(await client.get_task_push_notification_config(get), mine, "config")
            listing = ListTaskPushNotificationConfigsRequest(task_id=asked.id)
            listed = await client.list_task_push_notification_configs(listing)
            equal(sorted(c.id for c in listed.configs), sorted([created.id, "mine"]), "listed configs")
            for path in ["/late", "/basic"]:
                first = (await self.receiver.received(path, INPUT_REQUIRED))[0]
                equal(first.WhichOneof("payload"), "task", "first delivery")
                check(first.task.status.message.parts, "the question is missing")
            delete = DeleteTaskPushNotificationConfigRequest(task_id=asked.id, id="mine")
            await client.delete_task_push_notification_config(delete)
            await refused(client.get_task_push_notification_config(get), TaskNotFoundError, "deleted config")
        done = await self.ask(user("done", task_id=asked.id))
        in_state(done, COMPLETED, "last turn")
        await self.receiver.received("/late", COMPLETED)
        equal(len(self.receiver.events["/basic"]), 1, "deliveries to the deleted config")


async def main(base, binding):
    push = Push(base, binding)
    return await run([push.card_, push.inline, push.configs])


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*command_line(BINDINGS))))
