"""Notebooks for analysts: ``notebooks/NAME.py`` (cells begin with ``# %%``) becomes ``NAME.ipynb`` with what it showed.

    python docs/notebooks.py          execute all, in folders that are removed, and write the .ipynb files

The page on the site is made of the .ipynb by docs/hooks.py. A test executes the cells (``make docs-test``).
"""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"
_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


def cells(source: Path) -> list[tuple[str, str]]:
    """Kind (``markdown`` or ``code``) and text of each cell."""
    parts = _CELL.split(source.read_text(encoding="utf-8"))[1:]
    found = []
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in mark:
            found.append(("markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
        else:
            found.append(("code", text.strip()))
    return found


def execute(code: str, names: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """What a cell shows: what it prints, the value of its last line, and its figures."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs, value = io.StringIO(), [], None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)  # noqa: S307
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines(value._repr_html_())
        outputs.append(
            {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
        )
    return outputs + [
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture}}
        for picture in figures()
    ]


def figures() -> Iterator[str]:
    """The open figures of matplotlib, which are closed."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is None:
        return
    for number in pyplot.get_fignums():
        image = io.BytesIO()
        pyplot.figure(number).savefig(image, format="png", dpi=80)
        pyplot.close(number)
        yield base64.b64encode(image.getvalue()).decode()


def lines(text: str) -> list[str]:
    """As notebooks keep a text."""
    return text.splitlines(keepends=True)


def notebook(source: Path, *, run: bool = True) -> dict[str, Any]:
    """The notebook of a source; executed in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for number, (kind, text) in enumerate(cells(source), 1):
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": hashlib.sha256(f"{source.name} {number}".encode()).hexdigest()[:8],
            "metadata": {},
            "source": lines(text),
        }
        if kind == "code":
            shown = execute(text, names, f"{source.name}, cell {number}") if run else []
            cell |= {"execution_count": None, "outputs": shown}
        found.append(cell)
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": found, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def page(file: Path) -> str:
    """The Markdown page of a notebook, with what it showed."""
    parts = [
        f"[Download the notebook]({file.name}), or read it here with what it showed. The data are invented.\n"
    ]
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", text))
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(
                    f'<img alt="What the cell drew" src="data:image/png;base64,{data["image/png"]}">'
                )
            elif "text/html" in data:
                html = re.sub(r"<style.*?</style>|\n\s*", "", "".join(data["text/html"]), flags=re.DOTALL)
                parts.append(html)
            else:
                parts.append(
                    "```text\n" + "".join(output.get("text", data.get("text/plain", []))).rstrip() + "\n```"
                )
    title, *rest = parts[1:]
    head, _, body = title.partition("\n")
    return "\n\n".join([head, parts[0], body, *rest]) + "\n"


def main() -> None:
    """Execute and write all."""
    import matplotlib as mpl

    mpl.use("agg")
    for source in sorted(FOLDER.glob("*.py")):
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            made = notebook(source)
            os.chdir(FOLDER)
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        source.with_suffix(".ipynb").write_text(text, encoding="utf-8")
        print(source.with_suffix(".ipynb").name, len(text))


if __name__ == "__main__":
    main()
