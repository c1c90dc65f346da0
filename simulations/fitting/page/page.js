(() => {
  const points = JSON.parse(document.getElementById("points").textContent);
  const slider = document.getElementById("tau"), told = document.getElementById("told");
  const marks = [...document.querySelectorAll("#front .point")];
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
    for (const mark of marks) mark.classList.toggle("now", Number(mark.dataset.place) === now);
  };
  slider.addEventListener("input", show);
  for (const mark of marks) mark.addEventListener("click", () => { slider.value = mark.dataset.place; show(); });
  show();
})();
