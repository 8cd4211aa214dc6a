"""The lab's small tools: predictions, tables, records, pictures, sliders, live source."""

from types import SimpleNamespace

import numpy as np
import pytest

import tinyserve.lab as lab
import tinyserve.lab.gpu as lab_gpu
from tinyserve.bench.records import Record
from tinyserve.errors import CorruptCheckpoint, InvalidRequest
from tinyserve.lab.race import Race


def test_a_prediction_is_compared_with_the_measurement():
    lab.predict("speed", 100)
    assert "predicted 100, measured 200, a factor of 2.00" in lab.explain("speed", 200)
    assert "That is close." in lab.explain("speed", 110)
    assert "no prediction" in lab.explain("never_guessed", 1)


@pytest.mark.parametrize("value", [0, -1, float("nan"), "many"])
def test_a_prediction_is_a_positive_number(value):
    assert "positive number" in lab.predict("x", value)


def test_a_race_compares_pair_by_pair():
    race = Race({"one": [1.0, 2.0, 4.0], "other": [2.0, 4.0, 8.0]}, "ms", 1e3, {})
    assert race.seconds("one") == 2.0 and race.ratio("other") == 2.0
    assert "2.00" in repr(race) and "<table>" in race._repr_html_()


def test_sides_take_turns():
    order = []
    lab.race({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2)
    assert order == ["a", "b", "a", "b", "b", "a"]


def test_a_record_is_shown_with_its_provenance_or_said_to_be_missing(tmp_path):
    assert "none recorded yet" in repr(lab.record("peers", tmp_path))
    where = dict(date="2026-12-01T10:00:00", commit="0123456789ab", machine={"cpu": "a processor"})
    Record("peers", [{"side": "us", "tok/s": 1.5}], {}, **where).save(tmp_path)
    shown = repr(lab.record("peers", tmp_path))
    assert "1.5" in shown and "2026-12-01T10:00:00, a processor, commit 012345678" in shown
    (tmp_path / "peers-3.json").write_text("{")
    with pytest.raises(CorruptCheckpoint, match="peers-3.json"):
        lab.record("peers", tmp_path)


def test_pictures_are_small_and_say_what_they_show():
    pictures = [lab.figures.request_timeline([0.1, 0.2, 0.3]), lab.figures.weight_bytes({"a": 1e6, "b": 2e6}),
                lab.figures.token_pieces(["a", " b"], [1, 2]), lab.figures.pass_cost([1, 2], [0.1, 0.2]),
                lab.figures.roofline(1e9, 1e11, {"x": (2.0, 1e9)}), lab.figures.cache_memory([0, 10], {"x": 100.0}, 500.0),
                lab.figures.cache_layout(10), lab.figures.cost_without_cache([1, 2], [0.1, 0.2], [0.1, 0.1]),
                lab.figures.running_softmax([1.0, 2.0], 1), lab.figures.tile_walk(3),
                lab.figures.attention_bytes([1, 2], {"x": [1e6, 2e6]}), lab.figures.split_schedule(4),
                lab.figures.nibble_word(0x12345678), lab.figures.thread_map(20), lab.figures.banks(33),
                lab.figures.warp_request(8), lab.figures.product_tiles(1), lab.figures.fragments(31),
                lab.figures.kernel_step([STEP], 0)]
    for picture in pictures:
        data, metadata = picture._repr_mimebundle_()
        assert len(data["image/png"]) < 100_000 * 4 / 3
        assert len(metadata["image/png"]["alt"]) > 20


STEP = SimpleNamespace(name="syncthreads", line="a.py:3", threads=(0, 1), waits=("syncthreads a.py:3",) * 2 + ("",),
                       shared={"tile": np.array([1.5, np.nan], np.float32)})


def test_pictures_of_kernels_tell_values_worked_out_by_hand():
    figures = lab.figures
    assert "owns element 8 b + t; the last 4 threads have no element" in figures.thread_map(20).alt
    assert "lie in 4 sectors of 32 bytes, 100%" in figures.warp_request(1).alt
    assert "lie in 32 sectors of 32 bytes, 12%" in figures.warp_request(8).alt
    assert [next(part for part in figures.banks(width).alt.split(": ") if "pass" in part) for width in (32, 33, 34, 40)] == [
        "32 passes to read it.", "1 pass to read it.", "2 passes to read it.", "8 passes to read it."]
    assert "lane 6 holds, as (row, column), A [(1, 4), (1, 5), (9, 4), (9, 5), (1, 12)" in figures.fragments(6).alt  # the PTX manual's
    assert "tile (1, 1) of a and tile (1, 2) of b" in figures.product_tiles(1).alt
    told = figures.kernel_step([STEP], 0).alt
    assert "2 threads wait at syncthreads a.py:3; 1 threads have left. tile begins 1.5, nan." in told


def test_pictures_of_attention_tell_values_worked_out_by_hand():
    assert "m = 2   l = 1.000 × 0.368 + 1.000 = 1.368" in lab.figures.running_softmax([1.0, 2.0], 2).alt
    assert "Tile 3 of 3: queries 1 against keys 1" in lab.figures.tile_walk(9, rows=2, keys=2).alt
    assert "done after 100 keys' time, merge included; 68%" in lab.figures.split_schedule(1, 68, groups=1, processors=1).alt
    assert "done after 166 keys'" in lab.figures.split_schedule(2, 4, groups=1, processors=2).alt  # 32 + 2 for a part, 128 + 2 * 2 to merge
    assert "1 for column 0, 0 for column 1, 0 for column 2, 0 for column 3, 2 for column 4" in lab.figures.nibble_word(0x21).alt


def test_the_layout_follows_the_block_table():
    assert "block table [3, 1, 6]; 2 slots of the last block are empty" in lab.figures.cache_layout(10).alt


def test_a_slider_redraws_its_picture():
    box = lab.slider(lab.figures.cache_layout, "tokens", [3, 5], 3)
    control, picture = box.children
    before = picture.value
    control.value = 5
    assert picture.value != before and picture.value == lab.figures.cache_layout(5).data


def test_gpu_timings_come_from_a_process_of_their_own_or_from_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr(lab_gpu.machine, "gpu", lambda: "none: no driver")
    assert "none recorded yet" in repr(lab.gpu_ladder(tmp_path))
    monkeypatch.setattr(lab_gpu.machine, "gpu", lambda: "a card")
    ran = []

    def run(command, **options):
        ran.append(command[1:])
        assert "NUMBA_ENABLE_CUDASIM" not in options["env"]
        Record("cuda-ladder", [{"kernel": "vector_add", "µs": 2.5}], {}, machine={"gpu": "a card"}).save(tmp_path)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setattr(lab_gpu.subprocess, "run", run)
    shown = repr(lab.gpu_ladder(tmp_path))
    assert ran == [["-m", "tinyserve.bench.cuda_ladder"]] and "vector_add  2.5" in shown and "a card, commit" in shown
    monkeypatch.setattr(lab_gpu.subprocess, "run", lambda *a, **b: SimpleNamespace(returncode=1, stderr="Traceback\nWrongResult: no good"))
    assert "WrongResult: no good" in repr(lab.gpu_ladder(tmp_path))


def test_setup_carries_a_banner_where_kernels_are_simulated(monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "ENABLE_CUDASIM", 1)
    assert "SIM: simulated on this processor" in repr(lab.setup("00"))
    monkeypatch.setattr(numba.config, "ENABLE_CUDASIM", 0)
    assert "SIM" not in repr(lab.setup("00"))


def test_source_is_live():
    from tinyserve.text.stopping import StopMatcher

    assert "class StopMatcher" in repr(lab.show_source(StopMatcher))
    assert "tinyserve.text.stopping.StopMatcher" in lab.show_source(StopMatcher)._repr_html_()


def test_kernels_show_their_python():
    from tinyserve.kernels.cpu.elementwise import rms_norm

    assert "def rms_norm" in repr(lab.show_source(rms_norm))


def test_setup_says_what_it_runs_on_and_refuses_unknown_sizes(monkeypatch):
    monkeypatch.delenv("TINYSERVE_SIZE", raising=False)
    assert "chapter" in repr(lab.setup("00")) and lab.sizes(dict(n=1), dict(n=2)).n == 1
    lab.setup("00", "full")
    assert lab.sizes(dict(n=1), dict(n=2)).n == 2
    with pytest.raises(InvalidRequest, match="tiny, full"):
        lab.setup("00", "huge")
    lab.setup("00")
