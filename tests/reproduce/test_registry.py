"""The tables can be made by several processes."""

import pickle
from pathlib import Path

import pytest

from regard.reproduce.registry import EXPERIMENTS, SCALES
from regard.reproduce.tables import Study


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_and_their_tasks_are_sent_to_other_processes(name: str, tmp_path: Path) -> None:
    """A task that could not be would end the command where it has more than one process."""
    one = EXPERIMENTS[name]
    assert pickle.loads(pickle.dumps(one)).name == name
    tasks = one.tasks(Study(SCALES["mini"], tmp_path, (1,)))
    assert tasks
    assert [task.part for task in pickle.loads(pickle.dumps(tasks))] == [t.part for t in tasks]
