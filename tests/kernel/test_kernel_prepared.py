from mgg.kernel import prepared_launches as prepared
from mgg.kernel.prepared_launches import Prepared


def test_prepared_launches_are_cached_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(prepared, "KEPT", 2)
    made, kept = [], Prepared()

    def ask(key):
        return kept.of((key,), lambda: made.append(key) or f"launch {key}")

    assert [ask(key) for key in (1, 2, 1, 2)] == ["launch 1", "launch 2", "launch 1", "launch 2"]
    assert made == [1, 2]
    ask(3)
    assert ask(3) == "launch 3"
    ask(1)
    assert made == [1, 2, 3, 1]
    kept.clear()
    ask(1)
    assert made == [1, 2, 3, 1, 1]
