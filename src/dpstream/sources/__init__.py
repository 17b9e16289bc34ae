"""See README.md in this folder."""

from dpstream.sources.files import FileSource
from dpstream.sources.formats import read_table
from dpstream.sources.options import SourceOptions
from dpstream.sources.step import StepInput

__all__ = ["FileSource", "SourceOptions", "StepInput", "read_table"]
