"""Base class of handlers."""

from abc import ABC, abstractmethod


class TaskHandler(ABC):
    """Works on tasks. The docstring of a subclass is the description on its card."""

    # True if the first event of a turn decides whether the message is taken: `rejected` and
    # `auth_required` decline it while the task is still submitted.
    admission = False

    @property
    @abstractmethod
    def name(self):
        """The name of the handler."""

    @abstractmethod
    def process_task(self, task_id, message, session_id=None):
        """Works on one message: an async generator of status and artifact events.

        It may take `history`, the messages of the task so far, as a keyword too.
        """
