"""Growing databases: schedulers around static mechanisms, and queries answered adaptively (Cummings et al. 2018)."""

from dpstream.families.growing.blackbox import BlackBox, Counts, Database, LinearQuery
from dpstream.families.growing.boxes import MWEMPGMBox, OwnMechanism, SmallDB
from dpstream.families.growing.classifier_stream import ClassifierPlan
from dpstream.families.growing.erm import ERM
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.families.growing.pmwg_plan import PMWG, PMWGPlan
from dpstream.families.growing.run_schedule import ScheduledRun
from dpstream.families.growing.scheduler import BBImprover, BBScheduler
from dpstream.families.growing.tables import PowerLaw
