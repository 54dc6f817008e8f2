"""Agents of a worker: a function, a handler of the helper, or a program."""

from __future__ import annotations

import asyncio
import codecs
import importlib
import inspect
import logging
import os
import select
import signal
import subprocess
import threading
from typing import Any, Callable, Optional

from herald import find
from herald.events import Answer, Message, TaskArtifactUpdateEvent, TaskState
from herald.handler import TaskHandler
from herald.turn import events

from .turn import Cancelled, Failed, Turn

#: An agent: works on one turn, and raises an exception if the work failed.
Agent = Callable[[Turn], None]

#: The time that a program has to end before it is killed.
GRACE = 5.0

#: The time for which a piece of output is held.
HOLD = 0.1

log = logging.getLogger("agent_worker")


def of_function(function: Callable[[Turn], Any]) -> Agent:
    """An agent that calls a function, plain or async. Its text is the answer."""

    def run(turn: Turn) -> None:
        result = function(turn)
        if inspect.isawaitable(result):
            result = _run_async(turn, result)
        if result is not None and not turn.has_ended:
            turn.answer(str(result))

    return run


def of_handler(handler: TaskHandler) -> Agent:
    """An agent that runs a handler of the helper."""

    async def work(turn: Turn) -> None:
        message, history = Message.read(turn.message), [Message.read(message) for message in turn.history]
        async for event in events(handler, turn.task_id, message, turn.context_id, history):
            await asyncio.to_thread(_write, turn, event)

    return lambda turn: _run_async(turn, work(turn))


def of_command(command: str) -> Agent:
    """An agent that runs a shell command: the text of the message is its input, its output the answer."""

    def run(turn: Turn) -> None:
        pipe = subprocess.PIPE
        arguments = ["sh", "-c", command]
        with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as process:
            turn.on_cancel(lambda: _end(process))
            errors: list[bytes] = []
            feed = threading.Thread(target=_feed, args=(process, turn.text.encode()), daemon=True)
            drain = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
            feed.start()
            drain.start()
            try:
                _publish(turn, process.stdout.fileno())
                status = process.wait()
            finally:
                _end(process)
                drain.join(GRACE)
        if turn.is_cancelled:
            raise Cancelled()
        if status != 0:
            log.warning("the program of task %s failed: %s", turn.task_id, b"".join(errors)[-4096:].decode(errors="replace"))
            raise Failed(f"the program ended with status {status}")

    return run


def find_handler(name: str) -> TaskHandler:
    """The handler of `module:Class`."""
    module, _, kind = name.partition(":")
    if not kind:
        raise find.Unusable(f"{name!r} names no class; write it as my_package.handlers:Reviewer")
    made = getattr(importlib.import_module(module), kind, None)
    if made is None:
        raise find.Unusable(f"{module} has no class {kind}")
    if not (inspect.isclass(made) and issubclass(made, TaskHandler)):
        raise find.Unusable(f"{kind} of {module} is not a subclass of herald.TaskHandler")
    return made()


def choose_handler(packages: list[str], role: str) -> TaskHandler:
    """The handler of these packages with the name of the role, or the only one."""
    found = find.handlers(packages)
    named = {name.lower().replace("_", "-"): handler for name, handler in found.items()}
    if role in named:
        return named[role]
    if len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(sorted(found))
    raise find.Unusable(f"there are several handlers, and none has the name of the role {role!r}: {names}")


def _run_async(turn: Turn, work: Any) -> Any:
    async def main() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        turn.on_cancel(lambda: loop.call_soon_threadsafe(task.cancel))
        return await task

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise Cancelled() from None


def _write(turn: Turn, event: Any) -> None:
    line = event.line(turn.id)
    if isinstance(event, TaskArtifactUpdateEvent):
        members = ("artifactId", "name", "description", "parts", "metadata")
        artifact = {name: line[name] for name in members if name in line}
        turn.write_artifact(artifact, line["append"], line["lastChunk"])
    elif isinstance(event, Answer):
        turn.answer(event.text)
    elif line["state"] != TaskState.submitted.value:
        turn.report(line["state"], line.get("parts"), interim=event.is_interim)


def _publish(turn: Turn, output: int) -> None:
    """Appends the output of a program to one artifact, in pieces as they come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held: Optional[str] = None
    while True:
        # A piece is held for a moment, so that the last one can say that it is the last.
        if held is not None and not select.select([output], [], [], HOLD)[0]:
            turn.artifact(held, append=True, last=False)
            held = None
        piece = os.read(output, 65536)
        text = decoder.decode(piece, not piece)
        if piece:
            held = (held or "") + text
        else:
            rest = (held or "") + text
            if rest:
                turn.artifact(rest, append=True, last=True)
            return


def _feed(process: subprocess.Popen, text: bytes) -> None:
    try:
        process.stdin.write(text)
        process.stdin.close()
    except OSError:
        # A program need not read its input.
        pass


def _end(process: subprocess.Popen) -> None:
    """Ends a program and its children, which are in the process group of their shell."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
