// What the pages share: elements, charts, tables.
const count = value => Math.round(value).toLocaleString("en");
const percent = (part, whole) => (100 * part / Math.max(1, whole)).toFixed(1) + " %";
const bytes = n => n >= 1048576 ? (n / 1048576).toFixed(2) + " MiB" : n >= 1024 ? (n / 1024).toFixed(1) + " KiB"
  : n + " B";
const short = (text, most) => text.length > most ? text.slice(0, most - 9) + "…" + text.slice(-8) : text;
const safe = text => String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function make(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value); else made.setAttribute(name, value);
  }
  made.append(...inside.filter(one => one !== null));
  return made;
}
const redraw = [];      // of every chart, for another theme or size
function chart(parent, height, label, option, ready) {
  const box = make("div", {class: height > 800 ? "chart long" : "chart", role: "img", "aria-label": label, style: `height:${height}px`});
  parent.append(box);
  let drawn = null;
  const draw = () => {
    if (drawn) drawn.dispose();
    drawn = echarts.init(box, null, {renderer: "canvas"});
    const text = style("--text"), line = style("--line");
    drawn.setOption({animation: false, textStyle: {color: text, fontSize: 12}, ...option(box.clientWidth, {text, line,
      faint: style("--faint"), back: style("--back"), panel: style("--panel"), accent: style("--accent")})});
    if (ready) ready(drawn, box);
  };
  redraw.push({draw, resize: () => draw()});
  draw();
  return box;
}
const tip = ink => ({confine: true, backgroundColor: ink.panel, borderColor: ink.line, textStyle: {color: ink.text}});
const axis = (ink, more) => ({axisLabel: {color: ink.text, hideOverlap: true}, nameTextStyle: {color: ink.faint},
  axisLine: {lineStyle: {color: ink.faint}}, splitLine: {lineStyle: {color: ink.line}}, ...more});
function swatches(pairs) {
  return make("div", {class: "key"}, ...pairs.map(([text, colour]) => make("span", {}, make("i",
    {style: `background:${colour}`}), text)));
}
function section(parent, title, note) {
  const id = title.toLowerCase().replace(/[^a-z]+/g, "-");     // for #at=...; of two reports the first has it
  parent.append(make("h3", document.getElementById(id) ? {} : {id}, title));
  if (note) parent.append(make("p", {class: "note"}, ...note.split("`").map((text, at) =>
    at % 2 ? make("code", {}, text) : text)));
}
// Options of commands stay in one line, and look like what is typed.
const options = text => text.split(/(--[a-z][\w-]*(?: [\w,]+(?=[)]))?)/).map(part => part.startsWith("--")
  ? make("code", {style: "white-space:nowrap"}, part) : part);
function heading(root, name, note, cards, findings) {
  root.append(make("h2", {}, name), make("p", {class: "note"}, note),
    make("div", {class: "cards"}, ...cards.map(([value, text]) =>
      make("div", {class: "card"}, make("b", {}, value), make("span", {}, text)))),
    make("ul", {class: "findings"}, ...findings.map(text => make("li", {}, ...options(text)))));
}
function rows(pairs) {
  return make("table", {class: "plain"}, make("tbody", {}, ...pairs.map(cells => make("tr", {}, ...cells.map((text, at) =>
    make(at ? "td" : "th", at ? {} : {scope: "row", style: "position:static"}, text))))));
}
// A table that sorts and filters. Columns: heading, value of a row, and for numbers how they are written. The first
// column are buttons if there is something to be picked.
function sortable(root, label, columns, all, pick, marked) {
  const body = make("tbody"), heads = [];
  let by = -1, down = false;
  const words = columns.filter(([, , format]) => !format);
  const filter = make("input", {type: "search", placeholder: words.map(([name]) => name).join(", "), size: 34,
    "aria-label": `Filter: ${label}`, oninput: () => fill()});
  const nothing = value => value === null || value === undefined;
  function cell(row, [, value, format], first) {
    const found = value(row), text = nothing(found) ? "–" : format && typeof found === "number" ? format(found) : String(found);
    if (first && pick) return make("td", {}, make("button", {type: "button", onclick: () => pick(row)}, text));
    return make("td", format ? {class: "number"} : {}, text);
  }
  function fill() {
    const wanted = filter.value.toLowerCase();
    const rows = all.filter(row => words.map(([, value]) => value(row)).join(" ").toLowerCase().includes(wanted));
    if (by >= 0) rows.sort((a, b) => {
      const [x, y] = [columns[by][1](a), columns[by][1](b)];
      if (nothing(x) || nothing(y)) return nothing(x) - nothing(y);     // what is not known stays below
      return (down ? -1 : 1) * (x < y ? -1 : x > y ? 1 : 0);
    });
    body.replaceChildren(...rows.map(row => make("tr", marked && marked(row) ? {class: "marked"} : {},
      ...columns.map((column, number) => cell(row, column, !number)))));
  }
  for (const [number, [name, , format]] of columns.entries()) {
    const head = make("th", {scope: "col", ...(format ? {class: "number"} : {})}, make("button", {type: "button",
      onclick: () => {
        down = by === number ? !down : Boolean(format);
        by = number;
        heads.forEach(one => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        fill();
      }}, name));
    heads.push(head);
  }
  fill();
  if (words.length && all.length > 4) root.append(make("div", {class: "controls"}, filter));
  root.append(make("div", {class: "scroll", tabindex: "0", "aria-label": label},
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)));
}
