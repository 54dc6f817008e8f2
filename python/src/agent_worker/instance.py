"""Instance of a role: registration, polls, heartbeats and turns of a worker."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import socket
import threading
import time
import uuid
from typing import Any, Callable, Optional

from . import agents
from .agents import Agent
from .server import Backoff, Interrupted, Refused, Request, Server, Unreachable, agent_path
from .turn import Cancelled, Failed, Turn

log = logging.getLogger("agent_worker")

#: The time that an answer may take beside the wait that a poll asks for.
POLL_ANSWER = 10.0

#: A session that ends within this time is one of a series: something replaces it again and again.
SHORT_LIFE = 60.0

#: The time that turns have to stop once they must.
STOP = 10.0


#: The most bytes of a description.
MOST_DESCRIPTION = 4096


def _short(description: Optional[str]) -> str:
    return (description or "").encode()[:MOST_DESCRIPTION].decode(errors="ignore")


class Worker:
    """One instance of a role."""

    def __init__(
        self,
        server: str,
        role: str,
        description: str = "",
        *,
        token: Optional[str] = None,
        instance: Optional[str] = None,
        concurrency: int = 2,
        labels: Optional[list[str]] = None,
        skills: Optional[list[dict[str, Any]]] = None,
        attempts: int = 3,
        drain_timeout: float = 30.0,
        ca: Optional[str] = None,
    ):
        self.server = Server(server, token, ca)
        self.role = role
        host = "".join(letter for letter in socket.gethostname().lower() if letter.isalnum() or letter in "._-")
        self.instance_id = f"{host or 'host'}:{instance or uuid.uuid4().hex[:8]}"
        self.concurrency = concurrency
        self.drain_timeout = drain_timeout
        self._registration = {
            "role": role,
            "instance_id": self.instance_id,
            "description": _short(description),
            "labels": labels or [],
            "concurrency": concurrency,
            "recovery": "rerun" if attempts > 1 else "fail",
            "attempts": attempts,
            **({"skills": skills} if skills else {}),
        }
        self._changed = threading.Condition()
        self._turns: dict[tuple[str, int], Turn] = {}
        self._polls = 0
        self._poll: Optional[Request] = None
        self._poll_was_full = False
        self._drain = threading.Event()
        self._expired = threading.Event()
        self._is_lost = False

    def run(self, function: Callable[[Turn], Any]) -> None:
        """Works with a function until SIGTERM or Ctrl-C: `function(turn)` returns the text of the answer.

        The function may be async. It runs in a thread of its own for each turn. Its docstring is the
        description of the worker, unless one was given.
        """
        if inspect.isroutine(function):
            self._registration["description"] = self._registration["description"] or _short(inspect.getdoc(function))
        self.run_agent(agents.of_function(function))

    def run_agent(self, agent: Agent) -> None:
        """Works with an agent until SIGTERM or Ctrl-C."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        backoff = Backoff()
        while not self._drain.is_set():
            registration = self._register()
            begun = time.monotonic()
            if registration is None or self._session(registration, agent):
                return
            if time.monotonic() - begun < SHORT_LIFE:
                self._drain.wait(backoff.next())
            else:
                backoff = Backoff()

    def stop(self) -> None:
        """Takes no more work, and ends once the running turns have ended. A second call ends at once."""
        if self._drain.is_set():
            log.warning("stopped at once; the server gives the running turns to other workers")
            os._exit(1)
        self._drain.set()
        # In a thread of its own, because a signal interrupts code that may hold the lock.
        threading.Thread(target=self._poll_again, daemon=True).start()

    def _register(self) -> Optional[dict[str, Any]]:
        backoff = Backoff()
        while not self._drain.is_set():
            try:
                registration = self.server.call("POST", "/api/agents", self._registration)
            except Unreachable as fault:
                self._lost(fault)
                self._drain.wait(backoff.next(fault.retry_after))
                continue
            self._answered()
            log.info("registered as %s at %s", registration["name"], registration["url"])
            return registration
        return None

    def _session(self, registration: dict[str, Any], agent: Agent) -> bool:
        """Works until the worker has drained (true) or the server forgets the session (false)."""
        self._expired.clear()
        heartbeat = threading.Thread(target=self._heartbeat, args=(registration,), daemon=True)
        heartbeat.start()
        threading.Thread(target=self._hand_back_late, daemon=True).start()
        try:
            drained = self._poll_loop(registration, agent)
        except Refused:
            self._abandon()
            raise
        finally:
            self._expired.set()
        if not drained:
            log.warning(
                "the server does not know this session any more; registering again. If this repeats, another worker "
                "runs under the same name: give each its own --instance"
            )
            self._abandon()
            return False
        try:
            self.server.call("DELETE", agent_path(registration["name"]), limit=5.0)
            log.info("left the server")
        except (Unreachable, Refused) as fault:
            log.warning("could not leave the server: %s", fault)
        return True

    def _poll_loop(self, registration: dict[str, Any], agent: Agent) -> bool:
        backoff = Backoff()
        path = agent_path(registration["name"], "/poll")
        wait = registration.get("poll_seconds", 5)
        while not self._expired.is_set():
            with self._changed:
                draining = self._drain.is_set()
                if draining and not self._turns:
                    return True
                self._polls += 1
                number, poll = self._polls, Request()
                free = 0 if draining else max(0, self.concurrency - len(self._turns))
                self._poll, self._poll_was_full = poll, free == 0
                body = {
                    "session": registration["session"],
                    "free": free,
                    "turns": [
                        {"id": turn.id, "epoch": turn.epoch}
                        for turn in self._turns.values()
                        if not turn.is_over
                    ],
                    "wait_seconds": wait,
                    "draining": draining,
                }
            try:
                reply = self.server.call("POST", path, body, wait + POLL_ANSWER, poll)
            except Interrupted:
                continue
            except Unreachable as fault:
                self._lost(fault)
                self._expired.wait(backoff.next(fault.retry_after))
                continue
            except Refused as refusal:
                if refusal.is_expired:
                    return False
                raise
            self._answered()
            backoff = Backoff()
            self._apply(registration, agent, reply, number)
            if reply.get("leaving"):
                self._expired.wait(0.5)
        return False

    def _apply(self, registration: dict[str, Any], agent: Agent, reply: dict[str, Any], number: int) -> None:
        with self._changed:
            turns = list(self._turns.values())
        for turn in turns:
            if turn.id in reply.get("answered", []):
                turn.answer_is_there(number)
        for stopped in reply.get("stop", []):
            for turn in turns:
                if (turn.id, turn.epoch) == (stopped["id"], stopped["epoch"]) and not turn.is_over:
                    log.info("stopping task %s: %s", turn.task_id, stopped["reason"])
                    turn.stop(is_lost=stopped["reason"] == "lost")
        for given in reply.get("assignments", []):
            turn = Turn(
                self.server, registration["name"], registration["session"], given, lambda: self._polls, self._end_poll
            )
            key = (turn.id, turn.epoch)
            with self._changed:
                # The server gives a turn again whose assignment may have been lost.
                if key in self._turns:
                    continue
                earlier = [other for other in self._turns.values() if other.id == turn.id]
                self._turns[key] = turn
            for other in earlier:
                other.stop(is_lost=True)
            log.info("took task %s, attempt %s", turn.task_id, turn.attempt)
            threading.Thread(target=self._run, args=(turn, agent), daemon=True).start()

    def _run(self, turn: Turn, agent: Agent) -> None:
        with self._changed:
            # Two runs of one turn would share a working directory.
            self._changed.wait_for(
                lambda: not any(other.id == turn.id and other is not turn and other.epoch < turn.epoch
                                for other in self._turns.values())
            )
        begun = time.monotonic()
        outcome = {"kind": "done"}
        try:
            agent(turn)
        except Cancelled:
            gave_up = {"kind": "failed", "error": "failed", "text": "the agent gave up"}
            outcome = {"kind": "returned"} if turn.is_returned else gave_up
        except Failed as fault:
            outcome = {"kind": "failed", "error": "failed", "text": str(fault)}
        except Exception as fault:
            if turn.is_returned:
                outcome = {"kind": "returned"}
            else:
                log.exception("the agent failed on task %s", turn.task_id)
                # The text of an exception may hold secrets, so that callers see its type.
                text = f"the agent failed: {type(fault).__name__}"
                outcome = {"kind": "failed", "error": "failed", "text": text}
        try:
            if not turn.is_over:
                turn.end(outcome)
        except Failed as fault:
            log.warning("the server refused the end of a turn: %s", fault)
        finally:
            shown = "lost" if turn.is_over else outcome["kind"]
            log.info("task %s: %s after %.1f s", turn.task_id, shown, time.monotonic() - begun)
            with self._changed:
                self._turns.pop((turn.id, turn.epoch), None)
                self._changed.notify_all()
            # The server gives the place of a turn that ended to the poll that waits.
            if turn.is_over or self._drain.is_set():
                self._poll_again()

    def _heartbeat(self, registration: dict[str, Any]) -> None:
        path = agent_path(registration["name"], "/heartbeat")
        period = registration.get("heartbeat_seconds", 45)
        pause = period
        while not self._expired.wait(pause):
            try:
                self.server.call("POST", path, {"session": registration["session"]})
                pause = period
            except Unreachable:
                pause = min(period, 5)
            except Refused as refusal:
                if refusal.is_expired:
                    self._expired.set()
                    self._poll_again()
                    return
                log.warning("the server refused a heartbeat: %s", refusal)
                pause = period

    def _hand_back_late(self) -> None:
        """Hands back the turns that have not ended in time once the worker drains."""
        while not self._drain.wait(1.0):
            if self._expired.is_set():
                return
        with self._changed:
            self._changed.wait_for(lambda: not self._turns, self.drain_timeout)
            left = list(self._turns.values())
        if left:
            log.warning("handing back %d turns that have not ended", len(left))
        for turn in left:
            turn.is_returned = True
            turn.stop()
        with self._changed:
            ended = self._changed.wait_for(lambda: not self._turns, STOP)
        if not ended:
            log.warning("turns have not stopped in time; the server gives them to other workers")
            os._exit(1)

    def _abandon(self) -> None:
        """Stops all turns, which the server gives to other workers."""
        with self._changed:
            turns = list(self._turns.values())
        for turn in turns:
            turn.stop(is_lost=True)
        with self._changed:
            self._changed.wait_for(lambda: not self._turns, STOP)
            self._turns.clear()

    def _poll_again(self) -> None:
        """Ends a poll in flight that says less than the server must know now."""
        with self._changed:
            needed = self._poll_was_full or self._drain.is_set() or self._expired.is_set()
        if needed:
            self._end_poll()

    def _end_poll(self) -> None:
        """Ends the poll in flight. The next one follows at once."""
        with self._changed:
            poll = self._poll
        if poll is not None:
            poll.end()

    def _lost(self, fault: Unreachable) -> None:
        if not self._is_lost:
            log.warning("the server cannot be reached, retrying until it answers: %s", fault)
        self._is_lost = True

    def _answered(self) -> None:
        if self._is_lost:
            log.info("the server answers again")
        self._is_lost = False
