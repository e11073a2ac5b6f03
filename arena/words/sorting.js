for (const head of document.querySelectorAll(".sorts th")) {
  const button = document.createElement("button"), table = head.closest("table");
  button.append(...head.childNodes);
  head.append(button);
  button.onclick = () => {
    const rows = [...table.tBodies[0].rows].map(row => {
      const cell = row.cells[head.cellIndex], data = cell.querySelector("data");
      return [data ? Number(data.value) : cell.textContent, row];
    });
    const number = key => typeof key === "number";  // at first the largest number, or the first text of the alphabet
    const up = head.ariaSort === null ? !rows.some(([key]) => number(key)) : head.ariaSort === "descending";
    rows.sort(([a], [b]) => number(a) !== number(b) ? number(b) - number(a)
      : (up ? 1 : -1) * (number(a) ? a - b : a.localeCompare(b)));
    for (const each of table.tHead.rows[0].cells) each.ariaSort = null;
    head.ariaSort = up ? "ascending" : "descending";
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
}
