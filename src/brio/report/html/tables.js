"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---- sortable tables: empty cells stay last, equal cells keep their order
  const valueOf = (row, k) => {
    const cell = row.cells[k];
    return cell.dataset.value ?? cell.textContent.trim();
  };
  function sortBy(button) {
    const head = button.closest("th");
    const table = head.closest("table");
    const body = table.tBodies[0];
    const k = head.cellIndex;
    const rows = [...body.rows];
    const numeric = button.dataset.sort === "number" ||
      (button.dataset.sort === "auto" && rows.every((r) => valueOf(r, k) === "–" || !Number.isNaN(Number(valueOf(r, k)))));
    const now = head.getAttribute("aria-sort");
    const descending = now ? now === "ascending" : numeric;
    all("th[aria-sort]", table.tHead).forEach((th) => th.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const empty = (v) => v === "" || v === "–" || (numeric && Number.isNaN(Number(v)));
    rows.sort((a, b) => {
      const [x, y] = [valueOf(a, k), valueOf(b, k)];
      if (empty(x) || empty(y)) return empty(x) - empty(y);
      const order = numeric ? x - y : x.localeCompare(y, "en", { numeric: true });
      return descending ? -order : order;
    });
    body.append(...rows);
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-sort]");
    if (button) sortBy(button);
  });

  // ---- filters by text
  all("[data-filter]").forEach((input) =>
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/[\s,]+/).filter(Boolean);
      all("[data-method]", document.getElementById(input.dataset.filter)).forEach((row) => {
        const name = row.dataset.method.toLowerCase();
        row.hidden = words.length > 0 && !words.some((word) => name.includes(word));
      });
    }));
})();
