"""What a task is: raw columns, kind, labels, metric, splits and readers."""

from mtlens.tasks.duplicates import Duplicates as Duplicates
from mtlens.tasks.duplicates import drop_duplicates as drop_duplicates
from mtlens.tasks.duplicates import find_duplicates as find_duplicates
from mtlens.tasks.readers import read_tasks as read_tasks
from mtlens.tasks.splits import Splits as Splits
from mtlens.tasks.splits import hold_out_official_test as hold_out_official_test
from mtlens.tasks.table import Table as Table
from mtlens.tasks.task import Task as Task
from mtlens.tasks.task import TaskSet as TaskSet
