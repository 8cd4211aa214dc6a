"""The bench's arithmetic: metrics by hand, pairing, records that come back as they were, targets from records."""

import json

import pytest

from tinyserve.bench import records, targets
from tinyserve.bench.metrics import RequestTimes, summarize
from tinyserve.bench.protocol import interleave, ratio, spread
from tinyserve.errors import CorruptCheckpoint, InvalidRequest


def test_contract_32_itl_counts_chunks_and_tpot_counts_tokens():
    request = RequestTimes((0.100, 0.140, 0.180), tokens=5)
    summary = summarize([request])
    assert summary["mean_itl_ms"] == pytest.approx(40)
    assert summary["mean_tpot_ms"] == pytest.approx(20)
    assert summary["mean_ttft_ms"] == pytest.approx(100) and summary["mean_e2el_ms"] == pytest.approx(180)


def test_a_request_of_one_token_has_no_tpot():
    assert RequestTimes((0.2,), 1).tpot is None
    assert "mean_tpot_ms" not in summarize([RequestTimes((0.2,), 1)])


def test_percentiles_over_requests():
    summary = summarize([RequestTimes((n / 1e3, n / 1e3), 2) for n in range(1, 101)])
    assert summary["median_ttft_ms"] == pytest.approx(50.5) and summary["p99_ttft_ms"] == pytest.approx(99.01)


def test_sides_take_turns_and_every_second_round_runs_backwards():
    order = []
    sides = {name: (lambda name=name: order.append(name) or 1.0) for name in "ab"}
    taken = interleave(sides, repeats=3, warmup=1)
    assert order == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert taken == {"a": [1.0] * 3, "b": [1.0] * 3}


def test_the_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians():
    # A machine that slows by ten between rounds: each pair says 2, the medians would say something else.
    assert ratio([1.0, 10.0, 1.0], [2.0, 20.0, 2.0]) == 2.0
    assert ratio([1.0, 10.0, 3.0], [2.0, 20.0, 30.0]) == 2.0


def test_spread_by_hand():
    got = spread([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (got.median, got.low, got.high, got.minimum, got.maximum, got.count) == (3.0, 2.0, 4.0, 1.0, 5.0, 5)
    assert spread([7.0]).low == 7.0 and got.scaled(10)["median"] == 30.0


def record(name, rows, date="2026-12-01T10:00:00+00:00"):
    return records.Record(name, rows, {"repeats": 1}, date=date, commit="abc", dirty=False)


def test_a_record_comes_back_and_the_newest_wins(tmp_path):
    record("steps", [{"tokens in the step": 8, "times one token": 2.5}]).save(tmp_path)
    later = record("steps", [{"tokens in the step": 8, "times one token": 1.6}], "2026-12-02T10:00:00+00:00")
    path = later.save(tmp_path)
    assert json.loads(path.read_text())["commit"] == "abc"
    assert records.newest("steps", tmp_path) == later
    assert records.newest("peers", tmp_path) is None


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "steps-1.json").write_text('{"name": "steps"}')
    with pytest.raises(CorruptCheckpoint, match="steps-1.json"):
        records.newest("steps", tmp_path)


def test_targets_say_what_is_reached_and_what_is_not_measured(tmp_path):
    record("steps", [{"tokens in the step": 8, "times one token": 1.6}]).save(tmp_path)
    record("peers", [{"peer": "llama.cpp", "decode: times faster": 2.0, "prefill: times faster": 9.0}]).save(tmp_path)
    found = {result["what"]: result for result in targets.results(tmp_path)}
    assert found["eight tokens in one step, times one"]["met"] is True
    assert found["decode, times llama.cpp"]["met"] is False and found["prefill, times llama.cpp"]["met"] is True
    assert found["new process to first token, s"]["met"] is None
    lines = list(targets.report(tmp_path))
    assert any("not measured yet" in line for line in lines) and any("not reached" in line for line in lines)


def test_an_unknown_peer_is_refused():
    from tinyserve.bench.peers.environment import recipe_for

    with pytest.raises(InvalidRequest, match="llama.cpp"):
        recipe_for("nobody")
