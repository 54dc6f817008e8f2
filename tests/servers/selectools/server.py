"""An agent on selectools' A2AServer with its defaults; see ../README.md. Its card has no URL."""

import asyncio
import socket

import uvicorn
from selectools import Agent, AgentConfig, tool
from selectools.a2a import A2AServer
from selectools.providers.stubs import LocalProvider
from selectools.types import Message, Role

TOKEN = "canary-7c5e-selectools"


class Script(LocalProvider):
    """Answers with the text of the message, or fails."""

    def complete(self, **arguments):
        message, usage = super().complete(**arguments)
        users = [one for one in arguments["messages"] if one.role == Role.USER]
        text = users[-1].content
        if text == "fail":
            raise RuntimeError("the secret reason")
        return Message(role=message.role, content=text), usage


@tool(description="Summarize a text")
def summarize(text: str) -> str:
    return text


async def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    config = AgentConfig(name="researcher", max_retries=0)
    agent = Agent(tools=[summarize], provider=Script(), config=config)
    server = A2AServer(agent=agent, auth_token=TOKEN)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
