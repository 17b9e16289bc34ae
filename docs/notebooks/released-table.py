# %% [markdown]
# # Work with a released table
#
# You were given a folder of releases. This notebook reads it, looks at columns, at two columns together and
# at time, and says what not to do. It needs `dpstream`, pandas and matplotlib. The next one is about
# [errors and intervals](errors-and-intervals.ipynb).
#
# In place of this cell you have the folder. Here it is made: 26 weeks of invented eviction notices.

# %%
import subprocess
import sys

import matplotlib.pyplot as plt
import pandas as pd

import dpstream as dp

for words in ("simulate evictions --steps 26 --out example", "run example/dpstream.toml"):
    subprocess.run([sys.executable, "-m", "dpstream", *words.split()], check=True, capture_output=True)

# %% [markdown]
# ## What it is
#
# Every file is checked against its hash. The manifest says what is protected, and what the table is fit
# for: read that first.

# %%
release = dp.read("example/releases")
print(release.manifest()["guarantee"]["words"])
for verdict in release.manifest()["accuracy"]["verdicts"]:
    print("*", verdict["words"])

# %% [markdown]
# ## The table
#
# The rows are synthetic: no row stands for a notice. A null in a column of numbers stands for the bins
# `other` and `missing`.

# %%
table = release.table(frame="pandas")
print(len(table), "rows; the true number is not known, and this one is noisy")
table.head()

# %% [markdown]
# ## Columns, and two columns together
#
# Counts of single columns are the most exact. With fewer rows in a cell the noise has a larger share: small
# groups are the least exact.

# %%
causes = ["non_payment", "breach", "nuisance", "owner_move_in"]
table[causes].mean().sort_values(ascending=False).to_frame("share of notices").round(3)

# %%
pd.crosstab(table["district"].fillna("missing"), table["owner_move_in"], normalize="index").round(3)

# %% [markdown]
# ## Over time
#
# How many came? [Flows](../guide/time.md) are sums of measurements, with intervals. A difference of two tables
# is mostly noise.

# %%
release.series(every="month").to_table().to_pandas().round(1)

# %%
shares = {step: release.table(step).to_pandas()["owner_move_in"].mean() for step in release.steps}
figure, axes = plt.subplots(figsize=(6, 2.6))
axes.plot(list(shares), list(shares.values()))
axes.set(title="Owner moves in, share of all notices so far", xlabel="week", ylim=(0, None))
figure.tight_layout()

# %% [markdown]
# ## Rules
#
# * A count has an error. Its size is [in the measurements](errors-and-intervals.ipynb), not in the number
#   of rows: a standard error that statistics software computes from the rows takes them for people and is
#   wrong.
# * Questions that nobody measured (three columns together, small groups) get the model's answer.
# * Sampling more rows adds nothing that is not in the model.
# * Whatever you compute is free: it costs nobody any privacy, and may be published.
