"""The methods that are compared: stream mechanisms under a name, with options as in ``[mechanism]``.

A table ``recipe`` in a method holds arguments of the Python recipe that no file of a stream has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dpstream.core.contracts import RecipeContext, StreamPlan, located, shown
from dpstream.core.privacy import PureDP
from dpstream.project.keys import section_of
from dpstream.project.reader import Section
from dpstream.project.sections import named_family, read_recipe
from dpstream_lab.experiments.replayed_streams import Replay


@dataclass(frozen=True)
class Method:
    """A stream mechanism.

    Attributes:
        label: its name in tables and figures.
        options: as in ``[mechanism]``, and ``recipe``; ``workload`` is the experiment's unless it is given here.
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
        arguments = table.pop("recipe", {})
        # With located: the parts below do not know of files.
        with located(f"{self.file} [{title}]"):
            section = section_of(self.file, "mechanism", table, title=title)
            if named_family(section).limits.no_tables is not None:
                raise section.wrong("name", "methods are compared for streams of tables")
            recipe = read_recipe(section, RecipeContext(stream.domain, deletions=stream.deletions))
            recipe = with_arguments(recipe, arguments, section)
            plan: StreamPlan = recipe.calibrate(PureDP.of(epsilon), stream.unit, len(stream))
            return plan


def with_arguments(recipe: Any, arguments: Any, section: Section) -> Any:
    """The recipe with some arguments of its Python class.

    Errors:
        ConfigError: not a table, or an argument that the class lacks; and what the class refuses.
    """
    known = [item.name for item in fields(recipe)]
    if not isinstance(arguments, Mapping) or set(arguments) - set(known):
        what = f"{shown(arguments)} are not arguments of {type(recipe).__name__}"
        raise section.wrong("recipe", what, f"a table with {', '.join(known)}")
    return replace(recipe, **arguments)


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
