// Pages of bars, points, tables and facts: gen/report/sheet.py.
// One colour means one thing on a page: what a part is by its role, or the parts that have none in this order.
const ROLES = {main: "#2f6fb7", light: "#a9cbee", warn: "#dd7f22", wrong: "#d0445a", rest: "#8a9099"};
const COLOURS = ["#2f6fb7", "#dd7f22", "#3fa598", "#a64fb5", "#7c9440", "#efc03f", "#8d5a3a", "#f29bb8", "#6fa5de",
  "#d0445a", "#8a9099", "#c4cad1"];
const number = value => Number.isInteger(value) || Math.abs(value) >= 1000 ? count(value)
  : String(Number(value.toPrecision(4)));

function drawBars(block, root) {
  const coloured = block.parts.filter(part => !part.role);
  const colour = part => ROLES[part.role] || COLOURS[coloured.indexOf(part) % COLOURS.length];
  if (block.parts.length > 1) root.append(swatches(block.parts.map(part => [part.name, colour(part)])));
  const many = block.names.length, total = block.names.map((_, at) =>
    block.parts.some(part => part.values[at] !== null) ? block.parts.reduce((sum, part) => sum + part.values[at], 0) : null);
  const label = {show: block.totals, color: "", fontSize: 11, formatter: event => total[event.dataIndex] === null ? ""
    : number(total[event.dataIndex]) + block.unit};
  const tooltip = ink => ({...tip(ink), formatter: event => `${safe(block.names[event.dataIndex])}<br>`
    + `${safe(event.seriesName)}: ${number(event.value)}${safe(block.unit)}`});
  const line = ink => block.limit === null ? {} : {markLine: {silent: true, symbol: "none", label: {show: false},
    lineStyle: {color: ink.text, width: 1.5}, data: [block.upright ? {yAxis: block.limit} : {xAxis: block.limit}]}};
  const series = (ink, where) => block.parts.map((part, at) => ({type: "bar", stack: "all", name: part.name,
    itemStyle: {color: colour(part)}, data: part.values, ...(block.upright ? {} : {barWidth: 15}),
    ...(at === block.parts.length - 1 ? {label: {...label, position: where, color: ink.text}, ...line(ink)} : {})}));
  const most = Math.max(0, block.limit || 0, ...total.map(value => value || 0));
  if (block.upright) {
    chart(root, 240, block.label, (width, ink) => ({tooltip: tooltip(ink),
      grid: {left: 70, right: 20, top: 28, bottom: 46},
      xAxis: axis(ink, {type: "category", data: block.names, name: block.across, nameLocation: "middle", nameGap: 26}),
      yAxis: axis(ink, {type: "value", name: block.axis}), series: series(ink, "top")}));
    return;
  }
  const scroll = make("div", {class: "scroll"});
  if (many > 26) { scroll.tabIndex = 0; scroll.setAttribute("aria-label", block.label); }
  root.append(scroll);
  chart(scroll, 62 + 22 * many, block.label, (width, ink) => ({tooltip: tooltip(ink),
    grid: {left: Math.min(220, 0.36 * width), right: 62, top: 8, bottom: 44},
    xAxis: axis(ink, {type: "value", name: block.axis, nameLocation: "middle", nameGap: 26, splitNumber: width < 600 ? 2
      : 5, ...(block.limit !== null ? {max: Math.ceil(most)} : {})}),
    yAxis: axis(ink, {type: "category", inverse: true, data: block.names, axisLabel: {color: ink.text, interval: 0,
      width: Math.min(205, 0.36 * width - 10), overflow: "truncate"}}), series: series(ink, "right")}));
}

function drawPoints(block, root) {
  const names = Object.keys(block.units), all = block.points;
  const unit = name => block.units[name] ? ` (${block.units[name]})` : "";
  const varied = Object.keys(all.length ? all[0].parameters : {}).filter(name =>
    new Set(all.map(one => one.parameters[name])).size > 1);
  const few = varied.filter(name => new Set(all.map(one => one.parameters[name])).size <= COLOURS.length);
  const choice = (label, values, value) => make("label", {}, `${label} `, make("select", {onchange: () => {
    redrawn.draw(); keys(); }}, ...values.map(one => make("option", one === value ? {value: one, selected: ""} : {value: one}, one))));
  const [across, up] = [choice("across", names, block.x), choice("up", names, block.y)];
  const by = choice("colour", [...few, "nothing"], few.includes(block.colour) ? block.colour : few[0] || "nothing");
  const value = label => label.querySelector("select").value;
  root.append(make("div", {class: "controls"}, across, up, by));
  const kinds = () => value(by) === "nothing" ? [] : [...new Set(all.map(one => one.parameters[value(by)]))];
  const legend = make("div");
  root.append(legend);
  const keys = () => legend.replaceChildren(swatches(kinds().map((kind, at) =>
    [`${value(by)} ${kind}`, COLOURS[at % COLOURS.length]])));
  const panel = make("div", {class: "detail"}), body = make("div", {"aria-live": "polite"}), plot = make("div");
  // The front first, by the first figure; then the others.
  const order = all.map((_, at) => at).sort((a, b) => all[b].front - all[a].front || all[a].figures[block.x] - all[b].figures[block.x]);
  const list = make("select", {"aria-label": "Point", onchange: () => show(Number(list.value))}, ...order.map(at =>
    make("option", {value: at}, `${all[at].front ? "front: " : ""}${varied.map(name => `${name} ${all[at].parameters[name]}`).join(", ")
      || `point ${at + 1}`}`)));
  panel.append(make("div", {class: "controls"}, make("label", {}, "Point "), list), body);
  let now = order[0], redrawn = null;
  function show(at) {
    now = at;
    list.value = at;
    const one = all[at], facts = [["on the front", one.front ? "yes: no other point beats it" : "no"],
      ...Object.entries(one.parameters), ...names.filter(name => name in one.figures).map(name =>
        [name + unit(name), number(one.figures[name])]), ...Object.entries(one.facts)];
    body.replaceChildren(make("dl", {class: "pairs"}, ...facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)])));
    if (redrawn) redrawn.draw();
  }
  root.append(make("div", {class: "split"}, plot, panel));
  chart(plot, 460, block.label, (width, ink) => {
    const [x, y] = [value(across), value(up)], colours = kinds(), labelled = varied.filter(name => name !== value(by));
    const own = all.map((one, at) => ({one, at})).filter(({one}) => x in one.figures && y in one.figures);
    const scale = name => { const found = own.map(({one}) => one.figures[name]);
      return found.length && Math.min(...found) > 0 && Math.max(...found) > 4 * Math.min(...found) ? "log" : "value"; };
    const ticks = (name, more) => axis(ink, {type: scale(name), logBase: 2, scale: true, name: name + unit(name), axisLabel: {color: ink.text,
      hideOverlap: true, formatter: number}, ...(scale(name) === "log" ? {min: ({min}) => Number((min / 1.3).toPrecision(2)),
      max: ({max}) => Number((max * 1.3).toPrecision(2))} : {}), ...more});
    const front = own.filter(({one}) => one.front).sort((a, b) => a.one.figures[x] - b.one.figures[x]);
    const colour = one => colours.length ? COLOURS[colours.indexOf(one.parameters[value(by)]) % COLOURS.length] : ink.accent;
    const step = x === block.x && y === block.y && block.step;
    return {tooltip: {...tip(ink), formatter: event => { const one = all[event.value[2]];
        return one ? [...Object.entries(one.parameters).filter(([name]) => varied.includes(name)), ["", ""],
          ...names.filter(name => name in one.figures).map(name => [name + unit(name), number(one.figures[name])])].map(
            ([name, text]) => safe(`${name} ${text}`)).join("<br>") : ""; }},
      grid: {left: 84, right: 30, top: 30, bottom: 48},
      xAxis: ticks(x, {nameLocation: "middle", nameGap: 28, splitNumber: width < 600 ? 2 : 5}), yAxis: ticks(y, {}),
      series: [...(step ? [{type: "line", step: "end", symbol: "none", silent: true, lineStyle: {color: ink.faint, width: 1},
        data: front.map(({one}) => [one.figures[x], one.figures[y]])}] : []),
      {type: "scatter", symbolSize: (_, {dataIndex}) => own[dataIndex].at === now ? 20 : own[dataIndex].one.front ? 13 : 8,
        data: own.map(({one, at}) => ({value: [one.figures[x], one.figures[y], at], itemStyle: {color: colour(one),
          opacity: one.front ? 1 : 0.7, borderColor: one.front ? ink.text : "transparent", borderWidth: one.front ? 1.5 : 0}})),
        labelLayout: {hideOverlap: true}, label: {show: labelled.length > 0, position: "right", color: ink.text, fontSize: 11,
          formatter: event => all[event.value[2]].front ? labelled.map(name => all[event.value[2]].parameters[name]).join(", ") : ""}}]};
  }, drawn => drawn.on("click", event => event.seriesType === "scatter" && show(event.value[2])));
  redrawn = redraw[redraw.length - 1];
  root.append(make("p", {class: "note"}, `Framed: the front. ${varied.length ? `Beside its points: ${varied.join(", ")}; `
    + "where one of these has the colours, the others. " : ""}Select a point for all that is known of it.`));
  keys();
  if (all.length) show(now);
}

const BLOCKS = {
  bars: drawBars,
  points: drawPoints,
  table: (block, root) => sortable(root, block.label, block.columns.map((column, at) => [column.name, row => row.cells[at],
    column.number ? number : undefined]), block.rows.map((cells, at) => ({cells, at})), null, row => block.marked.includes(row.at)),
  facts: (block, root) => root.append(rows(block.rows)),
};

function drawSheet(sheet, root) {
  heading(root, sheet.name, sheet.note, sheet.cards, sheet.findings);
  for (const part of sheet.sections) {
    section(root, part.title, part.note);
    part.blocks.forEach(block => BLOCKS[block.kind](block, root));
  }
}
