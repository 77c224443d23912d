"""docs/theorems.md runs as shown, and its claims hold in a loop that shares nothing with ours."""

from __future__ import annotations

import doctest
import re
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "theorems.md"


def test_the_page_prints_what_it_shows():
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)
    assert len(blocks) == text.count("```python") > 0
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, PAGE.name, str(PAGE), 0)
    printed = []
    failed, tried = doctest.DocTestRunner().run(test, out=printed.append)
    assert tried > 40
    assert failed == 0, "".join(printed)


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def adjust(a, g, goal):
    """One adjustment of a towards g by angles, in the plane of both."""
    along = g / np.linalg.norm(g)
    height = a - (a @ along) * along
    if a @ along >= goal * np.linalg.norm(a):
        return a
    # The height over g stays; its length along g becomes height / tan(b).
    return height + np.linalg.norm(height) * goal / np.sqrt(1 - goal**2) * along


def a_pass(G, goals):
    """Return the adjusted updates, and each update as it was when its own turn as target came."""
    final, own = G.copy(), G.copy()
    for k in range(len(G)):
        for i, g in enumerate(G):
            if i == k:
                own[k] = final[k]
            else:
                final[k] = adjust(final[k], g, goals[k, i])
    return final, own


def later_terms(K, k, length, R):
    """Σ_i |g_i| Σ_{j>k, j≠i} R^(targets before j without i, plus 1), counted one by one."""
    total = 0.0
    for i in range(K):
        for j in range(k + 1, K):
            if j != i:
                met = [t for t in range(j) if t != i]
                total += length[i] * R ** (len(met) + 1)
    return total


def test_the_corrected_bound_of_theorem_2():
    rng = np.random.default_rng(1)
    against = needed = 0
    for _ in range(3000):
        K, width = rng.integers(2, 7), rng.integers(2, 9)
        G = rng.normal(size=(K, width)) * 10 ** rng.uniform(-1, 1, size=(K, 1))
        top = rng.uniform(0, 0.95)
        goals = rng.uniform(0, top, size=(K, K))
        final, own = a_pass(G, goals)
        direction, length = final.mean(axis=0), np.linalg.norm(G, axis=1)
        sums = [later_terms(K, k, length, 1 / np.sqrt(1 - top**2)) for k in range(K)]
        assert all(a >= b for a, b in pairwise(sums))
        for k in range(K):
            least = (-length[k] * sums[k] + min(0, G[k] @ own[k])) / K
            found = G[k] @ direction
            assert found >= least - 1e-9 * length[k] * length.max()
            against += found < 0
            needed += found < -length[k] * sums[k] / K - 1e-9
    assert against > 500  # steps against a client do occur
    assert needed > 10  # the bound without the client's own term is violated


def test_the_last_target_is_safe_from_the_others():
    rng = np.random.default_rng(2)
    for _ in range(500):
        K = rng.integers(2, 7)
        G = rng.normal(size=(K, 4))
        goals = rng.uniform(0, 0.9, size=(K, K))
        final, _ = a_pass(G, goals)
        for k in range(K - 1):
            assert cosine(final[k], G[-1]) >= goals[k, -1] - 1e-9


def test_theorem_2_two_clients():
    """Closed form at angle θ and goal angle b: ½ (sin θ / sin b)(cos b + cos(θ − b))."""
    G = np.array([[1.0, 0.0], [-0.6, 0.8]])
    final, _ = a_pass(G, np.full((2, 2), 0.5))
    angle, goal = np.arccos(-0.6), np.arccos(0.5)
    expected = np.sin(angle) / np.sin(goal) * (np.cos(goal) + np.cos(angle - goal)) / 2
    assert expected == pytest.approx(0.412, abs=5e-4)
    assert G[1] @ final.mean(axis=0) == pytest.approx(expected, rel=1e-12)


def test_theorem_2_the_last_target_conflicts():
    """Under the printed hypotheses with ε₁ = .19 < goal = .3 < ε₂ = 1."""
    G, goal = np.array([[-1.0, -1.0], [-3.0, 2.0], [3.0, 0.0]]), 0.3
    stages = [[g] for g in G]
    for k, i in product(range(3), range(3)):
        if i != k:
            before = stages[k][-1]
            assert cosine(before, G[i]) < goal  # they conflict when they meet
            stages[k].append(adjust(before, G[i], goal))
            assert cosine(stages[k][-1], G[i]) == pytest.approx(goal, abs=1e-12)
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert all(abs(cosine(a, b)) > 0.19 for a, b in product(stages[i], stages[j]))
    direction = np.mean([stage[-1] for stage in stages], axis=0)
    assert cosine(G[2], direction) == pytest.approx(-0.439, abs=5e-4)


def test_theorem_3_the_mean_objective_rises():
    """Along −d the mean objective changes at the rate −⟨mean, d⟩ > 0."""
    G = np.array([[1.0, 0.0], [-4.0, 2.0]])
    direction = a_pass(G, np.full((2, 2), 0.81))[0].mean(axis=0)
    assert cosine(G.mean(axis=0), direction) == pytest.approx(-0.145, abs=5e-4)


def test_theorem_3_what_the_proof_drops_is_negative():
    """c φ (|g_i|² + |g_j|²) + 2 c |g_i||g_j| with c > 0, for updates (1, 0) and (−4, 2)."""
    assert -4 / np.sqrt(20) * (1 + 20) + 2 * np.sqrt(20) < 0


def test_theorem_3_goal_zero_by_hand():
    """a = (0, 0), (−½, 0), (0, −½): the mean (−1/6, −1/6) against (1/3, 1/3)."""
    G = np.array([[2.0, 2.0], [-1.0, 0.0], [0.0, -1.0]])
    final, _ = a_pass(G, np.zeros((3, 3)))
    np.testing.assert_allclose(final, [[0, 0], [-0.5, 0], [0, -0.5]], atol=1e-15)


def test_theorem_3_two_clients_with_goal_zero():
    """(g₁ + g₂)·(a₁ + a₂) = (1 − φ²)(|g₁|² + |g₂|²) where φ < 0."""
    rng = np.random.default_rng(3)
    for G in rng.normal(size=(500, 2, 3)) * 10 ** rng.uniform(-2, 2, size=(500, 2, 1)):
        found = G.sum(axis=0) @ a_pass(G, np.zeros((2, 2)))[0].sum(axis=0)
        phi = cosine(*G)
        expected = (1 - phi**2) * (G**2).sum() if phi < 0 else (G.sum(axis=0) ** 2).sum()
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("other", "expected"), [((-2, 2), 0.0), ((3, 4), 0.199)], ids=["mirrored", "lemma"]
)
def test_theorem_1_by_sampling(other, expected):
    """Average the two local models' answers over drawn rows of both clients.

    The first client tolerates nothing: its cuts are at ±2, where both its groups have rate ½. The
    second tolerates nothing when mirrored, so its cuts are at ∓2, and everything in the lemma's
    example, so its cut is 0.
    """
    rng = np.random.default_rng(4)
    count = 200_000
    cuts = [(2, -2), (-2, 2) if expected == 0 else (0, 0)]
    rates = []
    for group in (0, 1):
        x = np.concatenate([rng.normal(means[group], 1, count) for means in ((2, -2), other)])
        rates.append(np.mean([x > cut[group] for cut in cuts]))
    # Four standard errors of a difference of rates, and half a unit of the number shown.
    assert rates[0] - rates[1] == pytest.approx(expected, abs=4 / np.sqrt(4 * count) + 5e-4)
