// Reads out the values under the pointer, in place of a chart's caption.
for (const figure of document.querySelectorAll("figure[data-read]")) {
  const rows = JSON.parse(figure.dataset.read);
  const keys = JSON.parse(figure.dataset.keys);
  const svg = figure.querySelector("svg");
  const cursor = svg.querySelector(".cursor");
  const out = figure.querySelector(".read");
  const caption = out.textContent;
  const add = (parent, name, text) => {
    const span = document.createElement("span");
    span.className = name;
    span.textContent = text;
    parent.append(span, " ");
    return span;
  };
  const read = (event) => {
    if (rows.length === 0) return;
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    const row = rows.reduce((best, other) => (Math.abs(best[0] - x) > Math.abs(other[0] - x) ? other : best));
    cursor.setAttribute("x1", row[0]);
    cursor.setAttribute("x2", row[0]);
    figure.classList.add("reading");
    out.textContent = "";
    add(out, "at", row[1]);
    keys.forEach((key, index) => {
      if (row[2][index] === null) return;
      const value = add(out, "value", "");
      if (key[1]) add(value, "key c" + key[0], key[1]);
      value.append(row[2][index]);
    });
  };
  svg.addEventListener("pointermove", read);
  svg.addEventListener("pointerdown", read);
  svg.addEventListener("pointerleave", () => {
    figure.classList.remove("reading");
    out.textContent = caption;
  });
}
