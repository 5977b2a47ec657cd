"""A sweep on the GPUs of a machine: a process for each, which sees its GPU alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import sweeping
import torch

from unroll.corpus.open_corpora import Library
from unroll.sweep import launchers
from unroll.sweep.folder import SweepFolder
from unroll.sweep.launchers import Begun, Report
from unroll.sweep.sweep import describe, sweep

pytestmark = pytest.mark.gpu


def swept(folder: Path, launcher: str, device: str) -> list[Report]:
    corpus = sweeping.corpus()
    library = Library([corpus])
    asked = describe([corpus.described_in(e) for e in sweeping.small(seed=range(4), device=device)], library)
    return list(sweep(SweepFolder(folder), library, asked, 2, None, launcher))


def test_processes_on_gpus_give_the_table_of_one_process(tmp_path: Path) -> None:
    swept(tmp_path / "local", "local", "cuda:0")
    reports = swept(tmp_path / "processes", "processes", "cuda")
    tables = [(tmp_path / name / "table.csv").read_bytes() for name in ("local", "processes")]
    assert tables[0] == tables[1]
    began = [report.where for report in reports if isinstance(report, Begun)]
    name = torch.cuda.get_device_name(0)
    assert len(began) >= 2
    assert all(name in where for where in began)
    assert len({where.split(" on ")[0] for where in began}) <= torch.cuda.device_count()


def test_cuda_is_every_gpu_of_the_machine() -> None:
    assert launchers.chosen("local").at_once("cuda") == torch.cuda.device_count()
