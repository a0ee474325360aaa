// Keeps the page up to date. kube-relay renders every section; the script puts it in place, writes
// moments as ages, and asks for other Services while a filter is typed.

const { document, history, location } = globalThis;
const connection = document.getElementById("connection");
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });

function say(text) {
  // A screen reader reads the text out each time it is set.
  if (connection.textContent !== text) connection.textContent = text;
}

function replace({ id, html }) {
  const place = document.getElementById(id);
  if (place === null) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.href : undefined;
  place.innerHTML = html;
  if (focused !== undefined) {
    [...place.querySelectorAll("a")].find(({ href }) => href === focused)?.focus();
  }
  showAges();
}

function ageText(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  if (Math.abs(seconds) < 60) return relative.format(seconds, "second");
  if (Math.abs(seconds) < 3600) return relative.format(Math.round(seconds / 60), "minute");
  return relative.format(Math.round(seconds / 3600), "hour");
}

function showAges() {
  for (const time of document.querySelectorAll("time")) {
    const at = Date.parse(time.dateTime);
    time.title = new Date(at).toLocaleString();
    time.textContent = ageText(at - Date.now());
  }
}

let events;
let retry;

function follow() {
  clearTimeout(retry);
  events?.close();
  events = new EventSource(`events${location.search}`);
  events.addEventListener("section", (event) => {
    replace(JSON.parse(event.data));
    say("Live");
  });
  events.addEventListener(
    "error",
    () => {
      say("Not connected: showing the last known state; trying again");
      // A browser gives up after an answer such as 503, for too many readers.
      if (events.readyState === EventSource.CLOSED) retry = setTimeout(follow, 5000);
    },
  );
  events.addEventListener("open", () => say("Live"));
}

let typing;
document.getElementById("filter").addEventListener("input", ({ target }) => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const query = target.value === "" ? "" : `?filter=${encodeURIComponent(target.value)}`;
    history.replaceState(null, "", `${location.pathname}${query}`);
    follow();
  }, 300);
});

follow();
showAges();
setInterval(showAges, 5000);
