"""The scheduler's plans: budgets, order, admission, and who waits."""

from types import SimpleNamespace

import pytest

from tinyserve.cache.pool import BlockPool
from tinyserve.engine.request import Request, Sequence, Timeline
from tinyserve.engine.scheduler import PROMPT_LOGPROB_CHUNK, Scheduler
from tinyserve.text.params import SamplingParams


def sequence(name, size, limit=8, **params):
    request = Request(name, tuple(range(size)), SamplingParams(**params), 0, 0.0)
    return Sequence(request, 0, SimpleNamespace(output_ids=[]), limit, Timeline(0.0))


def plan_of(scheduler):
    """[(request, first position, tokens)] of the next step, which is then taken as computed."""
    plan = scheduler.schedule()
    rows = [(row.sequence.request.id, row.start, row.count) for row in plan.rows]
    for row in plan.rows:
        if row.samples:
            row.sequence.output_ids.append(0)
        row.sequence.num_computed += row.count
    assert plan.tokens <= scheduler.budget
    return rows


def make(budget=8, seqs=8, blocks=40):
    return Scheduler(BlockPool(blocks), 4, seqs, budget)


def test_a_prompt_is_cut_by_the_budget_and_then_decodes_one_at_a_time():
    scheduler = make()
    scheduler.add(sequence("a", 19))
    assert [plan_of(scheduler) for _ in range(5)] == [[("a", 0, 8)], [("a", 8, 8)], [("a", 16, 3)], [("a", 19, 1)], [("a", 20, 1)]]


def test_running_sequences_come_before_new_prompts():
    """11: a prompt of a whole budget arrives every step, and A still gets a token in each."""
    scheduler = make()
    scheduler.add(sequence("a", 2))
    assert plan_of(scheduler) == [("a", 0, 2)]
    for i in range(4):
        scheduler.add(sequence(f"new {i}", 8))
        assert plan_of(scheduler)[0] == ("a", 2 + i, 1)


def test_what_is_left_of_the_budget_admits_the_next():
    scheduler = make()
    for name, size in (("a", 5), ("b", 5), ("c", 1)):
        scheduler.add(sequence(name, size))
    assert plan_of(scheduler) == [("a", 0, 5), ("b", 0, 3)]
    assert plan_of(scheduler) == [("a", 5, 1), ("b", 3, 2), ("c", 0, 1)]


def test_no_more_run_together_than_max_num_seqs():
    scheduler = make(seqs=2)
    many = [sequence(str(i), 1) for i in range(3)]
    for each in many:
        scheduler.add(each)
    assert [name for name, *_ in plan_of(scheduler)] == ["0", "1"]
    scheduler.remove(many[0])
    assert [name for name, *_ in plan_of(scheduler)] == ["1", "2"]


def test_admission_reserves_all_that_a_request_may_need():
    scheduler = make(blocks=6)
    first, second = sequence("first", 4, limit=9), sequence("second", 9, limit=1)  # 3 blocks each, of 5
    scheduler.add(first)
    scheduler.add(second)
    assert scheduler.blocks_needed(first) == scheduler.blocks_needed(second) == 3
    plan = scheduler.schedule()
    assert plan.admitted == (first,) and plan.waiting == 1 and len(first.blocks) == 3
    scheduler.remove(first)
    assert scheduler.schedule().admitted == (second,) and first.blocks == []


def test_prompt_logprobs_come_in_chunks_that_bound_the_logits():
    scheduler = make(budget=512, blocks=400)
    scheduler.add(sequence("a", 150, prompt_logprobs=0))
    assert [count for _ in range(3) for _, _, count in plan_of(scheduler)] == [PROMPT_LOGPROB_CHUNK, PROMPT_LOGPROB_CHUNK, 22]


@pytest.mark.parametrize("start, count, tokens", [
    (0, 2, [0, 1]), (1, 4, [1, 2, 7, 8]), (3, 1, [7]), (4, 2, [8, 9]), (0, 6, [0, 1, 2, 7, 8, 9]),
])
def test_tokens_of_a_sequence_are_prompt_then_output(start, count, tokens):
    each = sequence("a", 3)
    each.output_ids.extend([7, 8, 9])
    assert each.tokens(start, count) == tokens and each.length == 6


def test_a_timeline_knows_no_parts_before_its_end():
    timeline = Timeline(1.0, scheduled=2.0, prefill=3.0)
    with pytest.raises(ValueError):
        timeline.parts()
    timeline.finished = 10.0
    assert timeline.parts() == {"queue": 1.0, "prefill": 3.0, "stalls": 5.0, "decode": 0.0, "detokenize": 0.0, "e2e": 9.0}
    assert Timeline(1.0, finished=4.0).parts()["queue"] == 3.0
