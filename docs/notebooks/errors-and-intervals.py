# %% [markdown]
# # Errors and intervals
#
# How wrong is a number of a release? Where it was measured, an exact interval says so; elsewhere a
# simulation helps, or nothing does. The notebook before this one: [work with a released
# table](released-table.ipynb). Invented notices again:

# %%
import subprocess
import sys
from math import sqrt

import matplotlib.pyplot as plt

import dpstream as dp

for words in ("simulate evictions --steps 26 --out example", "run example/dpstream.toml"):
    subprocess.run([sys.executable, "-m", "dpstream", *words.split()], check=True, capture_output=True)
release = dp.read("example/releases")

# %% [markdown]
# ## Measured counts
#
# What was measured is published with the law of its noise. Sums of it are unbiased and have exact
# intervals. They are about step `as_of`, which may be earlier than the newest table.

# %%
districts = release.measured(["district"])
low, high = districts.interval(0.95)
print("as of step", districts.as_of, "with a standard error of", round(float(districts.standard_error), 1))
for label, count, a, b in zip(districts.labels[0], districts.values, low, high, strict=True):
    print(f"{label!s:>8} {count:8.0f}   {a:8.0f} to {b:8.0f}")

# %%
names = [str(label) for label in districts.labels[0]]
figure, axes = plt.subplots(figsize=(6, 2.4))
axes.errorbar(districts.values, names, xerr=[districts.values - low, high - districts.values], fmt="o")
axes.set(xlabel="notices: measured, with 95 % intervals")
figure.tight_layout()

# %% [markdown]
# Negative counts are no fault: cutting them at zero would make sums wrong.
#
# ## A question
#
# The number in the table comes from the model; the measured number is beside it, with its interval. `note`
# says what is known.

# %%
answer = release.answer("non_payment = 1")
print("in the table:", answer.value)
print("measured:", answer.measured_value, answer.interval(0.95), "as of step", answer.as_of)
print(answer.note)

# %% [markdown]
# ## A question that nobody measured

# %%
answer = release.answer("district = '2' and rent >= 2000 and nuisance = 1")
print(answer.value, answer.interval(0.95))
print(answer.note)

# %% [markdown]
# The owner's `dpstream errors` finds by simulation how far such numbers are off, from public files alone;
# what it publishes is read by the same `answer`. It cannot see a relation that the model never learned
# ([why](../guide/errors.md)).
#
# ## What the rows do not tell
#
# The usual standard error of a share, `sqrt(p (1 - p) / n)`, takes rows for people. It says nothing about
# the noise. Compare:

# %%
table = release.table(frame="pandas")
share = float((table["district"] == "2").mean())
print("from the rows (wrong):", round(sqrt(share * (1 - share) / len(table)), 4))
print("of the measurement:   ", round(float(districts.standard_error) / len(table), 4))
