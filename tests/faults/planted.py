"""The planted faults: each one would break a promise, and each one has to be caught by a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """``after`` takes the place of ``before``, which stands in ``file`` once.

    Attributes:
        room: what part of the program it is about.
        name: what goes wrong, in a few words.
        file: below ``src/dpstream``.
        tests: nearest tests, below ``tests``, the fastest first.
    """

    room: str
    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


FAULTS = (
    # Noise.
    Fault(
        "noise",
        "joint noise is sampled at half its scale",
        "core/privacy/joint.py",
        "return _sampler(self.scale, self.sizes, self.level).sample(words)",
        "return _sampler(self.scale / 2, self.sizes, self.level).sample(words)",
        ("privacy",),
    ),
    Fault(
        "noise",
        "the radius of joint noise has a geometric number too few",
        "core/privacy/joint.py",
        "self._geometric.sample(self._dimension + 1, words)",
        "self._geometric.sample(self._dimension, words)",
        ("privacy",),
    ),
    Fault(
        "noise",
        "one draw serves two cells",
        "core/privacy/randomness.py",
        "        return sample(law, size, self.words)",
        "        drawn = sample(law, size, self.words)\n        drawn[1:2] = drawn[:1]\n        return drawn",
        ("privacy", "counters"),
    ),
    Fault(
        "noise",
        "large Laplace noise has no zero of its own: the sign is drawn from the magnitude",
        "core/privacy/_samplers.py",
        "        return value ^ -negative  # -1 - G is the bitwise complement of G",
        "        return np.where(negative == 1, -value, value)",
        ("privacy",),
    ),
    Fault(
        "noise",
        "minus zero of large Gaussian noise is kept",
        "core/privacy/_samplers.py",
        "        accept &= (value != 0) | (extra & np.uint64(1) == 0)\n",
        "",
        ("privacy",),
    ),
    Fault(
        "noise",
        "a tie of the inversion is decided without further bits",
        "core/privacy/_samplers.py",
        "                places[i] = self._refine(int(uniform[i]), more)",
        "                places[i] = places[i]",
        ("privacy",),
    ),
    Fault(
        "noise",
        "words are handed out twice",
        "core/privacy/entropy.py",
        "            self._used += n\n",
        "            self._used += n - 1\n",
        ("privacy",),
    ),
    Fault(
        "noise",
        "a forked child goes on with its parent's words",
        "core/privacy/entropy.py",
        "            self._buffer, self._used = np.empty(0, dtype=np.uint64), 0\n\n\nclass",
        "            pass\n\n\nclass",
        ("privacy",),
    ),
    Fault(
        "noise",
        "noise for zCDP is calibrated for twice the rho",
        "core/privacy/noise.py",
        "    return DiscreteGaussian(sensitivity / (2 * budget.rho))",
        "    return DiscreteGaussian(sensitivity / (4 * budget.rho))",
        ("privacy",),
    ),
    Fault(
        "noise",
        "a subset leaves out its last place",
        "core/privacy/joint.py",
        "        place = uniform_below(last + 1, words)",
        "        place = uniform_below(max(last, 1), words)",
        ("privacy",),
    ),
    # Selections.
    Fault(
        "selection",
        "scores count twice as much as the sensitivity allows",
        "core/privacy/select.py",
        "Fraction(self.epsilon) / (2 * Fraction(self.sensitivity))",
        "Fraction(self.epsilon) / Fraction(self.sensitivity)",
        ("privacy",),
    ),
    Fault(
        "selection",
        "permute-and-flip takes the first head",
        "core/privacy/select.py",
        "    return int(heads[uniform_below(len(heads), words)])",
        "    return int(heads[0])",
        ("privacy",),
    ),
    Fault(
        "selection",
        "the exponential mechanism's epsilon is rounded up",
        "core/privacy/select.py",
        "    return Fraction(root, 1 << shift)",
        "    return Fraction(root + 1, 1 << shift)",
        ("privacy",),
    ),
    # Budgets and units.
    Fault(
        "budgets",
        "a user's events each get the budget times 1/max_events under zCDP, too",
        "core/privacy/unit.py",
        "        return self.max_events if isinstance(budget, PureDP) else self.max_events**2",
        "        return self.max_events",
        ("privacy", "tabular/test_user_transcripts.py"),
    ),
    Fault(
        "budgets",
        "a replaced record counts as one changed cell",
        "core/privacy/unit.py",
        '        return 1 if self.relation == "add-remove" else 2',
        "        return 1",
        ("privacy", "counters"),
    ),
    Fault(
        "budgets",
        "parts of a split do not add up to the whole",
        "core/privacy/budget.py",
        "    return [weight / total for weight in exact]",
        "    return [weight / total * Fraction(1001, 1000) for weight in exact]",
        ("privacy",),
    ),
    Fault(
        "budgets",
        "an amount is printed rounded down",
        "core/privacy/budget.py",
        "rounding=ROUND_CEILING",
        'rounding="ROUND_FLOOR"',
        ("privacy",),
    ),
    Fault(
        "budgets",
        "an account adds replacing as if it were adding",
        "stream/ledger/limit.py",
        "        return replace_from_add_remove(budget)",
        "        return budget",
        ("streams/test_account.py", "streams/test_ledger.py"),
    ),
    Fault(
        "budgets",
        "pure charges count nothing in a sum as zCDP",
        "stream/ledger/limit.py",
        "        rho += (pure_to_zcdp(budget) if isinstance(budget, PureDP) else budget).rho",
        "        rho += 0 if pure else budget.rho",
        ("streams/test_account.py",),
    ),
    # Counters.
    Fault(
        "counters",
        "the tick that ends a block spends the whole budget again",
        "core/counters/intervals.py",
        "            return Interval(None, _ALL if size == 1 else _HALF)",
        "            return Interval(None, _ALL)",
        ("counters", "checks"),
    ),
    Fault(
        "counters",
        "closed partitions: the ticks inside the last block use a third too much",
        "core/counters/intervals.py",
        "        return Interval(0, _TWO_THIRDS if position > size * (size - 1) else _THIRD)",
        "        return Interval(0, _TWO_THIRDS)",
        ("counters", "checks"),
    ),
    Fault(
        "counters",
        "exact sums stay pending when an interval settles",
        "core/counters/intervals.py",
        '                state["pending"][:] = 0\n',
        "",
        ("counters",),
    ),
    # Admission.
    Fault(
        "admission",
        "the bound lets one event more through",
        "core/tables/contribution.py",
        "np.maximum(max_events - used, 0)",
        "np.maximum(max_events + 1 - used, 0)",
        ("tables", "streams/test_contribution.py"),
    ),
    Fault(
        "admission",
        "which events are admitted follows the order of the rows",
        "core/tables/contribution.py",
        "    return np.lexsort((tags[:, 1], tags[:, 0], rows))",
        "    return np.argsort(rows, kind='stable')",
        ("tables", "streams/test_contribution.py"),
    ),
    Fault(
        "admission",
        "what was left out is counted as used",
        "core/tables/contribution.py",
        "mask[split:], used + granted,",
        "mask[split:], used + wanted,",
        ("tables", "streams/test_contribution.py"),
    ),
    Fault(
        "admission",
        "user 12 and user '12' are two users",
        "core/tables/contribution.py",
        "    texts = [chunk if _binary(chunk.type) else chunk.cast(pa.string()) for chunk in chunks]",
        "    texts = [chunk if _binary(chunk.type) or pa.types.is_string(chunk.type) else "
        "pc.binary_join_element_wise(chunk.cast(pa.string()), '', '#') for chunk in chunks]",
        ("tables", "streams/test_contribution.py"),
    ),
    # Counts.
    Fault(
        "counts",
        "a pair counted with bitsets forgets what is left for the last value",
        "core/tables/_counting_kernels.py",
        "        rest[last] -= left\n",
        "",
        ("tables",),
    ),
    Fault(
        "counts",
        "deletes are added",
        "core/tables/encoded_batch.py",
        'self._gone, 1 if part == "deletes" else -1, out)',
        "self._gone, 1, out)",
        ("tables",),
    ),
    Fault(
        "counts",
        "codes are not checked against the domain from above",
        "core/tables/counting.py",
        "np.flatnonzero((low < 0) | (high >= np.array(domain.sizes)))",
        "np.flatnonzero((low < 0) | (high > np.array(domain.sizes)))",
        ("tables",),
    ),
    # The step: what is durable when.
    Fault(
        "step",
        "a release is published before it is committed",
        "stream/stream.py",
        "        self._store.commit_step(prepared)\n        self._state",
        "        if self._outlet is not None and prepared.publication == 'pending':\n"
        "            from dpstream.io.sinks import StepFiles\n"
        "            files = {**prepared.files, 'manifest.json': prepared.manifest}\n"
        "            self._outlet._sink.put(StepFiles.of(prepared.reservation.step, files))\n"
        "        self._store.commit_step(prepared)\n        self._state",
        ("streams/test_faults.py",),
    ),
    Fault(
        "step",
        "the same name with other records gives the stored release",
        "stream/stream.py",
        "        if not hmac.compare_digest(content, known.content):\n            raise other_records(known)\n",
        "",
        ("streams/test_stream.py",),
    ),
    Fault(
        "step",
        "a step beyond the horizon is taken",
        "stream/stream.py",
        "        if horizon is not None and step > horizon:",
        "        if horizon is not None and step > horizon + 1:",
        ("streams/test_stream.py", "streams"),
    ),
    Fault(
        "step",
        "an error after drawing leaves the step free to be drawn again",
        "stream/stream.py",
        "if drawn and isinstance(error, Exception) else None",
        "if drawn and isinstance(error, ValueError) else None",
        ("streams/test_watched.py", "streams/test_stream.py"),
    ),
    Fault(
        "step",
        "a withdrawn release is given",
        "stream/stream.py",
        "        if committed.publication in _TAKEN_BACK:\n",
        "        if False:\n",
        ("streams/test_stream.py", "streams"),
    ),
    # Store and ledger.
    Fault(
        "ledger",
        "values of an earlier step are taken for those of the last",
        "stream/store/sealed_history.py",
        "            if step != last_step + (name in _AHEAD):",
        "            if step > last_step + (name in _AHEAD):",
        ("streams/test_keyed_store.py", "streams"),
    ),
    Fault(
        "ledger",
        "the checksum of an archive is not compared",
        "stream/store/archive.py",
        "db.verify_all() if behind.startswith(digest)",
        "db.verify_all() if len(behind) >= len(digest)",
        ("streams/test_moves.py", "streams"),
    ),
    Fault(
        "ledger",
        "seals of steps are not compared",
        "stream/store/sealed_history.py",
        "            if not hmac.compare_digest(wanted, bytes(stored)):",
        "            if len(wanted) != len(bytes(stored)):",
        ("streams/test_stream_damage.py", "streams/test_ledger.py"),
    ),
    Fault(
        "ledger",
        "columns of a seal are joined without their lengths",
        "stream/store/sealed_history.py",
        '        mac.update(len(data).to_bytes(8, "little"))\n',
        "",
        ("streams/test_stream_damage.py", "streams/test_ledger.py"),
    ),
    Fault(
        "ledger",
        "a head that is ahead of the store is accepted",
        "stream/store/sealed_history.py",
        "    if heads.step > last:\n        return (",
        "    if heads.step > last:\n        return None and (",
        ("streams/test_stream_damage.py", "streams"),
    ),
    # Access.
    Fault(
        "access",
        "auditors decide about held tables",
        "service/desk/roles.py",
        '_DECIDES = frozenset({"approver", "owner"})',
        '_DECIDES = frozenset({"approver", "owner", "auditor"})',
        ("service",),
    ),
    Fault(
        "access",
        "an action that stands in no table is allowed",
        "service/desk/roles.py",
        "    may = MAY.get(action, frozenset())",
        "    may = MAY.get(action, _ALL)",
        ("service",),
    ),
    # Keyed records.
    Fault(
        "keys",
        "an update that says nothing of a column sets it to the first value",
        "core/tables/keyed_reading.py",
        "            codes[kept, column] = present.codes[at[kept], column]",
        "            pass",
        ("streams/test_keyed.py", "sources/test_keyed_shapes.py"),
    ),
    Fault(
        "keys",
        "a key deleted and inserted in one step is taken as gone",
        "core/tables/keyed_reading.py",
        "        last = _last_where(operations != _UPDATE)[ends]\n        stays",
        "        last = _last_where(operations == DELETE)[ends]\n        stays",
        ("streams/test_keyed.py", "sources/test_keyed_shapes.py"),
    ),
    Fault(
        "keys",
        "an empty snapshot removes everything unasked",
        "core/tables/keyed_reading.py",
        "            and (not len(keys) or ",
        "            and len(keys) and (",
        ("streams/test_keyed.py", "streams/test_keyed_rules.py"),
    ),
    Fault(
        "keys",
        "keys that are hashed with another person string meet those of users",
        "core/tables/keyed_reading.py",
        'key, b"record")',
        'key, b"user")',
        ("streams/test_keyed.py", "streams/test_keyed_store.py"),
    ),
    Fault(
        "keys",
        "a key that came back is not refused",
        "stream/admission.py",
        "        if self._final:\n            refuse_returns(before, changes, self._store.any_departed, where)\n",
        "",
        ("streams/test_keyed.py", "streams/test_keyed_rules.py"),
    ),
    # Readers.
    Fault(
        "readers",
        "a month that begins late takes in the days before its first one",
        "io/sources/calendar.py",
        "whole = month.astype(np.int64) - (day < self.start.day)",
        "whole = month.astype(np.int64)",
        ("sources/test_calendar_and_tables.py",),
    ),
    Fault(
        "readers",
        "the last day of a period is the first of the next",
        "io/sources/calendar.py",
        "        return (times - day_number(self.start)) // self.days + 1",
        "        return (times - day_number(self.start) + 1) // self.days + 1",
        ("sources/test_calendar_and_tables.py",),
    ),
    Fault(
        "readers",
        "late records of a released step move into the next one unasked",
        "io/sources/files.py",
        '        if self.late == "next-step":',
        '        if self.late in ("next-step", "error"):',
        ("sources/test_file_source.py",),
    ),
    Fault(
        "readers",
        "records that were read before count as late",
        "io/sources/files.py",
        "            passed &= before + np.arange(steps.size) >= known",
        "            passed &= before + np.arange(steps.size) > known",
        ("sources/test_file_source.py",),
    ),
    Fault(
        "readers",
        "a file that is new among released ones is read as the newest step",
        "io/sources/files.py",
        "    raise other_files(last)\n",
        "    return True\n",
        ("sources/test_file_source.py",),
    ),
    # Panels.
    Fault(
        "panels",
        "a replaced person counts as one changed pattern",
        "families/panel/window.py",
        '        cells = 1 if self.unit.relation == "add-remove" else 2\n        noise',
        "        cells = 1\n        noise",
        ("panel",),
    ),
    Fault(
        "panels",
        "histograms have more than the budget together",
        "families/panel/window.py",
        "self.budget.scaled(Fraction(1, self.histograms))",
        "self.budget.scaled(Fraction(2, 2 * self.histograms - 1))",
        ("panel",),
    ),
    Fault(
        "panels",
        "the private number of people is published",
        "families/panel/cumulative.py",
        "            values, query = randomness.measure(np.array([people]), self.total_noise), marginal_query([])",
        "            randomness.measure(np.array([people]), self.total_noise)\n"
        "            values, query = np.array([people]), marginal_query([])",
        ("panel",),
    ),
    # Tables: pooled, census, points.
    Fault(
        "tables",
        "a pooled run decides on exact counts how much it measures",
        "families/tabular/pooled.py",
        "expected = side.rate * length if size is None else float(size)",
        "expected = float(side.counts[self.cells.part(0)].sum())",
        ("tabular/test_pooled.py", "tabular"),
    ),
    Fault(
        "tables",
        "the exact number of records is published",
        "mechanisms/engine.py",
        "        return estimate_total(self.sums) if self.public_total is None else (self.public_total, 0.0)",
        "        return float(next(iter(self.counts.values())).sum()), estimate_total(self.sums)[1]",
        ("tabular/test_pooled.py", "tabular"),
    ),
    Fault(
        "tables",
        "selecting is exact",
        "mechanisms/engine.py",
        "        index = np.asarray(allowed, dtype=np.int64)\n",
        "        index = np.asarray(allowed, dtype=np.int64)\n"
        "        return int(index[np.argmax((numerators / denominators)[index].astype(float))])\n",
        ("tabular",),
    ),
    Fault(
        "tables",
        "an inserted and deleted row is counted again",
        "core/tables/encoded_batch.py",
        "        more = np.bincount(kinds[:came], minlength=len(rows)) "
        "- np.bincount(kinds[came:], minlength=len(rows))",
        "        gone = np.bincount(kinds[came:], minlength=len(rows))\n"
        "        more = np.bincount(kinds[:came], minlength=len(rows))\n"
        "        more = np.where((more > 0) & (gone > 0), more, more - gone)",
        ("tables", "tabular"),
    ),
    Fault(
        "tables",
        "a level of the census comes again before a stay of that level could have ended",
        "families/census/schedule.py",
        "    return [step] * (level + 1) + list(last[level + 1 :])",
        "    return [*last[:level], step, *last[level + 1 :]] if level < len(last) else [step] * (level + 1)",
        ("census",),
    ),
    Fault(
        "tables",
        "a level of points spends its sparse counter's share twice",
        "families/points/cells.py",
        "DiscreteLaplace(1 / (epsilon * (1 - design.test_share))))",
        "DiscreteLaplace(1 / epsilon))",
        ("evaluate/test_audit_points.py", "points"),
    ),
    # What is published, and how.
    Fault(
        "formats",
        "files that differ from what was committed are left as they are",
        "io/sinks/publisher.py",
        "        if present != wanted:\n",
        "        if present.keys() != wanted.keys():\n",
        ("sinks", "streams/test_release.py"),
    ),
    Fault(
        "formats",
        "a withdrawn table stays in its folder",
        "io/sinks/publisher.py",
        "        for name in sorted(gone):\n            durable.unlink(folder / name)\n",
        "",
        ("sinks", "streams/test_stream.py"),
    ),
    Fault(
        "formats",
        "a step's folder is renamed before its files are on the disk",
        "io/sinks/publisher.py",
        "            durable.sync_directory(temporary)\n            try:",
        "            try:",
        ("sinks", "streams/test_faults.py", "streams"),
    ),
    Fault(
        "formats",
        "the encrypted value is not bound to its row",
        "stream/store/encryption.py",
        '        return self._start + b"".join(map(_framed, parts))',
        "        return self._start",
        ("streams/test_encryption.py",),
    ),
    Fault(
        "formats",
        "a key file that others may read is accepted",
        "stream/store/encryption.py",
        "        if stat.S_IMODE(status.st_mode) & 0o077 or",
        "        if stat.S_IMODE(status.st_mode) & 0o007 or",
        ("streams/test_encryption_keys.py", "streams/test_encryption.py"),
    ),
    Fault(
        "formats",
        "undeclared columns are read and forgotten",
        "core/schema/encoded_table.py",
        "        if not self.names <= set(table.column_names) <= self._declared:\n",
        "        if not self.names <= set(table.column_names):\n",
        ("schema/test_schema_table.py", "schema", "streams/test_stream.py"),
    ),
    # Pages.
    Fault(
        "pages",
        "a value of the table becomes markup",
        "tools/report/markup.py",
        "        autoescape=True,",
        "        autoescape=False,",
        ("evaluate/test_report_browser.py", "evaluate"),
    ),
    Fault(
        "pages",
        "a label ends the script that holds it",
        "tools/report/markup.py",
        '    for sign in "<>&":',
        '    for sign in "&":',
        ("evaluate/test_report_browser.py", "evaluate"),
    ),
    Fault(
        "pages",
        "the pages of the service may be framed",
        "service/pages/serving.py",
        '    "x-frame-options": "DENY",\n',
        "",
        ("service/pages", "service"),
    ),
    Fault(
        "pages",
        "a bug's text, which may quote what somebody typed, is in the log",
        "service/pages/serving.py",
        "            record.exc_info = record.exc_text = None\n",
        "            pass\n",
        ("service/pages", "service"),
    ),
)
