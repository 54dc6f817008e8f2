"""Line protocol of Herald, version 1."""

import asyncio
import json
import sys
import threading
import traceback

from .events import Message
from .turn import events

PROTOCOL = 1


async def serve(handler, out, lines=None):
    """Works on turns until the end of the input."""
    lines = lines or _standard_input()
    turns = {}

    def say(**line):
        out.write(json.dumps(line) + "\n")
        out.flush()

    async for raw in lines:
        line = json.loads(raw)
        kind = line.get("type")
        if kind == "hello":
            say(type="hello", protocol=PROTOCOL, ping=30)
        elif kind == "ping":
            say(type="pong", id=line["id"])
        elif kind == "begin":
            turn = line["turn"]
            turns[turn] = asyncio.create_task(_work(handler, line, say))
            turns[turn].add_done_callback(lambda _, turn=turn: turns.pop(turn, None))
        elif kind == "cancel" and line["turn"] in turns:
            turns[line["turn"]].cancel()
    for turn in turns.values():
        turn.cancel()


async def _work(handler, line, say):
    turn = line["turn"]
    try:
        message = Message.read(line["message"])
        history = [Message.read(message) for message in line["history"]]
        async for event in events(handler, line["taskId"], message, line["contextId"], history):
            say(**event.line(turn))
    except asyncio.CancelledError:
        say(type="status", turn=turn, state="canceled")
    except Exception as error:
        say(
            type="error",
            turn=turn,
            kind=type(error).__name__,
            message=str(error),
            detail=traceback.format_exc(),
        )


async def _standard_input():
    """Lines, read by a thread, since asyncio cannot wait for every kind of standard input."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue(64)

    def read():
        for line in sys.stdin:
            asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()
        asyncio.run_coroutine_threadsafe(queue.put(None), loop).result()

    threading.Thread(target=read, daemon=True).start()
    while (line := await queue.get()) is not None:
        yield line
