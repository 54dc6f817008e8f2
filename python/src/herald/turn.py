"""Events of one turn of a handler, the one that ends the turn included."""

import asyncio
import inspect

from .events import TaskState, TaskStatus, TaskStatusUpdateEvent


async def events(handler, task_id, message, session_id, history):
    """The events of a handler for one message. The last one ends the turn."""
    more = {}
    if "history" in inspect.signature(handler.process_task).parameters:
        more["history"] = history
    completed = TaskStatus(TaskState.completed)
    last, yielded = completed, handler.process_task(task_id, message, session_id, **more)
    async for event in yielded:
        yield event
        if event.ends_turn:
            await yielded.aclose()
            return
        if isinstance(event, TaskStatusUpdateEvent):
            # A handler that returns while its task waits leaves the task in that state.
            last = event.status if event.is_interim else completed
        # Yields to other turns, so that a cancel arrives also between two events.
        await asyncio.sleep(0)
    yield TaskStatusUpdateEvent(task_id, last, True)
