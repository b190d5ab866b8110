"""Requests to a remote store, over a link whose time is counted and does not pass."""

import asyncio
import heapq

import pytest
import zarr
from zarr.core.sync import sync

from streamgda.storage import remote
from streamgda.storage.remote import FIRST, MOST, Requests


class Link:
    """A store at the end of a link: one answer at a time passes, each after the latency."""

    def __init__(self, latency, bandwidth, chunk_bytes):
        self.latency, self.seconds_each = latency, chunk_bytes / bandwidth
        self.now = self.free = 0.0
        self.under_way, self.most_at_once, self.asked = [], 0, []

    async def request(self, key, prototype):
        self.free = max(self.free, self.now + self.latency) + self.seconds_each
        answer = asyncio.get_running_loop().create_future()
        heapq.heappush(self.under_way, (self.free, len(self.asked), answer))
        self.asked.append(key)
        self.most_at_once = max(self.most_at_once, len(self.under_way))
        await answer

    async def read(self, asked, keys):
        """Read values ten at a time, as zarr does; time passes when all wait for the link."""
        slots = asyncio.Semaphore(10)

        async def one(key):
            async with slots:
                await asked.value_of(self, key, None)

        values = asyncio.gather(*map(one, keys))
        while not values.done():
            for _ in range(10):
                await asyncio.sleep(0)
            if self.under_way and not values.done():
                self.now, _, answer = heapq.heappop(self.under_way)
                answer.set_result(None)


def read(link, monkeypatch, n_chunks, chunk_bytes, slab, ahead):
    """Read chunks slab by slab, of which so many may be requested ahead."""
    monkeypatch.setattr(remote, "clock", lambda: link.now)
    keys, asked = [*map(str, range(n_chunks))], Requests(chunk_bytes)
    for start in range(0, n_chunks, slab):
        few, more = keys[start : start + slab], keys[start : start + slab + ahead]
        asked.read(link, more, lambda few=few: sync(link.read(asked, few)))
        assert len(link.asked) <= start + slab + ahead
    assert link.asked == keys  # each once, in order
    return asked


@pytest.mark.parametrize("latency", [0.001, 0.05, 0.2])
@pytest.mark.parametrize(
    ("chunk_bytes", "n_chunks", "slab"),
    [(1 << 17, 5000, 256), (1 << 20, 1000, 32), (1 << 24, 100, 2)],
)
def test_the_link_is_full(monkeypatch, latency, chunk_bytes, n_chunks, slab):
    link = Link(latency, 250e6, chunk_bytes)
    read(link, monkeypatch, n_chunks, chunk_bytes, slab, ahead=2 * MOST)
    best = latency + n_chunks * link.seconds_each
    assert link.now <= best / 0.8
    on_their_way = latency / link.seconds_each + 1  # bandwidth times latency, in chunks
    assert on_their_way <= link.most_at_once <= FIRST + 4 * on_their_way


@pytest.mark.parametrize("ahead", [0, 2, 40])
def test_no_more_is_requested_than_the_budget_allows(monkeypatch, ahead):
    link = Link(0.2, 1e12, 1 << 20)
    read(link, monkeypatch, 200, 1 << 20, 8, ahead)
    assert link.most_at_once <= 8 + ahead


def test_the_number_that_zarr_is_given_is_kept_to(monkeypatch):
    link = Link(0.2, 1e12, 1 << 17)
    with zarr.config.set({"async.concurrency": 3}):
        read(link, monkeypatch, 100, 1 << 17, 10, 50)
    assert link.most_at_once == 3


def test_the_number_of_requests_has_a_limit(monkeypatch):
    link = Link(1.0, 1e15, 1)
    read(link, monkeypatch, 3000, 1, 1000, 2000)
    assert link.most_at_once == MOST
