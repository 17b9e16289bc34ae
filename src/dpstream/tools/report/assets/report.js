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
  const dashes = [[], [], [8, 4], [2.5, 3], [9, 3, 2, 3], [14, 4]];
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const make = (tag, text, parent) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };

  // Numbers

  const number = (value) => {
    const size = Math.abs(value);
    if (size >= 100) return Math.round(value).toLocaleString("en");
    return String(Number(value.toPrecision(3)));
  };
  const shown = (value, share) => {
    if (value === null || value === undefined) return "–";
    return share ? `${Number((100 * value).toPrecision(3))} %` : number(value);
  };
  const ticks = (values, share) => {
    const top = Math.max(...values.map(Math.abs));
    return values.map((v) => {
      if (v === 0) return share ? "0%" : "0";
      if (share) return `${Number((100 * v).toPrecision(4))}%`;
      if (top >= 1e6) return `${Number((v / 1e6).toPrecision(4))} M`;
      if (top >= 1e4) return `${Number((v / 1e3).toPrecision(4))} k`;
      return String(Number(v.toPrecision(6)));
    });
  };
  const named = (step) => (data.periods[step] ? `step ${step} (${data.periods[step]})` : `step ${step}`);

  // Lines

  const plots = [];
  const width = (figure) => Math.max(120, figure.querySelector(".plot").clientWidth);

  function readout(figure, spec, index) {
    const [at, ...outputs] = figure.querySelectorAll("output");
    at.textContent = `At ${named(spec.x[index])}:`;
    spec.lines.forEach((line, i) => { outputs[i].textContent = shown(line.values[index], spec.share); });
  }

  function draw(figure, spec) {
    const plot = figure.querySelector(".plot");
    const font = "11px system-ui, sans-serif";
    const few = spec.x.length <= 12;
    const axis = { stroke: css("--quiet"), font, ticks: { show: false } };
    const span = spec.x.length > 1 ? null : [spec.x[0] - 1, spec.x[0] + 1];
    const dated = !spec.small && spec.x.every((step) => data.periods[step]);
    const whole = (u, splits) => splits.map((v) => {
      if (!Number.isInteger(v)) return "";
      return dated && data.periods[v] ? `${v}\n${data.periods[v]}` : String(v);
    });
    const options = {
      width: width(figure),
      height: plot.clientHeight,
      padding: [10, dated ? 32 : 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: false, range: span ? () => span : undefined },
        y: { range: (u, low, high) => limits(low, high, spec) },
      },
      axes: [
        { ...axis, size: dated ? 42 : 26, gap: 4, grid: { show: false }, values: whole, incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10000, 100000], space: dated ? 84 : 44 },
        { ...axis, size: 52, gap: 6, grid: { stroke: css("--grid"), width: 1 }, values: (u, v) => ticks(v, spec.share), space: spec.small ? 30 : 38 },
      ],
      series: [{}].concat(spec.lines.map((line) => ({
        stroke: css(`--c${line.style}`),
        width: line.style === 0 ? 5 : 2,
        dash: dashes[line.style],
        points: { show: few || line.values.filter((v) => v !== null).length < 2, size: 6, fill: css("--card") },
        spanGaps: false,
      }))),
      hooks: {
        setCursor: [(u) => readout(figure, spec, u.cursor.idx === null || u.cursor.idx === undefined ? spec.x.length - 1 : u.cursor.idx)],
      },
    };
    plot.replaceChildren();
    const chart = new uPlot(options, [spec.x, ...spec.lines.map((line) => line.values)], plot);
    readout(figure, spec, spec.x.length - 1);
    return chart;
  }

  function limits(low, high, spec) {
    if (low === null || low === undefined || !isFinite(low)) return [0, 1];
    const bottom = spec.zero ? Math.min(0, low) : low;
    if (high <= bottom) return [bottom, bottom + (spec.share ? 0.01 : 1)];
    return [bottom, high + 0.06 * (high - bottom)];
  }

  function valuesTable(figure, spec) {
    const place = figure.querySelector("details .scroll");
    if (place.firstChild) return;
    const table = make("table");
    table.className = "plain";
    const head = make("tr", undefined, make("thead", undefined, table));
    for (const title of ["step", ...spec.lines.map((line) => line.label)]) {
      const cell = make("th", undefined, head);
      cell.scope = "col";
      if (title !== "step") cell.className = "n";
      make("bdi", title, cell);
    }
    const body = make("tbody", undefined, table);
    spec.x.forEach((step, i) => {
      const row = make("tr", undefined, body);
      make("th", data.periods[step] ? `${step} (${data.periods[step]})` : String(step), row).scope = "row";
      for (const line of spec.lines) make("td", shown(line.values[i], spec.share), row).className = "n";
    });
    place.append(table);
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  function drawAll() {
    while (plots.length) plots.pop().chart.destroy();
    for (const figure of figures) {
      const spec = data.charts[Number(figure.dataset.chart)];
      plots.push({ figure, chart: draw(figure, spec) });
    }
  }
  for (const figure of figures) {
    figure.querySelector("details").addEventListener("toggle", () => valuesTable(figure, data.charts[Number(figure.dataset.chart)]));
  }

  // Heat maps

  const select = document.getElementById("heat-pair");
  const heatMode = () => document.querySelector("input[name=heat]:checked")?.value ?? "v";

  function heat() {
    const place = document.getElementById("heat");
    const pair = data.heat.pairs[Number(select.value)];
    // The longer side goes down: a page scrolls that way by itself.
    let [a, b] = pair.c.map((c) => data.heat.columns[c]);
    const mode = heatMode();
    let cells = mode === "t" ? pair.t : mode === "v" ? pair.v : pair.v.map((row, i) => row.map((v, j) => v - pair.t[i][j]));
    if (b.groups.length > a.groups.length) {
      [a, b] = [b, a];
      cells = cells[0].map((_, j) => cells.map((row) => row[j]));
    }
    const top = Math.max(1, ...cells.flat().map(Math.abs));
    const table = make("table");
    table.className = "heat";
    const what = { v: "synthetic: percent of all rows", t: "true: percent of all rows", d: "synthetic less true: percentage points of all rows" };
    make("caption", what[mode], table);
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
        const cell = make("td", (mode === "d" && v > 0 ? "+" : "") + (v / 100).toFixed(v && Math.abs(v) < 10 ? 2 : 1), line);
        const depth = Math.sqrt(Math.abs(v) / top) * 0.95;
        cell.style.backgroundColor = `rgba(var(${v < 0 ? "--less-rgb" : "--accent-rgb"}), ${(0.04 + depth * 0.96).toFixed(3)})`;
        if (depth > 0.6) cell.className = "strong";
        cell.title = `${a.name} = ${a.groups[i]}, ${b.name} = ${b.groups[j]}`;
      });
    });
    place.replaceChildren(table);
    document.getElementById("heat-note").textContent = pair.e ?? `Total variation distance of this pair: ${(pair.d / 100).toFixed(1)} %.`;
  }
  if (select) {
    select.addEventListener("change", heat);
    for (const input of document.querySelectorAll("input[name=heat]")) input.addEventListener("change", heat);
    heat();
  }

  // Size, colours, paper

  drawAll();
  let waiting = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      for (const { figure, chart } of plots) {
        if (chart.width !== width(figure)) chart.setSize({ width: width(figure), height: figure.querySelector(".plot").clientHeight });
      }
    });
  }).observe(document.querySelector("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => { root.setAttribute("data-print", ""); drawAll(); });
  addEventListener("afterprint", () => { root.removeAttribute("data-print"); drawAll(); });

  // What tests look at.
  requestAnimationFrame(() => {
    root.setAttribute("data-canvases", String(document.querySelectorAll("canvas").length));
    root.setAttribute("data-width", `${root.scrollWidth} ${innerWidth}`);
    root.setAttribute("data-errors", errors.join(" | "));
    root.setAttribute("data-ready", "true");
  });
})();
