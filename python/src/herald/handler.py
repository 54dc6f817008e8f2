"""What a handler is."""

from abc import ABC, abstractmethod


class TaskHandler(ABC):
    """Works on tasks. Its docstring is what its card says."""

    @property
    @abstractmethod
    def name(self):
        """What it is called."""

    @abstractmethod
    def process_task(self, task_id, message, session_id=None):
        """Works on one message: an async generator of status and artifact events.

        It may take `history`, the messages of the task so far, as a keyword too.
        """
