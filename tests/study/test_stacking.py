"""Safe joining: keeps a gain that is there, gives nothing away where there is none, and mixes evidence as it says."""

from __future__ import annotations

import numpy as np
import pytest

from mtlens.errors import InputError
from mtlens.study.stacking import Evidence, best_applied, judged, safe_join


def evidence(gain: float, *, rows: int = 100, seed: int = 0, offset: int = 0) -> Evidence:
    """Alone has error variance 1; joint shares half of it and has ``1 - gain`` in all."""
    random = np.random.default_rng(seed)
    y = 1.5 * random.standard_normal((rows, 1))
    common, own, other = random.standard_normal((3, rows, 1)) * np.sqrt(0.5)
    joint = np.sqrt(max(1 - gain - 0.5, 0.0) / 0.5) * other
    order = np.arange(rows)
    return Evidence(y, y + common + own, y + common + joint, order % 5, order + offset)


def test_a_clear_gain_is_kept_and_none_is_given_where_there_is_none() -> None:
    clear = safe_join({str(i): evidence(0.4, seed=i, offset=1000 * i) for i in range(10)})
    assert clear.applied and clear.gain > 0.1 and min(clear.weights.values()) > 0.5
    random = np.random.default_rng(5)
    noise = {}
    for i in range(10):
        part = evidence(0.0, seed=50 + i, offset=1000 * i)
        worse = part.alone + 0.3 * random.standard_normal(part.y.shape)
        noise[str(i)] = Evidence(part.y, part.alone, worse, part.fold, part.unit)
    lost = safe_join(noise)
    assert not lost.applied and set(lost.weights.values()) == {0.0}


def test_pure_noise_is_seldom_joined() -> None:
    """Joint differs from alone by noise of the same quality: averaging would help a little, harm must not happen."""
    random = np.random.default_rng(0)
    applied = 0
    for _ in range(200):
        y = random.standard_normal((60, 1))
        alone = 0.3 * random.standard_normal((60, 1))
        joint = alone + 0.5 * random.standard_normal((60, 1))
        rows = np.arange(60)
        applied += safe_join({"a": Evidence(y, alone, joint, rows % 5, rows)}).applied
    assert applied <= 10  # two standard errors, one-sided: about 2 % and what weights fitted to 60 rows add


def test_weights_are_half_own_and_half_pooled() -> None:
    parts = {"good": evidence(0.4, seed=1), "bad": evidence(-0.8, seed=2, offset=500)}
    ratios = {}
    sums = np.zeros(2)
    for name, part in parts.items():
        delta, error = part.joint - part.alone, part.y - part.alone
        scale = len(part.y) * ((part.y - part.y.mean()) ** 2).mean()
        mine = np.array([(delta * error).sum(), (delta**2).sum()]) / scale
        ratios[name] = max(mine[0] / mine[1], 0.0)
        sums += mine
    found = safe_join(parts, threshold=-1e9)
    for name, ratio in ratios.items():
        assert found.weights[name] == pytest.approx(np.clip(0.5 * ratio + 0.5 * sums[0] / sums[1], 0, 1))
    alone = safe_join(parts, own=1.0, threshold=-1e9)
    assert alone.weights["good"] == pytest.approx(min(ratios["good"], 1.0))


def test_gain_is_that_of_weights_from_the_other_folds() -> None:
    part = evidence(0.4, seed=3)
    total = 0.0
    for f in range(5):
        train, held = part.fold != f, part.fold == f
        delta, error = part.joint - part.alone, part.y - part.alone
        w = np.clip((delta * error)[train].sum() / (delta**2)[train].sum(), 0, 1)
        total += (error[held] ** 2).sum() - ((error - w * delta)[held] ** 2).sum()
    expected = total / ((part.y - part.y.mean()) ** 2).sum()
    assert safe_join({"a": part}).gain == pytest.approx(expected)


def test_units_and_scales_do_not_matter_and_shared_rows_count_once() -> None:
    one, two = evidence(0.3, seed=1), evidence(0.3, seed=2, offset=500)
    base = safe_join({"a": one, "b": two})
    scaled = Evidence(1e6 * two.y, 1e6 * two.alone, 1e6 * two.joint, two.fold, two.unit)
    again = safe_join({"a": one, "b": scaled})
    assert again.gain == pytest.approx(base.gain) and again.weights == pytest.approx(base.weights)
    twin = Evidence(one.y, one.alone, one.joint, one.fold, one.unit)
    apart = Evidence(one.y, one.alone, one.joint, one.fold, one.unit + 1000)
    together, separate = safe_join({"a": one, "b": twin}), safe_join({"a": one, "b": apart})
    assert together.error == pytest.approx(safe_join({"a": one}).error)
    assert separate.error == pytest.approx(together.error / np.sqrt(2), rel=0.01)


def test_identical_predictions_and_constant_labels_join_nothing() -> None:
    part = evidence(0.3)
    same = safe_join({"a": Evidence(part.y, part.alone, part.alone, part.fold, part.unit)})
    assert same.weights == {"a": 0.0} and not same.applied
    flat = np.ones_like(part.y)
    found = safe_join({"a": Evidence(flat, flat, flat + 0.1, part.fold, part.unit)})
    assert found.weights == {"a": 0.0}


def test_what_is_promised_pays_for_the_choice() -> None:
    """Eight equally good ways of joining: the largest held-out gain flatters, the procedure's is near the truth."""
    random = np.random.default_rng(1)
    share, rows = 0.2, np.arange(80)  # of the error variance, 1, that another model does not share
    found = []
    for _ in range(100):
        y, common = 1.5 * random.standard_normal((80, 1)), np.sqrt(1 - share) * random.standard_normal((80, 1))
        alone = y + common + np.sqrt(share) * random.standard_normal((80, 1))
        others = y + common + np.sqrt(share) * random.standard_normal((8, 80, 1))
        ways = {way: {"a": Evidence(y, alone, other, rows % 5, rows)} for way, other in enumerate(others)}
        joins = {way: safe_join(parts) for way, parts in ways.items()}
        best = best_applied(joins)
        if best is not None:
            weight = joins[best].weights["a"]
            true = (share - share * ((1 - weight) ** 2 + weight**2)) / 1.5**2
            found.append((joins[best].gain, judged(ways).gain, true))
    largest, promised, true = np.mean(found, axis=0)
    assert len(found) > 20 and largest > 2.5 * true
    assert abs(promised - true) < 0.3 * (largest - true)


def test_judged_is_the_choice_of_the_other_folds_in_plain_words() -> None:
    ways = {
        way: {"a": evidence(gain, seed=3), "b": evidence(0.1, seed=4, rows=60, offset=500)}
        for way, gain in (("one", 0.35), ("two", 0.4), ("bad", -0.6))
    }
    total = dict.fromkeys("ab", 0.0)
    for fold in range(5):
        rest = {
            way: {
                n: Evidence(*(getattr(p, f)[p.fold != fold] for f in ("y", "alone", "joint", "fold", "unit")))
                for n, p in parts.items()
            }
            for way, parts in ways.items()
        }
        found = {way: safe_join(parts) for way, parts in rest.items()}
        best = max((way for way in found if found[way].applied), key=lambda way: found[way].gain)
        for name, part in ways[best].items():
            moved = part.alone + found[best].weights[name] * (part.joint - part.alone)
            errors = [((part.y - p)[part.fold == fold] ** 2).sum() for p in (part.alone, moved)]
            total[name] += (errors[0] - errors[1]) / ((part.y - part.y.mean()) ** 2).sum()
    gained = judged(ways)
    assert gained.own_gains == pytest.approx(total) and gained.gain == pytest.approx(sum(total.values()) / 2)
    alone = {"one": {"a": ways["one"]["a"]}}
    assert judged(alone).gain == pytest.approx(safe_join(alone["one"]).gain)


def test_a_difference_of_gains_is_paired() -> None:
    one, two = safe_join({"a": evidence(0.4, seed=3)}).found, safe_join({"a": evidence(0.3, seed=3)}).found
    difference, error = one.less(two)
    assert difference == pytest.approx(one.gain - two.gain)
    rows = one.by_unit - two.by_unit
    assert error == pytest.approx(np.sqrt(len(rows)) * rows.std(ddof=1))
    assert one.less(one) == (0.0, 0.0)


def test_mistakes_are_refused() -> None:
    part = evidence(0.3)
    with pytest.raises(InputError, match="finite"):
        Evidence(part.y, part.alone * np.nan, part.joint, part.fold, part.unit)
    with pytest.raises(InputError, match="at least one task"):
        safe_join({})
