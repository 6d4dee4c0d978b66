"use strict";
(() => {
  // which scans are shown, and how many they are
  const table = document.getElementById("scans");
  const show = document.getElementById("show");
  const filter = document.querySelector("[data-filter]");
  const count = document.getElementById("count");
  const more = document.getElementById("more");
  const FIRST = 200; // as in the style sheet: a browser takes seconds to lay out thousands of rows
  const selects = (row) =>
    show.value === "all" || (show.value === "in" ? !row.classList.contains("out") : row.classList.contains(show.value));
  let expanded = false;
  function update() {
    const rows = [...table.tBodies[0].rows];
    const limited = !expanded && rows.length > FIRST && show.value === "all" && !filter.value.trim();
    table.dataset.show = show.value;
    table.toggleAttribute("data-limited", limited);
    more.hidden = !limited;
    const left = limited ? FIRST : rows.filter((row) => !row.hidden && selects(row)).length;
    count.textContent = left === rows.length ? "" : `${left} of ${rows.length} shown`;
  }
  show.addEventListener("change", update);
  filter.addEventListener("input", update);
  more.addEventListener("click", () => { expanded = true; update(); });
  update();
})();
