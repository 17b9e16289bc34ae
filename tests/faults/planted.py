"""The planted faults: each one would break a promise, and each one has to be caught by a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: File below ``src/dpstream`` -> what goes wrong -> the text that stands there once, and what takes its place.
PLANTED: dict[str, dict[str, tuple[str, str]]] = {
    "core/contracts/stream_plan.py": {
        "the number of cut users has the noise of twice its share": (
            "noise_for(self.budget.scaled(share), 1, 1)",
            "noise_for(self.budget.scaled(2 * share), 1, 1)",
        ),
    },
    "core/paths.py": {
        "a key file that others may read is accepted": (".st_mode) & 0o077 or", ".st_mode) & 0o007 or"),
    },
    "core/showing.py": {
        "a label ends the script that holds it": ('for sign in "<>&":', 'for sign in "&":'),
    },
    "core/counters/intervals.py": {
        "the tick that ends a block spends the whole budget again": (" if size == 1 else _HALF)", ")"),
        "closed partitions: the ticks inside the last block use a third too much": (
            "return Interval(0, _TWO_THIRDS if position > size * (size - 1) else _THIRD)",
            "return Interval(0, _TWO_THIRDS)",
        ),
        "exact sums stay pending when an interval settles": ('                state["pending"][:] = 0\n', ""),
    },
    "core/privacy/_samplers.py": {
        "large Laplace noise has no zero of its own: the sign is drawn from the magnitude": (
            "return value ^ -negative  # -1 - G is the bitwise complement of G",
            "return np.where(negative == 1, -value, value)",
        ),
        "minus zero of large Gaussian noise is kept": (
            "        accept &= (value != 0) | (extra & np.uint64(1) == 0)\n",
            "",
        ),
        "a tie of the inversion is decided without further bits": (
            "places[i] = self._refine(int(uniform[i]), more)",
            "places[i] = places[i]",
        ),
    },
    "core/privacy/budget.py": {
        "parts of a split do not add up to the whole": ("/ total for", "/ total * Fraction(1001, 1000) for"),
        "an amount is printed rounded down": ("rounding=ROUND_CEILING", 'rounding="ROUND_FLOOR"'),
    },
    "core/privacy/discovery.py": {
        "the threshold is lower by the noise of a factor of two": (
            "<= (self.delta or 0))",
            "<= (self.delta or 0)) - math.ceil((self.noise.variance / 2) ** 0.5 * math.log(2))",
        ),
        "the values of a user count as one": ("return self.unit.factor(PureDP(1))", "return 1"),
        "values once each are taken for the worst case": ("for c in counts)", "for c in {1})"),
        "the tail at the threshold is one too short": (
            "tail, ratio = exp_bounds((limit + 1)",
            "tail, ratio = exp_bounds((limit + 2)",
        ),
    },
    "core/privacy/entropy.py": {
        "words are handed out twice": ("self._used += n", "self._used += n - 1"),
        "a forked child goes on with its parent's words": (
            "self._buffer, self._used = np.empty(0, dtype=np.uint64), 0\n\n\nclass",
            "pass\n\n\nclass",
        ),
    },
    "core/privacy/joint.py": {
        "joint noise is sampled at half its scale": (".scale, self.sizes, ", ".scale / 2, self.sizes, "),
        "the radius of joint noise has a geometric number too few": ("._dimension + 1, ", "._dimension, "),
        "a subset leaves out its last place": ("(last + 1, words)", "(max(last, 1), words)"),
    },
    "core/privacy/noise.py": {
        "noise for zCDP is calibrated for twice the rho": ("/ (2 * budget.rho))", "/ (4 * budget.rho))"),
    },
    "core/privacy/randomness.py": {
        "one draw serves two cells": (
            "return sample(law, size, self.words)",
            "drawn = sample(law, size, self.words)\n        drawn[1:2] = drawn[:1]\n        return drawn",
        ),
    },
    "core/privacy/select.py": {
        "scores count twice as much as the sensitivity allows": (
            "Fraction(self.epsilon) / (2 * Fraction(self.sensitivity))",
            "Fraction(self.epsilon) / Fraction(self.sensitivity)",
        ),
        "permute-and-flip takes the first head": ("(heads[uniform_below(len(heads), words)])", "(heads[0])"),
        "the exponential mechanism's epsilon is rounded up": ("(root, 1 << shift)", "(root + 1, 1 << shift)"),
    },
    "core/privacy/unit.py": {
        "a user's events each get the budget times 1/max_events under zCDP, too": (
            "return self.max_events if isinstance(budget, PureDP) else self.max_events**2",
            "return self.max_events",
        ),
        "the number of cut users is not paid by the events": (
            "scaled((1 - self.cut_share) /",
            "scaled(Fraction(1) /",
        ),
        "a replaced record counts as one changed cell": ('1 if self.relation == "add-remove" else 2', "1"),
    },
    "core/schema/encoded_table.py": {
        "undeclared columns are read and forgotten": (") <= self._declared:", "):"),
    },
    "core/tables/_counting_kernels.py": {
        "a pair counted with bitsets forgets what is left for the last value": (
            "        rest[last] -= left\n",
            "",
        ),
    },
    "core/tables/contribution.py": {
        "which value of a user is counted follows the order of the rows": (
            "        if values is not None:\n            more",
            "        if values is None:\n            more",
        ),
        "the bound lets one event more through": ("(max_events - used, 0)", "(max_events + 1 - used, 0)"),
        "which events are admitted follows the order of the rows": (
            "return np.lexsort((tags[:, 1], tags[:, 0], rows))",
            "return np.argsort(rows, kind='stable')",
        ),
        "a user who was cut is cut again in a later step": (
            "max_events + 1)\n    cut",
            "max_events)\n    cut",
        ),
        "a user is counted as cut at every event beyond the bound": (
            "int(np.count_nonzero((counts > max_events) & (used <= max_events)))",
            "int(rows.size - granted.sum())",
        ),
        "the bound counts what all users of a household do": (
            "_hash_different(pa.concat_arrays(texts), key)",
            "_hash_different(pa.compute.binary_slice(pa.concat_arrays(texts), 0, 1), key)",
        ),
        "user 12 and user '12' are two users": (
            "texts = [chunk if _binary(chunk.type) else chunk.cast(pa.string()) for chunk in chunks]",
            "texts = [chunk if _binary(chunk.type) or pa.types.is_string(chunk.type) else "
            "pc.binary_join_element_wise(chunk.cast(pa.string()), '', '#') for chunk in chunks]",
        ),
    },
    "core/tables/counting.py": {
        "codes are not checked against the domain from above": (">= np.array(domain.", "> np.array(domain."),
    },
    "core/tables/encoded_batch.py": {
        "deletes are added": ('self._gone, 1 if part == "deletes" else -1, out)', "self._gone, 1, out)"),
        "an inserted and deleted row is counted again": (
            "more = np.bincount(kinds[:came], minlength=len(rows)) - np.bincount(kinds[came:], "
            "minlength=len(rows))",
            "gone = np.bincount(kinds[came:], minlength=len(rows))\n"
            "        more = np.bincount(kinds[:came], minlength=len(rows))\n"
            "        more = np.where((more > 0) & (gone > 0), more, more - gone)",
        ),
    },
    "core/tables/keyed_reading.py": {
        "an update that says nothing of a column sets it to the first value": (
            "codes[kept, column] = present.codes[at[kept], column]",
            "pass",
        ),
        "a key deleted and inserted in one step is taken as gone": ("!= _UPDATE)[ends]", "== DELETE)[ends]"),
        "an empty snapshot removes everything unasked": ("and (not len(keys) or ", "and len(keys) and ("),
        "keys that are hashed with another person string meet those of users": (', b"record")', ', b"user")'),
    },
    "families/census/census_plan.py": {
        "a stay is counted in two censuses of one level": (
            "present.count(cliques, after)",
            "present.count(cliques, max(0, after - 1))",
        ),
        "departures are published as they are": ("                found = int(values[0])\n", ""),
        "a stay is counted for discovery in several epochs": (
            "(state.discovered, state.step), randomness",
            "(0, state.step), randomness",
        ),
        "discovery is not paid for": ("            budget = budget.scaled(1 - share)\n", ""),
    },
    "core/tables/undiscovered.py": {
        "a text stays when the records that had it have left": (
            "mask=~used[:end]",
            "mask=used[:end] & False",
        ),
    },
    "families/census/schedule.py": {
        "a census leaves the stays of its step to the next one, too": (
            "return [step] * (level + 1) + list(last[level + 1 :])",
            "return [step - 1] * (level + 1) + list(last[level + 1 :])",
        ),
    },
    "families/growing/growing_plan.py": {
        "a rerun is started by an exact count": (".done, t)", ".done, 2 * int(state.counts[0][0]))"),
    },
    "families/panel/cumulative.py": {
        "the private number of people is published": (
            "values, query = randomness.measure(np.array([people]), self.total_noise), marginal_query([])",
            "randomness.measure(np.array([people]), self.total_noise)\n"
            "            values, query = np.array([people]), marginal_query([])",
        ),
        "exact counts decide who gains": (
            "estimates[b] = counter.step(stored, gains[b - 1 : b], randomness)[0]",
            "estimates[b] = max(counter.step(stored, gains[b - 1 : b], randomness)[0], int(gains[b - 1]))",
        ),
        "the exact number of people is published": ("int(values[0]) + self.padding", "people + self.padding"),
    },
    "families/panel/window.py": {
        "a replaced person counts as one changed pattern": (
            'cells = 1 if self.unit.relation == "add-remove" else 2\n        noise',
            "cells = 1\n        noise",
        ),
        "histograms have more than the budget together": ("1, self.histograms", "2, 2 * self.histograms - 1"),
        "a pattern is dealt as often as people have it": (
            "noisy = randomness.measure(counts + self.padding, self.noise)",
            "noisy = np.maximum(randomness.measure(counts + self.padding, self.noise), counts)",
        ),
    },
    "families/points/cells.py": {
        "a level of points spends its sparse counter's share twice": (
            "DiscreteLaplace(1 / (epsilon * (1 - design.test_share))))",
            "DiscreteLaplace(1 / epsilon))",
        ),
        "cells without points are read off exact counts": ("(np.float64)", "(np.float64) * (exact > 0)"),
    },
    "families/tabular/dpstabs.py": {
        "the exact number of arrivals is published": (
            "return estimate_total(self.increments)[0] if self.public_arrivals is None else "
            "self.public_arrivals",
            "return float(self.counts[0].sum())",
        ),
    },
    "families/tabular/pooled.py": {
        "a pooled run decides on exact counts how much it measures": (
            "expected = side.rate * length if size is None else float(size)",
            "expected = float(side.counts[self.cells.part(0)].sum())",
        ),
        "the rate at the start is that of exact counts": (
            "measured = self._close_periods(state, randomness)\n",
            "if state.step == 1:\n"
            "            for side in state.sides:\n"
            "                side.rate = float(side.counts[self.cells.part(0)].sum())\n"
            "        measured = self._close_periods(state, randomness)\n",
        ),
        "a period's counts go on in the next one": (
            "side.periods[place] = np.zeros_like(side.periods[place])",
            "pass",
        ),
        "headlines and tables both have the whole budget": ("rest -= share", "rest -= 0"),
        "the number of records pays nothing": ("rest -= number", "rest -= 0"),
        "means pay nothing": ("rest -= MEAN_SHARE", "rest -= 0"),
    },
    "mechanisms/means.py": {
        "a number moves its sums by one step": (
            "noise_for(each, times * many, times * many**2)",
            "noise_for(each, times, times)",
        ),
        "a step counts twice": ("np.column_stack([down, up])", "np.column_stack([down, 2 * up])"),
    },
    "families/tabular/pooled_clock.py": {
        "a level pays nothing: it has the whole tree's share": (
            "Fraction(1, len(self.headlines) * len(group))",
            "Fraction(1, len(self.headlines))",
        ),
    },
    "families/tabular/pooled_book.py": {
        "the newest period is left out of the number of records": (
            "self.values[series] += value",
            "self.values[series] = value",
        ),
        "a table reads a period that nobody measured": ("self.many += 1", "self.many += 2"),
    },
    "families/tabular/pooled_run.py": {
        "the model at the start is fitted to exact columns": (
            "domain, start = self.followed.workload.domain, known.bounded(PRIOR_BOUND)",
            "from dpstream.core.graphical import fit\n"
            "\n"
            "        domain = self.followed.workload.domain\n"
            "        exact = [\n"
            "            Measurement(cells.cliques[i], counts[cells.part(i)].astype(float), 1.0)\n"
            "            for i in range(self.followed.columns)\n"
            "        ]\n"
            "        start = fit(domain, exact, "
            "total=float(counts[cells.part(0)].sum())).bounded(PRIOR_BOUND)",
        ),
        "zeros are read off exact counts": (
            "cells, values = self.cells, self._answers()",
            "cells, values = self.cells, self._answers()\n"
            "        for index, known in list(self.by_index.items()):\n"
            "            zero = self.counts[cells.cliques[index]] == 0\n"
            "            self.by_index[index] = replace(known, values=np.where(zero, 0.0, known.values))",
        ),
    },
    "io/sinks/signing.py": {
        "a signature is not compared with the message": (
            "key.verify(bytes.fromhex(signature), _message(facts))",
            "bytes.fromhex(signature)",
        ),
        "a file that was signed once may be another": ("if sha256(data) in listed if", "if True if"),
    },
    "io/sinks/publisher.py": {
        "what readers know is signed only once it was replaced": (
            "            if listed:\n                sign(",
            "            if False:\n                sign(",
        ),
        "changed files that explain the folder are signed": (
            "in files.items())\n\n    @property\n    def table_name",
            "in ())\n\n    @property\n    def table_name",
        ),
        "files that differ from what was committed are left as they are": (
            "if present != wanted:",
            "if present.keys() != wanted.keys():",
        ),
        "a withdrawn table stays in its folder": (
            "        for name in sorted(gone):\n            durable.unlink(folder / name)\n",
            "",
        ),
        "a step's folder is renamed before its files are on the disk": (
            "durable.sync_directory(temporary)\n            try:",
            "try:",
        ),
    },
    "io/sources/calendar.py": {
        "a month that begins late takes in the days before its first one": (" - (day < self.start.day)", ""),
        "the last day of a period is the first of the next": (")) // self.days + ", ") + 1) // self.days + "),
    },
    "io/sources/files.py": {
        "late records of a released step move into the next one unasked": (
            'if self.late == "next-step":',
            'if self.late in ("next-step", "error"):',
        ),
        "records that were read before count as late": ("(steps.size) >= known", "(steps.size) > known"),
        "a file that is new among released ones is read as the newest step": (
            "raise other_files(last)",
            "return True",
        ),
    },
    "core/privacy/waiting.py": {
        "noise beyond a limit begins at the limit": ("above + 1 + int(beyond", "above + int(beyond"),
        "a draw after one beyond the limit is skipped": ("at += wait or span", "at += (wait or span) + 1"),
    },
    "mechanisms/discovery.py": {
        "values are published in the order of arrival": (
            "for value in sorted(chosen)]",
            "for value in passed]",
        ),
        "a value of a pattern is drawn as if it did not occur, too": (
            "                passed.pop(value, None)\n",
            "                number = max(number, passed.get(value, number))\n",
        ),
        "a step's outputs depend on values that are not published": (
            "Found(value, end + 1, n)",
            "Found(value, end + 1, n + hash(min(counts.of(column, begun))) % 97)",
        ),
        "values that entered are found again": (
            "        if value in self.known:\n",
            "        if value in ():\n",
        ),
    },
    "mechanisms/discovery_plan.py": {
        "each column has the whole delta": (
            "Threshold(own, unit, (self.delta or Fraction(0)) / parts)",
            "Threshold(own, unit, self.delta)",
        ),
        "each column has the whole share": (
            "budget.scaled(Fraction(1, len(self.columns)))",
            "budget.scaled(Fraction(1))",
        ),
        "discovery epochs grow for ever": (
            "2 * last if self.recipe.year is None else min(2 * last, self.recipe.year)",
            "2 * last",
        ),
    },
    "mechanisms/engine.py": {
        "the exact number of records is published": (
            "return estimate_total(self.sums) if self.public_total is None else (self.public_total, 0.0)",
            "return float(next(iter(self.counts.values())).sum()), estimate_total(self.sums)[1]",
        ),
        "selecting is exact": (
            "index = np.asarray(allowed, dtype=np.int64)",
            "index = np.asarray(allowed, dtype=np.int64)\n"
            "        return int(index[np.argmax((numerators / denominators)[index].astype(float))])",
        ),
    },
    "mechanisms/joint_groups.py": {
        "the law of joint noise has half its scale": ("budget.epsilon, tuple", "(2 * budget.epsilon), tuple"),
    },
    "service/desk/roles.py": {
        "auditors decide about held tables": ('{"approver", "owner"})', '{"approver", "owner", "auditor"})'),
        "an action that stands in no table is allowed": (".get(action, frozenset())", ".get(action, _ALL)"),
    },
    "service/pages/serving.py": {
        "the pages of the service may be framed": ('    "x-frame-options": "DENY",\n', ""),
        "a bug's text, which may quote what somebody typed, is in the log": (
            "record.exc_info = record.exc_text = None",
            "pass",
        ),
    },
    "stream/admission.py": {
        "a user's counter is not set back at a border": (
            "ends(self._per, step))",
            "False)",
        ),
        "a user's counter is set back a step too early": (
            "ends(self._per, step))",
            "ends(self._per, step + 1))",
        ),
        "a user's counter is set back with each batch": (
            "(self._per is not None and ends(self._per, step))",
            "self._per is not None",
        ),
        "a key that came back is not refused": (
            "        if self._final:\n"
            "            refuse_returns(before, changes, self._store.any_departed, where)\n",
            "",
        ),
    },
    "stream/cut_users.py": {
        "users who were cut are counted in the next period, too": (
            "type(self)(0, step,",
            "type(self)(count, step,",
        ),
    },
    "stream/ledger/account.py": {
        "an account counts records by the period in which they arrive": (
            "self.last if self.deletes and self.last is not None else period + self.crosses",
            "period + self.crosses",
        ),
    },
    "stream/ledger/limit.py": {
        "an account adds replacing as if it were adding": ("replace_from_add_remove(budget)", "budget"),
        "pure charges count nothing in a sum as zCDP": (
            "rho += (pure_to_zcdp(budget) if isinstance(budget, PureDP) else budget).rho",
            "rho += 0 if pure else budget.rho",
        ),
    },
    "stream/store/archive.py": {
        "the checksum of an archive is not compared": (") if behind.startswith(", ") if len(behind) >= len("),
    },
    "stream/store/encryption.py": {
        "the encrypted value is not bound to its row": ('._start + b"".join(map(_framed, parts))', "._start"),
    },
    "stream/store/summed_rows.py": {
        "counters of a past period are forgotten, and stay": ('db.execute(f"DELETE FROM {_USERS}")', "pass"),
        "only so many values of a step are counted": (
            "for start in range(0, len(order), _PAGE):\n            rows",
            "for start in range(0, min(len(order), 4 * _PAGE), _PAGE):\n            rows",
        ),
        "values are counted again in the next epoch": ('db.execute(f"DELETE FROM {_VALUES}")', "pass"),
    },
    "stream/store/sealed_history.py": {
        "values of an earlier step are taken for those of the last": ("if step != ", "if step > "),
        "seals of steps are not compared": ("if not hmac.compare_digest(wanted, ", "if len(wanted) != len("),
        "columns of a seal are joined without their lengths": (
            '        mac.update(len(data).to_bytes(8, "little"))\n',
            "",
        ),
        "a head that is ahead of the store is accepted": (
            "if heads.step > last:\n        return f",
            "if heads.step > last:\n        return None and f",
        ),
    },
    "stream/stream.py": {
        "a release is published before it is committed": (
            "self._store.commit_step(prepared)\n        self._state",
            "if self._outlet is not None and prepared.publication == 'pending':\n"
            "            from dpstream.io.sinks import StepFiles\n"
            "            files = {**prepared.files, 'manifest.json': prepared.manifest}\n"
            "            self._outlet._sink.put(StepFiles.of(prepared.reservation.step, files))\n"
            "        self._store.commit_step(prepared)\n"
            "        self._state",
        ),
        "the same name with other records gives the stored release": (
            "        if not hmac.compare_digest(content, known.content):\n"
            "            raise other_records(known)\n",
            "",
        ),
        "a step beyond the horizon is taken": ("None and step > horizon:", "None and step > horizon + 1:"),
        "an error after drawing leaves the step free to be drawn again": (", Exception) ", ", ValueError) "),
        "a withdrawn release is given": ("if committed.publication in _TAKEN_BACK:", "if False:"),
    },
    "stream/release/flows.py": {
        "a change keeps the noise of periods that both spans have": (
            "for span in _without(*pair)]",
            "for span in pair[:1]]",
        ),
        "records a day are records": ("(-rates[0], rates[1], ", "(-1.0, 1.0, "),
    },
    "stream/release/estimates.py": {
        "a change keeps the noise of draws that both of its ends use": (
            "key, own = part.key, part.scaled(weight)",
            "key, own = (part.key, weight, one.as_of), part.scaled(weight)",
        ),
    },
    "stream/release/flow_kinds.py": {
        "who left before a census is taken from those whom it counted": (
            "if counted < one.end <= step:",
            "if one.end <= step:",
        ),
        "the noise of the running sum where a flow begins is left out": (
            "(-1.0, noises[1] - noises[0])",
            "(-1.0, set[int]())",
        ),
    },
    "tools/report/markup.py": {
        "a value of the table becomes markup": ("autoescape=True,", "autoescape=False,"),
    },
}
#: Folder or file below ``src/dpstream`` -> nearest tests, below ``tests``, the fastest first; the longest name counts.
NEAREST: dict[str, tuple[str, ...]] = {
    "core/contracts/stream_plan.py": ("streams/test_cut_users.py",),
    "core/counters": ("counters", "checks"),
    "core/paths.py": ("streams/test_encryption.py", "sinks/test_signing.py"),
    "core/privacy": ("privacy", "counters", "tabular/test_transcripts.py"),
    "core/privacy/discovery.py": ("privacy/test_discovery.py",),
    "core/privacy/unit.py": ("streams/test_cut_users.py", "streams/test_contribution.py"),
    "core/privacy/waiting.py": ("privacy/test_discovery.py", "privacy/test_waiting.py"),
    "mechanisms/discovery": (
        "privacy/test_discovery.py",
        "tabular/test_discovery_plan.py",
        "streams/test_discovery.py",
    ),
    "core/schema": ("schema/test_schema_table.py", "schema", "streams/test_stream.py"),
    "core/showing.py": ("evaluate/test_report_browser.py", "evaluate"),
    "core/tables": ("tables", "streams/test_contribution.py", "streams/test_discovery.py", "tabular"),
    "core/tables/keyed_reading.py": ("streams/test_keyed.py", "sources/test_keyed_shapes.py", "streams"),
    "core/tables/undiscovered.py": ("streams/test_census_discovery.py", "streams/test_discovery.py"),
    "families/census": ("streams/test_every_plan.py", "census"),
    "families/census/census_plan.py": ("streams/test_census_discovery.py", "census"),
    "families/growing": ("streams/test_every_plan.py", "growing"),
    "families/panel": ("streams/test_every_plan.py", "panel"),
    "families/points": (
        "evaluate/test_audits.py",
        "streams/test_every_plan.py",
        "points",
    ),
    "families/tabular/pooled_book.py": ("tabular/test_levels.py", "tabular/test_periods.py"),
    "families/tabular/pooled_clock.py": ("tabular/test_levels.py", "tabular/test_periods.py"),
    "families/tabular/pooled.py": (
        "tabular/test_periods.py",
        "streams/test_discovery.py",
        "streams/test_every_plan.py",
        "tabular",
    ),
    "families/tabular": ("tabular/test_periods.py", "streams/test_every_plan.py", "tabular"),
    "io/sinks": ("sinks", "streams/test_stream.py", "streams"),
    "io/sources/calendar.py": ("sources/test_file_source.py",),
    "io/sources/files.py": ("sources/test_file_source.py",),
    "mechanisms": ("tabular/test_pooled.py", "tabular"),
    "mechanisms/means.py": ("streams/test_averages.py",),
    "service": ("service",),
    "stream": ("streams/test_stream.py", "streams/test_keyed.py", "streams"),
    "stream/admission.py": ("streams/test_contribution.py", "streams"),
    "stream/cut_users.py": ("streams/test_cut_users.py",),
    "stream/ledger": ("streams/test_account.py", "streams/test_ledger.py"),
    "stream/release/estimates.py": ("streams/test_flow_kinds.py", "streams/test_public_measurements.py"),
    "stream/release/flow_kinds.py": ("streams/test_flow_kinds.py",),
    "stream/release/flows.py": ("streams/test_flows.py",),
    "stream/store/summed_rows.py": ("streams/test_discovery.py", "streams/test_keyed.py", "streams"),
    "stream/store": ("streams/test_stream_damage.py", "streams/test_keyed.py", "streams"),
    "stream/store/archive.py": ("streams/test_moves.py", "streams"),
    "stream/store/encryption.py": ("streams/test_encryption.py",),
    "tools/report": ("evaluate/test_report_browser.py", "evaluate"),
}


@dataclass(frozen=True)
class Fault:
    """``after`` takes the place of ``before``, which stands in ``file`` once."""

    file: str
    name: str
    before: str
    after: str

    @property
    def tests(self) -> tuple[str, ...]:
        """The nearest tests."""
        return NEAREST[max((place for place in NEAREST if self.file.startswith(place)), key=len)]

    def plant(self, source: Path) -> None:
        """Put the fault into a copy of ``src``."""
        file = source / "dpstream" / self.file
        file.write_text(file.read_text(encoding="utf-8").replace(self.before, self.after), encoding="utf-8")


FAULTS = tuple(
    Fault(file, name, before, after)
    for file, faults in PLANTED.items()
    for name, (before, after) in faults.items()
)


def applies(fault: Fault) -> bool:
    """Whether the text that the fault replaces stands in its file, once."""
    file = ROOT / "src" / "dpstream" / fault.file
    return file.is_file() and file.read_text(encoding="utf-8").count(fault.before) == 1
