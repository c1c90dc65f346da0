(() => {
  const points = JSON.parse(document.getElementById("points").textContent);
  const slider = document.getElementById("tau"), told = document.getElementById("told");
  const marks = [...document.querySelectorAll("#front .series:not(.faint)")];  // one for each point
  marks.forEach((mark, place) => { mark.classList.add("point", ...(points[place].chosen ? ["chosen"] : [])); });
  for (const mark of document.querySelectorAll("[data-tip]")) {
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = mark.dataset.tip;
    mark.prepend(title);
  }
  const show = () => {
    const now = Number(slider.value), point = points[now];
    for (const cell of document.querySelectorAll("[data-cell]")) {
      const [value, interval] = point.cells[cell.dataset.cell];
      cell.firstElementChild.textContent = value;
      cell.lastElementChild.textContent = interval;
    }
    const words = `tau ${point.tau}${point.chosen ? ", the recommended model" : ""}`;
    told.textContent = words;
    slider.setAttribute("aria-valuetext", words);
    marks.forEach((mark, place) => mark.classList.toggle("now", place === now));
  };
  slider.addEventListener("input", show);
  marks.forEach((mark, place) => mark.addEventListener("click", () => { slider.value = place; show(); }));
  show();
})();
