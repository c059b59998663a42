/* A click on a row of a table selects it; so do Enter and the space bar. */
function selectRow(event) {
  if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
  const row = event.target.closest("tr[data-row]");
  if (!row) return;
  event.preventDefault();
  dash_clientside.set_props("row", { value: Number(row.dataset.row) });
  document.getElementById("data-row").scrollIntoView({ block: "nearest" });
}
document.addEventListener("click", selectRow);
document.addEventListener("keydown", selectRow);

/* While the page waits for an answer, say for what and for how long, and how long the last one
   took. */
const STAGES = { busyData: "labelling your table", busyInside: "computing every layer",
  busyPlay: "predicting the points", busyWhy: "computing what each label adds" };
let since = 0, last = 0;
setInterval(() => {
  const page = document.getElementById("page"), place = document.getElementById("busy");
  if (!page || !place) return;
  // One attribute per part of the page, since a part is ready before another.
  const parts = Object.keys(page.dataset).filter((name) => name.startsWith("busy"));
  const busy = parts.some((name) => page.dataset[name] === "true"), now = performance.now();
  if (busy && !since) since = now;
  if (!busy && since) { last = (now - since) / 1000; since = 0; }
  const waited = since ? (now - since) / 1000 : 0;
  const before = last > 2 ? ` The last answer took ${last.toFixed(0)} s.` : "";
  const stage = parts.filter((name) => page.dataset[name] === "true").map((name) => STAGES[name]);
  const what = stage.find(Boolean) ? ` (${stage.find(Boolean)})` : "";
  const text = waited < 1 ? "" : `Working, ${waited.toFixed(0)} s so far${what}.${before}`;
  if (place.textContent !== text) place.textContent = text;
}, 250);
