
// Tables that can be sorted: a heading is a button.

(() => {
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.querySelectorAll("thead th")];
    const body = table.querySelector("tbody");
    const value = (row, i) => row.cells[i].dataset.value ?? row.cells[i].textContent;
    headings.forEach((heading, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") !== "descending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((a, b) => value(a, i).localeCompare(value(b, i), "en", { numeric: true }));
        if (heading.classList.contains("n")) rows.sort((a, b) => value(a, i) - value(b, i));
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  }
})();
