// The page as a whole: colours, printing, size.
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = name => { document.documentElement.dataset.theme = name; redraw.forEach(one => one.draw()); };
theme(new URLSearchParams(location.hash.slice(1)).get("theme") || (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () =>
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
let before = "light";
// Drawn as wide as a sheet of paper is between its margins: drawings do not follow the paper's width.
const printing = (now, name) => { document.body.classList.toggle("printing", now); theme(name); };
addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; printing(true, "light"); });
addEventListener("afterprint", () => printing(false, before));
let due = 0, width = innerWidth;
addEventListener("resize", () => {
  clearTimeout(due);
  due = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; redraw.forEach(one => one.resize()); } }, 150);
});
const reports = JSON.parse(document.getElementById("data").textContent);
document.title = reports.map(report => report.name).join(" and ") + ", npugen report";
if (reports.length > 1) document.body.classList.add("two");
if (reports.length > 1 && reports.every(report => report.timeline)) {
  drawBeside(reports, document.getElementById("beside"));
  longest = Math.max(...reports.flatMap(report => report.layers.map(layer => layer.cycles)));
}
// All in their places before the first is drawn: charts take the width that their article has then.
const articles = reports.map(() => make("article"));
document.getElementById("reports").append(...articles);
reports.forEach((report, at) => {
  const named = reports.length > 1 ? {...report, name: `${letter(at)}: ${report.name}`} : report;
  (report.timeline ? drawReport : drawSheet)(named, articles[at]);
});
document.body.dataset.ready = "yes";
const at = document.getElementById(new URLSearchParams(location.hash.slice(1)).get("at"));
if (at) at.scrollIntoView();
