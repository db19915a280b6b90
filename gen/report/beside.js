// Several reports: what differs, layer by layer, above the pages themselves.
const MACHINES = ["#5d6f83", "#b58a2b"];      // no cause of waiting has one of these

const letter = at => "AB"[at];

function drawBeside(reports, root) {
  const clocks = new Set(reports.map(report => report.machine.clock_mhz)), same = clocks.size === 1;
  const time = (cycles, report) => same ? cycles : cycles / report.machine.clock_mhz;
  const unit = same ? "cycles" : "µs", written = value => same ? count(value) : value.toFixed(2);
  const ms = report => 1e-3 * report.total.cycles / report.machine.clock_mhz;
  const rows = new Map();       // layer -> its time in each report; a name that comes again counts with the first
  reports.forEach((report, at) => report.layers.forEach(layer => {
    if (!rows.has(layer.name)) rows.set(layer.name, reports.map(() => null));
    const row = rows.get(layer.name);
    row[at] = (row[at] || 0) + time(layer.cycles, report);
  }));
  const all = [...rows].map(([layer, times]) => ({layer, times}));
  const shared = all.filter(row => row.times.every(value => value !== null));
  root.append(make("h2", {}, "Beside each other"), swatches(reports.map((report, at) => [`${letter(at)}: ${report.name}, `
    + `${report.machine.board}, ${report.machine.macs} MACs, features: ${report.machine.features.join(", ") || "none"}; `
    + `${report.machine.clock_mhz} MHz, ${report.memory ? `memory of ${report.memory}` : "ideal memory"}`, MACHINES[at]])));
  const than = at => {
    const share = ms(reports[at]) / ms(reports[0]) - 1;
    return `${letter(at)} takes ${ms(reports[at]).toFixed(3)} ms, ${Math.abs(100 * share).toFixed(1)} % `
      + `${share > 0 ? "more" : "less"} than A (${ms(reports[0]).toFixed(3)} ms).`;
  };
  const findings = reports.slice(1).map((_, at) => than(at + 1));
  if (reports.length === 2 && shared.length) {
    const gains = shared.map(row => [row.layer, row.times[0] - row.times[1]]).filter(([, gain]) => gain);
    const most = (list, word) => list.length ? `${word}: ${list.slice(0, 3).map(([layer, gain]) =>
      `${layer} by ${written(Math.abs(gain))}`).join(", ")} ${unit}.` : null;
    findings.push(most(gains.filter(([, gain]) => gain > 0).sort((a, b) => b[1] - a[1]), "B gains most in"),
      most(gains.filter(([, gain]) => gain < 0).sort((a, b) => a[1] - b[1]), "B loses most in"));
  }
  if (!shared.length) findings.push("No layer has the same name in all of them: layers are not compared.");
  root.append(make("ul", {class: "findings"}, ...findings.filter(Boolean).map(text => make("li", {}, text))));
  if (!shared.length) return;
  const scroll = make("div", {class: "scroll"});
  if (all.length * reports.length > 40) { scroll.tabIndex = 0; scroll.setAttribute("aria-label", "Layers of each"); }
  root.append(scroll);
  chart(scroll, 60 + (10 + 12 * reports.length) * all.length, `${unit} of each layer, of each; the table has the figures`,
    (width, ink) => ({
      tooltip: {...tip(ink), formatter: event => `${letter(event.seriesIndex)}: ${safe(all[event.dataIndex].layer)}<br>`
        + `${written(event.value)} ${unit}`},
      grid: {left: Math.min(220, 0.36 * width), right: 54, top: 44, bottom: 8},
      xAxis: axis(ink, {type: "value", name: unit, position: "top", nameLocation: "middle", nameGap: 26,
        splitNumber: width < 600 ? 2 : 5}),
      yAxis: axis(ink, {type: "category", inverse: true, data: all.map(row => row.layer), axisLabel: {color: ink.text,
        interval: 0, width: Math.min(205, 0.36 * width - 10), overflow: "truncate"}}),
      series: reports.map((_, at) => ({type: "bar", name: letter(at), barWidth: 11, barGap: "10%",
        itemStyle: {color: MACHINES[at]}, data: all.map(row => row.times[at])})),
    }));
  sortable(root, "Layers of each", [["layer", row => row.layer],
    ...reports.map((_, at) => [`${letter(at)}, ${unit}`, row => row.times[at], written]),
    ...reports.slice(1).map((_, at) => [`${letter(at + 1)} over A`, row => row.times[0] && row.times[at + 1] !== null
      ? row.times[at + 1] / row.times[0] : null, value => value.toFixed(2)])], all);
}
