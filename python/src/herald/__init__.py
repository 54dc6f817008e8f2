"""Handlers for Herald, written in Python: subclass TaskHandler and yield events."""

from .events import (
    Answer,
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
    "Answer",
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
