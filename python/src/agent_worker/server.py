"""Connection to a Herald server: JSON requests with credentials, and the meaning of each answer."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import threading
from typing import Any, Callable, Optional
from urllib.parse import quote, urlsplit

#: The address of `herald serve` without settings.
DEFAULT_SERVER = "http://127.0.0.1:8000"

#: The time limit of a request, beside the time that the server may wait before it answers.
ANSWER = 30.0

#: The most bytes of an answer.
LARGEST = 64 << 20


class Unreachable(Exception):
    """There was no answer, or the server asks for another attempt."""

    def __init__(self, text: str, retry_after: float = 0.0):
        super().__init__(text)
        self.retry_after = retry_after


class Refused(Exception):
    """The server refused the request. Another attempt would be refused too."""

    def __init__(self, status: int, reason: str, text: str):
        super().__init__(text)
        self.status = status
        self.reason = reason

    @property
    def is_expired(self) -> bool:
        """True if the server does not know the session any more."""
        return self.reason in ("WORKER_EXPIRED", "WORKER_UNKNOWN")

    @property
    def is_over(self) -> bool:
        """True if the turn is no longer this worker's."""
        return self.reason == "TURN_OVER" or self.is_expired or self.status in (401, 403, 404)


class Interrupted(Exception):
    """Another thread ended the request."""


class Request:
    """A request that another thread can end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None
        self.is_ended = False

    def end(self) -> None:
        with self._lock:
            self.is_ended = True
            sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            try:
                # A thread that reads from the socket wakes up; a close alone would not wake it.
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def begin(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._connection = connection


class Server:
    """A Herald server at a URL."""

    def __init__(self, url: str, token: Optional[str] = None, ca: Optional[str] = None):
        url = url if "://" in url else _with_scheme(url)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError(f"{url!r} is not the URL of a server; write it as https://agents.example.com")
        self.url = url.rstrip("/")
        self._parts = parts
        self._path = parts.path.rstrip("/")
        self._token = token or os.environ.get("A2ACLI_BEARER")
        self._api_key = None if token else os.environ.get("A2ACLI_API_KEY")
        ca = ca or os.environ.get("A2ACLI_CA_CERT") or None
        self._tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        if ca and self._tls is not None:
            self._tls.load_default_certs()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        limit: float = ANSWER,
        request: Optional[Request] = None,
        headers: Optional[dict] = None,
    ) -> Any:
        """Sends one request and returns the JSON of its answer."""
        connection = self._connect(limit)
        sent = {"Accept": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        if self._api_key:
            sent["X-API-Key"] = self._api_key
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        try:
            if request is not None:
                request.begin(connection)
            connection.connect()
            if request is not None and request.is_ended:
                raise Interrupted()
            connection.request(method, self._path + path, data, sent)
            response = connection.getresponse()
            content = response.read(LARGEST + 1)
            status, retry = response.status, response.getheader("Retry-After")
        except (OSError, http.client.HTTPException) as fault:
            if request is not None and request.is_ended:
                raise Interrupted() from None
            said = str(fault) or type(fault).__name__
            raise Unreachable(f"{self.url} does not answer: {said}") from fault
        finally:
            connection.close()
        if len(content) > LARGEST:
            raise Unreachable("the server's answer is larger than 64 MiB")
        if 200 <= status < 300:
            try:
                return json.loads(content) if content else {}
            except ValueError as fault:
                raise Unreachable("the server's answer is not JSON") from fault
        raise _error(status, content, retry)

    def call_until(self, path: str, body: Any, stopped: Callable[[], bool], sleep: Callable[[float], Any]) -> Any:
        """Sends a POST until it is answered. `None` if `stopped` becomes true before that."""
        backoff = Backoff()
        while not stopped():
            try:
                return self.call("POST", path, body)
            except Unreachable as fault:
                sleep(backoff.next(fault.retry_after))
        return None

    def _connect(self, limit: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=limit, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=limit)


class Backoff:
    """Delays between attempts: growing, with jitter, without end."""

    FIRST, LONGEST = 0.1, 3.0

    def __init__(self) -> None:
        self._delay = self.FIRST

    def next(self, asked: float = 0.0) -> float:
        delay = self._delay + random.uniform(0, self._delay)
        self._delay = min(self._delay * 2, self.LONGEST)
        return max(delay, min(asked, 2 * self.LONGEST))


def agent_path(name: str, rest: str = "") -> str:
    """The path of a resource of an agent. Names of workers have colons."""
    return f"/api/agents/{quote(name, safe='')}{rest}"


def _with_scheme(host: str) -> str:
    name = host.split("/")[0].rsplit(":", 1)[0].strip("[]")
    local = name == "localhost" or name.startswith("127.") or name == "::1"
    return f"{'http' if local else 'https'}://{host}"


def _error(status: int, content: bytes, retry: Optional[str]) -> Exception:
    text, reason = f"the server answered {status}", ""
    try:
        error = json.loads(content)["error"]
        text = error["message"]
        reason = next((detail["reason"] for detail in error.get("details", []) if "reason" in detail), "")
        known = True
    except (ValueError, KeyError, TypeError):
        known = False
    if status >= 500 or status in (408, 425, 429) or not known and status not in (401, 403):
        asked = float(retry) if retry and retry.isdigit() else 0.0
        return Unreachable(text, asked)
    return Refused(status, reason, text)
