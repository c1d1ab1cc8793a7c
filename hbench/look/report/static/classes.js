// The tables of classes: heads that sort, and a field that filters the rows. Without scripts the tables are as they
// are.
"use strict";

(() => {
  const at = (id) => document.getElementById(id);
  const tables = [...document.querySelectorAll("table[data-sorts]")];
  const key = (row, column) => {
    const cell = row.cells[column],
      number = cell.querySelector("[data-mean]")?.dataset.mean ?? cell.dataset.number;
    return number === undefined ? cell.lastElementChild.textContent : Number(number);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));

  function sort(table, column) {
    const heads = [...table.tHead.rows[0].cells],
      body = table.tBodies[0];
    const up = heads[column].getAttribute("aria-sort") !== "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].filter((row) => !row.classList.contains("gap"));
    rows.sort((a, b) => (up ? 1 : -1) * compare(key(a, column), key(b, column)));
    body.append(...rows, ...body.querySelectorAll(".gap")); // what is left out comes last
  }

  function filter() {
    const wanted = at("class-search").value.trim().toLowerCase();
    let found = 0;
    for (const row of tables.flatMap((table) => [...table.tBodies[0].rows])) {
      row.hidden = wanted && !row.classList.contains("gap") && !row.cells[0].textContent.toLowerCase().includes(wanted);
      found += !row.hidden && !row.classList.contains("gap");
    }
    at("class-said").textContent = wanted
      ? `${found.toLocaleString("en")} of the classes listed here; the Explorer finds every class`
      : "";
  }

  for (const table of tables) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column));
      head.append(button);
    });
  }
  if (!tables.length) return;
  at("class-tools").hidden = false;
  at("class-search").addEventListener("input", filter);
})();
