"""The methods that are compared: stream mechanisms under a name of their own, with options as in ``[mechanism]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpstream.core.contracts import RecipeContext, StreamPlan, located
from dpstream.core.privacy import PureDP
from dpstream.project.reader import Section
from dpstream.project.sections import named_family, read_recipe
from dpstream_lab.experiments.replayed_streams import Replay


@dataclass
class Titled(Section):
    """``[mechanism]`` under another name, for messages."""

    title: str = ""

    def place(self, key: str | None = None) -> str:
        """File, section and key."""
        return " ".join([self.file, f"[{self.title}]", *([key] if key else [])])


@dataclass(frozen=True)
class Method:
    """A stream mechanism.

    Attributes:
        label: its name in tables and figures.
        options: as in ``[mechanism]``; ``workload`` is the experiment's unless it is given here.
        file: the file that says so, for messages.
    """

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    file: str = "experiment"

    def plan(self, stream: Replay, epsilon: str, workload: Any) -> StreamPlan:
        """The calibrated mechanism for a stream and a budget; the horizon is the stream's length.

        Errors:
            ConfigError and others: name the file, the section and the key.
        """
        title = f"methods.{self.label}"
        table = {"workload": workload, **self.options}
        # With located: the parts below do not know of files.
        with located(f"{self.file} [{title}]"):
            section = Titled(self.file, "mechanism", table, title=title)
            if named_family(section).limits.no_tables is not None:
                raise section.wrong("name", "methods are compared for streams of tables")
            recipe = read_recipe(section, RecipeContext(stream.domain, deletions=stream.deletions))
            return recipe.calibrate(PureDP.of(epsilon), stream.unit, len(stream))


#: The paper's three methods. Its block counter is the unbounded one of its Algorithm 4.
KUMAR_METHODS: dict[str, Method] = {
    label: Method(label, options)
    for label, options in (
        ("baseline", {"name": "baseline"}),
        ("proposed-simple", {"name": "dpstabs", "counter": "simple"}),
        ("proposed-block", {"name": "dpstabs", "counter": "unbounded-block"}),
    )
}

#: What this package has beyond the paper; run where it is asked for.
OWN_METHODS: dict[str, Method] = {"pooled": Method("pooled", {"name": "pooled"})}
