"""Pictures and notebook pages of releases and answers: what is drawn is what is there."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from evaluated_runs import run, typical, write_run

import dpstream as dp
from dpstream.core.errors import ConfigError


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    # Every pair is measured at every step.
    config = write_run(tmp_path_factory.mktemp("pictures"), typical(6), name="$small$", k=3)
    run(config)
    return config


def bars(axes) -> list[float]:
    return [patch.get_width() for patch in axes.patches]


def test_bars_are_the_counts_and_lines_the_published_intervals(config):
    public = dp.read(config.output.dir)
    (axes,) = public.plot("zip").figure.axes
    counts = public.table().column("zip").value_counts().to_pylist()
    known = {entry["values"]: entry["counts"] for entry in counts}
    assert bars(axes) == [known.get(name, 0) for name in ("a", "b", "c")]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    found = public.measured(["zip"])
    assert found is not None
    assert found.as_of == public.step
    low, high = found.interval()
    lines = axes.collections[0].get_segments()
    assert np.array(lines)[:, :, 0] == pytest.approx(np.column_stack([low, high]))
    note = axes.figure.get_supxlabel().replace("\n", " ")
    assert f"measured up to step {public.step}, with exact 95 % intervals" in note
    assert "which combine several and may end outside" in note
    assert axes.get_xlim()[0] <= min(0.0, low.min())
    # The stream's own release draws the same.
    with config.open_stream() as stream:
        (own,) = stream.release(6).plot("zip").figure.axes
    assert bars(own) == bars(axes)
    assert own.figure.get_supxlabel() == axes.figure.get_supxlabel()


def test_the_note_on_lines_is_told_once_and_nothing_runs_out_of_the_figure(config):
    made = dp.read(config.output.dir).plot().figure
    made.canvas.draw()
    assert {axes.get_xlabel() for axes in made.axes if axes.get_visible()} == {"records"}
    whole = made.bbox
    texts = [made._supxlabel, *(axes.xaxis.label for axes in made.axes)]
    for box in (text.get_window_extent() for text in texts if text.get_visible()):
        assert box.x0 >= whole.x0
        assert box.x1 <= whole.x1
    for axes in made.axes:
        for segment in [one for lines in axes.collections for one in lines.get_segments()]:
            assert axes.get_xlim()[0] < segment[0][0] or segment[0][0] >= 0


def test_a_pair_is_a_map_of_shares_and_no_name_draws_every_column(config):
    public = dp.read(config.output.dir)
    (axes,) = public.plot(["zip", "paid"]).figure.axes
    shown = [float(text.get_text()) for text in axes.texts]
    assert len(shown) == 6
    assert sum(shown) == pytest.approx(100, abs=0.4)
    table = public.table().to_pandas()
    assert shown[0] == pytest.approx(100 * ((table.zip == "a") & ~table.paid).mean(), abs=0.06)
    every = public.plot(step=3).figure
    assert [axes.get_title("left") for axes in every.axes if axes.get_visible()] == ["zip", "paid", "size"]
    assert "step 3" in every.get_suptitle()


def test_pictures_are_vectors_that_can_be_made_again(config, tmp_path):
    public = dp.read(config.output.dir)
    made = [
        public.plot("zip").save(tmp_path / name).read_bytes() for name in ("a.svg", "b.svg", "a.pdf", "b.pdf")
    ]
    assert made[0] == made[1]
    assert made[2] == made[3]
    assert made[2].startswith(b"%PDF")
    assert b"$small$" in made[0], "text stays text, and is no formula"
    assert public.plot("zip")._repr_svg_().encode() == made[0]
    assert public.plot("zip").save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.svg").stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_drawn_is_one_sentence(config, monkeypatch, tmp_path):
    for columns, message in (
        ("rent", r"no column 'rent' \(allowed: zip, paid, size\)"),
        (["zip", "paid", "size"], "3 columns are named"),
        (["zip", "zip"], "2 columns are named"),
    ):
        with pytest.raises(ConfigError, match=message):
            dp.read(config.output.dir).plot(columns)
    picture = dp.read(config.output.dir).plot("zip")
    with pytest.raises(ConfigError, match=r"unknown format of a picture: 'a\.jpg'"):
        picture.save(tmp_path / "a.jpg")
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"\(allowed: pip install 'dpstream\[plot\]'\)$"):
        dp.read(config.output.dir).plot()


def test_notebooks_show_answers_and_marginals(config):
    with config.open_stream() as stream:
        release = stream.release(6)
        answer, marginal = release.answer("zip = 'a'"), release.marginal(["zip"])
    low, high = answer.interval()
    assert f"<dd>{low:,.1f} to {high:,.1f}</dd>" in answer._repr_html_()
    page = marginal._repr_html_()
    assert page.count("<tr>") == 4
    assert f"<td>{marginal.values[0]:,.1f}</td>" in page
