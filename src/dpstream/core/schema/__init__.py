"""Public declarations of tables, and the way between raw values and codes. See README.md."""

from dpstream.core.schema.code_blocks import AnyCodes, CodeBlocks
from dpstream.core.schema.column import MAX_CODES, Column, Problem
from dpstream.core.schema.constraints import Constraints, Derived, Excluded
from dpstream.core.schema.dates import Date, DateTime
from dpstream.core.schema.discrete import Boolean, Categorical, Found
from dpstream.core.schema.domain import Clique, Codes, Domain
from dpstream.core.schema.numeric import Integer, Ordered, Real
from dpstream.core.schema.predicate import Predicate, parse_predicate
from dpstream.core.schema.schema import Schema
