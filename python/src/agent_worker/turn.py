"""A turn: one message of a task to answer, and the writes of the agent that answers it."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any, Callable, Optional

from .server import Refused, Server, agent_path

PREFIX = "TASK_STATE_"

#: The name of the artifact with the answer.
ANSWER = "response"


class Cancelled(Exception):
    """The turn is over: the task was cancelled, has ended, or was given to another worker."""


class Failed(Exception):
    """The work failed. The text goes to the caller."""


class Turn:
    """One run of an agent over one message."""

    def __init__(
        self,
        server: Server,
        name: str,
        session: str,
        given: dict[str, Any],
        polls: Callable[[], int] = lambda: 0,
        poll_again: Callable[[], None] = lambda: None,
    ):
        self._server, self._name, self._session = server, name, session
        self._polls, self._poll_again = polls, poll_again
        self.id: str = given["id"]
        self.epoch: int = given["epoch"]
        self.assignment: dict[str, Any] = given["turn"]
        self._head: int = given.get("head", 0)
        self._number = 0
        self._written = set(self.assignment.get("continued") or [])
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._stopped = threading.Event()
        self._answered = threading.Event()
        self._on_stop: list[Callable[[], Any]] = []
        #: True if the server takes no more writes of this turn.
        self.is_over = False
        #: True if the turn goes back into the queue, because the worker drains.
        self.is_returned = False
        #: True after a write that ends the turn.
        self.has_ended = False
        self._question_at = 0

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self.assignment["task"]["id"]

    @property
    def context_id(self) -> str:
        """The id of the conversation."""
        return self.assignment["task"]["contextId"]

    @property
    def message(self) -> dict[str, Any]:
        """The message to answer, as A2A 1.0 has it."""
        return self.assignment["message"]

    @property
    def text(self) -> str:
        """The text of the message."""
        parts = self.message.get("parts", [])
        return "\n".join(part["text"] for part in parts if "text" in part)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The messages of the task so far."""
        return self.assignment["task"].get("history") or []

    @property
    def attempt(self) -> int:
        """The attempt, from 1. A higher number means that an earlier one was interrupted."""
        return self.assignment.get("attempt", 1)

    @property
    def is_cancelled(self) -> bool:
        """True if the agent must stop."""
        return self._stopped.is_set()

    def wait_cancelled(self, seconds: Optional[float] = None) -> bool:
        """Waits until the agent must stop, at most for this time."""
        return self._stopped.wait(seconds)

    def progress(self, text: str) -> None:
        """Reports progress: the state `working` with a text."""
        self.report("working", [{"text": text}])

    def report(
        self, state: str, parts: Optional[list] = None, metadata: Optional[dict] = None, interim: bool = False
    ) -> None:
        """Reports a state, such as `working`, `input_required` or `completed`, with an optional message.

        With `interim` the task waits for its caller, and the turn goes on by itself.
        """
        status: dict[str, Any] = {"state": PREFIX + state.upper().replace("-", "_")}
        if parts:
            status["message"] = self._message(parts)
        if metadata:
            status["metadata"] = metadata
        self._write([{"interim" if interim else "report": status}])
        self.has_ended = not interim and (self.has_ended or status["state"] != PREFIX + "WORKING")

    def artifact(
        self, text: str, *, id: str = "output", name: Optional[str] = None, append: bool = False, last: bool = True
    ) -> None:
        """Writes a text artifact, or with `append` the next piece of one."""
        self.write_artifact({"artifactId": id, "name": name or id, "parts": [{"text": text}]}, append, last)

    def write_artifact(self, artifact: dict[str, Any], append: bool = False, last: bool = True) -> None:
        """Writes an artifact of A2A 1.0. The first piece of a repeated attempt replaces earlier ones."""
        own = artifact["artifactId"]
        known = own in self._written
        self._written.add(own)
        self._write([{"write": {"artifact": artifact, "append": append and known, "last": last}}])

    def answer(self, text: str) -> None:
        """Completes the task with an answer in words: the artifact `response`, in one write."""
        completed = {"report": {"state": PREFIX + "COMPLETED"}}
        if not text:
            self._write([completed])
        else:
            own = self._answer_id()
            self._written.add(own)
            artifact = {"artifactId": own, "name": ANSWER, "parts": [{"text": text}]}
            self._write([{"write": {"artifact": artifact, "append": False, "last": True}}, completed])
        self.has_ended = True

    def complete(self, text: Optional[str] = None) -> None:
        """Completes the task, with a remark if there is a text. An answer belongs into `answer`."""
        self.report("completed", [{"text": text}] if text else None)

    def ask(self, question: str) -> str:
        """Asks the caller and waits for the answer, within this turn. Returns its text."""
        status = {"state": PREFIX + "INPUT_REQUIRED", "message": self._message([{"text": question}])}
        self._write([{"ask": status}])
        while not self._answered.wait(1.0):
            if self.is_cancelled:
                raise Cancelled()
        answer = self._send("/answer", {})
        self._question_at = self._polls()
        self._answered.clear()
        parts = answer["message"].get("parts", [])
        return "\n".join(part["text"] for part in parts if "text" in part)

    def on_cancel(self, action: Callable[[], Any]) -> None:
        """Calls `action` when the agent must stop, from another thread."""
        with self._lock:
            if not self._stopped.is_set():
                self._on_stop.append(action)
                return
        action()

    def stop(self, is_lost: bool = False) -> None:
        """Stops the agent."""
        self.is_over = self.is_over or is_lost
        with self._lock:
            self._stopped.set()
            actions, self._on_stop = self._on_stop, []
        for action in actions:
            action()

    def answer_is_there(self, poll: int) -> None:
        """Notes that the reply to this poll says so. An earlier poll cannot know the last question."""
        if poll > self._question_at:
            self._answered.set()

    def end(self, outcome: dict[str, Any]) -> None:
        """Tells the server the end of the turn."""
        try:
            self._send("/end", {"outcome": outcome})
        except Cancelled:
            pass

    def _answer_id(self) -> str:
        """The id of the artifact with the answer: `response`, then `response-2` and so on."""
        asked = [message["messageId"] for message in self.history if message.get("role") == "ROLE_USER"]
        later = asked[::-1].index(self.message["messageId"]) if self.message["messageId"] in asked else 0
        before = max(len(asked) - later - 1, 0)
        return f"{ANSWER}-{before + 1}" if before else ANSWER

    def _write(self, commands: list) -> None:
        if self.is_returned:
            raise Cancelled()
        if any("ask" in command for command in commands):
            self._answered.clear()
        self._send("/commands", {"commands": commands})
        if any("ask" in command for command in commands):
            self._question_at = self._polls()
            self._answered.clear()
            # The poll in flight may tell of an answer to an earlier question, so that only the next one counts.
            self._poll_again()

    def _send(self, verb: str, more: dict[str, Any]) -> Any:
        # One after the other, so that numbers are used in their order.
        with self._sending:
            body = {"session": self._session, "epoch": self.epoch, "number": self._number + 1, **more}
            if verb != "/end":
                body["after"] = self._head
            path = agent_path(self._name, f"/turns/{self.id}{verb}")
            try:
                answer = self._server.call_until(path, body, lambda: self.is_over, time.sleep)
            except Refused as refusal:
                if refusal.is_over:
                    self.stop(is_lost=True)
                    raise Cancelled() from None
                raise Failed(str(refusal)) from None
            if answer is None:
                raise Cancelled()
            # A refused request has not used its number.
            self._number += 1
            self._head = answer.get("head", self._head)
            return answer

    def _message(self, parts: list) -> dict[str, Any]:
        return {
            "messageId": str(uuid.uuid4()),
            "role": "ROLE_AGENT",
            "taskId": self.task_id,
            "contextId": self.context_id,
            "parts": parts,
        }
