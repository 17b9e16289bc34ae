"""Keys about where releases and the secret state go; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.core.contracts.recipe_options import COUNT, TEXT, TEXTS, words
from dpstream.stream.release.publishing import FULL_EVERY

OUTPUT_KEYS: tuple[Key, ...] = (
    Key(
        "output",
        "dir",
        "a folder",
        "releases",
        "beside the configuration file",
        "Where releases are published.",
        fragment=TEXT,
    ),
    Key(
        "output",
        "format",
        "parquet, csv",
        "parquet",
        "it keeps the columns' types",
        "Format of the released tables.",
        fragment=words("parquet", "csv"),
    ),
    Key(
        "output",
        "keep",
        "all, or a number of tables from 1",
        "all",
        "a release that readers use should not vanish",
        "How many full tables are kept; manifests are always kept.",
        fragment={"anyOf": [words("all"), COUNT]},
    ),
    Key(
        "output",
        "records",
        "fresh, persistent",
        "fresh",
        "every table is then a sample of its own; synthetic people who are followed always persist",
        "Whether a table is drawn anew at every step (`fresh`), or changed as little as the new model allows "
        "(`persistent`): records then have a `record_id` and stay until the model has no place for them. "
        "Synthetic people who are followed are always `persistent`.",
        fragment=words("fresh", "persistent"),
    ),
    Key(
        "output",
        "publish",
        "full, changes, both (the last two with records = persistent)",
        "full",
        "a table can be read by itself",
        "What is published of a step: its table, the changes against the step before, or both.",
        fragment=words("full", "changes", "both"),
    ),
    Key(
        "output",
        "full_every",
        "a number of steps from 1",
        str(FULL_EVERY),
        "a reader then puts at most ten files together",
        'With `publish = "changes"`: a full table at the first step, and again after at most this many steps.',
        fragment=COUNT,
    ),
    Key(
        "output",
        "may_change",
        "any, or a list of columns; [] for none",
        "any with the unit record, else none; a feed that has begun stays as it is",
        "readers of a feed without updates are not given any unasked",
        'With `records = "persistent"`: the columns in which a synthetic record may change and keep its `record_id`, '
        "if more than half of its columns stay as they are. The changes then have the operation `update` beside "
        "`delete` and `insert`. It says that the model moved, not that a private record was updated.",
        fragment={"anyOf": [words("any"), TEXTS]},
    ),
    Key(
        "output",
        "approve",
        "true, false",
        "false",
        "a step is published as soon as it is committed",
        "`true`: committed steps are held until `dpstream approve` publishes them. Looking at a table before "
        "approving it is free; deciding by looking at private data is not covered by the guarantee.",
        fragment={"type": "boolean"},
    ),
    Key(
        "output",
        "measurements",
        "true, false",
        "true",
        "the guarantee covers them already, and only with them can a reader compute errors",
        "Whether the noisy counts that a step measured are published beside its table, in `measurements.ndjson`. They "
        "stay when the table expires or is withdrawn: sums of later steps rest on them.",
        fragment={"type": "boolean"},
    ),
    Key(
        "output",
        "sink",
        "folder, duckdb, postgresql, bucket, stdout, spark",
        "folder",
        "files need no program to be read",
        "Where tables go besides the folder, which always has them: the newest one as a table of a DuckDB file or "
        "of a PostgreSQL database, the same files as objects of a `bucket`, or every one as NDJSON on standard output. "
        "With `spark` the folder has no tables: executors of Spark draw each one as a partition of a table of its own. "
        "All but standard output is read back before a step counts as published.",
        fragment=words("folder", "duckdb", "postgresql", "bucket", "stdout", "spark"),
    ),
    Key(
        "output",
        "database",
        "a DuckDB file or (spark) a folder outside of the state, a PostgreSQL connection string without a password, or "
        "(bucket) a URL such as s3://bucket/releases",
        "not set; releases.duckdb for duckdb, tables for spark",
        "needed with sink = postgresql or bucket; passwords belong into PGPASSWORD or ~/.pgpass",
        'The database of `sink = "duckdb"` or `"postgresql"`; of `"bucket"` where the objects go; of `"spark"` the '
        "folder of tables, which driver and executors see under one path.",
        fragment=TEXT,
    ),
    Key(
        "output",
        "table",
        "a name of letters, digits and underscores",
        "synthetic",
        "it says what it is",
        "Name of the table in that database; `<table>_steps` beside it says which step it holds. With `spark` a folder "
        "with a partition `step=...` for each step.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "dir",
        "a folder outside of the output folder",
        "state",
        "beside the configuration file, never among the releases: it holds private counts",
        "Where the secret state is kept (mode 0700). `--state` of a command takes its place.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "url",
        "postgresql://user@host:5432/database, without a password",
        "not set",
        "a file in the state folder needs no server",
        "A PostgreSQL database that keeps the store, in a schema of the stream's own; the state folder then "
        "holds the witness against a database that is rolled back. What the URL leaves open comes from "
        "PGHOST, PGPASSWORD, PGPASSFILE, PGSERVICE and so on.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "url_env",
        "the name of an environment variable",
        "not set",
        "a URL that holds a password does not belong into a public file",
        "The environment variable that holds the URL of the database.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "key_file",
        "a file of dpstream store key, outside of the state and output folders",
        "not set",
        "the state is protected by its file modes; a key that lies beside it would add nothing",
        "Encrypts what is private in the store with the key in this file (mode 0600). A store that is there already "
        "is encrypted by `dpstream store rekey --to`. Whoever loses the key has lost the stream.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "key_env",
        "the name of an environment variable",
        "not set",
        "a key does not belong into a public file",
        "The environment variable that holds the key, instead of `key_file`.",
        fragment=TEXT,
    ),
)
