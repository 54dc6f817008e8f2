"""Handlers for Herald, written in Python: subclass TaskHandler and yield events."""

from .events import (
    Artifact,
    DataPart,
    FilePart,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from .handler import TaskHandler

__all__ = [
    "Artifact",
    "DataPart",
    "FilePart",
    "Message",
    "Role",
    "TaskArtifactUpdateEvent",
    "TaskHandler",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "TextPart",
]
