"""The search of MGG's section 6 under a fake clock: every branch, worked out by hand."""

import pytest

from mgg.tune.search import BUDGET, VALUES, Search, best_of, noise_of, worse
from mgg.tune.setting import START, Setting


def sought(clock, **asked):
    return Search(**asked).run(lambda setting: [clock(*setting)])


def slope(ps=1, dist=1, wpb=1):
    """A clock that is fastest at one setting, and slower with every doubling away from it."""

    def clock(*at):
        away = (abs(mine.bit_length() - best.bit_length()) for mine, best in zip(at, (ps, dist, wpb), strict=True))
        return 1.0 + sum(away)

    return clock


def test_each_parameter_rises_until_the_time_does():
    tried = sought(slope(4, 2, 2))
    assert list(tried)[:8] == [
        (1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (4, 2, 1), (4, 4, 1), (4, 2, 2), (4, 2, 4),
    ]  # fmt: skip
    assert best_of(tried) == (4, 2, 2)


def test_ps_is_reduced_and_wpb_rises_again():
    tried = sought(slope(4, 2, 2))
    # The three lowest are 1, 2 and 2; at ps = 2 the rise ends at 2, no worse, and at ps = 1 at 3: the end.
    assert list(tried)[8:] == [(2, 2, 1), (2, 2, 2), (2, 2, 4), (1, 2, 1), (1, 2, 2), (1, 2, 4)]


def test_search_ends_when_reducing_ps_exceeds_the_third_lowest_time():
    base = {1: 10.0, 2: 9.0, 4: 8.0, 8: 5.0, 16: 6.0}
    tried = sought(lambda ps, dist, wpb: base[ps] + 2 * (dist > 1) + 2 * (wpb > 1))
    # The three lowest are 5, 6 and 7 when ps goes back to 4, which gives 8: ps = 2 is not gone back to.
    rises = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (16, 1, 1), (8, 2, 1), (8, 1, 2)]
    assert list(tried) == [*rises, (4, 1, 2)]


def test_ps_of_one_is_not_reduced():
    tried = sought(slope())
    assert list(tried) == [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)]


def test_highest_value_ends_a_rise():
    tried = sought(lambda ps, dist, wpb: 1 / (ps * dist * wpb), budget=None)
    assert Setting(32, 16, 16) == best_of(tried) and len(tried) > 14


@pytest.mark.parametrize("last", [None, Setting(32, 16, 4), Setting(2, 1, 1)])
@pytest.mark.parametrize("budget", [1, 4, BUDGET])
def test_budget_includes_the_last_trial(budget, last):
    tried = sought(slope(32, 16, 2), budget=budget, last=last)
    assert len(tried) <= budget
    assert last is None or last in tried
    assert budget == 1 or START in tried


def test_result_is_never_slower_than_the_last_trial():
    """A hollow that the walk does not come by."""
    tried = sought(lambda *at: 0.5 if at == (32, 16, 4) else slope()(*at), last=Setting(32, 16, 4))
    assert list(tried)[-1] == best_of(tried) == (32, 16, 4)


def test_impossible_settings_are_skipped():
    able = lambda at: at.wpb <= 2 and at.ps != 4  # noqa: E731
    tried = sought(slope(8, 1, 16), able=able, last=Setting(32, 16, 4))
    assert all(able(at) for at in tried) and (8, 1, 1) in tried and (8, 1, 2) in tried
    assert sought(slope(), able=lambda at: at != START) == {}


def test_time_is_worse_only_beyond_the_spread():
    times = {(1, 1, 1): [1.0, 1.1, 1.2], (2, 1, 1): [1.1, 1.15, 1.2], (4, 1, 1): [0.5, 0.5, 0.5]}
    slow = [9.0, 9.0, 9.0]
    tried = Search().run(lambda at: times.get(at, slow))
    # 2 is slower than 1 by 5 %, and times of one setting differ by 7 %: the rise goes on to 4.
    assert (4, 1, 1) in tried
    assert (4, 1, 1) not in Search().run(lambda at: times.get(at, slow)[1:2]), "of one time each nothing is known"


def test_noise_is_the_median_of_relative_quartile_distances():
    times = {START: [1.0, 2.0, 3.0], Setting(2, 1, 1): [4.0, 4.0, 4.0], Setting(4, 1, 1): [1.0]}
    assert noise_of(times, list(times)) == 0.25
    assert noise_of(times, [Setting(4, 1, 1)]) == 0.0
    assert worse([1.3], [1.0], 0.25) and not worse([1.25], [1.0], 0.25)


def test_rise_continues_from_its_fastest_value():
    """ps 4 is slower than 2 within the noise, and 8 beyond it: dist rises from ps = 2."""
    times = {(1, 1, 1): [2.0, 2.4, 2.8], (2, 1, 1): [1.0, 1.2, 1.4], (4, 1, 1): [1.1, 1.3, 1.5]}
    tried = Search().run(lambda at: times.get(at, [9.0, 9.0, 9.0]))
    assert (2, 2, 1) in tried and (4, 2, 1) not in tried


def test_search_resumes_from_its_times():
    clock, search = slope(4, 4, 2), Search(last=Setting(32, 16, 4))
    whole = search.run(lambda at: [clock(*at)])
    order = list(whole)
    for done in range(len(order)):
        kept = {at: whole[at] for at in order[:done]}
        assert Search(last=Setting(32, 16, 4)).following(kept) == order[done]
    assert search.following(whole) is None
    assert search.path(whole) == order[:-1]


def test_values_double_like_the_papers():
    assert {knob: (min(each), max(each)) for knob, each in VALUES.items()} == {
        "ps": (1, 32), "dist": (1, 16), "wpb": (1, 16)
    }  # fmt: skip
    assert all(each == tuple(2**power for power in range(len(each))) for each in VALUES.values())
