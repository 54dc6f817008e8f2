"""An agent on python-a2a; see ../README.md. Its URL does not accept JSON-RPC."""

import contextlib
import socket
import sys

from python_a2a import A2AServer, AgentCard, AgentSkill
from python_a2a.server.http import create_flask_app
from werkzeug.serving import make_server


def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    card = AgentCard(
        name="python-a2a",
        description="Repeats",
        url=f"http://127.0.0.1:{port}",
        skills=[AgentSkill(name="Repeat", description="Repeats", tags=["test"])],
    )
    print(port, flush=True)
    with contextlib.redirect_stdout(sys.stderr):
        app = create_flask_app(A2AServer(agent_card=card))
        make_server("127.0.0.1", port, app, threaded=True, fd=listener.fileno()).serve_forever()


if __name__ == "__main__":
    main()
