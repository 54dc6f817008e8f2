"""An agent of google-adk served by its `to_a2a`; see ../README.md. No model is asked."""

import asyncio
import socket
import warnings

# Every class of google-adk's A2A support announces that it is experimental.
warnings.filterwarnings("ignore", message=".*EXPERIMENTAL.*")

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types


class Script(BaseAgent):
    """Answers with the text of the message, or fails."""

    async def _run_async_impl(self, context):
        text = "".join(part.text or "" for part in context.user_content.parts)
        if text == "fail":
            raise RuntimeError("it broke")
        content = types.Content(role="model", parts=[types.Part(text=text)])
        yield Event(author=self.name, invocation_id=context.invocation_id, content=content)


async def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    app = to_a2a(Script(name="adk", description="Repeats"), host="127.0.0.1", port=port)
    print(port, flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
