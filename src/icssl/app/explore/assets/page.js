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

/* The button beside a warning writes into the field that the warning names: after what a list
   has already, and in place of the rest. */
const LISTS = ["missing", "types", "drop", "relabel"];
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-setting]");
  if (!button) return;
  const { setting, value } = button.dataset, before = document.getElementById(setting).value;
  const whole = LISTS.includes(setting) && before.trim() ? `${before}; ${value}` : value;
  button.disabled = true;
  dash_clientside.set_props(setting, { value: whole });
});
document.addEventListener("keydown", selectRow);

/* While the page waits for an answer, say for what, how long it took so far, and how long it
   may still take: the server knows how far a person's table is (see waiting.py). */
const STAGES = { busyData: "labelling your table", busyInside: "computing every layer",
  busyPlay: "predicting the points", busyWhy: "computing what each label adds" };
let since = 0, last = 0, asked = 0, progress = "";
function ask(now) {
  if (now - asked < 500) return;
  asked = now;
  fetch("_progress").then((answer) => answer.json()).then((told) => { progress = told.text; })
    .catch(() => { progress = ""; });  // the page itself says when its server is gone
}
setInterval(() => {
  const page = document.getElementById("page"), place = document.getElementById("busy");
  if (!page || !place) return;
  // One attribute per part of the page, since a part is ready before another.
  const parts = Object.keys(page.dataset).filter((name) => name.startsWith("busy"));
  const working = parts.filter((name) => page.dataset[name] === "true"), now = performance.now();
  if (working.length && !since) since = now;
  if (!working.length && since) { last = (now - since) / 1000; since = 0; progress = ""; }
  const waited = since ? (now - since) / 1000 : 0;
  if (waited > 1 && working.includes("busyData")) ask(now);
  const before = last > 2 && !progress ? ` The last answer took ${last.toFixed(0)} s.` : "";
  const stage = progress || working.map((name) => STAGES[name]).find(Boolean);
  const what = stage ? ` (${stage})` : "";
  const text = waited < 1 ? "" : `Working, ${waited.toFixed(0)} s so far${what}.${before}`;
  if (place.textContent !== text) place.textContent = text;
}, 250);
