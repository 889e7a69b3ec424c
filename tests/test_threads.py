"""Work on all cores, and on one."""

import threading

import pytest

from kdbirl import threads
from kdbirl.threads import cores, on_all_cores, one_core


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def names(count):
    return on_all_cores(lambda _: threading.current_thread().name, range(count))


def test_results_come_in_order():
    assert on_all_cores(lambda value: 2 * value, iter(range(20))) == [2 * value for value in range(20)]
    assert on_all_cores(len, []) == []


def test_work_that_is_done_on_all_cores_starts_no_more_threads():
    both = threading.Barrier(2)

    def inner(_):
        both.wait(timeout=30)  # both threads are at work
        return threading.current_thread().name, cores(), names(3)

    found = on_all_cores(inner, range(2))
    assert {own for own, _, _ in found}.isdisjoint({threading.current_thread().name})
    assert len({own for own, _, _ in found}) == 2
    assert all(inside == [own] * 3 and count == 1 for own, count, inside in found)
    assert cores() == 2


def test_a_single_item_has_all_cores():
    assert on_all_cores(lambda _: (threading.current_thread().name, cores()), [0]) == [
        (threading.current_thread().name, 2)
    ]


def test_one_core_ends_with_its_block():
    with one_core():
        assert cores() == 1
        assert names(3) == [threading.current_thread().name] * 3
    assert cores() == 2
