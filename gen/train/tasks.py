"""All kinds of tasks, and which one a session has."""

from gen.train.classes import Classes
from gen.train.detector import Detector
from gen.train.session import TrainingSession
from gen.train.task import Task

__all__ = ["task_of"]


def task_of(session: TrainingSession) -> Task:
    return Classes(session) if session.head is None else Detector(session)
