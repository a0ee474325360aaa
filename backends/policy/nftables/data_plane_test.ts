import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import fc from "fast-check";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { SyncFailure } from "../../../lib/engine/sync_failure.ts";
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
  const lines = (text: string) => text.replaceAll(",\n", "\n").split("\n").sort();
  const rendered = [...stage.dataPlane.render(stage.planner.plan)].join("");
  assertEquals(lines(stage.lastText), lines(rendered));
  assertEquals(operations["transactions"], 1);
  const again = await stage.sync();
  assertEquals([again.full, again.operations], [false, {}]);
});

Deno.test("any sequence of syncs comes to what a start from nothing writes, restarts included", async () => {
  const outcome = fc.constantFrom(...Object.keys(OUTCOMES));
  const outcomes = fc.array(outcome, { minLength: 40, maxLength: 40 });
  const seen = new Map<string, number>();
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
        const what = outcomes[index] ?? "sync";
        seen.set(what, (seen.get(what) ?? 0) + 1);
        await OUTCOMES[what]!(stage, index);
      }
      await goodSync(stage);
      assertEquals(stage.meaning, stage.golden);
      const { plan } = stage.planner;
      assertEquals(await stage.dataPlane.compare(plan), []);
    }),
    { numRuns: 100 },
  );
  for (const what of Object.keys(OUTCOMES)) assert((seen.get(what) ?? 0) > 20, what);
});

/** What happens after an event of the cluster. */
const OUTCOMES: Readonly<
  Record<string, (stage: PolicyNftStage, place: number) => Promise<unknown>>
> = {
  none: () => Promise.resolve(),
  sync,
  restart: async (stage) => {
    await stage.restart().catch(() => stage.restart());
    await sync(stage);
  },
  // Where nothing is to be written, it is the failure of the next command.
  fail: async (stage) => {
    stage.machine.commands.failNext("timeout", { carriedOut: true });
    await sync(stage);
  },
  lose: async (stage) => {
    const { dataPlane, machine, planner } = stage;
    for (const table of machine.tool.tables) machine.deleteTable(table);
    await sync(stage);
    // Where nothing was to be written, only the watch would notice.
    await dataPlane.repair(planner.plan).catch(() => dataPlane.repair(planner.plan));
  },
  damage: async (stage, place) => {
    await goodSync(stage);
    const name = damage(stage, place);
    const { dataPlane, planner } = stage;
    const found = await dataPlane.compare(planner.plan);
    assert(found.some((each) => each.name.includes(name)), `${name}: ${JSON.stringify(found)}`);
    await stage.recheck();
    assertEquals(stage.meaning, stage.golden);
    assert(stage.drift.length > 0);
    stage.drift.length = 0;
  },
  // The kernel cuts off or tears a listing: nothing is repaired.
  cut: async (stage, place) => {
    await goodSync(stage);
    const writes = stage.machine.writes.length;
    await stage.recheck();
    // What was out of use is removed now.
    const removals = stage.machine.writes.slice(writes).map(({ stdin }) => stdin).join("");
    assert(!/^(add|flush set|delete element)/m.test(removals), removals);
    if (place % 2 === 0) stage.machine.cutListings = 1;
    else stage.machine.tornListings = 1;
    const before = stage.machine.writes.length;
    await stage.recheck();
    assertEquals([stage.drift, stage.machine.writes.length], [[], before]);
  },
  // A kernel that refuses a kind of lines for a while.
  refuse: async (stage, place) => {
    const refused = [/ @peers-/, /@ports-/, /^ {2}.*,$/, / \d.*\/\d/][place % 4]!;
    stage.machine.judge = (line) =>
      refused.test(line) && !line.includes("-pod") ? "Invalid argument" : undefined;
    await sync(stage);
    stage.machine.judge = () => undefined;
    stage.clock.stall(600_000);
  },
};

async function sync(stage: PolicyNftStage): Promise<void> {
  await stage.sync().catch((error) => {
    if (!(error instanceof SyncFailure)) throw error;
  });
}

/** After a sync without commands, a failure may still be planned. */
async function goodSync(stage: PolicyNftStage): Promise<void> {
  await stage.dataPlane.deniedPackets().catch(() => {});
  await stage.sync().catch(() => stage.sync());
}

/** Changes an object as another program would; returns its name. */
function damage({ table }: PolicyNftStage, place: number): string {
  const { chains, elements } = table;
  const [chain] = [...chains].filter(([, rules]) => rules.length > 0).at(place % 7)!;
  const filled = [...elements].filter(([, keys]) => keys.size > 0);
  const [set, keys] = filled[place % Math.max(1, filled.length)] ??
    ["itself", elements.get("itself")!];
  switch (place % 5) {
    case 0:
      chains.get("deny")!.unshift("accept");
      return "deny, rule 1";
    case 1:
      chains.set("foreign", ["accept"]);
      return "foreign";
    case 2:
      chains.delete(chain);
      return chain;
    case 3:
      elements.get("itself")!.set("10.9.9.9 . 10.9.9.9", "");
      return "itself 10.9.9.9 . 10.9.9.9";
    default: {
      const [key = "10.9.9.9"] = keys.keys();
      if (!keys.delete(key)) keys.set(key, "");
      return `${set} ${key}`;
    }
  }
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

Deno.test("a start with a table that is right writes nothing", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  const before = stage.meaning;
  await stage.restart();
  const { operations } = await stage.sync();
  assertEquals(stage.meaning, before);
  assertEquals(operations, { reads: 1 });
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

Deno.test("the watch finds no drift where nothing was changed, and removes what is out of use", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  removePolicy(stage, "x/web");
  await stage.sync();
  await stage.pass(60_000);
  assertEquals([stage.drift, stage.logger.lines], [[], []]);
  assertEquals([stage.machine.writes.length, stage.table.chains.size], [3, 7]);
});

Deno.test("a set of blocks that another program changed is filled anew", async () => {
  await using stage = await PolicyNftStage.create();
  addWeb(stage);
  await stage.sync();
  const [name, keys] = [...stage.table.elements].find(([, keys]) => keys.has("198.51.100.0"))!;
  keys.delete("198.51.100.0");
  keys.set("198.51.100.0-198.51.100.7", "");
  await stage.recheck();
  assertEquals(stage.meaning, stage.golden);
  assertStringIncludes(stage.lastText, `flush set ip kube-relay-policy ${name}\n`);
  assert(!stage.lastText.includes("delete element"), stage.lastText);
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
