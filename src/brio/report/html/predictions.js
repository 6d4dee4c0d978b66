"use strict";
(() => {
  // which scans are shown, and how many of them the filter leaves
  const table = document.getElementById("scans");
  const show = document.getElementById("show");
  const count = document.getElementById("count");
  const filter = document.querySelector("[data-filter]");
  function update() {
    table.dataset.show = show.value;
    const rows = [...table.tBodies[0].rows];
    const left = rows.filter((row) => !row.hidden && (show.value === "all" || (show.value === "in" ? !row.classList.contains("out") : row.classList.contains(show.value)))).length;
    count.textContent = left === rows.length ? "" : `${left} of ${rows.length} shown`;
  }
  show.addEventListener("change", update);
  filter.addEventListener("input", update);
  update();
})();
