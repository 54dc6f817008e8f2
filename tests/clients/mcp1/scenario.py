"""Drives the tools of a running Herald with the official Python MCP SDK 1.x.

usage: scenario.py BASE_URL HERALD

BASE_URL is the server, HERALD the program whose `herald mcp` is started as an MCP server over standard I/O.
"""

import asyncio
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

sys.path.append(str(Path(__file__).parent.parent / "mcp2"))
import steps  # noqa: E402


class Tools:
    """The interface of `steps` for one session."""

    def __init__(self, session):
        self.session = session

    async def tools(self):
        return {tool.name: tool for tool in (await self.session.list_tools()).tools}

    async def call(self, name, arguments):
        result = await self.session.call_tool(name, arguments)
        return result.isError, result.structuredContent, result.content[0].text


async def main(base, herald):
    bridge = StdioServerParameters(command=herald, args=["mcp", "--server", base])
    failed = 0
    for name, transport in [("http", streamable_http_client(f"{base}/mcp")), ("stdio", stdio_client(bridge))]:
        async with transport as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                begun = await session.initialize()
                steps.equal(begun.serverInfo.name, "herald", "the name of the server")
                failed += await steps.run(f"{name}, {begun.protocolVersion}", Tools(session))
    return steps.report(2, failed)


sys.exit(asyncio.run(main(*sys.argv[1:])))
