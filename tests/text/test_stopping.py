"""15: the first stop to be completed ends a text, however the text is cut; only what could still become a stop is held back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyserve.text.stopping import StopMatcher


def run(pieces, stops, include=False):
    """(what was shown piece by piece, the stop)."""
    matcher, shown = StopMatcher(stops, include), []
    for piece in pieces:
        text, stop = matcher.push(piece)
        shown.append(text)
        if stop is not None:
            return shown, stop
    return [*shown, matcher.flush()], None


@pytest.mark.parametrize(("pieces", "stops", "text", "stop"), [
    (["Here ", "DEF", "G", "HI", "J"], ["DEFGHIJ"], "Here ", "DEFGHIJ"),
    (["DEF", "X"], ["DEFGHIJ"], "DEFX", None),
    (["DEF"], ["DEFGHIJ"], "DEF", None),
    (["stop!"], ["stop"], "", "stop"),
    (["a", "ab", "b"], ["ab"], "a", "ab"),
    (["aaab"], ["aab"], "a", "aab"),
    (["one two three"], ["three", "two"], "one ", "two"),
    (["one two"], ["o", "two"], "", "o"),
    (["x\n", "\ny"], ["\n\n"], "x", "\n\n"),
    (["abcd"], ["abcdef", "bc"], "a", "bc"),
    (["abc"], ["bc", "abc"], "", "abc"),
    (["é🙂", "é"], ["🙂é"], "é", "🙂é"),
    ([], ["x"], "", None),
    (["anything"], [], "anything", None),
])
def test_by_hand(pieces, stops, text, stop):
    shown, found = run(pieces, stops)
    assert ("".join(shown), found) == (text, stop)
    shown, found = run(pieces, stops, include=True)
    assert ("".join(shown), found) == (text + (stop or ""), stop)


def test_what_is_held_back_and_when():
    shown, _ = run(["Here ", "DEF", "X", "DE", "DEFG"], ["DEFGHIJ"])
    assert shown == ["Here ", "", "DEFX", "", "DE", "DEFG"]
    shown, _ = run(["aa", "a", "c"], ["aab"])
    assert shown == ["", "a", "aac", ""]


def oracle(text, stops):
    """(text before the stop, the stop): at the first place where any stop is complete, the longest one."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[:end - len(stop)], stop
    return text, None


texts = st.lists(st.text("abc", max_size=4), max_size=12)
some_stops = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4)


@given(texts, some_stops, st.booleans())
def test_any_text_cut_anywhere(pieces, stops, include):
    before, stop = oracle("".join(pieces), stops)
    shown, found = run(pieces, stops, include)
    assert found == stop and "".join(shown) == before + (stop or "" if include else "")


@given(texts, some_stops)
def test_no_more_is_held_back_than_could_become_a_stop(pieces, stops):
    matcher, pushed, shown = StopMatcher(stops), "", ""
    for piece in pieces:
        text, stop = matcher.push(piece)
        pushed, shown = pushed + piece, shown + text
        if stop is not None:
            return
        held = pushed[len(shown):]
        assert pushed == shown + held and (held == "" or any(stop.startswith(held) and stop != held for stop in stops))
        assert not any(stop.startswith(pushed[start:]) for stop in stops for start in range(len(shown)))
