"""Drives the tools of a running Herald with the official Python MCP SDK 2.x.

usage: scenario.py BASE_URL HERALD

BASE_URL is the server, HERALD the program whose `herald mcp` is started as an MCP server over standard I/O. Both are
called with the handshake and without it.
"""

import asyncio
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters

import steps


class Tools:
    """The interface of `steps` for one connection."""

    def __init__(self, client):
        self.client = client

    async def tools(self):
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def call(self, name, arguments):
        result = await self.client.call_tool(name, arguments)
        return result.is_error, result.structured_content, result.content[0].text


async def main(base, herald):
    bridge = StdioServerParameters(command=herald, args=["mcp", "--server", base])
    runs = failed = 0
    for transport, server in [("http", f"{base}/mcp"), ("stdio", bridge)]:
        for mode in ["legacy", "auto"]:
            async with Client(server, mode=mode) as client:
                steps.equal(client.server_info.name, "herald", "the name of the server")
                failed += await steps.run(f"{transport}, {mode}, {client.protocol_version}", Tools(client))
                runs += 1
    return steps.report(runs, failed)


sys.exit(asyncio.run(main(*sys.argv[1:])))
