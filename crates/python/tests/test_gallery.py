"""The gallery notebook runs, and draws its figures."""

import pathlib
import runpy

import pytest

GALLERY = pathlib.Path(__file__).parents[1] / "examples" / "gallery.py"


def test_the_gallery_draws_its_figures(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    cells = runpy.run_path(str(GALLERY))
    for figure in ("curves", "distances", "generations", "ablation"):
        assert (tmp_path / f"{figure}.svg").read_text().count("<path") > 3, figure
    assert cells["result"].failures == [] and cells["stats"]["usage_pages"] <= cells["stats"]["max_pages"] == 256
    assert len(set(cells["curves"]["policy"])) == 6
    assert "usage_pages" in capsys.readouterr().out
