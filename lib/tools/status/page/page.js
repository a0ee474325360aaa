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

const PERIOD_MS = 1000;
/** The sections as they are shown, by id. */
const shown = new Map();
let next;
let asked = 0;

/** Asks for all sections and replaces those that changed; an older answer than that of the last call is dropped. */
async function refresh() {
  clearTimeout(next);
  const turn = ++asked;
  try {
    const answer = await fetch(`sections${location.search}`, {
      signal: AbortSignal.timeout(10 * PERIOD_MS),
    });
    if (!answer.ok) throw new Error(answer.statusText);
    const sections = await answer.json();
    if (turn !== asked) return;
    for (const section of sections) {
      if (shown.get(section.id) !== section.html) replace(section);
      shown.set(section.id, section.html);
    }
    say("Live");
  } catch {
    if (turn !== asked) return;
    say("Not connected: showing the last known state; trying again");
  }
  next = setTimeout(refresh, PERIOD_MS);
}

let typing;
document.getElementById("filter").addEventListener("input", ({ target }) => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const query = target.value === "" ? "" : `?filter=${encodeURIComponent(target.value)}`;
    history.replaceState(null, "", `${location.pathname}${query}`);
    refresh();
  }, 300);
});

refresh();
showAges();
setInterval(showAges, 5000);
