"""The input buffer's places."""

from gen.lowering.buffer_allocation import BufferRing


def test_round_and_round():
    ring = BufferRing(100)
    first, after = ring.take(60)
    assert (first.base, after) == (0, -1)
    first.last_reader = 3
    second, after = ring.take(60)
    assert (second.base, after) == (0, 3)


def test_the_rest_of_a_place_is_waited_for():
    """A place out of turn takes the end of another one; what comes round to the beginning waits for its reader too."""
    ring = BufferRing(100)
    ring.take(40)[0].last_reader = 1
    ring.take(50)[0].last_reader = 2
    ring.limit = 70
    _, after = ring.take_at(70, 30)
    assert after == 2
    third, after = ring.take(30)
    assert (third.base, after) == (0, 1)
    third.last_reader = 5
    assert ring.take(40)[1] == 2        # 30..70: ten entries of the first, thirty of the second
