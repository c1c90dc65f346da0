"use strict";
(() => {
  const status = document.getElementById("status");
  const tell = (text) => { status.textContent = text; };

  // A legend's button shows or hides a series in every figure of its chapter.
  const toggle = (button) => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    const name = button.dataset.toggle;
    const chapter = button.closest("section.chapter");
    for (const other of chapter.querySelectorAll("button[data-toggle]"))
      if (other.dataset.toggle === name) other.setAttribute("aria-pressed", shown);
    for (const series of chapter.querySelectorAll("g[data-series]"))
      if (series.dataset.series === name) series.classList.toggle("off", !shown);
    tell(`${name} is ${shown ? "shown" : "hidden"}`);
  };

  const value = (row, column) => {
    const text = row.cells[column].dataset.value;
    const number = Number(text === "inf" ? Infinity : text);
    return text === "nan" ? null : text === "" || Number.isNaN(number) ? text : number;
  };

  // Numbers are compared as numbers, words as words; what is missing comes last either way.
  const sort = (button) => {
    const heading = button.closest("th"), table = button.closest("table");
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const column = heading.cellIndex, body = table.tBodies[0];
    const rows = Array.from(body.rows).sort((a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "number" && typeof y === "number" ? (x > y) - (x < y) : String(x).localeCompare(String(y));
      return down ? -order : order;
    });
    body.append(...rows);
    tell(`sorted by ${button.textContent.trim()}, ${down ? "descending" : "ascending"}`);
  };

  const quoted = (text) => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

  // Names that start like a formula get an apostrophe, so that no spreadsheet takes them for one.
  const harmless = (text) => /^'*[=+\-@\t\r\n]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;

  const download = (button) => {
    const table = document.getElementById(button.dataset.table);
    const lines = Array.from(table.rows, (row) => Array.from(row.cells, (cell) => {
      const values = [cell.dataset.value ?? cell.textContent.trim()];
      if (cell.dataset.interval !== undefined)
        values.push(...(cell.tagName === "TH" ? [`${values[0]}, low`, `${values[0]}, high`] : cell.dataset.interval.split(" ")));
      return values.map(harmless).map(quoted).join(",");
    }).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = `${button.dataset.table}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    tell(`${link.download} is downloaded`);
  };

  const copy = async (button) => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    tell("copied");
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.toggle) toggle(button);
    else if (button.dataset.table) download(button);
    else if (button.dataset.copy) copy(button);
    else if (button.closest("th")) sort(button);
  });

  // What a mark stands for, beside the pointer.
  const tip = document.getElementById("tip");
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    const box = mark.querySelector(".hit").getBoundingClientRect();
    const left = Math.min(box.right, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left) + scrollX}px`;
    tip.style.top = `${box.bottom + 4 + scrollY}px`;
  });

  // On paper nothing can be unfolded; the data of figures, which repeat them, are printed only if they are shown.
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = Array.from(document.querySelectorAll("details:not(.data):not([open])"));
    unfolded.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => unfolded.forEach((part) => { part.open = false; }));
})();
