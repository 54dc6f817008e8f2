"""Messages that handlers read, and events that they yield."""

import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Optional


class Role(str, Enum):
    user = "user"
    agent = "agent"


class TaskState(str, Enum):
    submitted = "submitted"
    working = "working"
    input_required = "input-required"
    auth_required = "auth-required"
    completed = "completed"
    canceled = "canceled"
    failed = "failed"
    rejected = "rejected"

    @property
    def ends_turn(self):
        return self not in (TaskState.submitted, TaskState.working)

    @property
    def waits(self):
        return self in (TaskState.input_required, TaskState.auth_required)


@dataclass
class TextPart:
    text: str
    metadata: Optional[dict] = None
    type: str = "text"

    def line(self):
        return _given({"text": self.text, "metadata": self.metadata})


@dataclass
class DataPart:
    data: Any
    metadata: Optional[dict] = None
    type: str = "data"

    def line(self):
        return {"data": self.data, **_given({"metadata": self.metadata})}


@dataclass
class FilePart:
    """A file: its bytes in base64, or its URI."""

    bytes: Optional[str] = None
    uri: Optional[str] = None
    name: Optional[str] = None
    mime_type: Optional[str] = None
    metadata: Optional[dict] = None
    type: str = "file"

    def line(self):
        return _given({
            "raw": self.bytes,
            "url": self.uri,
            "filename": self.name,
            "mediaType": self.mime_type,
            "metadata": self.metadata,
        })


@dataclass
class Message:
    role: Role
    parts: list
    message_id: Optional[str] = None
    metadata: Optional[dict] = None

    @classmethod
    def read(cls, line):
        role = Role.agent if line.get("role") == "ROLE_AGENT" else Role.user
        parts = [read_part(part) for part in line.get("parts", [])]
        return cls(role, parts, line.get("messageId"), line.get("metadata"))

    @property
    def text(self):
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass
class TaskStatus:
    state: TaskState
    message: Optional[Message] = None


@dataclass
class Artifact:
    parts: list
    name: Optional[str] = None
    description: Optional[str] = None
    artifact_id: Optional[str] = None
    index: Optional[int] = None
    append: bool = False
    last_chunk: bool = False
    metadata: Optional[dict] = None


@dataclass
class TaskStatusUpdateEvent:
    id: str
    status: TaskStatus
    #: False in a state in which the task waits: the handler goes on. Without a value the state decides.
    final: Optional[bool] = None

    def line(self, turn):
        line = {"type": "status", "turn": turn, "state": TaskState(self.status.state).value}
        if self.status.message is not None:
            line["parts"] = [part.line() for part in self.status.message.parts]
        if self.is_interim:
            line["final"] = False
        return line

    @property
    def is_interim(self):
        """True if the task waits, and the handler goes on."""
        return self.final is False and TaskState(self.status.state).waits

    @property
    def ends_turn(self):
        return TaskState(self.status.state).ends_turn and not self.is_interim


@dataclass
class TaskArtifactUpdateEvent:
    id: str
    artifact: Artifact
    #: Each artifact without a name is a new one.
    fallback: str = field(default_factory=lambda: uuid.uuid4().hex, repr=False)

    ends_turn = False
    is_interim = False

    def line(self, turn):
        artifact = self.artifact
        own = artifact.artifact_id or artifact.name
        own = own or (f"artifact-{artifact.index}" if artifact.index is not None else self.fallback)
        return {
            "type": "artifact",
            "turn": turn,
            "artifactId": own,
            "parts": [part.line() for part in artifact.parts],
            "append": artifact.append,
            "lastChunk": artifact.last_chunk,
            **_given({
                "name": artifact.name,
                "description": artifact.description,
                "metadata": artifact.metadata,
            }),
        }


@dataclass
class Answer:
    """An answer in words: the artifact `response`, which completes the task."""

    text: str

    ends_turn = True

    def line(self, turn):
        return {"type": "answer", "turn": turn, "text": self.text}


def read_part(part):
    if "text" in part:
        return TextPart(part["text"], part.get("metadata"))
    if "data" in part:
        return DataPart(part["data"], part.get("metadata"))
    return FilePart(
        part.get("raw"),
        part.get("url"),
        part.get("filename"),
        part.get("mediaType"),
        part.get("metadata"),
    )


def _given(members):
    return {name: value for name, value in members.items() if value is not None}
