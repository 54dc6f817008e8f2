"""Drives a running A2A server with the client of selectools, by its base URL and a bearer token.

usage: scenario.py BASE_URL TOKEN

The server must offer the `echo` agent at BASE_URL. Every step prints `ok` or `FAIL`; the exit code is 1 if any
step failed.
"""

import asyncio
import sys

from selectools.a2a import A2AClient, A2AError


def equal(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def refused(call, code):
    try:
        result = asyncio.run(call)
    except A2AError as error:
        equal(error.code, code, "code")
        return error
    raise AssertionError(f"got {result!r}, want an error")


class Scenario:
    def __init__(self, base, token):
        self.base = base
        self.client = A2AClient(base, auth_token=token)

    # The steps, in order.

    def discover(self):
        card = asyncio.run(self.client.discover())
        equal(card.name, "Echo", "name")
        equal([skill.id for skill in card.skills], ["echo"], "skills")

    def send(self):
        task = asyncio.run(self.client.send_task("Research quantum computing trends"))
        equal(task.state, "completed", "state")
        equal(task.text, "Echo: Research quantum computing trends", "text")
        equal(task.raw["contextId"], task.context_id, "context")
        again = asyncio.run(self.client.get_task(task.id))
        equal(again.raw, task.raw, "the task")

    def blocking(self):
        equal(self.client.discover_sync().name, "Echo", "name")
        equal(self.client.send_task_sync("hello").text, "Echo: hello", "text")

    def unknown_task(self):
        error = refused(self.client.get_task("nowhere"), -32001)
        equal(error.message[:14], "Task not found", "message")

    def wrong_token(self):
        refused(A2AClient(self.base, auth_token="wrong").send_task("hello"), None)


def main(base, token):
    scenario = Scenario(base, token)
    passed = failed = 0
    steps = [
        scenario.discover,
        scenario.send,
        scenario.blocking,
        scenario.unknown_task,
        scenario.wrong_token,
    ]
    for step in steps:
        name = step.__name__.replace("_", "-")
        try:
            step()
            passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            why = str(error) if isinstance(error, AssertionError) else repr(error)
            print(f"FAIL {name}: {' '.join(why.split())}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
