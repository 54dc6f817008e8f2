"""Workers for Herald, written in Python, and calls of the agents behind a Herald server."""

from .client import discover_agents, send_to_agent
from .instance import Worker
from .server import Refused, Unreachable
from .turn import Cancelled, Failed, Turn

__all__ = [
    "Cancelled",
    "Failed",
    "Refused",
    "Turn",
    "Unreachable",
    "Worker",
    "discover_agents",
    "send_to_agent",
]
