"""Receiver of webhooks for the push scripts in Python: checks the credentials of each delivery and keeps its event, by path."""

import asyncio
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

from client_steps import check, equal

TOKEN = "a token of the receiver"
CREDENTIALS = "dXNlcjpwYXNz"


class Receiver:
    def __init__(self, content_type, read, state_of):
        """`read` makes an event of a body or raises, `state_of` is the state of the task in an event."""
        self.content_type, self.read, self.state_of = content_type, read, state_of
        self.lock, self.events, self.faults = Lock(), {}, []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(receiver.accept(self.path, self.headers, body))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{server.server_address[1]}"

    def accept(self, path, headers, body):
        """Checks and keeps a delivery. Returns the status of the response."""
        try:
            equal(headers["content-type"], self.content_type, "content type")
            equal(headers["x-a2a-notification-token"], TOKEN, "token")
            scheme = f"Basic {CREDENTIALS}" if path == "/basic" else f"Bearer {TOKEN}"
            equal(headers["authorization"], scheme, "authorization")
            event = self.read(body)
        except Exception as error:
            with self.lock:
                self.faults.append(f"{error!r} for {body!r}")
            return 400
        with self.lock:
            self.events.setdefault(path, []).append(event)
        return 200

    async def received(self, path, state):
        """Waits for a delivery of this state on this path, and returns all deliveries there."""
        while True:
            with self.lock:
                check(not self.faults, "; ".join(self.faults))
                events = list(self.events.get(path, []))
            if events and self.state_of(events[-1]) == state:
                return events
            await asyncio.sleep(0.01)
