import { assertEquals } from "@std/assert";
import { schedulingOf, tryParseScheduler } from "./scheduler.ts";

const KUBE_RELAY = "kube-relay.io/ipvs-scheduler";
const KUBE_RELAY_FLAGS = "kube-relay.io/ipvs-scheduler-flags";
const KUBE_ROUTER = "kube-router.io/service.scheduler";
const KUBE_ROUTER_FLAGS = "kube-router.io/service.schedflags";

/** Annotations, the node's scheduler, what it comes to. */
const CASES: readonly (readonly [
  annotations: Readonly<Record<string, string>> | undefined,
  node: "lc" | "mh" | "rr",
  comesTo: string,
])[] = [
  [undefined, "lc", "lc"],
  [undefined, "mh", "mh mh-port"],
  [{ [KUBE_ROUTER]: "sh" }, "rr", "sh"],
  [{ [KUBE_RELAY]: "Wlc " }, "rr", "wlc"],
  [{ [KUBE_RELAY]: "lblcr", [KUBE_ROUTER]: "sh" }, "rr", "lblcr"],
  [{ [KUBE_RELAY]: "" }, "lc", "rr"],
  [{ [KUBE_ROUTER]: "mh", [KUBE_ROUTER_FLAGS]: "flag-1,flag-2" }, "rr", "mh mh-fallback mh-port"],
  [{ [KUBE_RELAY]: "sh", [KUBE_RELAY_FLAGS]: "sh-port" }, "rr", "sh sh-port"],
  [{ [KUBE_RELAY]: "mh", [KUBE_RELAY_FLAGS]: "" }, "rr", "mh"],
];

for (const [annotations, node, comesTo] of CASES) {
  Deno.test(`schedulingOf() makes '${comesTo}' of ${JSON.stringify(annotations)} on ${node}`, () => {
    const { scheduler, flags, problems } = schedulingOf(annotations, node);
    assertEquals([[scheduler, ...flags].join(" "), problems], [comesTo, []]);
  });
}

Deno.test("schedulingOf() reports an unusable scheduler, and uses the node's", () => {
  const cases: readonly (readonly [Readonly<Record<string, string>>, string, string])[] = [
    [
      { [KUBE_ROUTER]: "roundrobin" },
      "lc",
      `Cannot use 'roundrobin' of annotation ${KUBE_ROUTER}: expected one of rr, lc, dh, sh, sed, nq, ` +
      "wrr, wlc, lblc, lblcr, mh",
    ],
    [
      { [KUBE_ROUTER_FLAGS]: "flag-1" },
      "lc",
      `Cannot use annotation ${KUBE_ROUTER_FLAGS}: scheduler lc has no flags`,
    ],
    [
      { [KUBE_RELAY]: "mh", [KUBE_RELAY_FLAGS]: "mh-port,flag-3" },
      "mh mh-port",
      `Cannot use 'flag-3' of annotation ${KUBE_RELAY_FLAGS}: scheduler mh has mh-fallback and mh-port`,
    ],
  ];
  for (const [annotations, comesTo, problem] of cases) {
    const { scheduler, flags, problems } = schedulingOf(annotations, "lc");
    assertEquals([[scheduler, ...flags].join(" "), problems], [comesTo, [problem]]);
  }
});

Deno.test("schedulingOf() reports a fault in a few words, however long the annotation is", () => {
  const long = `"; rm ${"x".repeat(100_000)}`;
  for (const value of [long, `${"x,".repeat(100_000)}`]) {
    for (
      const annotations of [{ [KUBE_RELAY]: value }, {
        [KUBE_RELAY]: "mh",
        [KUBE_RELAY_FLAGS]: value,
      }]
    ) {
      const { problems } = schedulingOf(annotations, "lc");
      assertEquals([problems.length, problems.join("").length < 300], [1, true]);
    }
  }
});

Deno.test("tryParseScheduler() uses the default for an empty name, and refuses an unknown one", () => {
  assertEquals(["", "MH", "wrr", "x"].map(tryParseScheduler), ["rr", "mh", "wrr", undefined]);
});
