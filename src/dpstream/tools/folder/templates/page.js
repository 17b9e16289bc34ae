"use strict";
(() => {
  const groups = JSON.parse(document.getElementById("data").textContent);
  const get = id => document.getElementById(id);
  const [column, kind, value] = ["column", "kind", "value"].map(get);
  const number = x => Math.round(x).toLocaleString("en-US");
  const fill = (select, options, kept) => {
    select.replaceChildren(...options.map(([id, text]) => new Option(text, id)));
    if (options.some(([id]) => String(id) === kept)) select.value = kept;
  };
  const words = { came: "came", left: "left", present: "are present" };
  const chosen = () => groups.find(g => g.column === column.value && g.kind === kind.value);
  function kinds() {
    const own = groups.filter(g => g.column === column.value);
    fill(kind, own.map(g => [g.kind, words[g.kind]]), kind.value);
    values();
  }
  function values() {
    const names = chosen().values;
    const each = names.length > 1 ? [["each", "each, newest period"]] : [];
    fill(value, [...each, ...names.map((name, place) => [place, name || "all"])], value.value);
    show();
  }
  function show() {
    const group = chosen(), many = group.values.length, last = group.spans.length - 1;
    const cell = (span, place) => group.cells[span * many + place];
    const rows = value.value === "each"
      ? group.values.map((name, place) => [name, cell(last, place)])
      : group.spans.map((span, place) => [span, cell(place, Number(value.value))]).reverse();
    const table = get("rows"), head = value.value === "each" ? group.spans[last] : "period";
    const line = (cells, tag) => {
      const row = document.createElement("tr");
      cells.forEach((text, place) => {
        const made = document.createElement(place === 0 || tag === "th" ? "th" : "td");
        made.scope = tag === "th" ? "col" : "row";
        made.textContent = text;
        row.append(made);
      });
      return row;
    };
    table.replaceChildren(line([head, "count", "±"], "th"), ...rows.map(([name, own]) =>
      line([name, own ? number(own[0]) : "not known", own && own[1] !== null ? number(own[1]) : ""], "td")));
    draw(value.value === "each" ? rows : rows.slice().reverse(), value.value === "each");
  }
  function draw(rows, apart) {
    const chart = get("chart"), width = chart.clientWidth || 360, height = 160, left = 4, low = 20;
    const known = rows.map(([, own]) => own).filter(Boolean);
    const ends = known.flatMap(([count, half]) => [count - (half || 0), count + (half || 0)]);
    const floor = Math.min(0, ...ends), top = Math.max(1, ...ends);
    const x = place => left + (place + 0.5) * (width - 2 * left) / rows.length;
    const y = count => 14 + (height - low - 14) * (top - count) / (top - floor);
    const put = (name, facts, text) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      Object.entries(facts).forEach(([key, one]) => made.setAttribute(key, one));
      if (text !== undefined) made.textContent = text;
      chart.append(made);
    };
    chart.replaceChildren();
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    put("line", { x1: 0, x2: width, y1: y(0), y2: y(0), stroke: "currentColor", "stroke-opacity": 0.4 });
    let before = null;
    rows.forEach(([, own], place) => {
      if (own) {
        const [count, half] = own, at = x(place);
        if (half) put("line", { x1: at, x2: at, y1: y(count - half), y2: y(count + half), stroke: "currentColor" });
        put("circle", { cx: at, cy: y(count), r: 2.5, fill: "currentColor" });
        if (before && !apart) put("line", { ...before, x2: at, y2: y(count), stroke: "currentColor", "stroke-opacity": 0.5 });
        before = { x1: at, y1: y(count) };
      } else before = null;
    });
    put("text", { x: left, y: 11 }, number(top));
    put("text", { x: left, y: height - 5 }, rows.length ? rows[0][0] : "");
    if (rows.length > 1) put("text", { x: width - left, y: height - 5, "text-anchor": "end" }, rows[rows.length - 1][0]);
  }
  const names = [...new Set(groups.map(g => g.column))];
  fill(column, names.map(name => [name, name === "all" ? "all records" : name]), "all");
  column.addEventListener("change", kinds);
  kind.addEventListener("change", values);
  value.addEventListener("change", show);
  window.addEventListener("resize", show);
  kinds();
})();
