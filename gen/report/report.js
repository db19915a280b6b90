// The page of a model on a machine: gen/report/document.py.
// One colour means one thing in all drawings: the work of the array, and what each engine waits for.
const CAUSES = {
  useful: ["useful", "#2f6fb7"], busy: ["at work", "#2f6fb7"], idle_pixels: ["idle pixel lanes", "#6fa5de"],
  idle_lanes: ["idle channel lanes", "#a9cbee"], wait_weights: ["wait for weights", "#dd7f22"],
  wait_load: ["wait for loads", "#efc03f"], wait_store: ["wait for stores", "#a64fb5"],
  wait_compute: ["wait for computing", "#7c9440"], wait_ring: ["wait for room in a ring", "#3fa598"],
  wait_bus: ["wait for the bus", "#d0445a"], wait_side: ["wait for side data", "#f29bb8"],
  short_steps: ["short steps", "#8d5a3a"], setup: ["setup", "#8a9099"], idle: ["start and end", "#c4cad1"],
};
const PARTS = ["useful", "idle_pixels", "idle_lanes", "wait_weights", "wait_load", "wait_store", "short_steps",
  "setup", "idle"];
const part = (layer, name) => name in layer.stalls ? layer.stalls[name] : layer[name];

function column(text) {     // as gen.report.columns packs it
  const raw = atob(text), values = [];
  for (let at = 0, sum = 0; at < raw.length;) {
    let number = 0, scale = 1, octet;
    do { octet = raw.charCodeAt(at++); number += (octet & 127) * scale; scale *= 128; } while (octet > 127);
    sum = (sum + (number % 2 ? -(number + 1) / 2 : number / 2)) | 0;
    values.push(sum);
  }
  return Int32Array.from(values);
}

const key = names => swatches(names.map(name => CAUSES[name]));

function headline(report, root) {
  const {machine, total} = report;
  heading(root, report.name, `${machine.board_title}, ${machine.macs} MACs, features: `
    + `${machine.features.join(", ") || "none"}; ${report.measured === "rtl" ? "simulated Verilog" : "time model"}, `
    + (report.memory ? `memory of ${report.memory}` : "ideal memory"), [
    [`${(1e-3 * total.cycles / machine.clock_mhz).toFixed(3)} ms`, "an inference on the accelerator"],
    [count(total.fps), "inferences a second, accelerator alone"], [count(total.cycles), "cycles"],
    [`${machine.clock_mhz.toFixed(1)} MHz`, `clock, ${machine.clock}`],
    [(100 * total.utilisation).toFixed(1) + " %", "of the multipliers in use"],
    [bytes(total.dram_bytes), "moved over the bus"]], report.findings);
}

function shade(share, most) {   // of the accent's blue, by cost: dark letters on all of them
  const depth = most ? share / most : 0;
  return `hsl(210 75% ${Math.round(94 - 36 * depth)}%)`;
}

function graph(report, root, choose) {
  section(root, "The model", "From top to bottom. The darker, the more cycles; a broken line around it: the processor. "
    + "Select a layer for how it is computed, and why so; the selected one has a thick line.");
  const split = make("div", {class: "split"}), scroll = make("div", {class: "scroll", tabindex: "0",
    "aria-label": "Graph of the model"});
  split.append(scroll, choose.panel);
  root.append(split);
  const ranks = Math.max(...report.nodes.map(node => node.rank)) + 1;
  const widths = Array(ranks).fill(0);
  for (const node of report.nodes) widths[node.rank] = Math.max(widths[node.rank], node.column + 1);
  const across = Math.max(...widths), most = Math.max(...report.layers.map(layer => layer.cycles));
  const place = (node, width) => [(node.column + 0.5) * width / Math.max(widths[node.rank], 1), 26 + 46 * node.rank];
  const inner = make("div", {style: `min-width:${across > 3 ? 130 * across : 0}px`});
  scroll.append(inner);
  let redrawn = null;
  chart(inner, 46 * ranks + 8, "Graph of the model; the same layers are in the table and the list", (width, ink) => ({
    grid: {left: 0, right: 0, top: 0, bottom: 0},
    xAxis: {show: false, min: 0, max: width}, yAxis: {show: false, min: 0, max: 46 * ranks + 8, inverse: true},
    series: [{type: "custom", silent: true, data: report.edges.map((_, at) => [0, 0, at]), z: 1,
      renderItem: (_, api) => {
        const edge = report.edges[api.value(2)];
        const [x1, y1] = place(report.nodes[edge.source], width), [x2, y2] = place(report.nodes[edge.target], width);
        const long = y2 - y1 > 50, middle = (x1 + x2) / 2;     // a curve reaches three quarters of its controls
        const bend = long ? middle + Math.min(Math.max(30, (width - 4 - middle) / 0.75), 235) : 0;
        return {type: "bezierCurve", style: {stroke: ink.faint, fill: null, lineWidth: 1.2},
          shape: {x1, y1: y1 + 14, x2, y2: y2 - 14, cpx1: long ? bend : x1, cpy1: y1 + 24,
            cpx2: long ? bend : x2, cpy2: y2 - 24}};
      }},
      {id: "nodes", type: "custom", data: report.nodes.map((_, at) => [0, 0, at]), z: 2, cursor: "pointer",
        renderItem: (_, api) => {
          const node = report.nodes[api.value(2)], [x, y] = place(node, width);
          const wide = Math.min(250, width / widths[node.rank] - 10), layer = report.layers[node.layer];
          const letters = Math.floor(wide / 7.2), chosen = node.kind === "layer" && node.layer === choose.now;
          let text = short(node.name, letters), fill = ink.panel, dash = null, ink_ = ink.text;
          if (node.kind === "layer") {
            const cost = " " + percent(layer.cycles, report.total.cycles);
            text = short(node.name, Math.max(12, letters - cost.length)) + cost;
            fill = shade(layer.cycles, most);
            ink_ = "#111";
          }
          if (node.kind === "host") dash = [5, 4];
          return {type: "group", children: [
            {type: "rect", shape: {x: x - wide / 2, y: y - 14, width: wide, height: 28,
              r: node.kind === "layer" || node.kind === "host" ? 4 : 14},
              style: {fill, stroke: dash || chosen ? ink.text : ink.faint, lineWidth: chosen ? 3 : dash ? 2 : 1,
                lineDash: dash}},
            {type: "text", style: {text, x, y, fill: ink_, align: "center", verticalAlign: "middle", fontSize: 12,
              width: wide - 8, overflow: "truncate"}}]};
        }}]}), drawn => {
    redrawn = drawn;
    drawn.on("click", event => {
      const node = report.nodes[event.value[2]];
      if (node && node.kind === "layer") choose.layer(node.layer);
    });
  });
  choose.listeners.push(at => {      // the chosen layer is marked, and in sight
    const node = report.nodes.find(one => one.kind === "layer" && one.layer === at);
    if (!node) return;
    redrawn.setOption({series: [{id: "nodes", data: report.nodes.map((_, at) => [0, 0, at])}]});
    const [, y] = place(node, inner.clientWidth), room = scroll.clientHeight;
    if (y < scroll.scrollTop + 20 || y > scroll.scrollTop + room - 20) scroll.scrollTop = y - room / 2;
  });
}

function chooser(report) {
  const panel = make("div", {class: "detail"}), body = make("div", {"aria-live": "polite"});
  const list = make("select", {"aria-label": "Layer", onchange: () => choose.layer(Number(list.value))},
    ...report.layers.map((layer, at) => make("option", {value: at}, layer.name)));
  panel.append(make("div", {class: "controls"}, make("label", {}, "Layer "), list), body);
  const choose = {panel, listeners: [], layer(at) {
    list.value = choose.now = at;
    const layer = report.layers[at], noise = report.noise.find(one => one.layer === at);
    const ways = layer.ways.map(way => way.cost === null ? `${way.mode}: not possible, ${way.refused}`
      : `${way.mode}: about ${count(way.cost)} cycles`);
    const facts = [["operation", `${layer.op}, result ${layer.shape.join(" × ")} (channels × rows × columns)`],
      ["computed as", `${layer.mode}: ${layer.why}`],
      ["ways compared, by the compiler's estimate", ways.join("; ") || "–"],
      ["cycles", `${count(layer.cycles)}, ${percent(layer.cycles, report.total.cycles)} of all`],
      ["of these", PARTS.filter(name => part(layer, name)).map(name =>
        `${CAUSES[name][0]} ${percent(part(layer, name), layer.cycles)}`).join(", ")],
      ["multipliers in use", (100 * layer.utilisation).toFixed(1) + " %"],
      ["multiplications", `${count(layer.useful_macs)} of ${count(layer.macs)} in the dense layer`],
      ["bus", bytes(layer.dram_bytes)],
      ...(layer.energy_share.length ? [["energy", `${[...new Set(layer.energy_share.map(share => (100 * share).toFixed(0)))]
        .join(" to ")} % of all, by multiplications, buffer and memory`]] : []),
      ...(noise ? [["signal to noise", noise.sqnr_db === null ? "no difference" : `${noise.sqnr_db.toFixed(1)} dB`]] : []),
      ["reads", layer.reads.join(", ")], ["writes", layer.output], ["ONNX nodes", layer.nodes.join(", ") || "–"]];
    body.replaceChildren(make("b", {}, layer.name), make("dl", {}, ...facts.flatMap(([name, text]) =>
      [make("dt", {}, name), make("dd", {}, text)])));
    choose.listeners.forEach(heard => heard(at));
  }};
  return choose;
}

let longest = 0;      // cycles of a layer, of all reports on the page: their bars have one scale

function bars(report, root, choose) {
  section(root, "Where the cycles go", "Of each layer. The first three: the array at work, with all lanes, and with "
    + `lanes that have nothing to do.${report.layers.length > 26 ? " Scroll for the layers further down." : ""}`);
  const used = PARTS.filter(name => report.layers.some(layer => part(layer, name)));
  root.append(key(used));
  const scroll = make("div", {class: "scroll"});
  if (report.layers.length > 26) { scroll.tabIndex = 0; scroll.setAttribute("aria-label", "Cycles of each layer"); }
  root.append(scroll);
  chart(scroll, 62 + 22 * report.layers.length, "Cycles of each layer by what they go to; the table has the figures",
    (width, ink) => ({
      tooltip: {...tip(ink), trigger: "item", formatter: event => {
        const layer = report.layers[event.dataIndex], name = used[event.seriesIndex];
        return `${safe(layer.name)}<br>${CAUSES[name][0]}: ${count(event.value)} cycles, `
          + percent(event.value, layer.cycles);
      }},
      grid: {left: Math.min(220, 0.36 * width), right: 54, top: 44, bottom: 8},
      xAxis: axis(ink, {type: "value", name: "cycles", position: "top", nameLocation: "middle", nameGap: 26,
        splitNumber: width < 600 ? 2 : 5, ...(longest ? {max: longest} : {})}),
      yAxis: axis(ink, {type: "category", inverse: true, data: report.layers.map(layer => layer.name),
        axisLabel: {color: ink.text, interval: 0, width: Math.min(205, 0.36 * width - 10), overflow: "truncate"}}),
      series: used.map((name, at) => ({type: "bar", stack: "all", barWidth: 15, name,
        itemStyle: {color: CAUSES[name][1]}, data: report.layers.map(layer => part(layer, name)),
        label: at === used.length - 1 ? {show: true, position: "right", color: ink.text, fontSize: 11,
          formatter: event => percent(report.layers[event.dataIndex].cycles, report.total.cycles)} : {show: false}})),
    }), drawn => drawn.on("click", event => choose.layer(event.dataIndex)));
}

function table(report, root, choose) {
  section(root, "Table", "Select a heading to sort; select a name for the details above.");
  const noise = new Map(report.noise.map(one => [one.layer, one.sqnr_db]));
  const all = report.total.cycles, one = n => n.toFixed(1);
  const columns = [["layer", row => row.layer.name], ["operation", row => row.layer.op],
    ["computed as", row => row.layer.mode], ["cycles", row => row.layer.cycles, count],
    ["% of all", row => 100 * row.layer.cycles / all, one], ["% in use", row => 100 * row.layer.utilisation, one],
    ["MACs", row => row.layer.macs, count], ["bytes", row => row.layer.dram_bytes, count],
    ["waits %", row => 100 * ["wait_weights", "wait_load", "wait_store"].reduce((sum, name) =>
      sum + row.layer.stalls[name], 0) / Math.max(1, row.layer.cycles), one],
    ...(noise.size ? [["SQNR dB", row => noise.get(row.at), one]] : [])];
  sortable(root, "Table of layers", columns, report.layers.map((layer, at) => ({layer, at})), row => {
    choose.layer(row.at);
    choose.panel.scrollIntoView({block: "center"});
  });
}

function timeline(report, root, choose) {
  const line = report.timeline;
  const host = line.host.length > 0;
  const lanes = ["layer", ...Object.keys(line.engines), "bus, read", "bus, write", ...(host ? ["processor"] : [])];
  section(root, "Timeline", "Every instruction of every engine. The height of a bar is divided by what its cycles went "
    + "to, not in their order; bars too narrow to be seen are drawn as one. The bus: beats of loads and stores, spread "
    + "evenly over each instruction; a full bar is a beat in every cycle.");
  const states = [...new Set(Object.values(line.engines).flatMap(engine => Object.keys(engine.states)))];
  root.append(key(states.filter(name => name in CAUSES)));
  const where = make("span", {class: "small", "aria-live": "polite"}), controls = make("div", {class: "controls"});
  root.append(controls);
  const read = ["opcode", "layer", "owner", "owner_start", "owner_length"].map(name => column(line[name]));
  const [opcode, layer, owner, ownerStart, ownerLength] = read;
  const engines = Object.entries(line.engines).map(([name, engine]) => {
    const [index, start, length] = ["index", "start", "length"].map(one => column(engine[one]));
    const names = Object.keys(engine.states);
    const columns = names.map(one => column(engine.states[one]));
    return {name, index, start, length, names, columns};
  });
  const bus = [column(line.bus.read), column(line.bus.write)];
  let from = 0, to = line.cycles, drawn = null;

  function items(from, to, width) {
    const bucket = (to - from) / Math.max(200, width), found = [];
    // Lane, begin, end, what, and shares of states.
    for (let at = 0; at < owner.length; at++) {
      const begin = ownerStart[at], end = begin + ownerLength[at];
      if (end > from && begin < to) found.push({lane: 0, begin, end, layer: owner[at], at});
    }
    engines.forEach((engine, number) => {
      let now = null;
      for (let at = 0; at < engine.start.length; at++) {
        const begin = engine.start[at], end = begin + engine.length[at];
        if (end <= from || begin >= to) continue;
        if (now === null || end - now.begin > bucket) {
          now = {lane: 1 + number, begin, end, count: 0, sums: new Float64Array(engine.names.length), engine, at};
          found.push(now);
        }
        now.count++;
        now.end = Math.max(now.end, end);
        engine.columns.forEach((column, state) => { now.sums[state] += column[at]; });
      }
    });
    bus.forEach((beats, way) => beats.forEach((value, at) => {
      const begin = at * line.bus.cycles, end = begin + line.bus.cycles;
      if (value && end > from && begin < to)
        found.push({lane: 1 + engines.length + way, begin, end, share: value / 1000 / line.bus.cycles});
    }));
    line.host.forEach((span, at) => found.push({lane: lanes.length - 1, begin: span.start, end: span.start + span.length,
      host: at, seconds: span.seconds}));
    return found;
  }
  const texts = item => {
    const span = `cycles ${count(item.begin)} to ${count(item.end - 1)} (${count(item.end - item.begin)})`;
    if (item.layer !== undefined) return `${safe(item.layer < 0 ? "no layer" : report.layers[item.layer].name)}<br>${span}`;
    if (item.host !== undefined) return `processor, part ${item.host + 1}<br>${(1000 * item.seconds).toFixed(3)} ms, `
      + "measured on the computer that made the report";
    if (item.share !== undefined) return `${lanes[item.lane]}<br>${span}<br>${(100 * item.share).toFixed(0)} % of the beats`;
    const own = item.engine.index[item.at], which = layer[own];
    const what = item.count === 1 ? `${line.opcodes[opcode[own]]}, instruction ${count(own)}, `
      + safe(which < 0 ? "no layer" : report.layers[which].name) : `${count(item.count)} instructions`;
    return `${lanes[item.lane]}: ${what}<br>${span}<br>` + item.engine.names.map((name, at) => item.sums[at]
      ? `${CAUSES[name][0]}: ${count(item.sums[at])}` : "").filter(Boolean).join("<br>");
  };
  let shown = [];
  function bar(ink) {
    return (params, api) => {
      const item = shown[params.dataIndex];
      if (!item) return null;
      const [x0, middle] = api.coord([Math.max(item.begin, from), item.lane]), x1 = api.coord([Math.min(item.end, to), 0])[0];
      const high = 0.74 * api.size([0, 1])[1], width = Math.max(0.6, x1 - x0), top = middle - high / 2;
      // Narrow ones cover whole pixels, else their colours are mixed with what is below.
      const left = width < 4 ? Math.floor(x0) : x0, wide = width < 4 ? Math.max(1, Math.ceil(x1) - left) : width;
      const rect = (y, height, fill, stroke) => ({type: "rect", shape: {x: left, y, width: wide, height},
        style: {fill, stroke, lineWidth: stroke ? 0.5 : 0}});
      if (item.layer !== undefined) {
        const name = item.layer < 0 ? "" : report.layers[item.layer].name;
        return {type: "group", children: [rect(top, high, item.layer % 2 ? ink.line : ink.panel, ink.faint),
          ...(width > 42 ? [{type: "text", style: {text: name, x: x0 + 4, y: middle, verticalAlign: "middle",
            fill: ink.text, fontSize: 11, width: width - 8, overflow: "truncate"}}] : [])]};
      }
      if (item.host !== undefined) return rect(top, high, ink.faint);
      if (item.share !== undefined) {
        const share = Math.min(1, item.share);
        return rect(top + high * (1 - share), high * share, ink.accent);
      }
      const all = Math.max(item.end - item.begin, item.sums.reduce((a, b) => a + b, 0));
      const children = [rect(top, high, ink.panel, width > 3 ? ink.line : null)];
      let y = top + high;
      item.engine.names.forEach((name, at) => {
        const height = high * item.sums[at] / all;
        if (height) { y -= height; children.push(rect(y, height, CAUSES[name][1])); }
      });
      const text = item.count === 1 ? line.opcodes[opcode[item.engine.index[item.at]]] : "";
      if (text && width > 7 * text.length + 14) children.push({type: "text", style: {text, x: x0 + 4, y: middle,
        verticalAlign: "middle", fill: "#111", backgroundColor: "#fffd", padding: [2, 4], borderRadius: 2, fontSize: 10}});
      return {type: "group", children};
    };
  }
  function show(begin, end, told) {
    const least = Math.min(16, line.cycles), span = Math.max(least, Math.min(line.cycles, Math.round(end - begin)));
    from = Math.max(0, Math.min(line.cycles - span, Math.round(begin)));
    to = from + span;
    where.textContent = `cycles ${count(from)} to ${count(to)}: ${(span / report.machine.clock_mhz).toFixed(2)} µs`;
    if (!drawn) return;
    shown = items(from, to, drawn.getWidth());
    drawn.setOption({series: [{id: "bars", data: shown.map(item => [item.begin, item.lane, item.end])}],
      ...(told ? {} : {dataZoom: [{id: "slide", startValue: from, endValue: to}, {id: "wheel", startValue: from,
        endValue: to}]})});
  }
  const zoom = factor => { const middle = (from + to) / 2, half = (to - from) / 2 * factor; show(middle - half, middle + half); };
  const move = share => { const by = share * (to - from); show(from + by, to + by); };
  const button = (text, label, act) => make("button", {type: "button", "aria-label": label, onclick: act}, text);
  controls.append(button("+", "Zoom in", () => zoom(0.4)), button("−", "Zoom out", () => zoom(2.5)),
    button("←", "Earlier", () => move(-0.4)), button("→", "Later", () => move(0.4)),
    button("All", "The whole inference", () => show(0, line.cycles)),
    button("Selected layer", "Zoom to the layer that is selected", () => {
      const own = [...owner.keys()].filter(at => owner[at] === choose.now);
      if (own.length) show(ownerStart[own[0]], Math.max(...own.map(at => ownerStart[at] + ownerLength[at])));
    }), where);
  const box = chart(root, 86 + 44 * lanes.length, "Timeline of the engines; arrow keys move it, plus and minus zoom",
    (width, ink) => ({
      tooltip: {...tip(ink), formatter: event => shown[event.dataIndex] ? texts(shown[event.dataIndex]) : ""},
      grid: {left: 76, right: 20, top: 6, bottom: 76},
      xAxis: axis(ink, {type: "value", min: 0, max: line.cycles, name: "cycles", nameLocation: "middle", nameGap: 24,
        splitNumber: width < 600 ? 2 : 6, axisLabel: {color: ink.text, hideOverlap: true, formatter: count}}),
      yAxis: axis(ink, {type: "category", data: lanes, inverse: true}),
      dataZoom: [{id: "slide", type: "slider", filterMode: "none", minValueSpan: 16, height: 22, bottom: 8,
        textStyle: {color: ink.faint}, labelFormatter: value => count(value), borderColor: ink.line},
      {id: "wheel", type: "inside", filterMode: "none", minValueSpan: 16, zoomOnMouseWheel: "ctrl",
        moveOnMouseWheel: false}],
      series: [{id: "bars", type: "custom", clip: true, progressive: 0, renderItem: bar(ink), data: [], dimensions: ["begin", "lane",
        "end"], encode: {x: [0, 2], y: 1}}],
    }), made => {
      drawn = made;
      let due = 0;
      made.on("datazoom", () => { cancelAnimationFrame(due); due = requestAnimationFrame(() => {
        const {startValue, endValue} = made.getOption().dataZoom[0];
        if (Math.round(startValue) !== from || Math.round(endValue) !== to) show(startValue, endValue, true);
      }); });
      made.on("click", event => {
        const item = shown[event.dataIndex];
        const which = item && (item.layer !== undefined ? item.layer : item.engine ? layer[item.engine.index[item.at]] : -1);
        if (which >= 0) choose.layer(which);
      });
      show(from, to);
    });
  box.tabIndex = 0;
  box.addEventListener("keydown", event => {
    const acts = {ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.5), "-": () => zoom(2),
      "0": () => show(0, line.cycles)};
    if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
  });
}

function device(report, root) {     // a run there, beside the simulation
  const run = report.on_device;
  if (!run) return;
  const simulation = report.measured === "rtl" ? "Verilog" : "time model";
  const range = run.fewest === run.most ? "" : `, from ${count(run.fewest)} to ${count(run.most)}`;
  section(root, "Beside a device", `Cycles of an inference: ${count(run.cycles)} on ${run.device} (`
    + `${count(run.samples)} samples${range}), ${count(report.total.cycles)} by the ${simulation}. What each engine did in `
    + "them; the rest of a bar is time in which it had nothing to do.");
  const engines = [...new Set(run.counters.map(one => one.engine))];
  const used = [...new Set(run.counters.filter(one => one.simulated || one.counted).map(one => one.state))];
  root.append(key(used));
  const rows_ = engines.flatMap(engine => [[engine, "simulated", simulation], [engine, "counted", "device"]]);
  const value = (row, state) => {
    const found = run.counters.find(one => one.engine === row[0] && one.state === state);
    return found ? found[row[1]] : 0;
  };
  chart(root, 62 + 24 * rows_.length, "Cycles of each engine's states, simulated and on the device; the table has the "
    + "figures", (width, ink) => ({
    tooltip: {...tip(ink), formatter: event => `${rows_[event.dataIndex][0]}, ${rows_[event.dataIndex][2]}<br>`
      + `${CAUSES[used[event.seriesIndex]][0]}: ${count(event.value)} cycles`},
    grid: {left: Math.min(160, 0.36 * width), right: 24, top: 8, bottom: 44},
    xAxis: axis(ink, {type: "value", name: "cycles", nameLocation: "middle", nameGap: 26,
      max: Math.ceil(Math.max(run.cycles, report.total.cycles)), splitNumber: width < 600 ? 2 : 5,
      axisLabel: {color: ink.text, hideOverlap: true, formatter: count}}),
    yAxis: axis(ink, {type: "category", inverse: true, data: rows_.map(row => `${row[0]}, ${row[2]}`),
      axisLabel: {color: ink.text, interval: 0}}),
    series: used.map(state => ({type: "bar", stack: "all", barWidth: 15, itemStyle: {color: CAUSES[state][1]},
      data: rows_.map(row => value(row, state))})),
  }));
  sortable(root, "Counters, simulated and on the device", [["engine", row => row.engine],
    ["state", row => CAUSES[row.state][0]], [simulation, row => row.simulated, count],
    ["device", row => row.counted, count], ["difference", row => row.counted - row.simulated, count]],
    run.counters.filter(one => one.simulated || one.counted));
}

function roofline(report, root, choose) {
  const roof = report.roofline, slow = Math.min(roof.bytes_of_memory, roof.bytes_of_port);
  const points = report.layers.map((layer, at) => [layer.useful_macs / Math.max(1, layer.dram_bytes),
    layer.useful_macs / Math.max(1, layer.cycles), at]).filter(([x, y]) => x > 0 && y > 0);
  if (!points.length) return;
  const brings = report.memory ? `the memory of ${report.memory} brings ${roof.bytes_of_memory.toFixed(1)} bytes a cycle `
    + `in long bursts, the port at most ${roof.bytes_of_port.toFixed(1)}, both ways together`
    : `the ideal memory brings ${roof.bytes_of_memory.toFixed(1)} bytes a cycle, a beat each way`;
  section(root, `Roofline: ${report.memory ? `memory of ${report.memory}` : "ideal memory"}`,
    `At most ${count(roof.macs)} MACs a cycle; ${brings}. A layer below the slope is bound by memory at best, one `
    + "below the flat part by the array. A layer can lie above the line: part of its bytes moved while others were "
    + "computed, or it is binary or Winograd.");
  const xs = points.map(point => point[0]);
  const low = Math.min(...xs, roof.macs / slow) / 2, high = Math.max(...xs, roof.macs / slow) * 2;
  const lowest = Math.min(...points.map(point => point[1])) / 2;
  const round = (value, up) => 10 ** (up ? Math.ceil(Math.log10(value) * 4) / 4 : Math.floor(Math.log10(value) * 4) / 4);
  const costliest = new Set([...points].sort((a, b) => report.layers[b[2]].cycles - report.layers[a[2]].cycles)
    .slice(0, 5).map(point => point[2]));
  const power = value => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 ? count(value) === "0"
    ? value : count(value) : "";
  chart(root, 360, "Roofline: MACs a cycle of each layer against MACs for each byte", (width, ink) => ({
    tooltip: {...tip(ink), formatter: event => event.seriesType === "scatter" ? `${safe(report.layers[event.value[2]].name)}`
      + `<br>${event.value[1].toFixed(1)} MACs a cycle, ${event.value[0].toFixed(1)} MACs a byte` : ""},
    grid: {left: 62, right: 24, top: 28, bottom: 48},
    xAxis: axis(ink, {type: "log", min: round(low), max: round(high, true), name: "MACs for each byte moved",
      nameLocation: "middle", nameGap: 28, axisLabel: {color: ink.text, formatter: power}}),
    yAxis: axis(ink, {type: "log", min: round(lowest), max: round(roof.macs * 1.3, true), name: "MACs a cycle",
      axisLabel: {color: ink.text, formatter: power}}),
    series: [{type: "line", symbol: "none", silent: true, lineStyle: {color: ink.text, width: 2}, clip: true,
      data: [[low / 8, slow * low / 8], [roof.macs / slow, roof.macs], [high * 4, roof.macs]]},
    {type: "scatter", symbolSize: value => 6 + 22 * Math.sqrt(report.layers[value[2]].cycles / report.total.cycles),
      itemStyle: {color: ink.accent, opacity: 0.75}, data: points, labelLayout: {hideOverlap: true},
      label: {show: true, position: "bottom", color: ink.text, fontSize: 11,
        formatter: event => costliest.has(event.value[2]) ? report.layers[event.value[2]].name : ""}}],
  }), drawn => drawn.on("click", event => event.seriesType === "scatter" && choose.layer(event.value[2])));
  root.append(make("p", {class: "note"}, "The larger a point, the more cycles; those that cost most have names, where "
    + "there is room."));
}

function memory(report, root) {
  section(root, "Memory over time", "Bytes of the data region from the layer that writes a tensor to the last that reads "
    + "it. Time goes in layers, from left to right.");
  for (const map of report.memory_maps) {
    const own = report.layers.filter(layer => layer.segment === map.segment), steps = own.length;
    // Addresses in steps of a power of two; without most of the weights where these would leave tensors no room.
    const from = map.constants > map.size / 2 ? map.constants : 0;
    const step = 2 ** Math.ceil(Math.log2(Math.max(1, map.size - from) / 5)), base = step * Math.floor(from / step);
    const title = report.memory_maps.length > 1 ? `Segment ${map.segment + 1}: ` : "";
    root.append(make("p", {class: "small"}, `${title}${bytes(map.size)} in all, ${bytes(map.constants)} of them weights `
      + `and parameters (below the tensors); ${map.kept.length ? `on the chip alone: ${map.kept.join(", ")}` :
        "no result stays on the chip alone"}.${base ? ` The drawing begins at ${bytes(base)}.` : ""}`));
    if (!map.tensors.length) continue;
    const top = step * Math.ceil(map.size / step);
    const colours = ["#7fb3d5", "#a3c9a8", "#e6c27a", "#c9a6d8", "#e2a1a1", "#8fd0c8"];
    chart(root, 260, "Tensors in memory over the layers", (width, ink) => ({
      tooltip: {...tip(ink), formatter: event => { const one = map.tensors[event.dataIndex];
        return `${safe(one.name)}<br>${bytes(one.size)} at ${bytes(one.offset)}<br>`
          + (one.first < 0 ? "from the start" : `from ${safe(own[one.first].name)}`)
          + (one.last >= steps ? " to the end" : one.last >= 0 ? ` to ${safe(own[one.last].name)}` : ""); }},
      grid: {left: 78, right: 16, top: 26, bottom: 44},
      xAxis: axis(ink, {type: "value", min: -1, max: steps + 1, name: "layer, at its left edge", nameLocation: "middle",
        nameGap: 26, interval: Math.ceil((steps + 2) * 84 / Math.max(84, width - 94)),
        axisLabel: {color: ink.text, align: "left", width: 78, overflow: "truncate", showMinLabel: true,
          formatter: value => own[value] ? own[value].name : value === -1 ? "start" : value === steps ? "end" : ""}}),
      yAxis: axis(ink, {type: "value", min: base, max: top, name: "address", interval: step,
        axisLine: {onZero: false, lineStyle: {color: ink.faint}}, axisLabel: {color: ink.text, formatter: value =>
          bytes(value).replace(/\.0+(?= )/, "")}}),
      series: [{type: "custom", clip: true, encode: {x: [0, 2], y: [1, 3]},
        data: map.tensors.map(one => [one.first, one.offset, one.last + 1, one.offset + one.size]),
        renderItem: (params, api) => {
          const one = map.tensors[params.dataIndex];
          const [x0, y0] = api.coord([one.first, one.offset]), [x1, y1] = api.coord([one.last + 1, one.offset + one.size]);
          const children = [{type: "rect", shape: {x: x0, y: y1, width: Math.max(1, x1 - x0), height: Math.max(1, y0 - y1)},
            style: {fill: colours[params.dataIndex % 6], stroke: "#444", lineWidth: 0.5}}];
          if (x1 - x0 > 50 && y0 - y1 > 13) children.push({type: "text", style: {text: one.name, x: x0 + 3,
            y: (y0 + y1) / 2, verticalAlign: "middle", fill: "#111", fontSize: 11, width: x1 - x0 - 6,
            overflow: "truncate"}});
          return {type: "group", children};
        }},
      {type: "line", data: [], markArea: {silent: true, itemStyle: {color: ink.faint, opacity: 0.25},
        data: [[{yAxis: base}, {yAxis: map.constants}]]}}],
    }));
  }
}

function noise(report, root) {
  section(root, "Noise of each layer", report.noise_words);
  if (!report.noise.length) return;
  const own = report.noise;
  chart(root, 50 + 20 * own.length, "Signal to quantisation noise of each layer in dB", (width, ink) => ({
    tooltip: {...tip(ink), formatter: event => `${safe(report.layers[own[event.dataIndex].layer].name)}: `
      + `${event.value.toFixed(1)} dB`},
    grid: {left: Math.min(220, 0.36 * width), right: 50, top: 6, bottom: 40},
    xAxis: axis(ink, {type: "value", name: "SQNR in dB: the more the better", nameLocation: "middle", nameGap: 24}),
    yAxis: axis(ink, {type: "category", inverse: true, data: own.map(one => report.layers[one.layer].name),
      axisLabel: {color: ink.text, interval: 0, width: Math.min(205, 0.36 * width - 10), overflow: "truncate"}}),
    series: [{type: "bar", barWidth: 13, itemStyle: {color: ink.accent}, data: own.map(one => one.sqnr_db),
      label: {show: true, position: "right", color: ink.text, fontSize: 11,
        formatter: event => event.value === null ? "" : event.value.toFixed(1)}}],
  }));
}

function values(report, root) {
  if (!report.onnxruntime_words) return;
  section(root, "Values beside onnxruntime", report.onnxruntime_words);
  if (report.onnxruntime.length) sortable(root, "Values beside onnxruntime", [["layer", row => row.layer],
    ["tensor", row => row.tensor], ["values", row => row.values, count], ["differ", row => row.differing, count],
    ["largest, steps", row => row.largest, count], ["rounding explains", row => row.allowed, count]], report.onnxruntime);
}

function facts(report, root) {
  const {machine, repeat} = report;
  section(root, "On the processor");
  const reasons = Object.entries(report.host);
  if (reasons.length) root.append(make("div", {class: "scroll", tabindex: "0", "aria-label": "Nodes on the processor"},
    rows(reasons)));
  else root.append(make("p", {}, report.timeline.host.length ? "The program does not say why; the model's report does."
    : "Nothing: all of the model runs on the accelerator."));
  section(root, "The machine on the board", `Area: ${machine.area_known}.`);
  root.append(rows([["board", `${machine.board_title} (${machine.part})`],
    ["clock", `${machine.clock_mhz.toFixed(1)} MHz, ${machine.clock}`],
    ...machine.area.filter(one => one.used !== null).map(one => [one.resource,
      `${count(one.used)} of ${count(one.available)}, ${percent(one.used, one.available)}`])]));
  section(root, "To make this again");
  root.append(rows([["command", repeat.command], ["npugen", repeat.version], ["commit", repeat.commit || "not known"],
    ["Python", repeat.python], ["SHA-256 of the input", repeat.model_sha256], ["configuration", `0x${machine.digest.toString(16).padStart(8, "0")}`]]));
  root.append(make("details", {}, make("summary", {}, "All parameters of the configuration"),
    rows(Object.entries(machine.config).map(([name, value]) => [name, JSON.stringify(value)]))));
}

function drawReport(report, root) {
  const choose = chooser(report);
  headline(report, root);
  graph(report, root, choose);
  bars(report, root, choose);
  device(report, root);
  table(report, root, choose);
  const line = make("section");
  root.append(line);
  roofline(report, root, choose);
  memory(report, root);
  noise(report, root);
  values(report, root);
  facts(report, root);
  timeline(report, line, choose);
  choose.layer(report.layers.reduce((most, layer, at) => layer.cycles > report.layers[most].cycles ? at : most, 0));
}
