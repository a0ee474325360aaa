import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import fc from "fast-check";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { SyncFailure } from "../../../lib/controller/sync_failure.ts";
import type { PolicyKey } from "../../../lib/policy/policy_plan.ts";
import {
  type ClusterEvent,
  clusterHistory,
  handleEvent,
} from "../../../tests/policy/random_cluster.ts";
import {
  podKey,
  setPod,
  setPolicy,
  testPod,
} from "../../../tests/support/builders/policy_objects.ts";
import type { CommandFailure } from "../../../tests/support/fakes/fake_command_runner.ts";
import { PolicyNftStage } from "../../../tests/support/stages/policy_nft_stage.ts";

/** Web pods that only clients may reach, on one port of several ways to say it. */
function addWeb(stage: PolicyNftStage): void {
  const { state } = stage;
  setPod(state, "x/web", { address: "10.1.0.1", labels: { app: "web" } });
  setPod(state, "x/client", { address: "10.1.0.2", labels: { app: "client" } });
  setPod(state, "y/client", { address: "10.2.0.1", labels: { app: "client" }, nodeName: "n2" });
  setPolicy(state, "x/web", {
    podSelector: { matchLabels: { app: "web" } },
    policyTypes: ["Ingress", "Egress"],
    ingress: [
      {
        from: [{ podSelector: { matchLabels: { app: "client" } }, namespaceSelector: {} }],
        ports: [{ port: 80 }, { port: 8000, endPort: 8010 }, { port: 53, protocol: "UDP" }],
      },
      { from: [{ ipBlock: { cidr: "198.51.100.0/24", except: ["198.51.100.1/32"] } }] },
    ],
    egress: [{ ports: [{ port: 443 }] }],
  });
}

function removePolicy({ state }: PolicyNftStage, key: string): void {
  state.setPolicy(key as PolicyKey, undefined);
}

Deno.test("the first sync writes what render() prints, and the next one nothing", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  const { full, operations } = await stage.sync();
  assertEquals(full, true);
  assertEquals(stage.lastText, [...stage.dataPlane.render(stage.planner.plan)].join(""));
  assertEquals(operations["transactions"], 1);
  const again = await stage.sync();
  assertEquals([again.full, again.operations], [false, {}]);
});

Deno.test("any sequence of syncs comes to what a start from nothing writes, restarts included", async () => {
  const outcomes = fc.array(fc.constantFrom("none", "sync", "restart", "fail", "lose"), {
    minLength: 40,
    maxLength: 40,
  });
  const options = fc.record({
    family: fc.constantFrom(...IP_FAMILIES),
    deny: fc.constantFrom(
      { action: "reject" as const },
      { action: "drop" as const, log: { perMinute: 10, group: 100 } },
    ),
    closedRanges: fc.constantFrom([], [parseCidr("10.1.0.0/24")]),
  });
  await fc.assert(
    fc.asyncProperty(clusterHistory, options, outcomes, async (history, chosen, outcomes) => {
      const closedRanges = chosen.family === "IPv4" ? chosen.closedRanges : [];
      await using stage = await PolicyNftStage.create({ ...chosen, closedRanges });
      for (const [index, event] of history.entries()) {
        handleEvent(stage.state, event);
        await outcome(stage, outcomes[index]);
      }
      await stage.sync().catch(() => stage.sync());
      assertEquals(stage.meaning, stage.golden);
    }),
    { numRuns: 150 },
  );
});

async function outcome(stage: PolicyNftStage, what: string | undefined): Promise<void> {
  // A failure that was planned for a sync without commands is that of the next command.
  if (what === "restart") await stage.restart().catch(() => stage.restart());
  if (what === "fail") stage.machine.commands.failNext("timeout", { carriedOut: true });
  if (what === "lose" && stage.machine.tool.tables.length > 0) {
    stage.machine.deleteTable(stage.machine.tool.tables[0]!);
  }
  if (what === "none") return;
  await stage.sync().catch((error) => {
    if (!(error instanceof SyncFailure)) throw error;
  });
  // Where nothing was to be written, only the watch would notice.
  if (what === "lose") await repair(stage).catch(() => repair(stage));
}

function repair({ dataPlane, planner }: PolicyNftStage) {
  return dataPlane.repair(planner.plan);
}

Deno.test("a pod event is at most 20 lines, however many policies there are", async () => {
  for (const policies of [10, 1_000]) {
    await using stage = await PolicyNftStage.create({ closedRanges: [parseCidr("10.1.0.0/16")] });
    for (let i = 0; i < policies; i++) {
      setPod(stage.state, `x/p${i % 100}`, {
        address: `10.1.0.${i % 100}`,
        labels: { app: `${i % 100}` },
      });
      setPolicy(stage.state, `x/p${i}`, {
        podSelector: { matchLabels: { app: `${i % 100}` } },
        policyTypes: ["Ingress", "Egress"],
        ingress: [{
          from: [{ podSelector: { matchLabels: { app: `${i}` } } }],
          ports: [{ port: i + 1 }],
        }],
        egress: [{ to: [{ podSelector: { matchLabels: { app: `${i}` } } }] }],
      });
    }
    await stage.sync();
    const events: readonly (() => void)[] = [
      () => setPod(stage.state, "x/new", { address: "10.1.9.9", labels: { app: "7" } }),
      () => setPod(stage.state, "x/new", { address: "10.1.9.9", labels: { app: "8" } }),
      () => stage.state.setPod(podKey("x/new"), undefined),
    ];
    for (const [index, event] of events.entries()) {
      event();
      const before = stage.machine.commands.calls.length;
      const { operations } = await stage.sync();
      const lines = operations["lines"] ?? 0;
      assert(lines > 0 && lines <= 20, `event ${index}, ${policies} policies: ${lines} lines`);
      assertEquals(stage.machine.commands.calls.length - before, 1, "one command");
    }
    assertEquals(stage.meaning, stage.golden);
  }
});

Deno.test("pods with the same rules share their list, and policies with the same peers their set", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  setPod(stage.state, "x/web-2", { address: "10.1.0.3", labels: { app: "web" } });
  await stage.sync();
  const names = [...stage.table.chains.keys()];
  assertEquals(names.filter((name) => name.startsWith("list-")).length, 2, `${names}`);
});

Deno.test("a chain is deleted by the transaction after the one that took away what led to it", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  const empty = () => [...stage.table.chains.values()].filter((rules) => rules.length === 0).length;
  removePolicy(stage, "x/web");
  await stage.sync();
  assertEquals(empty(), 2);
  await stage.sync();
  assertEquals([empty(), stage.table.chains.size], [0, 7]);
});

Deno.test("a start adopts the table in one transaction that replaces nothing", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  const before = stage.meaning;
  await stage.restart();
  const { operations } = await stage.sync();
  assertEquals(stage.meaning, before);
  assert(!stage.lastText.includes("delete table"), stage.lastText);
  assertEquals([operations["elements"], operations["transactions"]], [undefined, 1]);
});

Deno.test("a policy whose rule is refused isolates still, and everything else is applied", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  setPolicy(stage.state, "x/other", {
    podSelector: {},
    ingress: [{ from: [{ ipBlock: { cidr: "192.0.2.0/24" } }] }],
  });
  stage.machine.judge = (line) =>
    /^add rule .* ports-/.test(`${line}`) || line.includes("@ports-")
      ? "Invalid argument"
      : undefined;
  const { quarantined } = await stage.sync();
  assertEquals(quarantined.map(({ key }) => `${key}`), ["x/web"]);
  assertStringIncludes(quarantined[0]!.reason, "Invalid argument");
  assert(quarantined[0]!.retryAt !== undefined);
  const web = stage.table.elements.get("to-pod")?.get("10.1.0.1")?.replace("goto ", "") ?? "";
  const rules = stage.table.chains.get(web) ?? [];
  assertEquals(rules.length, 2, `${rules}`);
  assertEquals(rules.at(-1), "goto deny-ingress");
  // Too early: nothing of it is tried.
  setPod(stage.state, "x/more", { address: "10.1.0.9", labels: { app: "web" } });
  const early = await stage.sync();
  assertEquals([early.full, early.quarantined.length], [false, 1]);
  // What is left out is no drift, also when the time for it has come.
  await stage.pass(60_000);
  assertEquals([stage.drift, stage.logger.lines], [[], []]);
  stage.machine.judge = () => undefined;
  const retried = await stage.sync();
  assertEquals([retried.full, retried.quarantined], [false, []]);
  assertEquals(stage.meaning, stage.golden);
});

Deno.test("a policy whose set is refused isolates still, and is tried less and less often", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  stage.machine.judge = (line) => line.includes("198.51.100") ? "File exists" : undefined;
  for (const pause of [1_000, 2_000, 4_000]) {
    const { quarantined } = await stage.sync();
    const [item] = quarantined;
    assertEquals(`${item?.key}`, "x/web");
    assertEquals(Date.parse(item!.retryAt!) - stage.clock.wallNow(), pause);
    await stage.pass(pause);
  }
  stage.machine.judge = () => undefined;
  const { quarantined } = await stage.sync();
  assertEquals(quarantined, []);
  assertEquals(stage.meaning, stage.golden);
});

const FAILURES: readonly CommandFailure[] = [
  "not-found",
  "timeout",
  "killed",
  "failed",
  { code: 1, stderr: "/dev/stdin:1:1-9: Error: Could not process rule: Device or resource busy\n" },
  {
    code: 1,
    stderr: "/dev/stdin:9:1-9: Error: Could not process rule: No such file or directory\n",
  },
  { code: 1, stderr: "netlink: Error: Operation not permitted" },
  { code: 134, stderr: "nft: Assertion failed" },
  { code: 1, stdout: "garbage", stderr: "" },
];

Deno.test("whichever command fails in whichever way, one good sync comes to the golden state", async () => {
  for (const failure of FAILURES) {
    for (const carriedOut of [false, true]) {
      for (let call = 1; call <= 4; call++) {
        await using stage = await PolicyNftStage.create();
        addWeb(stage);
        await stage.sync();
        await stage.restart();
        const first = stage.machine.commands.calls.length;
        stage.machine.commands.failCall(first + call, failure, { carriedOut });
        for (const label of ["a", "b", "c"]) {
          setPod(stage.state, "x/client", { address: "10.1.0.2", labels: { app: label } });
          setPolicy(stage.state, "x/more", { podSelector: { matchLabels: { app: label } } });
          await stage.sync().catch((error) => {
            if (!(error instanceof SyncFailure)) throw error;
          });
        }
        // What a listing got wrong is noticed by the next one.
        await stage.pass(15_000);
        await stage.sync();
        const text = `${JSON.stringify(failure)} of call ${call}, ${carriedOut}`;
        assertEquals(stage.meaning, stage.golden, text);
        assertEquals((await stage.sync()).quarantined, [], text);
      }
    }
  }
});

Deno.test("what another program changes is put right in seconds, and counted", async () => {
  const harms: readonly ((stage: PolicyNftStage) => void)[] = [
    ({ machine }) => machine.deleteTable("ip kube-relay-policy"),
    ({ machine }) => machine.tool.run("flush chain ip kube-relay-policy ingress\n"),
    ({ table }) => void table.chains.get("deny")?.push("accept"),
    ({ table }) => table.elements.get("to-pod")?.clear(),
    ({ table }) => void table.elements.get("itself")?.set("10.1.0.1 . 10.9.9.9", ""),
    ({ table }) => void table.chains.set("list-foreign", ["accept"]),
    ({ table }) =>
      void table.hooks.set("ingress", "{ type filter hook forward priority 9 ; policy accept ; }"),
    ({ table }) => void table.declarations.set("known", ["type inet_service"]),
  ];
  for (const [index, harm] of harms.entries()) {
    await using stage = await PolicyNftStage.create();
    addWeb(stage);
    await stage.sync();
    harm(stage);
    assert((await stage.dataPlane.compare(stage.planner.plan)).length > 0, `${index} is seen`);
    await stage.pass(15_000);
    assertEquals(stage.meaning, stage.golden, `${index} is repaired`);
    assert(stage.drift.length > 0, `${index} is counted`);
    assertEquals(await stage.dataPlane.compare(stage.planner.plan), []);
  }
});

Deno.test("the watch finds no drift where nothing was changed", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  removePolicy(stage, "x/web");
  await stage.sync();
  await stage.pass(60_000);
  assertEquals([stage.drift, stage.logger.lines], [[], []]);
  assertEquals(stage.machine.writes.length, 2);
});

Deno.test("repair() writes what differs, without a start", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  stage.table.elements.get("from-pod")?.clear();
  const { plan } = stage.planner;
  const { found, left } = await stage.dataPlane.repair(plan);
  assertEquals([found.map(({ object, kind }) => `${object} ${kind}`), left], [
    ["map element missing"],
    [],
  ]);
});

Deno.test("cleanup takes the table and nothing else, and a preview takes nothing", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  stage.machine.tool.run("add table ip other\n");
  const name = "table ip kube-relay-policy (nftables)";
  assertEquals((await stage.dataPlane.previewCleanup()).removed, [name]);
  assertEquals(stage.machine.tool.tables.length, 2);
  assertEquals((await stage.dataPlane.cleanup()).removed, [name]);
  assertEquals(stage.machine.tool.tables, ["ip other"]);
  assertEquals((await stage.dataPlane.cleanup()).removed, []);
});

Deno.test("sync() before a start is refused", async () => {
  await using stage = await PolicyNftStage.create();
  stage.machine.commands.failNext("not-found");
  await assertRejects(() => stage.restart());
  await assertRejects(() => stage.sync(), Error, "start() has not succeeded");
});

Deno.test("a log names the pod in characters that end no quote", async () => {
  const log = { perMinute: 7, group: 100 };
  await using stage = await PolicyNftStage.create({ deny: { action: "drop", log } });
  const name = `a"; drop ${"long".repeat(60)}`;
  const event: ClusterEvent = {
    kind: "pod",
    key: `x/${name}`,
    object: testPod(`x/${name}`, { address: "10.1.0.1" }),
  };
  handleEvent(stage.state, event);
  setPolicy(stage.state, "x/p", { podSelector: {} });
  await stage.sync();
  const rule = [...stage.table.chains.values()].flat().find((rule) => rule.includes(" log "));
  assert(rule?.startsWith('limit rate 7/minute log prefix "netpol to x/a?? drop long'), rule);
  assert((rule?.split('"')[1] ?? "").length <= 127, rule);
});
