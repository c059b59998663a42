"""``icssl audit``: null models, and what a method scores without order, points or rule."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import run_command, text_of
from icssl.app.cli.audit import _OF_ONE_METHOD, _TABLES
from icssl.bench.paper.catalogue import ARTEFACTS
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.audit import EXPLAINS, LEAKS, READS, UNDECIDED, _null_line, audit
from icssl.evaluation.predictors import METHODS
from icssl.methods import BASELINES
from icssl.methods.null_models import PositionVote
from icssl.methods.simple import Majority

TORUS = DataConfig(("torus",), n=40)
FEW = {"episodes": 40, "tuning": 10}


class ByPosition(PositionVote):
    """Reads the order alone."""


class Remembers(Majority):
    """Reads the first point of a context, which no shuffled context has there."""

    def __call__(self, episode):
        if episode.x.shape[1] and not hasattr(self, "_seen"):
            object.__setattr__(self, "_seen", episode.x)
        if not torch.equal(episode.x, self._seen):
            raise ValueError("this is another context")
        return super().__call__(episode)


def lines_of(found):
    return {line.what: line for line in found.lines}


def frames(monkeypatch):
    """Contexts whose classes are their two halves, and whose points say nothing."""
    from icssl.episodes.episode import Episode
    from icssl.episodes.stream import EpisodeStream

    def at(self, step, labels=None):
        generator = torch.Generator().manual_seed(len(self.name) + self.seed)
        x = torch.randn(self.batch, 40, 3, generator=generator)
        y = (torch.arange(40) >= 20).long().expand(self.batch, -1).contiguous()
        labelled = torch.rand(self.batch, 40, generator=generator).argsort(1) < labels
        features = torch.randn(self.batch, 40, 4, generator=generator)
        return Episode(x=x, y=y, labelled=labelled, n_classes=2, features=features)

    monkeypatch.setattr(EpisodeStream, "at", at)


def test_a_method_that_reads_the_order_is_found_out(monkeypatch):
    frames(monkeypatch)
    (found,) = audit(ByPosition(), TORUS, [8], name="mine", **FEW)
    lines = lines_of(found)
    assert lines["mine"].score.mean > 0.85
    assert lines["nearest position"].finding == EXPLAINS
    assert lines["points shuffled"].finding == LEAKS
    assert lines["points shuffled"].score.mean < 0.6
    assert lines["noise in place of points"].finding == READS
    assert lines["noise in place of points"].score.mean == lines["mine"].score.mean
    assert lines["vote of the labels"].finding == ""


class Guess:
    """Classes by chance, from the points alone: right half of the time."""

    def __call__(self, episode):
        drawn = (1e4 * episode.x.abs().sum(-1)).frac()
        return torch.stack([drawn, 1 - drawn], dim=-1)

    def tune(self, training):
        return self


def test_a_guess_scores_without_points_and_gives_nothing_away():
    """With even classes it is above the vote of the labels, which is below a half."""
    data = DataConfig(("cylinder",))
    (found,) = audit(Guess(), data, [39], episodes=200, tuning=2)
    lines = lines_of(found)
    noise, vote = (lines[w] for w in ("noise in place of points", "vote of the labels"))
    assert noise.score.low > vote.score.high
    assert abs(noise.score.mean - 0.5) < 0.02
    assert noise.finding == ""


class LargerClass:
    """The class that most training points have, whatever the points are."""

    def __call__(self, episode):
        return torch.tensor([1.0, 0.0]).expand(*episode.y.shape, 2)

    def tune(self, training):
        assert (training.y == 0).double().mean() > 0.6
        return self


def test_naming_the_larger_class_gives_nothing_away():
    data = DataConfig(("torus",), ball_share=0.3)
    (found,) = audit(LargerClass(), data, [3], episodes=100, tuning=5)
    noise = lines_of(found)["noise in place of points"]
    assert noise.score.mean == pytest.approx(0.7, abs=0.02)
    assert noise.finding == ""


def test_a_method_that_reads_points_is_not():
    (found,) = audit(BASELINES["nearest_neighbour"], TORUS, [12], name="1-NN", **FEW)
    lines = lines_of(found)
    assert lines["1-NN"].score.mean > 0.65
    assert lines["points shuffled"].score.mean == pytest.approx(lines["1-NN"].score.mean)
    assert (lines["points shuffled"].finding, lines["vote of the labels"].finding) == (
        "",
        "",
    )
    assert lines["noise in place of points"].finding == ""
    assert lines["noise in place of points"].score.mean < 0.6
    assert lines["largest class"].score.mean == pytest.approx(0.5)
    other = lines["other classes (radius 0.5)"].score.mean
    assert other > lines["1-NN"].score.mean  # nearly all points are of one class


def test_uneven_classes_are_explained_by_a_vote():
    uneven = DataConfig(("torus",), n=40, threshold=0.5)
    (found,) = audit(BASELINES["label_spreading"], uneven, [12], name="spreading", **FEW)
    assert {"largest class", "vote of the labels"} <= set(found.explained_by)
    assert "other classes (median)" in lines_of(found)


def test_an_interval_explains_nothing():
    """The rule is that of the verdicts: within two points, by the mean alone."""
    score = torch.full((40,), 0.6)
    score[20:] = 0.8
    noisy = torch.where(torch.arange(40) % 2 == 0, 0.5, -0.5)
    assert _null_line("vote", score + 0.015, score).finding == EXPLAINS
    assert _null_line("vote", score - 0.5, score).finding == EXPLAINS
    assert _null_line("vote", score + 0.03, score).finding == ""
    assert _null_line("vote", score + 0.05 + noisy, score).finding == UNDECIDED


def test_what_cannot_do_without_something_is_refused_by_both_names():
    with pytest.raises(ValueError, match="bayes_ceiling and noise in place of points excl"):
        audit(BASELINES["bayes_ceiling"], TORUS, [3], **FEW)
    with pytest.raises(ValueError, match="memory cannot predict without the order of its"):
        audit(Remembers(), TORUS, [3], name="memory", **FEW)
    with pytest.raises(ValueError, match="one source at a time"):
        audit(Majority(), DataConfig(("torus", "cone")), [3])


def test_noise_has_the_spread_of_the_points_and_eigenvectors_of_its_own():
    from icssl.episodes.stream import EpisodeStream
    from icssl.evaluation.audit import _noise

    data = DataConfig(("cylinder",), eigenvectors=4)
    episode = EpisodeStream(data.build(), 200, 0, "test").at(0, 3)
    noise = _noise(episode, 0, 4)
    spread = noise.x.std(dim=1).mean(dim=0) / episode.x.std(dim=1).mean(dim=0)
    np.testing.assert_allclose(spread, 1, atol=0.03)
    assert not torch.allclose(noise.features, episode.features)
    assert torch.equal(noise.labelled, episode.labelled)


def test_the_other_rule_of_uneven_classes_is_a_ball():
    """Its radius decides the share, so that of the first rule is not kept."""
    data = DataConfig(("torus",), ball_share=0.3)
    (found,) = audit(BASELINES["label_vote"], data, [10], **FEW)
    lines = lines_of(found)
    assert lines["largest class"].score.mean == pytest.approx(0.7)
    assert lines["other classes (radius 0.5)"].score.mean > 0.9


def test_three_classes_have_no_other_rule():
    data = DataConfig(("torus",), n_classes=3)
    (found,) = audit(BASELINES["nearest_neighbour"], data, [12], **FEW)
    assert "noise in place of points" in lines_of(found)
    assert not any("other classes" in what for what in lines_of(found))


def test_cli_audits_a_method_and_writes_a_page(tmp_path):
    page = tmp_path / "audit.md"
    few = ["--labels", "5", "--episodes", "6", "--tuning", "4"]
    result = run_command("audit", "label_vote", "--data", "cone", *few, "-o", page)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert text.startswith("# Audit of label_vote")
    assert "| noise in place of points |" in text
    assert "Explained by: largest class, vote of the labels" in text
    assert "explains the score" in text_of(result)
    assert run_command("audit", "label_vot", *few).exit_code == 2
    assert run_command("audit", "bayes_ceiling", *few).exit_code == 2


def test_cli_audits_a_table_of_the_paper(tmp_path, monkeypatch):
    root = Path(__file__).parents[1]
    monkeypatch.chdir(tmp_path)
    result = run_command("audit", "ablation")
    assert result.exit_code == 2
    assert "results/full/rows.jsonl does not exist" in text_of(result)
    (tmp_path / "results" / "full").mkdir(parents=True)
    rows = (root / "results" / "full" / "rows.jsonl").read_text().splitlines()
    votes = [
        line for line in rows if json.loads(line)["spec"].get("method") == "label_vote"
    ]
    path = tmp_path / "results" / "full" / "rows.jsonl"
    path.write_text("\n".join(votes) + "\n")
    page = tmp_path / "page.md"
    result = run_command("audit", "ablation", "-o", page)
    assert result.exit_code == 0, result.output
    assert page.read_text().count("the vote of the labels has") >= 6
    assert "`icssl audit paper_lap_pe_1layer --data product" in page.read_text()


def test_cli_audits_parameters_without_rows_and_pairs_in_one_cell(tmp_path, monkeypatch):
    root = Path(__file__).parents[1]
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    result = run_command("audit", "params", "-o", page)
    assert result.exit_code == 0, result.output
    assert "| transformer parameters | 1442178 | 1442178 |" in page.read_text()
    monkeypatch.chdir(root)
    assert run_command("audit", "alignment", "-o", page).exit_code == 0
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert len({line.count("|") for line in lines}) == 1
    assert sum("e2e_icl and transformer" in line for line in lines) == 3


@pytest.mark.parametrize(
    ("given", "both"),
    [
        (["id-ood", "--data", "torus"], "--data and id-ood exclude each other"),
        (["ablation", "-O", "n=50"], "--option and ablation exclude each other"),
        (["svc_rbf", "--profile", "full"], "--profile and svc_rbf exclude each other"),
        (["svc_rbf", "--steps", "5"], "--steps 5 and svc_rbf exclude each other"),
        (["svc_rbf", "-O", "episodes=5"], "episodes cannot be an option here"),
        (["svc_rbf", "-O", "split=train"], "split cannot be an option here"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_an_option_that_says_nothing_about_the_subject_is_refused(given, both):
    result = run_command("audit", *given)
    assert result.exit_code == 2, result.output
    assert both in text_of(result)


def test_the_method_that_a_table_names_can_be_audited():
    assert set(_OF_ONE_METHOD) < set(_TABLES)  # parameters and alignments are no scores
    assert all(text.split()[2] in METHODS for text in _OF_ONE_METHOD.values())


@pytest.mark.parametrize("subject", sorted(set(ARTEFACTS) - set(_TABLES)))
def test_a_figure_without_printed_numbers_is_refused_with_what_can_be_audited(subject):
    result = run_command("audit", subject)
    assert result.exit_code == 2
    for words in (f"no numbers for '{subject}'", "'id-ood'", "'image-transfer'", "--list"):
        assert words in text_of(result)


def test_an_unknown_subject_meets_tables_and_methods():
    result = run_command("audit", "id-odo")
    assert result.exit_code == 2
    for words in ("'ablation'", "'svc_rbf'", "Did you mean 'id-ood'?"):
        assert words in text_of(result)
    assert "gone/model.safetensors does not exist" in text_of(
        run_command("audit", "gone/model.safetensors")
    )


def test_the_command_takes_any_option_of_the_source():
    """Ordered frames: the order gives the classes away, and the audit says so."""
    ordered = ["--option", "shuffle_frames=false"]
    sizes = ["--episodes", "6", "--tuning", "4", "--labels", "10"]
    result = run_command(
        "audit", "position_vote", "--data", "images", *ordered, *sizes, wide=True
    )
    assert result.exit_code == 0, result.output
    assert LEAKS in result.output
    wrong = run_command("audit", "svc_rbf", "--data", "torus", "-O", "half_angel=1")
    assert wrong.exit_code == 2
    assert "half_angle" in text_of(wrong)
