/** The data planes on machines in memory: what they write, and what they do when tools fail. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import fc from "fast-check";
import { SyncFailure } from "../../lib/engine/sync_event.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, parseIpAddress } from "../../lib/net/ip_address.ts";
import { judgeConnection, viewPlan } from "../../lib/policy/judge_connection.ts";
import { parsePort } from "../../lib/net/port.ts";
import { clusterHistory, handleEvent } from "../../tests/policy/random_cluster.ts";
import {
  podKey,
  policyKey,
  setClusterPolicy,
  setPod,
  setPolicy,
  testPod,
} from "../../tests/support/builders/policy_objects.ts";
import type { CommandFailure } from "../../tests/support/fakes/fake_command_runner.ts";
import {
  IptablesPlaneStage,
  NftPlaneStage,
  type PolicyPlaneStage,
} from "../../tests/support/stages/policy_plane_stage.ts";

const STAGES = { nftables: NftPlaneStage, iptables: IptablesPlaneStage };
const [WEB, DB, OTHER, FAR] = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.99"] as const;

/** Only pods with some labels reach those of an application, on one port. */
function allow({ state }: PolicyPlaneStage, app: string, from: string, port = 80): void {
  setPolicy(state, `x/${app}`, {
    podSelector: { matchLabels: { app } },
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchLabels: { app: from } } }], ports: [{ port }] }],
  });
}

function addPod({ state }: PolicyPlaneStage, name: string, address: string, app = name): void {
  const nodeName = name.startsWith("far") ? "n2" : "n1";
  setPod(state, `x/${name}`, { address, labels: { app }, nodeName });
}

/** A data base that only the web reaches, synced. */
async function synced<Stage extends PolicyPlaneStage>(stage: Stage): Promise<Stage> {
  addPod(stage, "web", WEB);
  addPod(stage, "db", DB);
  addPod(stage, "other", OTHER);
  addPod(stage, "far", FAR, "web");
  allow(stage, "db", "web");
  await stage.plane.start();
  await stage.sync();
  return stage;
}

/** Ports of several ranges, and blocks with exceptions. */
function addRich({ state }: PolicyPlaneStage): void {
  setPolicy(state, "x/web", {
    podSelector: { matchLabels: { app: "web" } },
    policyTypes: ["Ingress", "Egress"],
    ingress: [
      {
        from: [{ podSelector: { matchLabels: { app: "db" } }, namespaceSelector: {} }],
        ports: [{ port: 80 }, { port: 8000, endPort: 8010 }, { port: 53, protocol: "UDP" }],
      },
      { from: [{ ipBlock: { cidr: "198.51.100.0/24", except: ["198.51.100.1/32"] } }] },
    ],
    egress: [{ ports: [{ port: 443 }] }],
  });
}

/** Fails where the machine and the plan disagree. */
function check(stage: PolicyPlaneStage): void {
  const view = viewPlan(stage.planner.plan);
  const all = [...stage.planner.plan.pods.values()].flatMap(({ addresses }) => addresses);
  for (const from of [...all, parseIpAddress(FAR)]) {
    for (const to of all) {
      for (const port of [80, 81]) {
        const transport = { protocol: "TCP", port: parsePort(port) } as const;
        const { isAllowed } = judgeConnection(view, { from, to, transport });
        const verdict = stage.verdict(from, to, port);
        assertEquals(verdict, isAllowed ? "ACCEPT" : "REJECT", `${from} ${to}`);
      }
    }
  }
}

async function trySync(stage: PolicyPlaneStage): Promise<boolean> {
  try {
    await stage.sync();
    return true;
  } catch (error) {
    if (!(error instanceof SyncFailure)) throw error;
    return false;
  }
}

/** After a sync without commands, a failure may still be planned. */
async function goodSync(stage: PolicyPlaneStage): Promise<void> {
  for (let more = 0; more < 3; more++) {
    await stage.machine.commands.run("sysctl", []).catch(() => {});
  }
  await stage.sync().catch(() => stage.sync());
}

const REFUSED = {
  nftables: [/ @peers-/, /@ports-/, /^ {2}.*,$/, / \d.*\/\d/],
  iptables: [/--match-set KUBE-RELAY-.P/, /multiport/, /^add KUBE-RELAY-.P/],
};

const FAILURES: readonly CommandFailure[] = [
  "not-found",
  "timeout",
  "killed",
  "failed",
  { code: 1, stderr: "?" },
  { code: 1, stderr: "/dev/stdin:1:1-9: Error: Could not process rule: Device or resource busy\n" },
  {
    code: 1,
    stderr: "/dev/stdin:9:1-9: Error: Could not process rule: No such file or directory\n",
  },
  { code: 1, stderr: "netlink: Error: Operation not permitted" },
  { code: 134, stderr: "nft: Assertion failed" },
  { code: 137 },
  { code: 1, stdout: "garbage", stderr: "" },
];

/** What happens after an event of the cluster. */
const OUTCOMES: Readonly<
  Record<string, (stage: PolicyPlaneStage, place: number) => Promise<unknown>>
> = {
  none: () => Promise.resolve(),
  sync: trySync,
  restart: async (stage) => {
    await stage.restart().catch(() => stage.restart());
    await trySync(stage);
  },
  fail: async (stage, place) => {
    const { commands } = stage.machine;
    const call = commands.calls.length + 1 + place % 3;
    const failure = FAILURES[place % FAILURES.length]!;
    commands.failCall(call, failure, { carriedOut: place % 2 === 0 });
    await trySync(stage);
    await goodSync(stage);
  },
  lose: async (stage) => {
    stage.lose();
    await trySync(stage);
    // Where nothing was to be written, only the watch would notice.
    await stage.plane.repair().catch(() => stage.plane.repair());
  },
  damage: async (stage, place) => {
    await goodSync(stage);
    const name = stage.damage(place);
    const found = await stage.plane.compare(stage.planner.plan);
    assert(found.some((each) => each.name.includes(name)), `${name}: ${JSON.stringify(found)}`);
    if (place % 2 === 0) {
      await stage.recheck();
      assert(stage.drift.length > 0);
      stage.drift.length = 0;
    } else await stage.plane.repair();
    assertEquals(stage.meaning, await stage.golden());
  },
  // The kernel cuts off or tears a listing: nothing is repaired.
  cut: async (stage, place) => {
    if (!(stage instanceof NftPlaneStage)) return;
    await goodSync(stage);
    const before = stage.writes.length;
    await stage.recheck();
    // What was out of use is removed now.
    const removals = stage.linesSince(before).join("\n");
    assert(!/^(add|flush set|delete element)/m.test(removals), removals);
    if (place % 2 === 0) stage.machine.cutListings = 1;
    else stage.machine.tornListings = 1;
    const writes = stage.writes.length;
    await stage.recheck();
    assertEquals([stage.drift, stage.writes.length], [[], writes]);
  },
  // A kernel that refuses a kind of lines for a while.
  refuse: async (stage, place) => {
    const kinds = REFUSED[stage.tool];
    const refused = kinds[place % kinds.length]!;
    stage.refuse((line) => refused.test(line) && !line.includes("-pod") ? "no" : undefined);
    await trySync(stage);
    stage.refuse(() => undefined);
    stage.clock.stall(10_000_000);
  },
};

for (const [tool, Stage] of Object.entries(STAGES)) {
  Deno.test(`${tool}: any sequence of syncs comes to what a start from nothing writes`, async () => {
    const outcomes = fc.array(fc.constantFrom(...Object.keys(OUTCOMES)), {
      minLength: 40,
      maxLength: 40,
    });
    const seen = new Map<string, number>();
    const options = fc.record({
      family: tool === "nftables" ? fc.constantFrom(...IP_FAMILIES) : fc.constant("IPv4" as const),
      deny: fc.constantFrom(
        { action: "reject" as const },
        { action: "drop" as const, log: { perMinute: 10, group: 100 } },
      ),
      closedRanges: fc.constantFrom([], [parseCidr("10.1.0.0/24")]),
    });
    await fc.assert(
      fc.asyncProperty(clusterHistory, options, outcomes, async (history, chosen, outcomes) => {
        const closedRanges = chosen.family === "IPv4" ? chosen.closedRanges : [];
        await using stage = new Stage({ ...chosen, closedRanges });
        await stage.plane.start();
        for (const [index, event] of history.entries()) {
          handleEvent(stage.state, event);
          const what = outcomes[index] ?? "sync";
          seen.set(what, (seen.get(what) ?? 0) + 1);
          await OUTCOMES[what]!(stage, index);
        }
        // A set that the kernel let go late is destroyed by a later sync.
        for (let more = 0; more < 3; more++) await goodSync(stage);
        assertEquals(stage.meaning, await stage.golden());
        assertEquals(await stage.plane.compare(stage.planner.plan), []);
      }),
      { numRuns: 100 },
    );
    for (const what of Object.keys(OUTCOMES)) assert((seen.get(what) ?? 0) > 20, what);
  });

  Deno.test(`${tool}: an event of a pod writes at most 20 lines and reads nothing, whatever else there is`, async () => {
    await using stage = await synced(new Stage());
    for (let each = 0; each < 1_000; each++) {
      allow(stage, `p${each}`, `p${each}`);
      if (each % 10 === 0) {
        addPod(stage, `p${each}`, `198.51.${100 + (each >> 8)}.${each & 255}`);
      }
    }
    await stage.sync();
    for (
      const [event, processes] of [
        [() => addPod(stage, "far-2", "192.0.2.50", "web"), 1],
        [() => stage.state.setPod(podKey("x/far-2"), undefined), 1],
        [() => addPod(stage, "other-2", "192.0.2.51"), 0],
        [() => addPod(stage, "db-2", "192.0.2.52", "db"), 2],
        [() => addPod(stage, "db-2", "192.0.2.52", "p7"), 3],
        [() => stage.state.setPod(podKey("x/db-2"), undefined), 3],
      ] as const
    ) {
      const [calls, writes] = [stage.machine.commands.calls.length, stage.writes.length];
      event();
      const { full } = await stage.sync();
      const lines = stage.linesSince(writes);
      const ran = stage.machine.commands.calls.length - calls;
      assertEquals([full, ran], [false, stage.writes.length - writes], "nothing is read");
      assert(ran <= (tool === "nftables" ? 1 : processes), `${ran}: ${lines.join("\n")}`);
      assert(lines.length <= 20, lines.join("\n"));
    }
    check(stage);
  });

  Deno.test(`${tool}: a restart reads what there is, and writes nothing where nothing differs`, async () => {
    await using stage = await synced(new Stage());
    addRich(stage);
    await stage.sync();
    const [clean, writes] = [stage.meaning, stage.writes.length];
    await stage.restart();
    const { full } = await stage.sync();
    assertEquals([full, stage.writes.length], [true, writes]);
    assertEquals(stage.meaning, clean);
    const { operations } = await stage.sync();
    assertEquals(operations, {});
  });

  Deno.test(`${tool}: a policy whose rule is refused allows nothing, isolates still, and is tried again`, async () => {
    for (const tellsCommitOnly of tool === "iptables" ? [false, true] : [false]) {
      await using stage = await synced(new Stage());
      if (stage instanceof IptablesPlaneStage) {
        stage.machine.iptables.tellsCommitOnly = tellsCommitOnly;
      }
      addRich(stage);
      allow(stage, "other", "db");
      const rule = tool === "iptables" ? /"x\/web ingress 0"/ : /@ports-/;
      stage.refuse((line) => rule.test(line) ? "Invalid argument" : undefined);
      const { full, quarantined } = await stage.sync();
      assertEquals([full, ...quarantined.map(({ key }) => `${key}`)], [true, "x/web"]);
      if (!tellsCommitOnly) assertStringIncludes(quarantined[0]!.reason, "Invalid argument");
      assert(quarantined[0]!.retryAt !== undefined);
      assertEquals(stage.verdict(DB, WEB), "REJECT");
      assertEquals(stage.verdict("198.51.100.2", WEB), "REJECT");
      assertEquals(stage.verdict(DB, OTHER), "ACCEPT");
      assert(!JSON.stringify([...stage.writes].at(-1)?.stdin).includes("TRIAL"));
      // Too early: nothing of it is tried.
      addPod(stage, "more", "192.0.2.9", "web");
      const early = await stage.sync();
      assertEquals([early.full, early.quarantined.length], [false, 1]);
      // What is left out is no drift, also when the time for it has come.
      await stage.pass(60_000);
      assertEquals([stage.drift, stage.logger.lines.filter(({ level }) => level !== "info")], [
        [],
        [],
      ]);
      stage.refuse(() => undefined);
      const retried = await stage.sync();
      assertEquals([retried.full, retried.quarantined], [false, []]);
      assertEquals(stage.meaning, await stage.golden());
    }
  });

  Deno.test(`${tool}: a rule of the administrator that is refused denies everything, or accepts nothing`, async () => {
    await using stage = await synced(new Stage());
    addRich(stage);
    allow(stage, "web", "db");
    const from = [{ namespaces: {} }];
    const rule = (action: string, end: number) => ({
      ...{ action, from, protocols: [{ tcp: { destinationPort: { range: { start: 9, end } } } }] },
    });
    for (
      const [action, verdict] of [["Accept", "ACCEPT"], ["Deny", "REJECT"], [
        "Pass",
        "REJECT",
      ]] as const
    ) {
      setClusterPolicy(stage.state, "admin", { ingress: [rule(action, 77)] });
      const line = tool === "iptables" ? /9:77/ : /9-77/;
      stage.refuse((each) => line.test(each) ? "Invalid argument" : undefined);
      const { quarantined } = await stage.sync();
      assertEquals(quarantined.map(({ key }) => `${key}`), ["admin"], action);
      assertEquals(stage.verdict(DB, WEB), verdict, action);
      stage.refuse(() => undefined);
      await stage.pass(300_000);
      await stage.sync();
      assertEquals([stage.verdict(DB, WEB), stage.meaning], ["ACCEPT", await stage.golden()]);
    }
  });

  Deno.test(`${tool}: a sync that fails while it reads what was refused is reported as a full one`, async () => {
    await using stage = await synced(new Stage());
    addRich(stage);
    stage.refuse(() => {
      stage.machine.commands.failNext("timeout");
      return "Invalid argument";
    });
    const error = await assertRejects(() => stage.sync(), SyncFailure);
    assertEquals(error.full, true);
  });

  Deno.test(`${tool}: a set that is refused takes only the policies along that name it, and is tried less and less often`, async () => {
    await using stage = await synced(new Stage());
    addRich(stage);
    stage.refuse((line) => line.includes("198.51.100") ? "Hash is full" : undefined);
    for (const pause of [1_000, 2_000, 4_000]) {
      const { quarantined: [item, ...more] } = await stage.sync();
      assertEquals([`${item?.key}`, more], ["x/web", []]);
      assertEquals(Date.parse(item!.retryAt!) - stage.clock.wallNow(), pause);
      assertEquals([stage.verdict(DB, WEB), stage.verdict(WEB, DB)], ["REJECT", "REJECT"]);
      await stage.pass(pause);
    }
    stage.refuse(() => undefined);
    assertEquals((await stage.sync()).quarantined, []);
    assertEquals(stage.meaning, await stage.golden());
  });

  Deno.test(`${tool}: what another program changes is found, put right in seconds and counted`, async () => {
    const harms: readonly ((stage: PolicyPlaneStage) => void)[] = tool === "nftables"
      ? [
        (stage) => stage.lose(),
        onNft(({ machine }) => machine.tool.run("flush chain ip kube-relay-policy ingress\n")),
        onNft(({ table }) => void table.chains.get("deny")?.push("accept")),
        onNft(({ table }) => table.elements.get("to-pod")?.clear()),
        onNft(({ table }) => void table.elements.get("itself")?.set("10.1.0.1 . 10.9.9.9", "")),
        onNft(({ table }) => void table.chains.set("list-foreign", ["accept"])),
        onNft(({ table }) =>
          void table.hooks.set("ingress", "{ type filter hook forward priority 9 ; }")
        ),
        onNft(({ table }) => void table.declarations.set("known", ["type inet_service"])),
      ]
      : [
        (stage) => stage.lose(),
        onIptables((tool) => tool.flush("filter", { keepChains: true })),
        onIptables((tool) => tool.restore("*filter\n-D FORWARD -j KUBE-RELAY-POLICY\nCOMMIT\n")),
        onIptables((tool) => tool.restore("*filter\n-I FORWARD -j ACCEPT\nCOMMIT\n")),
      ];
    for (const [index, harm] of harms.entries()) {
      await using stage = await synced(new Stage());
      harm(stage);
      const { plan } = stage.planner;
      assert((await stage.plane.compare(plan)).length > 0, `${index} is seen`);
      await stage.pass(50_000);
      assertEquals(await stage.plane.compare(plan), [], `${index} is repaired`);
      assert(stage.drift.length > 0, `${index} is counted`);
      check(stage);
    }
  });

  for (const comes of ["between two steps", "just before the steps"] as const) {
    Deno.test(`${tool}: a check of the rules that comes ${comes} of a plan leaves nothing half made`, async () => {
      await using stage = await synced(new Stage());
      const names = Array.from({ length: 20 }, (_, index) => `far-${index}`);
      const setAll = (version: string) => {
        for (const [index, name] of names.entries()) {
          const labels = { app: "web", version };
          setPod(stage.state, `x/${name}`, {
            ...{ address: `198.51.100.${index}`, labels, nodeName: "n2" },
          });
        }
      };
      setAll("1");
      await stage.sync();
      setAll("2");
      const steps = stage.planner.updateInSteps();
      const verifying = comes === "just before the steps" ? stage.plane.repair() : undefined;
      for (let step = 0; step < 15; step++) steps.next();
      await verifying;
      if (!verifying) await stage.recheck();
      let result = steps.next();
      while (!result.done) result = steps.next();

      await stage.plane.sync(stage.planner.plan, result.value);

      assertEquals(stage.meaning, await stage.golden());
      assertEquals([stage.verdict("198.51.100.3", DB), stage.drift], ["ACCEPT", []]);
    });
  }

  Deno.test(`${tool}: cleanup() removes everything, a preview nothing, and needs no sync`, async () => {
    await using stage = await synced(new Stage());
    const before = stage.meaning;
    const { removed } = await stage.plane.previewCleanup();
    assert(removed.length > 0);
    assertEquals(stage.meaning, before);
    const cleaned = await stage.plane.cleanup();
    assertEquals([cleaned.removed, cleaned.failed], [removed, []]);
    if (stage instanceof NftPlaneStage) assertEquals(stage.machine.tool.tables, []);
    else assertEquals(stage.meaning, new IptablesPlaneStage().meaning);
    assertEquals((await stage.plane.cleanup()).removed, []);
  });

  Deno.test(`${tool}: start() fails where the tool is missing, and sync() before a start is refused`, async () => {
    await using stage = new Stage();
    const missing = { code: 1, stderr: "Operation not permitted" };
    for (const line of ["ipset list -n", "nft"]) stage.machine.commands.on(line, missing);
    await assertRejects(() => stage.plane.start(), Error);
    await assertRejects(() => stage.sync(), Error, "start() has not succeeded");
    assertEquals(stage.linesSince(0), []);
  });
}

function onNft(harm: (stage: NftPlaneStage) => void) {
  return (stage: PolicyPlaneStage) => harm(stage as NftPlaneStage);
}

function onIptables(harm: (tool: IptablesPlaneStage["machine"]["iptables"]["tool"]) => void) {
  return (stage: PolicyPlaneStage) => harm((stage as IptablesPlaneStage).machine.iptables.tool);
}

Deno.test("nftables: the first sync writes what render() prints", async () => {
  await using stage = await synced(new NftPlaneStage());
  addRich(stage);
  stage.lose();
  await stage.restart();
  await stage.sync();
  const lines = (text: string) => text.replaceAll(",\n", "\n").split("\n").sort();
  const rendered = [...stage.plane.render(stage.planner.plan)].join("");
  assertEquals(lines(stage.writes.at(-1)!.stdin), lines(rendered));
});

Deno.test("nftables: a chain is deleted by the transaction after the one that took away what led to it", async () => {
  await using stage = await synced(new NftPlaneStage());
  const chains = stage.table.chains.size;
  stage.state.setPolicy(policyKey("x/db"), undefined);
  await stage.sync();
  const empty = () => [...stage.table.chains.values()].filter((rules) => rules.length === 0).length;
  assertEquals([empty(), stage.table.chains.size], [1, chains]);
  await stage.sync();
  assertEquals([empty(), stage.table.chains.size], [0, chains - 1]);
  const writes = stage.writes.length;
  await stage.pass(60_000);
  assertEquals([stage.drift, stage.logger.lines, stage.writes.length], [[], [], writes]);
});

Deno.test("nftables: a log names the pod in characters that end no quote", async () => {
  const log = { perMinute: 7, group: 100 };
  await using stage = new NftPlaneStage({ deny: { action: "drop", log } });
  await stage.plane.start();
  const key = `x/a"; drop ${"long".repeat(60)}`;
  stage.state.setPod(podKey(key), testPod(key, { address: "10.1.0.1" }));
  setPolicy(stage.state, "x/p", { podSelector: {} });
  await stage.sync();
  const rule = [...stage.table.chains.values()].flat().find((rule) => rule.includes(" log "));
  assert(rule?.startsWith('limit rate 7/minute log prefix "netpol to x/a?? drop long'), rule);
  assert((rule?.split('"')[1] ?? "").length <= 127, rule);
});

Deno.test("iptables: ranges that are closed, or no longer, deny nothing to known pods meanwhile", async () => {
  await using stage = await synced(new IptablesPlaneStage());
  const verdicts = new Set<string>();
  stage.refuse(() => {
    verdicts.add(stage.verdict(WEB, DB));
    verdicts.add(stage.verdict(DB, OTHER));
    return undefined;
  });
  for (const closedRanges of [[parseCidr("192.0.2.0/24")], []]) {
    stage.planner.setOptions({ closedRanges });
    await stage.sync();
    check(stage);
  }
  assertEquals([...verdicts], ["ACCEPT"]);
});

Deno.test("iptables: in a closed range, a pod is known after it is isolated, and only as long", async () => {
  await using stage = await synced(new IptablesPlaneStage());
  stage.planner.setOptions({ closedRanges: [parseCidr("192.0.2.0/24")] });
  await stage.sync();
  const verdicts = new Set<string>();
  stage.refuse(() => void verdicts.add(stage.verdict(OTHER, "192.0.2.52")));
  addPod(stage, "db-2", "192.0.2.52", "db");
  await stage.sync();
  stage.state.setPod(podKey("x/db-2"), undefined);
  await stage.sync();
  assertEquals([...verdicts], ["REJECT"]);
});

const EVENTS: Readonly<Record<string, (stage: PolicyPlaneStage) => void>> = {
  "a pod is isolated": (stage) => allow(stage, "web", "db"),
  "a pod is isolated no more": ({ state }) => state.setPolicy(policyKey("x/db"), undefined),
  "one end of a connection is isolated instead of the other": ({ state }) => {
    state.setPolicy(policyKey("x/db"), undefined);
    setPolicy(state, "x/other", {
      podSelector: { matchLabels: { app: "other" } },
      policyTypes: ["Egress"],
    });
  },
  "a pod has another list": (stage) => {
    allow(stage, "db-3", "web", 81);
    addPod(stage, "db", DB, "db-3");
  },
  "an address moves to a pod with another list": (stage) => {
    allow(stage, "web", "far", 81);
    stage.state.setPod(podKey("x/db"), undefined);
    addPod(stage, "web", DB);
  },
  "an address moves to a pod without a list": (stage) => {
    stage.state.setPod(podKey("x/db"), undefined);
    addPod(stage, "other", DB);
  },
};

Deno.test("iptables: a sync that ends after any command leaves each connection its old answer or its new one", async () => {
  const addresses = [WEB, DB, OTHER, FAR];
  for (const [name, event] of Object.entries(EVENTS)) {
    let commands = Infinity;
    for (let nth = 1; nth <= commands; nth++) {
      await using stage = await synced(new IptablesPlaneStage());
      const answers = () =>
        addresses.flatMap((from) =>
          addresses.slice(0, 3).flatMap((to) =>
            [80, 81].map((port) => `${from} ${to} ${port} ${stage.verdict(from, to, port)}`)
          )
        );
      const old = answers();
      event(stage);
      const before = stage.writes.length;
      const call = stage.machine.commands.calls.length + nth;
      stage.machine.commands.failCall(call, "killed", { carriedOut: true });
      await trySync(stage);
      const during = answers();
      await stage.sync();
      if (!Number.isFinite(commands)) commands = stage.writes.length - before;
      const now = answers();
      for (const [index, answer] of during.entries()) {
        assert([old[index], now[index]].includes(answer), `${name}, command ${nth}: ${answer}`);
      }
      check(stage);
    }
  }
});

Deno.test("iptables: a set that the kernel lets go late is destroyed by a later sync", async () => {
  await using stage = await synced(new IptablesPlaneStage());
  const clean = stage.meaning;
  allow(stage, "web", "other");
  await stage.sync();
  stage.refuse((line) => line.startsWith("destroy") ? "it is in use" : undefined);
  stage.state.setPolicy(policyKey("x/web"), undefined);
  await stage.sync();
  stage.refuse(() => undefined);
  await stage.sync();
  assertEquals(stage.meaning, clean);
});

Deno.test("iptables: compare() names each rule, and sets as a whole", async () => {
  await using stage = await synced(new IptablesPlaneStage());
  const { machine, plane, planner: { plan } } = stage;
  machine.iptables.tool.restore(
    "*filter\n-I FORWARD -j ACCEPT\n:KUBE-RELAY-POLICY-DENY - [0:0]\n" +
      "-I KUBE-RELAY-POLICY-NO-INGRESS -j RETURN\nCOMMIT\n",
  );
  machine.kernel.sets.get("KUBE-RELAY-4-INGRESS")!.clear();
  const found = await plane.compare(plan);
  assertEquals(found.map(({ kind, name }) => `${kind} ${name}`), [
    "missing filter KUBE-RELAY-POLICY-DENY, rule 1",
    "missing filter KUBE-RELAY-POLICY-DENY, rule 2",
    "missing filter KUBE-RELAY-POLICY-DENY, rule 3",
    "reordered filter FORWARD",
    "missing KUBE-RELAY-4-INGRESS",
    "extra filter KUBE-RELAY-POLICY-NO-INGRESS",
  ]);
  await plane.repair();
  assertEquals(await plane.compare(plan), []);
});

Deno.test("iptables: denied packets are logged with the name of the pod, and a pod that goes takes its rules along", async () => {
  const deny = { action: "drop", log: { perMinute: 90, group: 100 } } as const;
  await using stage = await synced(new IptablesPlaneStage({ deny }));
  const rules = stage.machine.iptables.tool.table("filter");
  assertEquals(
    rules.get("KUBE-RELAY-POLICY-NO-INGRESS")?.toSorted(),
    [
      "-d 192.0.2.2 ! -s 192.0.2.2 -m limit --limit 90/min -j NFLOG --nflog-group 100 " +
      '--nflog-prefix "netpol to x/db:"',
      "-d 192.0.2.2 -s 192.0.2.2 -j RETURN",
      "-g KUBE-RELAY-POLICY-DENY-IN",
    ].sort(),
  );
  assertEquals(rules.get("KUBE-RELAY-POLICY-DENY"), ["-j DROP"]);
  assertEquals([stage.verdict(OTHER, DB), stage.verdict(DB, DB, 81)], ["DROP", "ACCEPT"]);
  addPod(stage, "db-2", "192.0.2.52", "db");
  await stage.sync();
  const before = stage.writes.length;
  stage.state.setPod(podKey("x/db"), undefined);
  await stage.sync();
  const removed = stage.linesSince(before).filter((line) => /^-D \S+-NO-INGRESS /.test(line));
  assertEquals(removed.length, 2, `${removed}`);
  assertEquals(stage.verdict(OTHER, "192.0.2.52"), "DROP");
});

for (const tellsCommitOnly of [false, true]) {
  const how = tellsCommitOnly ? "only the COMMIT" : "a line";
  Deno.test(`iptables: a table that takes no rule takes no policy along, by a tool that names ${how}`, async () => {
    await using stage = await synced(new IptablesPlaneStage());
    stage.machine.iptables.tellsCommitOnly = tellsCommitOnly;
    allow(stage, "db", "web");
    await stage.sync();
    stage.refuse((line) => line.startsWith("-A ") ? "Cannot allocate memory" : undefined);
    allow(stage, "db", "web", 81);
    for (let attempt = 0; attempt < 3; attempt++) {
      await assertRejects(() => stage.sync(), Error, "iptables-restore");
      assertEquals(stage.verdict(WEB, DB), "ACCEPT");
    }
    stage.refuse(() => undefined);
    assertEquals((await stage.sync()).quarantined, []);
    assertEquals([stage.verdict(WEB, DB), stage.verdict(WEB, DB, 81)], ["REJECT", "ACCEPT"]);
  });
}

for (const [count, tellsCommitOnly] of [[200, false], [1_200, true]] as const) {
  const how = tellsCommitOnly ? "only the COMMIT" : "the first line";
  Deno.test(`iptables: ${count} refused rules are left out by one sync, by a tool that names ${how}`, async () => {
    await using stage = await synced(new IptablesPlaneStage());
    stage.machine.iptables.tellsCommitOnly = tellsCommitOnly;
    for (let index = 0; index < count; index++) {
      setPolicy(stage.state, `x/refused-${index}`, {
        podSelector: { matchLabels: { app: "web" } },
        policyTypes: ["Ingress"],
        ingress: [{ ports: [{ port: 1_000 + index }] }],
      });
    }
    stage.refuse((line) => line.includes('"x/refused-') ? "no" : undefined);
    allow(stage, "web", "client");
    setPolicy(stage.state, "x/deny", {
      podSelector: { matchLabels: { app: "other" } },
      policyTypes: ["Ingress"],
    });
    for (let turn = 0; turn < 2; turn++) {
      const { quarantined } = await stage.sync();
      assertEquals(quarantined.length, count);
      assertEquals([stage.verdict(FAR, OTHER), stage.verdict(FAR, WEB)], ["REJECT", "REJECT"]);
      // All of them are due together.
      await stage.clock.advance(600_000);
    }
    allow(stage, "db", "other");
    await stage.sync();
    assertEquals([stage.verdict(WEB, DB), stage.verdict(OTHER, DB)], ["REJECT", "ACCEPT"]);
  });
}

Deno.test("iptables: refused sets are left out by one sync, and the sets between them are written", async () => {
  await using stage = await synced(new IptablesPlaneStage());
  const numbers = Array.from({ length: 60 }, (_, index) => index);
  for (const number of numbers) {
    setPolicy(stage.state, `x/p-${number}`, {
      podSelector: { matchLabels: { app: "web" } },
      policyTypes: ["Ingress"],
      ingress: [{ from: [{ ipBlock: { cidr: `198.51.100.${number}/32` } }] }],
    });
  }
  stage.refuse((line) => /^add .* 198\.51\.100\.\d*[02468] /.test(line) ? "no" : undefined);
  const { quarantined } = await stage.sync();
  assertEquals(quarantined.length, 30);
  assertEquals(
    numbers.map((number) => stage.verdict(`198.51.100.${number}`, WEB)),
    numbers.map((number) => number % 2 ? "ACCEPT" : "REJECT"),
  );
  stage.refuse(() => undefined);
  await stage.clock.advance(600_000);
  assertEquals((await stage.sync()).quarantined, []);
  assertEquals(stage.meaning, await stage.golden());
});

Deno.test("iptables: chains of an earlier release, and foreign rules, are removed by the first sync", async () => {
  await using stage = await synced(new IptablesPlaneStage());
  allow(stage, "web", "db");
  await stage.sync();
  const clean = stage.meaning;
  const { tool } = stage.machine.iptables;
  const [rule] = tool.table("filter").get("KUBE-RELAY-POLICY-INGRESS-2")!;
  for (
    const harm of [
      ":KUBE-RELAY-I-c0000200-30 - [0:0]\n-A KUBE-RELAY-I-c0000200-30 -j DROP\n" +
      "-I KUBE-RELAY-POLICY-INGRESS-2 -d 192.0.2.0/30 -g KUBE-RELAY-I-c0000200-30",
      // A rule that is there twice, and one that is after the last.
      `-I KUBE-RELAY-POLICY-INGRESS-2 ${rule}`,
      "-A KUBE-RELAY-POLICY-INGRESS-2 -j ACCEPT",
    ]
  ) {
    tool.restore(`*filter\n${harm}\nCOMMIT\n`);
    await stage.restart();
    await stage.sync();
    assertEquals(stage.meaning, clean, harm);
  }
});
