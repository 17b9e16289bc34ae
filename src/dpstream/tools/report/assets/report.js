"use strict";
(() => {
  const root = document.documentElement;
  const errors = [];
  addEventListener("error", (event) => {
    errors.push(event.message);
    root.setAttribute("data-errors", errors.join(" | "));
  });
  // Violations of the page's own policy: something wanted to be loaded or run.
  document.addEventListener("securitypolicyviolation", (event) => {
    errors.push(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    root.setAttribute("data-errors", errors.join(" | "));
  });
  const data = JSON.parse(document.getElementById("data").textContent);
  const make = (tag, text, parent) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };

  // Numbers: as the page writes them.

  const shown = (value, spec) => {
    if (value === null || value === undefined) return "–";
    if (spec.share) return value > 0 && value < 0.0005 ? "<0.1 %" : `${(100 * value).toFixed(1)} %`;
    if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
    return String(Number(value.toPrecision(3)));
  };
  const around = (line, index, spec) => {
    const width = line.width && line.values[index] !== null ? line.width[index] : null;
    return shown(line.values[index], spec) + (width ? ` ± ${shown(width, spec)}` : "");
  };
  const called = (spec, i) => spec.names ? spec.names[i] : data.names[spec.x[i]] ?? `step ${spec.x[i]}`;

  // Lines: what is under the pointer, or chosen with the arrow keys.

  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const spec = data.charts[Number(figure.dataset.chart)];
    const [plot, field, pointer] = [".plot", ".field", ".pointer"].map((name) => figure.querySelector(name));
    const out = figure.querySelector("output");
    const [first, last] = [spec.x[0], spec.x[spec.x.length - 1]];
    // Bars stand in the middle of equal parts, points of lines at the step's place.
    const place = (i) => spec.names ? (i + 0.5) / spec.x.length : last > first ? (spec.x[i] - first) / (last - first) : 0.5;
    let index = spec.x.length - 1;
    const show = (i) => {
      index = Math.max(0, Math.min(spec.x.length - 1, i));
      pointer.setAttribute("d", `M${Math.round(1000 * place(index))} 0V400`);
      const only = spec.lines.length === 1;
      out.textContent = `${called(spec, index)}: ${spec.lines.map((line) => `${only ? "" : `${line.label} `}${around(line, index, spec)}`).join(", ")}`;
    };
    const hide = () => { pointer.setAttribute("d", ""); out.textContent = ""; };
    field.addEventListener("pointermove", (event) => {
      const box = field.getBoundingClientRect();
      const wanted = (event.clientX - box.left) / box.width;
      let best = 0;
      spec.x.forEach((_, i) => { if (Math.abs(place(i) - wanted) < Math.abs(place(best) - wanted)) best = i; });
      show(best);
    });
    field.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: spec.x.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(moves[event.key]);
    });
    figure.querySelector("details").addEventListener("toggle", () => valuesTable(figure, spec));
  }

  function valuesTable(figure, spec) {
    const place = figure.querySelector("details .scroll");
    if (place.firstChild) return;
    const table = make("table");
    table.className = "plain";
    const head = make("tr", undefined, make("thead", undefined, table));
    for (const title of ["when", ...spec.lines.map((line) => line.label)]) {
      const cell = make("th", undefined, head);
      cell.scope = "col";
      if (title !== "when") cell.className = "n";
      make("bdi", title, cell);
    }
    const body = make("tbody", undefined, table);
    spec.x.forEach((_, i) => {
      const row = make("tr", undefined, body);
      make("th", called(spec, i), row).scope = "row";
      for (const line of spec.lines) make("td", around(line, i, spec), row).className = "n";
    });
    place.append(table);
  }

  // How long ago: the page does not know when it is read.

  for (const time of document.querySelectorAll("time.age")) {
    const days = Math.floor((Date.now() - Date.parse(time.dateTime)) / 864e5);
    const [many, unit] = days >= 730 ? [days / 365.25, "year"] : days >= 61 ? [days / 30.44, "month"] : [days, "day"];
    if (days >= 0) time.textContent = days === 0 ? "today" : `${Math.floor(many)} ${unit}${Math.floor(many) === 1 ? "" : "s"} ago`;
  }

  // Sliders: one of several pictures at a time. Without a script all of them are there.

  for (const box of document.querySelectorAll(".slides")) {
    const pictures = [...box.querySelectorAll(":scope > figure")];
    if (pictures.length < 2) continue;
    const label = make("label", undefined, undefined);
    label.className = "slider";
    const input = make("input", undefined, label);
    const out = make("output", undefined, label);
    Object.assign(input, { type: "range", min: 0, max: pictures.length - 1, step: 1, value: pictures.length - 1 });
    input.setAttribute("aria-label", "When");
    const turn = () => {
      pictures.forEach((picture, i) => { picture.hidden = i !== Number(input.value); });
      out.textContent = pictures[Number(input.value)].dataset.when;
      input.setAttribute("aria-valuetext", out.textContent);
    };
    input.addEventListener("input", turn);
    box.classList.add("on");
    box.prepend(label);
    turn();
  }

  // Heat maps

  const select = document.getElementById("heat-pair");

  function heat() {
    const place = document.getElementById("heat");
    const pair = data.heat.pairs[Number(select.value)];
    // The longer side goes down: a page scrolls that way by itself.
    let [a, b] = pair.c.map((c) => data.heat.columns[c]);
    let cells = pair.v;
    if (b.groups.length > a.groups.length) {
      [a, b] = [b, a];
      cells = cells[0].map((_, j) => cells.map((row) => row[j]));
    }
    const top = Math.max(1, ...cells.flat());
    const table = make("table");
    table.className = "heat";
    make("caption", "synthetic: percent of all rows", table);
    const headings = make("thead", undefined, table);
    const over = make("tr", undefined, headings);
    make("td", undefined, over);
    const across = make("th", undefined, over);
    across.colSpan = b.groups.length;
    across.className = "axis";
    make("bdi", `${b.name} →`, across);
    const head = make("tr", undefined, headings);
    const down = make("th", undefined, head);
    down.className = "axis";
    make("bdi", `${a.name} ↓`, down);
    for (const label of b.groups) {
      const cell = make("th", undefined, head);
      cell.scope = "col";
      cell.title = label;
      make("bdi", label, cell);
    }
    const body = make("tbody", undefined, table);
    cells.forEach((row, i) => {
      const line = make("tr", undefined, body);
      const name = make("th", undefined, line);
      name.scope = "row";
      name.title = a.groups[i];
      make("bdi", a.groups[i], name);
      row.forEach((v, j) => {
        const cell = make("td", (v / 100).toFixed(1), line);
        const depth = Math.sqrt(v / top).toFixed(3);
        cell.style.backgroundColor = `rgba(var(--accent-rgb), calc(0.04 + ${depth} * var(--deepest)))`;
        cell.title = `${a.name} = ${a.groups[i]}, ${b.name} = ${b.groups[j]}`;
      });
    });
    place.replaceChildren(table);
    document.getElementById("heat-note").textContent = pair.e;
  }
  if (select) {
    select.addEventListener("change", heat);
    heat();
  }

  // What tests look at.
  requestAnimationFrame(() => {
    root.setAttribute("data-width", `${root.scrollWidth} ${innerWidth}`);
    root.setAttribute("data-errors", errors.join(" | "));
    root.setAttribute("data-ready", "true");
  });
})();
