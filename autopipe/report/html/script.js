"use strict";
// Sorts and filters tables, zooms and searches graphs, shows TIR. All else is there without it.

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

async function inflate(details) {
  const bytes = Uint8Array.from(atob(details.dataset.text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const text = document.createElement("pre");
  text.textContent = await new Response(stream).text();
  details.querySelector("p")?.replaceWith(text);
}

function makeButton(text, title, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.title = title;
  button.addEventListener("click", act);
  return button;
}

function addZoom(canvas, tools) {
  const drawing = canvas.querySelector("svg");
  const whole = [drawing.width.baseVal.value, drawing.height.baseVal.value];
  let scale = 1;
  let fitted = true;
  const zoom = (wanted) => {
    const middle = (canvas.scrollTop + canvas.clientHeight / 2) / scale;
    scale = Math.min(4, Math.max(0.02, wanted));
    fitted = false;
    drawing.setAttribute("width", whole[0] * scale);
    drawing.setAttribute("height", whole[1] * scale);
    canvas.scrollTop = middle * scale - canvas.clientHeight / 2;
  };
  const fit = () => {
    zoom(Math.min(1, (canvas.clientWidth - 20) / whole[0]));
    fitted = true;
  };
  tools.append(
    makeButton("\u2212", "Zoom out", () => zoom(scale / 1.4)),
    makeButton("+", "Zoom in", () => zoom(scale * 1.4)),
    makeButton("Fit width", "Fit the width", fit),
    makeButton("Whole", "Fit the whole graph",
      () => zoom(Math.min((canvas.clientWidth - 20) / whole[0],
                          (canvas.clientHeight - 20) / whole[1]))),
  );
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
  }, { passive: false });
  new ResizeObserver(() => fitted && fit()).observe(canvas);
}

function addSearch(canvas, tools) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  const boxes = [...canvas.querySelectorAll("[class^=heat]")];
  input.type = "search";
  label.className = "filter";
  label.append("Search", input, count);
  tools.append(label);
  input.addEventListener("input", () => {
    const text = input.value.toLowerCase();
    const found = boxes.filter((box) => {
      const fits = box.querySelector("title").textContent.toLowerCase().includes(text);
      box.classList.toggle("dim", !fits);
      return fits;
    });
    count.value = text === "" ? "" : `${found.length} of ${boxes.length}`;
    if (text !== "") found[0]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}

function showKernel(canvas, panel, box) {
  const row = document.getElementById(box.getAttribute("href").slice(1));
  const link = document.createElement("a");
  link.href = box.getAttribute("href");
  link.textContent = "Show it in the table";
  const title = document.createElement("h4");
  title.textContent = box.querySelector("title").textContent;
  const about = [...row.childNodes].slice(1).map((node) => node.cloneNode(true));
  panel.replaceChildren(title, ...about, link);
  canvas.querySelector(".chosen")?.classList.remove("chosen");
  box.classList.add("chosen");
}

function addGraph(graph) {
  const canvas = graph.querySelector(".canvas");
  const tools = document.createElement("div");
  const panel = document.createElement("div");
  tools.className = "tools";
  panel.className = "chosen-kernel";
  panel.setAttribute("aria-live", "polite");
  canvas.before(tools);
  tools.after(panel);
  addZoom(canvas, tools);
  addSearch(canvas, tools);
  for (const box of canvas.querySelectorAll("a")) {
    box.addEventListener("click", (event) => {
      event.preventDefault();
      showKernel(canvas, panel, box);
    });
  }
}

for (const table of document.querySelectorAll("table")) {
  const count = table.tBodies[0].rows.length;
  if (count > 1) addSorting(table);
  if (count > 8) addFilter(table);
}
for (const graph of document.querySelectorAll(".graph")) addGraph(graph);
document.addEventListener("toggle", (event) => {
  if (event.target.open && event.target.matches(".compressed")) inflate(event.target);
}, true);
addEventListener("hashchange", openTarget);
openTarget();
