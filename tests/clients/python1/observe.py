"""Runs a script that uses the official Python SDK 1.x, and notes the results of every call of its clients.

usage: observe.py FILE SCRIPT ARGUMENT…

FILE gets one JSON object per line and call, in the order of the calls: its name, and the results or the error.
"""

import atexit
import inspect
import json
import runpy
import sys

from a2a.client import ClientFactory
from google.protobuf.json_format import MessageToDict

CALLS = {"send_message", "get_task", "list_tasks", "cancel_task", "subscribe"}

observed = []


def note(entry, value):
    entry["results"].append(MessageToDict(value))


def failed(entry, error):
    entry["error"] = f"{type(error).__name__}: {error}"


async def stream(entry, results):
    try:
        async for result in results:
            note(entry, result)
            yield result
    except Exception as error:
        failed(entry, error)
        raise


async def reply(entry, result):
    try:
        result = await result
    except Exception as error:
        failed(entry, error)
        raise
    note(entry, result)
    return result


def observe(client, name):
    original = getattr(client, name)

    def call(*arguments, **named):
        entry = {"call": name, "results": []}
        observed.append(entry)
        result = original(*arguments, **named)
        return (stream if inspect.isasyncgen(result) else reply)(entry, result)

    setattr(client, name, call)


def create(factory, *arguments, **named):
    client = original_create(factory, *arguments, **named)
    for name in CALLS:
        observe(client, name)
    return client


def save(file):
    with open(file, "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(entry, sort_keys=True) + "\n" for entry in observed)


original_create = ClientFactory.create
ClientFactory.create = create
atexit.register(save, sys.argv[1])
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
