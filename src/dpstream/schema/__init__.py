"""Public declarations of tables, and the way between raw values and codes. See README.md."""

from dpstream.schema.column import MAX_CODES, Column, Problem
from dpstream.schema.dates import Date, DateTime
from dpstream.schema.discrete import Boolean, Categorical
from dpstream.schema.domain import Clique, Domain
from dpstream.schema.draft import draft_config
from dpstream.schema.numeric import Integer, Real
from dpstream.schema.schema import Schema

__all__ = [
    "MAX_CODES",
    "Boolean",
    "Categorical",
    "Clique",
    "Column",
    "Date",
    "DateTime",
    "Domain",
    "Integer",
    "Problem",
    "Real",
    "Schema",
    "draft_config",
]
