"use strict";
// Sorts and filters the tables of a page, which are whole without it.

const collator = new Intl.Collator("en", { numeric: true });

function compareCells(one, other) {
  const keys = [one, other].map((cell) => cell.dataset.key);
  if (keys[0] !== undefined && keys[1] !== undefined) return keys[0] - keys[1];
  return collator.compare(one.textContent, other.textContent);
}

function isEmpty(cell) {
  return cell.dataset.key === undefined && cell.textContent === "";
}

function sortRows(table, column, descending) {
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, other) => {
    const cells = [one.cells[column], other.cells[column]];
    const empty = isEmpty(cells[0]) - isEmpty(cells[1]);
    return empty || compareCells(...cells) * (descending ? -1 : 1);
  });
  table.tBodies[0].append(...rows);
}

function addSorting(table) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    if (header.textContent === "") return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const numbers = header.classList.contains("number");
      const sorted = header.getAttribute("aria-sort");
      const descending = sorted === null ? numbers : sorted === "ascending";
      headers.forEach((one) => one.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortRows(table, column, descending);
    });
  });
}

function addFilter(table) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  const rows = [...table.tBodies[0].rows];
  input.type = "search";
  label.className = "filter";
  label.append("Filter", input, count);
  table.parentElement.before(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    });
    count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") target.open = true;
}

for (const table of document.querySelectorAll("table")) {
  const count = table.tBodies[0].rows.length;
  if (count > 1) addSorting(table);
  if (count > 8) addFilter(table);
}
addEventListener("hashchange", openTarget);
openTarget();
