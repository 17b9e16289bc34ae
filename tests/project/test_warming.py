"""``dpstream warm`` compiles what streams use, and a first use says what it compiles."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from cli_stream import dpstream

from dpstream.core import compiling


def test_streams_need_nothing_beyond_it(tmp_path: Path) -> None:
    """No loop gets arguments of another type than those it was warmed with."""
    code = f"""
        import sys
        from numba.core.dispatcher import Dispatcher
        from dpstream.cli.warm import warm

        def compiled():
            found = {{}}
            for name, module in list(sys.modules.items()):
                if name.startswith("dpstream."):
                    for made in vars(module).values():
                        if isinstance(made, Dispatcher):
                            found[made.py_func.__module__, made.py_func.__name__] = set(map(str, made.signatures))
            return found

        warm()
        before = compiled()
        from dpstream.cli import main
        for example in ("evictions", "panel"):
            for verb in (["simulate", example, "--steps", "2", "--out", {str(tmp_path)!r} + "/" + example],
                         ["run", {str(tmp_path)!r} + "/" + example + "/dpstream.toml"]):
                try:
                    main(verb)
                except SystemExit as end:
                    assert not end.code, (verb, end.code)
        import numpy as np
        from dpstream.core.graphical import Model
        from dpstream.core.graphical import draw_blocks
        from dpstream.core.schema.domain import Domain
        # As a table of many rows is drawn, of one model and of several.
        model = Model.uniform(Domain(("a", "b"), (2, 5)), 7.0)
        for models in ([model], [model, model]):
            for make in draw_blocks(models, np.full(len(models), 4), 9, 3):
                make()
        after = compiled()
        assert len(before) > 40
        assert after == before, [name for name in after if after[name] != before.get(name)]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_it_says_where_the_code_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dpstream("warm").stdout == f"all loops are compiled, and kept in {compiling.kept_in()}\n"
    monkeypatch.setattr(compiling, "_told", True)
    assert "compiled code cannot be kept" in dpstream("warm", code=2).stderr


def test_what_is_compiled_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_said", set())

    def loop(x):  # type: ignore[no-untyped-def]
        return x + 1

    def other(x):  # type: ignore[no-untyped-def]
        return x + 2

    loop.__module__ = other.__module__ = "dpstream.core.tables.loops"
    said: list[str] = []
    with compiling.telling(said.append):
        first, second = compiling.njit(loop), compiling.njit(other)
        assert not said
        assert [first(1), second(1), first(np.float64(1.0))] == [2, 3, 2.0]
    assert len(said) == 1
    assert "compiling loops for counting and hashing, once" in said[0]
