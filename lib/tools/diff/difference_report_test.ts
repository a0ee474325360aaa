import { assertEquals } from "@std/assert";
import { testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import type { DataPlaneDifference, Quarantined } from "../../proxy/data_plane.ts";
import { paintText } from "../report.ts";
import { differenceJson, differenceReport } from "./difference_report.ts";
import { isRepairFailed, type NodeDifference } from "./node_difference.ts";

const WEB = testServicePlan({ name: "web", portName: "http" });

const MISSING: DataPlaneDifference = {
  object: "map element",
  name: "service-ips 10.96.0.1 . tcp . 80",
  kind: "missing",
  key: WEB.key,
  wanted: "10.96.0.1 . tcp . 80 : 0x80000001",
};
const ALTERED: DataPlaneDifference = {
  object: "rule",
  name: "services, rule 1",
  kind: "altered",
  wanted: "jump unclaimed",
  found: "drop",
};

function of(
  differences: readonly DataPlaneDifference[],
  found?: readonly DataPlaneDifference[],
  quarantined: readonly Quarantined[] = [],
): NodeDifference {
  const repair = found && { found, operations: { lines: 1 }, refused: [] };
  const family = {
    family: "IPv4" as const,
    differences,
    quarantined,
    ...(repair && { repair }),
  };
  return { mode: "nftables", nodeName: "node-1", families: [family] };
}

function text(difference: NodeDifference, now = 0): string {
  return paintText(differenceReport(difference, now, { timeZone: "UTC" }));
}

Deno.test("differenceReport() reports by Service, and shared objects last", () => {
  assertEquals(
    text(of([ALTERED, MISSING])),
    `Node  node-1, mode nftables
IPv4  2 differences

IPv4, ns/web:http TCP
  missing  map element service-ips 10.96.0.1 . tcp . 80
             wanted 10.96.0.1 . tcp . 80 : 0x80000001

IPv4, For all Services
  altered  rule services, rule 1
             wanted jump unclaimed
             found drop

2 differences; 'kube-relay diff --repair' repairs them
`,
  );
});

Deno.test("differenceReport() promises no repair while syncs fail, and gives the reason", () => {
  const [family] = of([MISSING]).families;
  const failing = { ...of([]), families: [{ ...family!, failures: 2, lastError: "no table" }] };
  const shown = text(failing);
  assertEquals(shown.includes("2 syncs failed: no table"), true, shown);
  assertEquals(shown.endsWith("\n1 difference\n"), true, shown);
  assertEquals(JSON.stringify(differenceJson(failing)).includes('"lastError":"no table"'), true);
});

Deno.test("isRepairFailed() does not judge a family whose syncs went on", () => {
  const [family] = of([MISSING], [MISSING]).families;
  const judged = (more: object) =>
    isRepairFailed({ ...of([]), families: [{ ...family!, ...more }] });
  assertEquals([judged({}), judged({ isUnsettled: true })], [true, false]);
});

Deno.test("differenceReport() shows a bounded part of long values", () => {
  const many = Array.from({ length: 40 }, (_, index) => ({ ...MISSING, name: `element ${index}` }));
  const shown = text(of([
    ...many,
    { ...ALTERED, wanted: Array.from({ length: 30 }, (_, index) => `rule ${index}`).join("\n") },
  ]));
  assertEquals(shown.includes("and 28 more; --json has all"), true);
  assertEquals(shown.includes("and 24 more lines"), true);
  assertEquals(shown.split("\n").length < 60, true);
});

const REFUSED: Quarantined = {
  key: WEB.key,
  reason: 'The kernel refused "10.96.0.1 . tcp . 80 : 0x80000001": No space left on device',
  retryAt: "2026-11-22T15:30:12.000Z",
};

Deno.test("differenceReport() reports the quarantine, the reasons, and the next attempts", () => {
  const quarantined = [REFUSED, {
    key: WEB.key,
    address: "10.96.0.1:80/TCP",
    reason: "it is taken",
  }];
  const at = (time: string) => text(of([], undefined, quarantined), Date.parse(time));
  assertEquals(
    at("2026-11-22T15:29:40Z"),
    `Node  node-1, mode nftables
IPv4  as planned

IPv4, in quarantine (left out until tried again; no difference)
  ns/web:http TCP: The kernel refused "10.96.0.1 . tcp . 80 : 0x80000001": No
    space left on device
    tried again in 32s, from 15:30:12 on
  ns/web:http TCP 10.96.0.1:80/TCP: it is taken
    checked again with each sync

The machine is as planned, except for the quarantine
`,
  );
  assertEquals(
    at("2026-11-22T15:31:00Z").includes("to be tried again since 2026-11-22 15:30:12\n"),
    true,
  );
});

Deno.test("differenceReport() shows a bounded part of a large quarantine, JSON has all", () => {
  const many = Array.from({ length: 10_000 }, () => ({ ...REFUSED, reason: "no\x1b[2J" }));
  const difference = of([], undefined, many);
  const shown = text(difference);
  assertEquals(shown.includes("and 9988 more; --json has all"), true);
  assertEquals([shown.includes("\x1b"), shown.split("\n").length < 40], [false, true]);
  const { families: [family], differences } = JSON.parse(
    JSON.stringify(differenceJson(difference)),
  );
  assertEquals([differences, family.quarantined.length], [0, 10_000]);
  const { reason, retryAt } = many[0]!;
  assertEquals(family.quarantined[0], {
    service: "ns/web",
    servicePort: WEB.key,
    reason,
    retryAt,
  });
});

Deno.test("differenceReport() names the remedy for a difference that a repair cannot correct, and offers no repair", () => {
  const cure = "kube-relay opens it itself";
  const listener = { ...MISSING, object: "listener", name: "10.96.0.1:80/TCP", cure };
  const alone = text(of([listener]));
  assertEquals(alone.includes("\n             kube-relay opens it itself\n"), true, alone);
  assertEquals(alone.endsWith("\n1 difference\n"), true, alone);
  const both = text(of([listener, ALTERED]));
  assertEquals(
    both.endsWith("2 differences; 'kube-relay diff --repair' repairs 1 of them\n"),
    true,
  );
});
