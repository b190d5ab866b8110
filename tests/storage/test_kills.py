"""Killed saves, conversions and passes leave the old or the new contents, and nothing else."""

import os
import random

import kills
import pytest
from grids import TIMES

from streamgda.engine import outputs, plan
from streamgda.runtime import threads

FEW = {"save": 2, "accumulate with a checkpoint": 1}  # steps of the short version


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this platform")
    for module, name in [(plan, "_SLAB_BYTES"), (outputs, "_EVERY")]:
        monkeypatch.setattr(module, name, getattr(module, name))  # restored afterwards
    kills.write_often()
    with threads.limit(1):
        yield


@pytest.mark.parametrize("name", FEW)
def test_killed_work(tmp_path, name):
    killer = kills.Killer(kills.WORKS[name], tmp_path)
    for moment in kills.moments(killer.steps, 0, FEW[name], random.Random(0)):
        killer.kill(**moment)


@pytest.mark.slow
@pytest.mark.parametrize("name", kills.WORKS)
def test_work_killed_at_many_steps(tmp_path, name):
    killer = kills.Killer(kills.WORKS[name], tmp_path)
    for moment in kills.moments(killer.steps, killer.seconds(), 3 * TIMES, random.Random(0)):
        killer.kill(**moment)
