"""MkDocs hooks: pages that are made from the code, so that they cannot fall behind it.

* ``reference/api/<part>.md``: a subpackage's README and its public names; ``lab.md`` of the distribution dpstream-lab.
* ``reference/commands.md``: the text of every ``dpstream ... --help``, where no such page is committed.
* The numbers and tables of ``audit.md``: from ``audit/audit.json``, where an audit was run (CI does).
* ``notebooks/*.md``: the notebooks with what they showed.
* ``project/*.md``: the documents that stand at the top of the repository.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from dpstream.tools.audit.audit_page import AuditReport, audit_facts
from dpstream.tools.audit.finding import AuditFinding
from dpstream.tools.report.markup import block

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import notebooks  # noqa: E402
from cli_reference import reference  # noqa: E402

SOURCE = ROOT / "src" / "dpstream"
LAB = ROOT / "lab"
PROJECT = {"CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md"}
#: How the page of all help texts begins; a copy that is committed (and tested) takes its place.
COMMANDS_TITLE = "# Command line\n"
#: Modules of the top level that users meet.
MODULES = ("core.errors", "core.contracts")
#: Links to what was measured lead out of the pages.
_RESULT = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(benchmarks/[^)#]+)(?:#[^)]*)?\)")
_AUDIT = "<!-- audit -->"
#: What a browser would fetch from elsewhere.
_OUTSIDE = re.compile(
    r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+stylesheet[^>]+href="(?:https?:)?//'
)
_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add what is made from the code, and each decision, to the navigation that mkdocs.yml gives."""
    named: dict[str, list[Any]] = {
        title: entries
        for part in config.nav or []
        if isinstance(part, dict)
        for title, entries in part.items()
    }
    generated = sorted(uri for uri, _ in pages() if uri.startswith("reference/"))
    named["Reference"].append({"Python API": generated})
    decisions = sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))
    named["Project"].append(
        {"Decisions": ["decisions/index.md", *(f"decisions/{name}" for name in decisions)]}
    )
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for uri, content in pages():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the audit's findings where a page asks for them, and name files of the repository that are no pages."""
    markdown = _RESULT.sub(r"\1 (`\2`)", markdown)
    if _AUDIT in markdown:
        markdown = markdown.replace(_AUDIT, audit_page())
    return markdown


def audit_page() -> str:
    """What the audit found: the answer, pictures, and all numbers folded."""
    made = ROOT / "audit" / "audit.json"
    if not made.is_file():
        return "This copy of the pages was built without an audit: `make audit OUT=audit`, then `make docs`."
    data = json.loads(made.read_text(encoding="utf-8"))
    names = [field.name for field in fields(AuditFinding)]
    found = [
        AuditFinding(**{name: inf if one[name] == "infinite" else one[name] for name in names})
        for one in data["findings"]
    ]
    report = AuditReport(tuple(found), data["length"], data["command"], data["config"], data["seconds"])
    made = block("audit", "documentation", **audit_facts(report))
    # A blank line would end the block of HTML.
    return "\n".join(line for line in made.splitlines() if line.strip())


def pages() -> Iterator[tuple[str, str]]:
    """Address and Markdown of every generated page."""
    for readme in sorted([*SOURCE.glob("*/README.md"), *SOURCE.glob("*/*/README.md")]):
        name = dotted(readme.parent)
        yield f"reference/api/{name}.md", part_page(f"dpstream.{name}", readme)
    yield "reference/api/lab.md", part_page("dpstream_lab.audits", LAB / "README.md")
    for module in MODULES:
        yield f"reference/api/{module}.md", f"# dpstream.{module}\n\n::: dpstream.{module}\n"
    for file in sorted(notebooks.FOLDER.glob("*.ipynb")):
        yield f"notebooks/{file.stem}.md", notebooks.page(file)
    for name, target in PROJECT.items():
        yield f"project/{target}", without_relative_links((ROOT / name).read_text(encoding="utf-8"))
    committed = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")]
    if not any(text.startswith(COMMANDS_TITLE) for text in committed):
        yield "reference/commands.md", reference()


def part_page(name: str, readme: Path) -> str:
    """A README (from its second line on) above the public names of a package."""
    text = without_relative_links(readme.read_text(encoding="utf-8").partition("\n")[2].strip())
    return f"# {name}\n\n{text}\n\n## Public names\n\n::: {name}\n"


def dotted(folder: Path) -> str:
    """``core.privacy`` for its folder."""
    return ".".join(folder.relative_to(SOURCE).parts)


def without_relative_links(text: str) -> str:
    """Links to files of the repository lead nowhere on the site: keep their words."""
    return _RELATIVE_LINK.sub(r"\1", text)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that was made without complaint and is wrong all the same."""
    found = list(faults(Path(config.site_dir)))
    if found:
        raise PluginError("; ".join(found))


def faults(site: Path) -> Iterator[str]:
    """What is wrong with the pages that were made."""
    texts = {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")
    }
    for page in ("index.html", "reference/api/core.privacy.html", "project/security.html"):
        if page not in texts:
            yield f"there is no {page}"
    reference = {page: text for page, text in texts.items() if page.startswith("reference/")}
    for page, text in reference.items():
        if "<blockquote>" in text:
            yield f"{page}: a prompt became a quotation"
    if (
        sum("dpstream simulate evictions" in text and "Exit codes:" in text for text in reference.values())
        != 1
    ):
        yield "the help texts are not on one page"
    for page, text in texts.items():
        if _OUTSIDE.search(text):
            yield f"{page} takes something from elsewhere"
