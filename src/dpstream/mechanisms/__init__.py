"""What mechanisms for tables are made of: offline MWEM+PGM and AIM, selections, draws, models. See README.md here."""

from dpstream.mechanisms.aim import AIM, AIMPlan
from dpstream.mechanisms.mwem_pgm import MWEMPGM, OfflineMechanism, OfflinePlan
from dpstream.mechanisms.table_release import ModelSynthesis, TableSynthesis
from dpstream.mechanisms.workload_cells import Cells, Score
