"""The mixed model, against statsmodels."""

import numpy as np
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

from rl_qg.stats.intervals import Floats, Ints
from rl_qg.stats.mixed_model import fit_mixed_model

NAMES = ("a", "b", "c")


def crossed(seed: int, raters: int = 12, items: int = 15, each: int = 5) -> tuple[Floats, Floats, Ints, Ints]:
    rng = np.random.default_rng(seed)
    rater = np.repeat(np.arange(raters), each * 3)
    item = np.concatenate([np.repeat(rng.choice(items, each, replace=False), 3) for _ in range(raters)])
    system = np.tile(np.arange(3), raters * each)
    kept = rng.random(len(rater)) < 0.8  # not balanced
    noise = rng.normal(0, 8, raters)[rater] + rng.normal(0, 5, items)[item] + rng.normal(0, 10, len(rater))
    scores = 50 + 3 * system + noise
    return scores[kept], np.eye(3)[system[kept]], rater[kept], item[kept]


@pytest.mark.parametrize("seed", [0, 1])
def test_estimates_are_those_of_statsmodels(seed: int) -> None:
    scores, member, rater, item = crossed(seed)
    model = fit_mixed_model(scores, member, NAMES, rater, item)
    assert model is not None
    columns = [np.eye(of.max() + 1)[of] for of in (rater, item)]
    names = [[[str(level) for level in range(one.shape[1])]] for one in columns]
    parts = VCSpec(["rater", "item"], names, [[one] for one in columns])
    other = MixedLM(scores, member, groups=np.ones(len(scores)), exog_vc=parts).fit(
        reml=True, method=["nm"], maxiter=2000, ftol=1e-12
    )  # its gradients do not converge on some of these data
    assert model.means == pytest.approx(other.fe_params, rel=1e-5)
    # its errors are of the Hessian of all parameters; the covariance that is meant is compared below
    assert [model.error(at) for at in range(3)] == pytest.approx(other.bse[:3], rel=3e-3)
    assert [model.rater_sd, model.item_sd] == pytest.approx(np.sqrt(other.vcomp), rel=1e-4)
    assert model.residual_sd == pytest.approx(np.sqrt(other.scale), rel=1e-4)
    assert model.log_likelihood == pytest.approx(other.llf, abs=1e-6)
    test = other.t_test(np.array([[1.0, -1, 0]]))
    value, error, p = model.contrast(0, 1)
    assert value == pytest.approx(test.effect[0], rel=1e-5)
    assert (error, p) == pytest.approx((test.sd[0, 0], float(test.pvalue)), rel=5e-3)


def test_no_other_variances_are_more_likely() -> None:
    """The restricted likelihood from the whole covariance matrix of all scores, at the estimates and around them."""
    scores, x, rater, item = crossed(5)
    model = fit_mixed_model(scores, x, NAMES, rater, item)
    assert model is not None and model.rater_sd is not None and model.item_sd is not None

    def covariance(of_raters: float, of_items: float, rest: float) -> Floats:
        v = of_raters**2 * (rater[:, None] == rater) + of_items**2 * (item[:, None] == item)
        return np.asarray(v + rest**2 * np.eye(len(scores)))

    def likelihood(*sds: float) -> float:
        v = covariance(*sds)
        weighted = np.linalg.solve(v, np.column_stack([x, scores]))
        information = x.T @ weighted[:, :3]
        gaps = scores - x @ np.linalg.solve(information, x.T @ weighted[:, 3])
        parts = np.linalg.slogdet(v)[1] + np.linalg.slogdet(information)[1] + gaps @ np.linalg.solve(v, gaps)
        return float(-(parts + (len(scores) - 3) * np.log(2 * np.pi)) / 2)

    best = (model.rater_sd, model.item_sd, model.residual_sd)
    assert likelihood(*best) == pytest.approx(model.log_likelihood, abs=1e-8)
    expected = np.linalg.inv(x.T @ np.linalg.solve(covariance(*best), x))
    assert model.covariance == pytest.approx(expected, rel=1e-8)
    for at in range(3):
        for change in (0.98, 1.02):
            other = [sd * change if at == number else sd for number, sd in enumerate(best)]
            assert likelihood(*other) < model.log_likelihood


def test_balanced_data_have_the_means_of_the_cells() -> None:
    rater, item = np.repeat(np.arange(6), 12), np.tile(np.repeat(np.arange(4), 3), 6)
    member = np.eye(3)[np.tile(np.arange(3), 24)]
    scores = np.random.default_rng(3).normal(size=72) + rater
    model = fit_mixed_model(scores, member, NAMES, rater, item)
    assert model is not None and model.means == pytest.approx(member.T @ scores / 24)


def test_units_and_missing_scores() -> None:
    scores, member, rater, item = crossed(2)
    model, tenth = (fit_mixed_model(scale * scores, member, NAMES, rater, item) for scale in (1.0, 0.1))
    assert model is not None and tenth is not None
    assert tenth.means * 10 == pytest.approx(model.means) and tenth.error(0) * 10 == pytest.approx(model.error(0))
    with_gaps = np.concatenate([scores, [np.nan]])
    again = fit_mixed_model(with_gaps, np.vstack([member, member[:1]]), NAMES, np.append(rater, 0), np.append(item, 0))
    assert again is not None and again.n == model.n and again.means == pytest.approx(model.means)
    lacking = fit_mixed_model(scores, np.column_stack([member, np.zeros(len(scores))]), (*NAMES, "d"), rater, item)
    assert lacking is not None and np.isnan(lacking.means[3]) and lacking.means[:3] == pytest.approx(model.means)


def test_factors_that_cannot_be_told_apart_are_left_out() -> None:
    scores, member, rater, _ = crossed(4)
    same = fit_mixed_model(scores, member, NAMES, rater, rater)
    assert same is not None and same.item_sd is None and same.rater_sd is not None
    one = fit_mixed_model(scores, member, NAMES, np.zeros_like(rater), np.arange(len(scores)))
    assert one is not None and one.rater_sd is None and one.item_sd is None
    assert one.means == pytest.approx(member.T @ scores / member.sum(axis=0))


def test_too_little_to_fit() -> None:
    nothing = np.zeros(2, dtype=int)
    assert fit_mixed_model(np.array([1.0, 2]), np.eye(2), ("a", "b"), nothing, nothing) is None
    assert fit_mixed_model(np.ones(4), np.ones((4, 1)), ("a",), np.arange(4), np.arange(4)) is None


@pytest.mark.parametrize(("raters", "items"), [(2, 5), (4, 30), (6, 10)])
def test_raters_who_agree_in_full_leave_no_error_to_compare_with(raters: int, items: int) -> None:
    rater, item = np.repeat(np.arange(raters), items), np.tile(np.arange(items), raters)
    scores = np.random.default_rng(0).permutation(items)[item].astype(np.float64)
    assert fit_mixed_model(scores, np.eye(2)[item % 2], ("a", "b"), rater, item) is None


def test_a_system_without_a_score_differs_from_none() -> None:
    scores, member, rater, item = crossed(3)
    model = fit_mixed_model(scores, np.column_stack([member, np.zeros(len(scores))]), (*NAMES, "nobody"), rater, item)
    assert model is not None and np.isnan(model.contrast(0, 3)).all()  # p was 0
