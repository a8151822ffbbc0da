"""When hosts were unresponsive, from a log."""

from slotwise.core.events import HostJoined, HostLost
from slotwise.core.log import Turn
from slotwise.insight.present_hosts import UnresponsiveSpan, unresponsive_spans


def test_unresponsive_times_of_several_hosts_may_overlap():
    """Each interval ends when its own host returns; a host may have two."""
    events = [
        HostLost(1.0, "a"),
        HostLost(2.0, "b"),
        HostJoined(4.0, "a"),
        HostLost(5.0, "a"),
        HostJoined(6.0, "b"),
        HostJoined(8.0, "a"),
    ]
    turns = [Turn(event.at, (event,), ()) for event in events]
    assert unresponsive_spans(turns) == (
        UnresponsiveSpan("a", 1.0, 4.0),
        UnresponsiveSpan("b", 2.0, 6.0),
        UnresponsiveSpan("a", 5.0, 8.0),
    )


def test_a_host_that_never_returns_is_unresponsive_to_the_end():
    """Its interval has no end."""
    turns = [Turn(0.0, (), ()), Turn(3.0, (HostLost(3.0, "a"),), ())]
    assert unresponsive_spans(turns) == (UnresponsiveSpan("a", 3.0, None),)
