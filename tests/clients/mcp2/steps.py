"""Steps of the MCP scenario, for every version of the official Python SDK.

The server must have the agent `echo` as its default agent. A client is an object with `tools()`, which returns
the tools by name, and `call(name, arguments)`, which returns (is_error, structured, text).
"""

import asyncio
import sys
import traceback

STEP_TIMEOUT = 60.0

TOOLS = {
    "discover_agents", "get_agent_card", "send_to_agent", "send_message", "get_task", "list_tasks", "cancel_task",
    "coding_agent_run", "coding_agent_poll", "coding_agent_result", "coding_agent_cancel", "coding_agent_info",
}


def check(condition, why):
    if not condition:
        raise AssertionError(why)


def equal(got, want, what):
    check(got == want, f"{what}: got {got!r}, want {want!r}")


async def done(client, name, arguments):
    is_error, structured, text = await client.call(name, arguments)
    check(not is_error, f"{name}: {text}")
    check(structured is not None and text, f"{name}: no content")
    return structured, text


async def refused(client, name, arguments, words):
    is_error, structured, text = await client.call(name, arguments)
    check(is_error, f"{name} succeeded: {text}")
    check(words in text, f"{name}: {text}")


async def lists_the_tools(client):
    tools = await client.tools()
    check(TOOLS <= set(tools), f"tools: {sorted(tools)}")
    check("role" in tools["send_to_agent"].description, "the description says how to route")


async def discovers_the_agents(client):
    found, _ = await done(client, "discover_agents", {})
    check("echo" in [agent["role"] for agent in found["agents"]], found)
    equal(found["routing_note"], "Use 'role' with send_to_agent for routing.", "routing_note")
    card, _ = await done(client, "get_agent_card", {"agent_name": "echo"})
    check(card["card"]["skills"], card)


async def completes_a_task(client):
    sent, text = await done(client, "send_to_agent", {"agent_name": "echo", "message": "hello MCP"})
    equal(sent["state"], "completed", "state")
    check("hello MCP" in text and "untrusted" in text, text)
    got, text = await done(client, "get_task", {"task_id": sent["task_id"]})
    equal(got["state"], "completed", "state of get_task")
    check("hello MCP" in text, text)
    listed, _ = await done(client, "list_tasks", {"state": "completed"})
    check(sent["task_id"] in [task["task_id"] for task in listed["tasks"]], listed)


async def follows_a_job(client):
    run, _ = await done(client, "coding_agent_run", {"task": "hello job", "agent_name": "echo"})
    line, texts = 0, []
    while True:
        polled, _ = await done(client, "coding_agent_poll", {"jobId": run["job_id"], "sinceLine": line})
        texts += [event["untrusted_text"] for event in polled["events"]]
        line = polled["next_line"]
        if polled["done"]:
            break
    check(any("hello job" in text for text in texts), texts)
    result, _ = await done(client, "coding_agent_result", {"jobId": run["job_id"]})
    check(result["done"] and "hello job" in result["summary"], result)


async def calls_at_the_same_time(client):
    sends = [client.call("send_message", {"message": f"number {number}"}) for number in range(20)]
    for number, (is_error, _, text) in enumerate(await asyncio.gather(*sends)):
        check(not is_error and f"number {number}\n" in text, text)


async def refuses_with_a_reason(client):
    await refused(client, "send_to_agent", {"agent_name": "echo:host:1", "message": "x"}, "routed by role")
    await refused(client, "get_task", {"task_id": "unknown"}, "Task not found")
    await refused(client, "cancel_task", {}, "task_id")


STEPS = [
    lists_the_tools, discovers_the_agents, completes_a_task, follows_a_job, calls_at_the_same_time,
    refuses_with_a_reason,
]


async def run(name, client):
    """Runs every step; prints `ok` or `FAIL` for each and returns the number of failures."""
    failed = 0
    for step in STEPS:
        title = f"{name}: {step.__name__.replace('_', ' ')}"
        try:
            await asyncio.wait_for(step(client), STEP_TIMEOUT)
            print("ok", title)
        except Exception:
            failed += 1
            print("FAIL", title)
            traceback.print_exc(file=sys.stdout)
    return failed


def report(runs, failed):
    print(f"{runs * len(STEPS) - failed} passed, {failed} failed")
    return 1 if failed else 0
