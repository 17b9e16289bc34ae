"""Each planted fault has its place: else ``make faults`` would look for it in vain."""

from planted import FAULTS, ROOT, applies


def test_each_fault_is_in_its_file_and_names_tests_that_are_there() -> None:
    assert [fault.name for fault in FAULTS if not applies(fault)] == []
    tests = {name.partition("::")[0] for fault in FAULTS for name in fault.tests}
    assert [name for name in sorted(tests) if not (ROOT / "tests" / name).exists()] == []
