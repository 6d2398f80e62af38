"""What a task is: raw columns, kind, labels, metric, splits and readers."""

from mtlens.tasks.table import Table as Table
from mtlens.tasks.task import Task as Task
from mtlens.tasks.task import TaskSet as TaskSet
