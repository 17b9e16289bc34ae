"""See README.md in this folder."""

from dpstream.sources.files import FileSource
from dpstream.sources.formats import UnreadableError, read_table
from dpstream.sources.opening import open_source
from dpstream.sources.options import SourceOptions
from dpstream.sources.source import Source
from dpstream.sources.step import StepInput

__all__ = [
    "FileSource",
    "Source",
    "SourceOptions",
    "StepInput",
    "UnreadableError",
    "open_source",
    "read_table",
]
