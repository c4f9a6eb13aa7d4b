"""How a pool leaves: rules of the relay's heartbeat, on times that the test makes up."""

from poolmuster.model.change import DeregistrationReason
from poolmuster.relay.heartbeat import (
    Deregister,
    DeregisterRequest,
    HeartbeatFailed,
    HeartbeatGone,
    HeartbeatRefused,
    Phase,
    Register,
    Superseded,
    Wait,
)
from tests.unit.relay.test_heartbeat import DOWN, FACTS, World


def test_a_server_that_goes_down_is_deregistered_at_once_and_comes_back_under_a_new_id() -> None:
    world = World().registered()
    world.beat.withdraw(world.now_ms, DOWN)
    assert world.beat.phase(world.now_ms) is Phase.LEAVING
    assert world.step() == Deregister(0, "id-0", DOWN, 3_000)
    world.end(HeartbeatGone())
    assert world.beat.next(world.now_ms) == Wait(None)
    world.beat.set_document(world.now_ms, FACTS)
    step = world.step()
    assert isinstance(step, Register)
    assert step.relay_id == "id-1"


def test_a_deregistration_is_tried_until_the_lease_has_surely_ended() -> None:
    world = World(draw=0.5).registered()
    world.beat.withdraw(world.now_ms, DOWN)
    ends_ms = world.now_ms + 15_000
    while not isinstance(step := world.beat.next(world.now_ms), Wait) or step.until_ms is not None:
        if isinstance(step, Wait):
            assert step.until_ms is not None
            world.now_ms = step.until_ms
        else:
            assert isinstance(step, Deregister)
            assert world.now_ms < ends_ms
            world.end(HeartbeatFailed("cut"), after_ms=500)
    assert ends_ms <= world.now_ms <= ends_ms + 5_000
    assert world.beat.relay_id == "id-1"


def test_a_server_that_is_back_before_its_deregistration_was_taken_registers_under_a_new_id() -> None:
    world = World().registered()
    world.beat.withdraw(world.now_ms, DOWN)
    world.step()
    world.end(HeartbeatFailed("cut"))
    world.beat.set_document(world.now_ms, FACTS)
    step = world.step()
    assert isinstance(step, Register)
    assert step.relay_id == "id-1"


def test_an_attempt_without_an_answer_may_have_been_heard_and_is_taken_back() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.beat.withdraw(world.now_ms, DOWN)
    world.end(HeartbeatFailed("timeout"), after_ms=3_000)
    before_ms = world.now_ms
    assert isinstance(world.step(), Deregister)
    assert world.now_ms == before_ms


def test_what_was_refused_is_not_taken_back() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.beat.withdraw(world.now_ms, DOWN)
    world.end(HeartbeatRefused(403, "not your cluster"))
    assert world.beat.next(world.now_ms) == Wait(None)


def test_a_refused_deregistration_keeps_the_id_it_speaks_of() -> None:
    world = World().registered()
    world.beat.withdraw(world.now_ms, DOWN)
    world.step()
    world.end(Superseded("odd"))
    step = world.step()
    assert isinstance(step, Deregister)
    assert step.relay_id == "id-0"


def test_forgetting_sends_nothing_more() -> None:
    world = World().registered()
    world.beat.forget()
    assert world.beat.next(world.now_ms + 60_000) == Wait(None)


def test_whatever_is_said_of_the_server_of_a_relay_that_stops_changes_nothing() -> None:
    world = World().registered()
    world.beat.leave(world.now_ms)
    world.beat.set_document(world.now_ms, FACTS)
    world.beat.withdraw(world.now_ms, DOWN)
    assert world.step() == Deregister(0, "id-0", DeregisterRequest(DeregistrationReason.RELAY_STOPPING), 3_000)
    world.end(HeartbeatGone())
    world.beat.set_document(world.now_ms, FACTS)
    assert world.beat.next(world.now_ms) == Wait(None)


def test_whatever_is_said_of_the_server_after_forgetting_changes_nothing() -> None:
    world = World().registered()
    world.beat.forget()
    world.beat.set_document(world.now_ms, FACTS)
    world.beat.withdraw(world.now_ms, DOWN)
    assert world.beat.next(world.now_ms) == Wait(None)


def test_a_relay_that_stops_does_not_sit_out_the_pause_of_a_deregistration() -> None:
    world = World().registered()
    world.beat.withdraw(world.now_ms, DOWN)
    for _ in range(5):
        world.step()
        world.end(HeartbeatFailed("cut"))
    world.beat.leave(world.now_ms)
    stopped_ms = world.now_ms
    step = world.step()
    assert isinstance(step, Deregister)
    assert (step.request, world.now_ms) == (DOWN, stopped_ms)
    world.end(HeartbeatFailed("cut"))
    world.step()
    assert world.now_ms - stopped_ms <= 750, "and starts with short pauses again"
