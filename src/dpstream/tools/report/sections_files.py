"""How to use what was released: the files, and the rules that keep one from wrong conclusions."""

from __future__ import annotations

from collections.abc import Sequence

from dpstream.tools.evaluate.run_folder import Told
from dpstream.tools.report.markup import Html, element, fold, table

_WHAT = {
    "table": "what was released; any program reads it",
    "changes": "what is new or different since the step before",
    "measurements": "what was measured, with its noise: exact intervals (dpstream measured)",
    "manifest": "how it was made, what is protected, how wrong it may be",
}


def files_section(run: Told, own: Sequence[str] | None = None) -> Html:
    """The section on the files of the last release.

    Args:
        own: rules in place of those for tables of synthetic records.
    """
    step = int(run.manifest["step"])
    folder = f"step-{step:06d}"
    names = [name for name in (*run.manifest.get("files", {}), "manifest.json") if "metadata" not in name]
    rows = [[f"{folder}/{name}", _WHAT.get(name.split(".")[0], "see the manifest")] for name in names] + [
        ["codebook.json", "columns, types and labels"],
        ["catalogue.json", "all releases with their hashes"],
    ]
    rules = list(own or ()) or [
        "Ask what was measured before you count rows: measured counts have exact intervals, counts of rows have none.",
        "Rows are no sample. A standard error or a p-value that a program computes from them is wrong.",
        "Leave small groups alone: the noise of a measured count does not shrink with the count.",
    ]
    weight = run.manifest.get("records", {}).get("weight")
    if weight is not None and own is None:
        rules.insert(0, f"Add up the column {weight}, do not count rows: weights take out invented people.")
    code = (
        f'import dpstream as dp\nrelease = dp.read("releases")\ntable = release.table({step}, frame="pandas")'
    )
    return element(
        "section",
        element("h2", "How to use the files"),
        element("ol", [element("li", text) for text in rules], class_="prose"),
        fold(
            f"The files of step {step}",
            table(["file", "what it is"], rows, caption="In the folder of releases", numeric=9),
            element("pre", element("code", code)),
            element(
                "p",
                "To cite: the stream's name, the step and the version of the program stand in its manifest.",
                class_="note",
            ),
        ),
        id="files",
    )
