"""Tasks in worker processes, and on a Ray cluster as datatrove's executor is asked for them."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from contamination.core.task_runner import TaskRunner, TasksConfig


@dataclass(frozen=True)
class Squares:
    """A task whose result is the square of each piece's number."""

    folder: Path
    pieces: int

    def __len__(self):
        return self.pieces

    def files(self, piece):
        return [self.folder / f"{piece}.txt"]

    def process_piece(self, piece):
        self.files(piece)[0].write_text(str(piece**2))
        return {"square": piece**2}


@dataclass
class RayExecutor:
    """In the place of datatrove's: it runs the pieces here, one after another."""

    pipeline: list
    tasks: int
    workers: int
    logging_dir: str
    mem_per_cpu_gb: float

    def run(self):
        asked_for.append((self.tasks, self.workers, self.mem_per_cpu_gb))
        for rank in range(self.tasks):
            for step in self.pipeline:
                step(None, rank, self.tasks)


asked_for = []


@pytest.mark.parametrize("is_initialized", [False, True])
def test_ray_runs_each_piece_with_the_workers_and_memory_of_the_config(
    tmp_path, monkeypatch, is_initialized
):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")  # so that what a task sets is undone
    started = []
    ray = SimpleNamespace(
        is_initialized=lambda: is_initialized, init=lambda **options: started.append(options)
    )
    logger = SimpleNamespace(disable=lambda name: None)
    for name, module in {
        "ray": ray,
        "datatrove.executor": SimpleNamespace(
            LocalPipelineExecutor=None, RayPipelineExecutor=RayExecutor
        ),
        "loguru": SimpleNamespace(logger=logger),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    asked_for.clear()
    cluster = TasksConfig(kind="datatrove", executor="ray", workers=2, memory_gb=3)
    results = TaskRunner(tmp_path / "tasks", cluster).run("squares", Squares(tmp_path, 4))
    assert results == [{"square": 0}, {"square": 1}, {"square": 4}, {"square": 9}]
    assert asked_for == [(4, 2, 3)]
    assert len(started) == (not is_initialized)  # a cluster that is there already is used
