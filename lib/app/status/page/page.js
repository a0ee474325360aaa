// Keeps the page as the node is. Everything is rendered by kube-relay: what arrives here is put in its
// place, with what the reader has opened left open.

const { document, location } = globalThis;
const connection = document.getElementById("connection");
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });

function say(text) {
  // Said again only when it differs: a screen reader would read it out each time.
  if (connection.textContent !== text) connection.textContent = text;
}

function replace({ id, html }) {
  const place = document.getElementById(id);
  if (place === null) return;
  const open = new Set([...place.querySelectorAll("details[open]")].map((details) => details.id));
  const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
  const { scrollTop, scrollLeft } = place;
  place.innerHTML = html;
  for (const details of place.querySelectorAll("details")) details.open = open.has(details.id);
  place.scrollTo(scrollLeft, scrollTop);
  if (focused !== "") document.getElementById(focused)?.focus();
  showAges();
}

function ageText(milliseconds) {
  const seconds = Math.min(0, Math.round(milliseconds / 1000));
  if (seconds > -60) return relative.format(seconds, "second");
  if (seconds > -3600) return relative.format(Math.round(seconds / 60), "minute");
  return relative.format(Math.round(seconds / 3600), "hour");
}

function showAges() {
  for (const time of document.querySelectorAll("time")) {
    const at = Date.parse(time.dateTime);
    time.title = new Date(at).toLocaleString();
    time.textContent = ageText(at - Date.now());
  }
}

const events = new EventSource(`events${location.search}`);
events.addEventListener("section", (event) => {
  replace(JSON.parse(event.data));
  say("Live");
});
events.addEventListener("error", () => say("Not connected: shown as it was; trying again"));
events.addEventListener("open", () => say("Live"));
showAges();
setInterval(showAges, 5000);
