"""Calls of the agents behind a Herald server: discovery, and messages to a role."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any, Optional
from urllib.parse import quote, urlencode

from .server import DEFAULT_SERVER, Server

#: The most pages of a list of agents.
MOST_PAGES = 1000


async def discover_agents(
    server: Optional[str] = None,
    *,
    role: Optional[str] = None,
    skill: Optional[str] = None,
    tag: Optional[str] = None,
    text: Optional[str] = None,
    token: Optional[str] = None,
) -> list[dict[str, Any]]:
    """The agents that are there now: `name`, `role`, `instance_id`, `description`, `url` and more.

    Send to the `role` of an entry. The server is that of `A2A_SERVER_URL`, or on this machine, unless
    one is given.
    """
    query = {"role": role, "skill": skill, "tag": tag, "text": text}
    query = {name: value for name, value in query.items() if value is not None}
    found: list[dict[str, Any]] = []
    for _ in range(MOST_PAGES):
        path = f"/api/agents?{urlencode(query)}" if query else "/api/agents"
        page = await asyncio.to_thread(_server(server, token).call, "GET", path)
        found += page["agents"]
        if not page.get("next_page_token"):
            break
        query["page_token"] = page["next_page_token"]
    return found


async def send_to_agent(
    agent_name: str,
    message: str,
    *,
    server: Optional[str] = None,
    token: Optional[str] = None,
    context_id: Optional[str] = None,
    task_id: Optional[str] = None,
    metadata: Optional[dict[str, Any]] = None,
    wait: bool = True,
    timeout: float = 600.0,
) -> dict[str, Any]:
    """Sends a message to a role, and returns its task as A2A 1.0 has it.

    `agent_name` is a role. The name of one worker, such as `code-reviewer:host-a:1`, is refused: any
    worker of the role can take the task. With `wait=False` the task is returned as soon as it is
    accepted.
    """
    body: dict[str, Any] = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": message}],
    }
    for name, value in (("contextId", context_id), ("taskId", task_id), ("metadata", metadata)):
        if value is not None:
            body[name] = value
    request = {"message": body, "configuration": {"returnImmediately": not wait}}
    path = f"/agents/{quote(agent_name, safe='')}/message:send"
    headers = {"A2A-Version": "1.0"}
    call = _server(server, token).call
    answer = await asyncio.to_thread(call, "POST", path, request, timeout, None, headers)
    return answer.get("task") or answer["message"]


def _server(url: Optional[str], token: Optional[str]) -> Server:
    return Server(url or os.environ.get("A2A_SERVER_URL") or DEFAULT_SERVER, token)
