"""The trusted base is what its page says, and everything else sees public values only."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trusted_base


@pytest.fixture(scope="module")
def package() -> Any:
    return trusted_base.Package()


def test_modules_without_a_mark_see_public_values_only(package: Any) -> None:
    assert package.violations() == []


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("from dpstream.core.tables import EncodedBatch", "takes EncodedBatch from core.tables"),
        ("def late():\n    from dpstream.core.tables.access import ReadRequest", "takes ReadRequest"),
        ("import dpstream.core.tables.counting", "takes all of it from core.tables.counting"),
        ("from dpstream.io.sources import files", "takes all of it from io.sources.files"),
        ("from dpstream.stream.admission import Batch as Rows", "takes Batch from stream.admission"),
        ("def look(config):\n    return list(config.source().steps(1))", "calls .steps()"),
        ("def look(plan, state):\n    return plan.pack_state(state)", "calls .pack_state()"),
        ('"""Page.\n\nTrusted base: friend (says so).\n"""', "its mark says 'friend'"),
    ],
)
def test_a_module_that_takes_private_values_has_to_be_marked(package: Any, code: str, seen: str) -> None:
    planted = "tools.report.planted"
    package.add(planted, code)
    (problem,) = package.violations()
    del package.modules[planted]
    assert problem.startswith(planted)
    assert seen in problem


def test_public_names_and_harmless_calls_are_still_there(package: Any) -> None:
    for home, names in trusted_base.PUBLIC_NAMES.items():
        text = package.modules[home].text
        assert all(re.search(rf"\b{name}\b", text) for name in names), home
    for module, method in trusted_base.HARMLESS:
        assert f".{method}(" in package.modules[module].text


def test_every_room_of_the_kernel_says_what_it_guarantees(package: Any) -> None:
    assert set(package.kernel_rooms()) == set(trusted_base.READING)


def test_the_page_lists_the_marked_modules(package: Any) -> None:
    """Sizes may be older than the code by a little: they change with every commit."""

    def words(text: str) -> str:
        return re.sub(r"[0-9,]*[0-9]", "", text)

    assert words(trusted_base.PAGE.read_text(encoding="utf-8")) == words(trusted_base.page(package)), (
        "make it anew: python docs/trusted_base.py --write"
    )


def test_the_readme_has_the_size_of_the_kernel(package: Any) -> None:
    stated = trusted_base.NUMBER.findall(trusted_base.README.read_text(encoding="utf-8"))
    assert len(stated) == 1
    assert abs(int(stated[0].replace(",", "")) / package.sizes["kernel"] - 1) < 0.02


def test_two_people_can_read_the_kernel_in_a_week(package: Any) -> None:
    assert package.sizes["kernel"] <= trusted_base.MAX_KERNEL
