/* Dash leaves out a file above the limit of its upload without a word and without a callback,
   and one that is not left out is read whole, however large. So the page is told of every
   file by its name and size; what it says about them is said in app.py. */
function tell(event) {
  if (!event.target.closest("#upload")) return;
  const [file] = (event.dataTransfer || event.target).files || [];
  if (file) dash_clientside.set_props("dropped", { data: { name: file.name, size: file.size } });
}
document.addEventListener("change", tell, true);
document.addEventListener("drop", tell, true);
