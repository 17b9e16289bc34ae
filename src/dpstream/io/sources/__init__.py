"""See README.md in this folder."""

from dpstream.io.sources.file_opening import UnreadableError
from dpstream.io.sources.files import FileSource
from dpstream.io.sources.formats import read_table
from dpstream.io.sources.source import ReadOptions, Source, StepInput
from dpstream.io.sources.source_opening import open_source
from dpstream.io.sources.source_options import SourceOptions
