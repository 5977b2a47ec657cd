"""The paper's grid has the counts that it states."""

from __future__ import annotations

from unroll.studies.paper.figures import FIGURES, OURS, PAPER, TABLE, UNPLOTTED, drawn, training, trainings


def test_the_paper_has_222_distinct_trainings_drawn_as_260_curves():
    assert len(trainings(PAPER)) == 222
    assert len(drawn(PAPER)) == 260


def test_the_paper_left_70_trainings_unplotted():
    unplotted = {training(one) for one in UNPLOTTED}
    assert len(unplotted) == 70
    assert not unplotted & set(trainings(PAPER))


def test_only_the_papers_own_setting_among_our_questions_is_a_training_of_the_paper():
    shared = {training(one) for one in OURS} & set(trainings(PAPER))
    assert {one.varied for one in shared} == {()}
    assert len(shared) == 20
    assert len(set(OURS)) == len(OURS) == 140


def test_no_figure_holds_a_curve_twice():
    assert list(FIGURES) == ["architectures-1", "architectures-2", "schemes", "datasets", "timing", "k2", "extras"]
    assert all(len(set(curves)) == len(curves) for curves in FIGURES.values())


def test_the_table_has_four_schemes_and_four_architectures():
    assert len(TABLE) == 16 == len({(one.scheme, one.layers, one.hidden) for one in TABLE})
