import { assert, assertEquals } from "@std/assert";
import { serviceLoop } from "../../../tests/support/builders/builders.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import type { EndpointKey } from "../../proxy/endpoint.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { ChangeLine } from "./change_entry.ts";
import { ChangeLog } from "./change_log.ts";
import { paintText } from "../report.ts";
import { changesReport } from "./changes_view.ts";

function quarantine(reason: string) {
  return { kind: "quarantine", family: "IPv4", lines: [{ text: reason }] } as const;
}

/** The log as a wide terminal shows it, without its first two lines. */
function shown(log: ChangeLog): readonly string[] {
  const text = paintText(changesReport(log.recent(), { timeZone: "UTC" }), { columns: 400 });
  return text.trimEnd().split("\n").slice(2);
}

Deno.test("ChangeLog keeps a limited number of entries, and counts the dropped ones", () => {
  const log = new ChangeLog({ clock: new FakeClock() }, { entries: 3 });
  for (let index = 0; index < 5; index++) log.put(quarantine(`${index}`));
  const { entries, forgotten } = log.recent();
  assertEquals(entries.map(({ sequence }) => sequence), [3, 4, 5]);
  assertEquals(forgotten, 2);
  assertEquals(log.recent(2).entries.map(({ sequence }) => sequence), [4, 5]);
});

Deno.test("ChangeLog keeps a limited number of bytes, whatever the texts are", () => {
  const bytes = 100_000;
  const log = new ChangeLog({ clock: new FakeClock() }, { bytes });
  for (let index = 0; index < 400; index++) {
    log.put(quarantine("\u20ac".repeat(1000)));
    assert(log.bytes <= bytes, `${log.bytes} after ${index + 1} entries`);
  }
  assert(log.recent().entries.length > 10);
  assertEquals(log.recent().entries.at(-1)!.sequence, 400);
});

Deno.test("ChangeLog replaces an entry in its place, and adds one that is forgotten", () => {
  const log = new ChangeLog({ clock: new FakeClock() }, { entries: 2 });
  const texts = () => log.recent().entries.map(({ lines }) => lines[0]?.text);
  const [first] = ["a", "b"].map((reason) => log.put(quarantine(reason)));
  log.put(quarantine("A"), first);
  assertEquals(texts(), ["A", "b"]);
  log.put(quarantine("c"));
  log.put(quarantine("again"), first);
  assertEquals(texts(), ["c", "again"]);
});

Deno.test("ChangeLog counts drift that is found again in a row", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  log.driftFound(serviceLoop("IPv4"), { kind: "chain", found: 0, repaired: 0 });
  log.driftFound(serviceLoop("IPv4"), { kind: "chain", found: 2, repaired: 2 });
  log.driftFound(serviceLoop("IPv4"), { kind: "chain", found: 1, repaired: 0 });
  log.driftFound(serviceLoop("IPv6"), { kind: "chain", found: 1, repaired: 1 });
  assertEquals(shown(log), [
    "00:00:00  IPv4            DRIFT: 3 chains not as written, 2 repaired, 2 times in a row",
    "00:00:00  IPv6            DRIFT: 1 chain not as written, 1 repaired",
  ]);
});

Deno.test("ChangeLog counts a difference once that a repair leaves and the next one finds again", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  const found = [{ object: "address" }];
  const text = () => log.recent().entries.at(-1)!.lines[0]!.text.replace(/^.*repair'/, "");
  for (let run = 0; run < 2; run++) {
    log.repaired({ family: "IPv4" }, { found, left: found, tookMs: 1, error: "no right" });
  }
  assertEquals(text(), ", 2 times: 0 of 1 address repaired");
  for (let run = 0; run < 2; run++) {
    log.repaired({ family: "IPv4" }, { found, left: [], tookMs: 1 });
  }
  assertEquals(text(), ", 4 times: 2 of 2 addresses repaired");
});

const DNS = "kube-system/dns:dns/UDP" as ServicePortKey;

function removed(...counts: readonly (readonly [ServicePortKey, number])[]) {
  return { removed: new Map(counts), tookMs: 20 };
}

Deno.test("flowsCleaned() names ServicePorts up to a limit, and is silent if nothing was found", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  log.flowsCleaned("IPv4", removed());
  assertEquals(log.recent().entries, []);
  const many = Array.from(
    { length: 100 },
    (_, n) => [`ns/s${n}/UDP` as ServicePortKey, 1] as const,
  );
  log.flowsCleaned("IPv4", removed([DNS, 1200], ...many));
  const lines = shown(log);
  assertEquals(lines.length, 9);
  assertEquals(
    lines[0],
    `00:00:00  IPv4     20 ms  1,200 UDP flows of ${DNS} to former endpoints removed`,
  );
  assertEquals(lines.at(-1)?.trim(), "93 UDP flows of other ServicePorts removed");
});

Deno.test("flowsCleaned() marks a failure until it works, and then reports that it had failed", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  const failed = { removed: new Map(), tookMs: 5, error: "no \x1b[2Jprogram" };
  log.flowsCleaned("IPv4", { ...failed, error: "x".repeat(10_000) });
  assert(log.recent().entries[0]!.lines[0]!.text.length < 500);
  log.flowsCleaned("IPv4", failed);
  const [line = "", ...others] = shown(log);
  assertEquals(others, []);
  assert(line.includes("FAILED 2 times to remove UDP flows, is tried again: no "), line);
  assert(!line.includes("\x1b"));
  log.flowsCleaned("IPv4", removed([DNS, 1]));
  log.flowsCleaned("IPv4", removed([DNS, 2]));
  assertEquals(shown(log).map((each) => each.slice(26)), [
    `1 UDP flows of ${DNS} to former endpoints removed`,
    "Removing UDP flows had failed 2 times",
    `2 UDP flows of ${DNS} to former endpoints removed`,
  ]);
});

Deno.test("ChangeLog.healthChanged() merges a burst, and keeps its newest changes", async () => {
  const clock = new FakeClock();
  const log = new ChangeLog({ clock });
  const servicePort = "ns1/web/TCP" as ServicePortKey;
  const change = (index: number) => ({
    ...{ servicePort, endpoint: `10.0.0.${index}:80` as EndpointKey },
    ...{ state: "unhealthy", reason: "refused" } as const,
  });
  log.healthChanged("IPv4", Array.from({ length: 100 }, (_, index) => change(index)));
  await clock.advance(5000);
  const { reason: _, ...healthy } = change(100);
  log.healthChanged("IPv4", [{ ...healthy, state: "healthy" }]);
  log.healthChanged("IPv6", [change(1)]);
  log.healthChanged("IPv4", [change(101)]);
  await clock.advance(5001);
  log.healthChanged("IPv6", [{ ...change(2), reason: "x".repeat(1000) }]);
  const texts = log.recent().entries.map(({ family, lines }) =>
    `${family} ${lines.length} ${lines.at(-1)?.text}`
  );
  assertEquals(texts.slice(0, 2), [
    "IPv4 9 Endpoint 10.0.0.101:80 of ns1/web/TCP unhealthy: refused",
    "IPv6 1 Endpoint 10.0.0.1:80 of ns1/web/TCP unhealthy: refused",
  ]);
  assertEquals([texts.length, texts[2]!.length], [
    3,
    7 + 400 + "Endpoint 10.0.0.2:80 of ns1/web/TCP unhealthy: ".length,
  ]);
  const text = shown(log).join("\n");
  assert(text.includes("94 changes of health before these"), text);
  assert(text.includes("Endpoint 10.0.0.100:80 of ns1/web/TCP healthy again"), text);
});

Deno.test("changesReport() has only entries that match a filter, and says if there are none", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  const text = (filter = "") => paintText(changesReport(log.recent(), { timeZone: "UTC", filter }));
  assertEquals(text(), "No changes yet.\n");
  const lines: readonly ChangeLine[] = [
    { text: "Pod of it added", object: "default/web-x1" },
    { text: "-> more endpoints", tone: "effect", item: "default/web:http/TCP" },
  ];
  log.put({ kind: "sync", family: "IPv4", outcome: "applied", tookMs: 12, lines });
  log.configurationChanged(["logging.verbosity"]);
  for (const filter of ["default/web", "web", "default"]) {
    assert(text(filter).includes("Pod of it") && !text(filter).includes("Configuration"), filter);
  }
  assertEquals(text("other"), "No change matches 'other'.\n");
  assertEquals(
    text(),
    `\
TIME      FAM       TOOK  CHANGE
2026-01-01
00:00:00  IPv4     12 ms  Pod of it added
                          -> more endpoints
00:00:00                  Configuration file: logging.verbosity
`,
  );
});

Deno.test("changesReport() lets no object move the cursor", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  log.put(quarantine(`a\x1b[2J\n${"x".repeat(300)} \u202eb`));
  const text = paintText(changesReport(log.recent()));
  // deno-lint-ignore no-control-regex
  assert(!/[\x00-\x09\x0b-\x1f\u202e]/.test(text), text);
});
