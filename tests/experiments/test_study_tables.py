from __future__ import annotations

import io
import math

import pandas as pd
import pytest

from mfairfl.experiments.study_results import csv_of
from mfairfl.experiments.study_tables import write_latex, write_markdown
from mfairfl.experiments.tabulate import tabulate
from table_runs import DP, EO, PLAIN, cells, example_runs, layout, runs

# Of the paper's Table 1, by hand.
PUBLISHED = {
    ("adult", "high", strategy, metric, ""): value
    for strategy, *values in (
        ("fedavg-f", 0.706, 0.224, 0.232),
        ("fedfb", 0.779, 0.014, 0.058),
        ("mfairfl", 0.792, 0.012, 0.036),
    )
    for metric, value in zip(("accuracy", DP, "client_accuracy_std"), values, strict=True)
}


def cell(long, strategy, metric, **where):
    where = {"strategy": strategy, "metric": metric, "attribute": "", **where}
    found = long
    for name, value in where.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


@pytest.fixture
def example():
    return example_runs()


def two_degrees(t):
    """P(|T| > t) of Student's distribution with two degrees of freedom."""
    return 1 - t / math.sqrt(2 + t * t)


def test_means_tests_and_marks_by_hand(example):
    long = tabulate(example, layout("fedavg-f"))
    own = cell(long, "mfairfl", "accuracy")
    assert (own["mean"], own["std"], own["n"], own["mark"]) == pytest.approx((0.841, 0.001, 3, ""))
    assert math.isnan(own["t_p"])
    accuracy = cell(long, "fedavg-f", "accuracy")
    assert accuracy["mark"] == "•"
    assert accuracy["pairs"] == 3
    assert accuracy["difference"] == pytest.approx(0.031)
    assert accuracy["effect"] == pytest.approx(31)
    assert accuracy["t_p"] == pytest.approx(two_degrees(31 * math.sqrt(3)))
    assert accuracy["wilcoxon_p"] == 0.25
    violation = cell(long, "fedavg-f", DP)
    assert violation["mark"] == "•"
    assert violation["difference"] == pytest.approx(-0.025)
    assert violation["t_p"] == pytest.approx(two_degrees(5 * math.sqrt(3)))


def test_holm_counts_the_tests_of_the_whole_table(example):
    # Tested: accuracy, violation, CF std, CF gap, balanced accuracy, train violation.
    long = tabulate(example, layout("fedavg-f"))
    assert long["t_p"].notna().sum() == 6
    accuracy, violation = (cell(long, "fedavg-f", name) for name in ("accuracy", DP))
    assert accuracy["holm_p"] == pytest.approx(6 * accuracy["t_p"])
    assert violation["holm_p"] == pytest.approx(5 * violation["t_p"])
    assert violation["t_p"] < 0.05 < violation["holm_p"]


def test_holm_is_over_one_protocol_and_all_data(example):
    other = example.assign(protocol="40x5")
    compas = example.assign(data="compas")
    frame = pd.concat([example, other, compas])
    both = layout("fedavg-f", protocols=("10x20", "40x5"), data=("adult", "compas"))
    long = tabulate(frame, both)
    alone = cell(long, "fedavg-f", "accuracy", protocol="40x5", data="adult")
    shared = cell(long, "fedavg-f", "accuracy", protocol="10x20", data="adult")
    assert alone["holm_p"] == pytest.approx(6 * alone["t_p"])
    assert shared["holm_p"] == pytest.approx(12 * shared["t_p"])


def test_a_circle_where_the_reference_is_worse():
    frame = pd.DataFrame(
        [
            *runs("mfairfl", accuracy=[0.80, 0.81, 0.82], client_accuracy_gap=0.07),
            *runs("fedfb", accuracy=[0.83, 0.84, 0.85], balanced_accuracy=0.6),
        ]
    )
    long = tabulate(frame, layout("fedfb"))
    marks = {name: cell(long, "fedfb", name)["mark"] for name in PLAIN if EO not in name}
    assert {name: mark for name, mark in marks.items() if mark} == {
        "accuracy": "∘",
        "client_accuracy_gap": "∘",
        "balanced_accuracy": "•",
    }


def test_floor_and_frontier_are_not_tested():
    better = {f"floor_{DP}": 0.5, f"frontier_{DP}": 0.5, "floor_client_accuracy_std": 0.5}
    frame = pd.DataFrame([*runs("mfairfl"), *runs("fedfb", **better)])
    long = tabulate(frame, layout("fedfb"))
    for name in better:
        found = cell(long, "fedfb", name)
        assert found["mean"] == 0.5
        assert math.isnan(found["t_p"])


def test_only_seeds_that_both_have_are_compared():
    frame = pd.DataFrame(
        [
            *runs("mfairfl", accuracy=[0.81, 0.82, 0.83]),
            *runs("fedfb", first=1, accuracy=[0.80, 0.80, 0.10]),
        ]
    )
    found = cell(tabulate(frame, layout("fedfb")), "fedfb", "accuracy")
    assert (found["n"], found["pairs"]) == (3, 2)
    assert found["difference"] == pytest.approx(0.025)


def test_a_model_without_a_notion_serves_all():
    notions = ("demographic_parity", "equalized_odds")
    frame = pd.DataFrame(
        [
            *runs("mfairfl", notions[0], accuracy=0.83),
            *runs("mfairfl", notions[1], accuracy=0.82),
            *runs("fedavg", "", accuracy=0.85, **{DP: 0.1, EO: 0.2}),
        ]
    )
    long = tabulate(frame, layout("fedavg", notions=notions))
    assert [cell(long, "fedavg", "accuracy", notion=n)["mean"] for n in notions] == [0.85, 0.85]
    assert [cell(long, "mfairfl", "accuracy", notion=n)["mean"] for n in notions] == [0.83, 0.82]
    assert cell(long, "fedavg", EO)["mean"] == pytest.approx(0.2)


def test_an_unconstrained_run_does_not_stand_in_for_a_missing_one():
    frame = pd.DataFrame([*runs("mfairfl", "equalized_odds"), *runs("mfairfl", "", accuracy=0.9)])
    long = tabulate(frame, layout())
    assert cell(long, "mfairfl", "accuracy")["runs"] == 0
    long = tabulate(frame, layout(notions=()))
    assert cell(long, "mfairfl", "accuracy")["mean"] == pytest.approx(0.9)


def test_main_table_text(example):
    shown = layout("fedavg-f")
    written = write_markdown(tabulate(example, shown, PUBLISHED), shown)
    head = "| method | DP: accuracy | DP: violation | DP: CF std |"
    assert head in written
    assert cells(written, "fedavg-f") == [
        ".810 ± .000 •• (.706)",
        ".030 ± .000 • (.224)",
        ".020 ± .000 (.232)",
    ]
    assert cells(written, "mfairfl")[0] == ".841 ± .001 (.792)"
    assert "paired t-test, 95 %" in written
    assert "Holm" in written


def test_second_table_text():
    frame = pd.DataFrame(
        [
            *runs("mfairfl"),
            *runs(
                "fedfb",
                balanced_accuracy=[0.71, 0.72, 0.73],
                **{f"train_{DP}": [0.01, 0.02, 0.03], f"frontier_{DP}": 0.91},
            ),
        ]
    )
    written = write_markdown(tabulate(frame, layout("fedfb")), layout("fedfb"))
    assert (
        "| method | DP: balanced accuracy | DP: ROC-AUC | DP: log-loss | DP: calibration error "
        "| DP: CF gap | DP: CF std floor | DP: train violation | DP: violation floor "
        "| DP: largest violation at a client | DP: frontier |" in written
    )
    assert cells(written, "fedfb", table=1) == [
        ".720 ± .010",
        ".750 ± .000",
        ".500 ± .000",
        ".030 ± .000",
        ".060 ± .000",
        ".010 ± .000",
        ".020 ± .010",
        ".010 ± .000",
        ".040 ± .000",
        ".910 ± .000",
    ]


def test_published_numbers_stand_beside_their_split_only(example):
    frame = pd.concat([example, example.assign(split="low")])
    shown = layout("fedavg-f", splits=("high", "low"))
    long = tabulate(frame, shown, PUBLISHED)
    assert cell(long, "fedavg-f", "accuracy", split="high")["published"] == 0.706
    assert long.loc[long["split"] == "low", "published"].isna().all()
    written = write_markdown(long, shown)
    assert cells(written, "mfairfl", table=2)[0] == ".841 ± .001"


def test_client_fairness_does_not_apply_to_every_method():
    frame = pd.DataFrame([*runs("mfairfl"), *runs("indfair"), *runs("cenfair")])
    shown = layout("indfair", "cenfair", without_clients=("indfair", "cenfair"))
    long = tabulate(frame, shown)
    # Four tests each: not CF std and not CF gap.
    assert long["t_p"].notna().sum() == 8
    for name in ("indfair", "cenfair"):
        assert cells(write_markdown(long, shown), name)[2] == "-"


def test_missing_runs():
    frame = pd.DataFrame([*runs("mfairfl", seeds=5), *runs("fedfb", seeds=3)])
    shown = layout("fpfl", "fedfb")
    written = write_markdown(tabulate(frame, shown, PUBLISHED), shown)
    assert cells(written, "fpfl") == ["", "", ""]
    assert cells(written, "fedfb")[0] == ".800 ± .000 (.779) n=3"
    assert cells(written, "mfairfl")[0] == ".800 ± .000 (.792)"


def test_missing_reference():
    shown = layout("fedfb")
    long = tabulate(pd.DataFrame(runs("fedfb")), shown, PUBLISHED)
    assert long["t_p"].isna().all()
    written = write_markdown(long, shown)
    assert cells(written, "fedfb")[0] == ".800 ± .000 (.779)"


def test_one_seed_has_neither_deviation_nor_test():
    frame = pd.DataFrame([*runs("mfairfl", seeds=1), *runs("fedfb", seeds=1, accuracy=0.5)])
    long = tabulate(frame, layout("fedfb"))
    assert cells(write_markdown(long, layout("fedfb")), "fedfb")[0] == ".500"
    assert cell(long, "fedfb", "accuracy")["pairs"] == 0


def test_undefined_numbers():
    nan = math.nan
    frame = pd.DataFrame(
        [*runs("mfairfl"), *runs("fedfb", accuracy=[0.7, nan, 0.8], balanced_accuracy=nan)]
    )
    long = tabulate(frame, layout("fedfb"))
    assert cell(long, "fedfb", "accuracy")["mean"] == pytest.approx(0.75)
    written = write_markdown(long, layout("fedfb"))
    assert cells(written, "fedfb")[0].endswith("n=2")
    assert cells(written, "fedfb", table=1)[0] == "undefined"


def test_violation_by_attribute():
    mine = {f"{DP}[sex]": [0.01, 0.02, 0.03], f"{DP}[age]": 0.04, DP: 0.04}
    theirs = {f"{DP}[sex]": [0.05, 0.07, 0.09], f"{DP}[age]": 0.02, DP: [0.05, 0.07, 0.09]}
    frame = pd.DataFrame([*runs("mfairfl", **mine), *runs("fedfb", **theirs)])
    shown = layout("fedfb", attributes={"adult": ("sex", "age")})
    place = ("adult", "high", "fedfb", DP)
    long = tabulate(frame, shown, {(*place, "sex"): 0.011, (*place, "age"): 0.010})
    sex = cell(long, "fedfb", DP, attribute="sex")
    # Differences −.04, −.05, −.06: mean −.05, deviation .01, t = 5√3.
    assert sex["mean"] == pytest.approx(0.07)
    assert sex["t_p"] == pytest.approx(two_degrees(5 * math.sqrt(3)))
    assert (sex["mark"], sex["published"]) == ("•", 0.011)
    age = cell(long, "fedfb", DP, attribute="age")
    assert (age["mark"], age["published"]) == ("∘", 0.010)
    assert math.isnan(cell(long, "fedfb", DP)["t_p"])
    written = write_markdown(long, shown)
    assert "| DP: accuracy | DP: violation, sex | DP: violation, age | DP: CF std |" in written
    assert cells(written, "fedfb")[1:3] == [".070 ± .020 • (.011)", ".020 ± .000 ∘∘ (.010)"]
    assert "DP: largest violation" in written


def test_table_of_client_fairness_alone():
    frame = pd.DataFrame(
        [
            *runs("mfairfl", "", accuracy=0.86, client_accuracy_std=0.02),
            *runs("ditto", "", accuracy=[0.84, 0.85, 0.86]),
        ]
    )
    shown = layout("ditto", notions=())
    long = tabulate(frame, shown)
    assert not long["metric"].str.contains("parity|odds").any()
    written = write_markdown(long, shown)
    assert "| method | accuracy | CF std |\n" in written
    assert cells(written, "ditto") == [".850 ± .010", ".020 ± .000"]


def test_sections_stand_between_the_title_and_the_tables(example):
    shown = layout("fedavg-f")
    written = write_markdown(tabulate(example, shown), shown, sections=["## Mine", "Text."])
    assert written.startswith("# Group fairness\n\n## Mine\n\nText.\n\n## How to read the")
    assert "published" not in written


def test_latex_text(example):
    frame = pd.concat([example, pd.DataFrame(runs("fedmgda+", ""))])
    shown = layout("fedavg-f", "fedmgda+", title="50 % of a_b & c")
    written = write_latex(tabulate(frame, shown, PUBLISHED), shown)
    lines = [line.strip() for line in written.splitlines()]
    assert lines[0] == r"\begin{table}"
    assert lines[-1] == r"\end{table}"
    assert r"\caption{50 \% of a\_b \& c: adult, split high" in written
    assert r"\label{tab:table-1-10x20-adult-high}" in lines
    assert r"\begin{tabular}{llll}" in lines
    assert r"method & accuracy & violation & CF std \\" in lines
    assert r"\multicolumn{4}{l}{\emph{demographic parity}} \\" in lines
    assert (
        r"fedavg-f & .810 $\pm$ .000 $\bullet\bullet$ (.706) & .030 $\pm$ .000 $\bullet$ (.224) "
        r"& .020 $\pm$ .000 (.232) \\" in lines
    )
    assert any(line.startswith(r"fedmgda{+} & ") for line in lines)
    assert written.isascii()
    for rule in ("toprule", "bottomrule"):
        assert lines.count(f"\\{rule}") == 1


def test_latex_has_one_table_for_each_place_and_even_rows(example):
    frame = pd.concat([example, example.assign(split="low")])
    shown = layout("fedavg-f", splits=("high", "low"), protocols=("10x20", "40x5"))
    written = write_latex(tabulate(frame, shown), shown)
    assert written.count(r"\begin{table}") == written.count(r"\end{table}") == 4
    rows = [line for line in written.splitlines() if " & " in line and line.endswith(r"\\")]
    assert len(rows) == 4 * 3
    assert {row.count("&") for row in rows} == {3}


def test_csv_reads_back(example):
    long = tabulate(example, layout("fedavg-f"))
    written = csv_of(long)
    assert "\r" not in written
    again = pd.read_csv(io.StringIO(written))
    assert list(again.columns) == list(long.columns)
    assert again["mean"].tolist() == pytest.approx(long["mean"].tolist(), rel=1e-5)


def test_the_order_of_the_runs_changes_nothing(example):
    shown = layout("fedavg-f")
    one, other = (tabulate(frame, shown, PUBLISHED) for frame in (example, example.iloc[::-1]))
    pd.testing.assert_frame_equal(one, other, check_exact=True)
    for write in (write_markdown, write_latex):
        assert write(one, shown) == write(other, shown)


def test_pooled_references_are_a_block_of_their_own_and_not_tested(example):
    better = runs("boosting", "", accuracy=[0.87, 0.88, 0.89])
    fair = runs("boosting-threshold", accuracy=[0.85, 0.86, 0.87])
    frame = pd.concat([example, pd.DataFrame([*better, *fair])])
    shown = layout("fedavg-f", pooled_references=("boosting", "boosting-threshold"))
    long = tabulate(frame, shown)
    assert long["t_p"].notna().sum() == 6  # those of fedavg-f, as without references
    found = cell(long, "boosting", "accuracy")
    assert (found["mean"], found["mark"], found["pairs"]) == (pytest.approx(0.88), "†", 0)
    written = write_markdown(long, shown)
    lines = [line.split("|")[1].strip() for line in written.splitlines() if line.startswith("| ")]
    assert lines[:7] == [
        "method",
        "---",
        "fedavg-f",
        "mfairfl",
        "pooled references †",
        "boosting †",
        "boosting-threshold †",
    ]
    assert cells(written, "boosting †")[0] == ".880 ± .010"
    latex = write_latex(long, shown).splitlines()
    (start,) = [i for i, line in enumerate(latex) if "pooled references" in line and "&" in line]
    assert latex[start - 1].strip() == r"\addlinespace"
    assert latex[start + 1].strip().startswith(r"boosting $\dagger$ & .880 $\pm$ .010 &")
    assert "not federated" in written
    assert "not federated" not in write_markdown(
        tabulate(example, layout("fedavg-f")), layout("fedavg-f")
    )
