"""Every released step is in the log exactly once, whatever a resumed run does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.accounting import Event, Ledger
from fedfair.accounting.log import EventLog

A, B = Event((0.1,), (1.0,), (1.0,)), Event((0.1,), (1.0,), (2.0,), 5.0)
LOCAL = Event((0.3,), (1.0,), (1.0,), None, 4)


def through_json(log: EventLog) -> EventLog:
    return EventLog.from_dict(json.loads(json.dumps(log.to_dict())))


def test_equal_steps_in_a_row_are_one_entry_and_counted_all() -> None:
    log = EventLog()
    for step, event in enumerate([A, A, B, A]):
        log.record(event, 1, step)
    assert [(e.event, e.first, e.steps) for e in log.entries] == [(A, 0, 2), (B, 2, 1), (A, 3, 1)]
    assert log.counted() == {A: 3, B: 1}


def test_a_step_is_not_recorded_twice_nor_is_one_left_out() -> None:
    """Hazard 12."""
    log = EventLog()
    log.record(A, 5, 0)
    for resumed in (log, through_json(log)):
        with pytest.raises(ValueError, match=r"step 4 is already in the ledger.*call rewind\(4\) first"):
            resumed.record(A, 1, 4)
        with pytest.raises(ValueError, match=r"step 7 follows step 4.*call skip\(5, 2\) if they released nothing"):
            resumed.record(A, 1, 7)
        assert resumed.counted() == {A: 5}


def test_clients_that_train_alone_count_their_own_steps() -> None:
    log = EventLog()
    log.record(LOCAL, 3, 0)
    log.record(A, 1, 0)
    log.record(LOCAL, 3, 3)
    with pytest.raises(ValueError, match="step 3 is already in the ledger"):
        log.record(LOCAL, 3, 3)
    assert log.counted() == {LOCAL: 6, A: 1}


def test_steps_that_released_nothing_are_passed_over() -> None:
    log = EventLog()
    log.record(A, 2, 0)
    log.skip(2, 3)
    for resumed in (log, through_json(log)):
        with pytest.raises(ValueError, match="step 2 is already"):
            resumed.record(A, 1, 2)
        resumed.record(A, 1, 5)
        assert resumed.counted() == {A: 3}
    with pytest.raises(ValueError, match="step 3 cannot be skipped: the next step is 6"):
        log.skip(3, 1)


def test_what_was_known_in_advance_is_one_entry_however_bounds_moved() -> None:
    log = EventLog()
    for step in range(10):
        log.record(Event((0.1,), (1.0,), (1.0 + step,), 5.0), 1, step)
    log.skip(10, 2)
    log.rewind(7)
    short = log.in_advance()
    assert [(e.event, e.first, e.steps) for e in short.entries] == [(Event((0.1,), (1.0,), (1.0,), 5.0), 0, 10)]
    for one in (log, short):
        with pytest.raises(ValueError, match="step 6 is already in the ledger"):
            one.record(A, 1, 6)
        one.record(A, 1, 7)
        assert one.entries[-1].attempt == 1


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([A, B]), min_size=1, max_size=20), st.data())
def test_a_run_resumed_from_a_checkpoint_has_the_log_of_one_that_was_never_interrupted(events: list[Event],
                                                                                     data: st.DataObject) -> None:
    whole = EventLog()
    for step, event in enumerate(events):
        whole.record(event, 1, step)
    log, at = EventLog(), data.draw(st.integers(0, len(events)))
    for step, event in enumerate(events):
        if step == at:
            log = through_json(log)
        log.record(event, 1, step)
    assert log.entries == whole.entries


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 20), st.data())
def test_what_was_released_before_a_run_went_back_stays_charged(steps: int, data: st.DataObject) -> None:
    """Hazard 12: fresh noise on a step that somebody has seen already is a second release."""
    back = data.draw(st.integers(0, steps - 1))
    log = EventLog()
    log.record(A, steps, 0)
    log.rewind(back)
    for resumed in (log, through_json(log)):
        resumed.record(A, steps - back, back)
        assert resumed.counted() == {A: steps + steps - back}
        assert [entry.attempt for entry in resumed.entries] == [0, 1]
        with pytest.raises(ValueError, match="already in the ledger"):
            resumed.record(A, 1, back)


def test_a_ledger_that_is_resumed_costs_what_both_parts_cost() -> None:
    """Hazard 12: not what the second part costs alone."""
    ledger = Ledger(("a",), 1e-6)
    ledger.record(A, 50)
    resumed = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    resumed.record(A, 50)
    whole = Ledger(("a",), 1e-6)
    whole.record(A, 100)
    assert resumed.epsilon() == whole.epsilon() > ledger.epsilon()


def test_going_back_never_goes_forward() -> None:
    """Else a release could be left out between what was recorded and where the run says that it goes on."""
    log = EventLog()
    log.record(A, 5, 0)
    log.rewind(9)
    with pytest.raises(ValueError, match="step 9 follows step 4"):
        log.record(A, 1, 9)
    log.record(A, 1, 5)
    assert [(entry.first, entry.steps, entry.attempt) for entry in log.entries] == [(0, 5, 0), (5, 1, 1)]


def test_a_client_that_trains_alone_goes_back_and_skips_by_itself() -> None:
    log = EventLog()
    log.record(A, 2, 0)
    log.record(LOCAL, 6, 0)
    log.rewind(3, client=4)
    log.record(LOCAL, 3, 3)
    log.skip(6, 2, client=4)
    log.record(LOCAL, 1, 8)
    log.record(A, 1, 2)
    assert log.counted() == {LOCAL: 10, A: 3}
    with pytest.raises(ValueError, match="step 2 is already in the ledger"):
        log.record(A, 1, 2)


def test_a_negative_number_of_steps_is_refused() -> None:
    """It would take back what was charged."""
    log = EventLog()
    log.record(A, 5, 0)
    with pytest.raises(ValueError, match="-2 steps cannot be recorded"):
        log.record(A, -2, 5)
    assert log.counted() == {A: 5}


def test_the_whole_of_a_log_that_went_back_is_all_of_it() -> None:
    log = EventLog()
    log.record(A, 10, 0)
    log.rewind(5)
    assert log.prefix(1.0).counted() == log.counted()
    assert log.prefix(0.5).counted() == {A: 5}


def test_a_part_of_a_log_has_parts_and_goes_on() -> None:
    log = EventLog()
    log.record(A, 8, 0)
    half = log.prefix(0.5)
    assert half.prefix(0.5).counted() == {A: 2}
    half.record(A, 3, 4)
    assert half.counted() == {A: 7}
