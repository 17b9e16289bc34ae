"""The table of keyed records as it is now: censuses of the present records. See README.md in this folder."""

from dpstream.families.census.bookkeeping import CensusSynthesis
from dpstream.families.census.census_plan import Census, CensusPlan
from dpstream.families.census.schedule import CensusSchedule
