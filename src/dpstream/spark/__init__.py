"""Records that stay in Spark. See README.md in this folder."""

from dpstream.spark.sessions import session
from dpstream.spark.spark_batch import KeyedSparkBatch, SparkBatch, batch, keyed_batch
from dpstream.spark.staging import sink
