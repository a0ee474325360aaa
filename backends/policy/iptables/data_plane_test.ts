/** The data plane on a machine in memory: what it writes, and what it does when tools fail. */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { judgeConnection, viewPlan } from "../../../lib/policy/judge_connection.ts";
import type { PodKey, PolicyKey, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeIpvsMachine } from "../../../tests/support/fakes/fake_ipvs_machine.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { POLICY_BACKENDS } from "../mod.ts";
import { walkConnection } from "../../../tests/support/walk/iptables_policies.ts";

/** A node with pods and policies, and a machine whose tools refuse what the real ones refuse. */
class Stage {
  readonly machine = new FakeIpvsMachine();
  readonly clock = new FakeClock();
  readonly state = new PolicyState();
  readonly planner = new PolicyPlanner(this.state, {
    family: "IPv4",
    nodeName: "n1",
    deny: { action: "reject" },
    closedRanges: [],
    podLinks: [],
  });
  plane = this.#plane();
  /** Whether syncs that failed are put back. */
  refuses: (line: string) => string | undefined = () => undefined;

  constructor() {
    const { iptables, kernel } = this.machine;
    const isNamed = (set: string) => iptables.rules(new RegExp(`--match-set ${set} `)).length > 0;
    iptables.judge = (line) => {
      const set = / --match-set (\S+) /.exec(line)?.[1];
      if (set !== undefined && !kernel.sets.has(set)) return `Set ${set} doesn't exist.`;
      return this.refuses(line);
    };
    this.machine.refuses = (_, line) => {
      const [verb, set = ""] = line.split(" ");
      if (verb === "destroy" && isNamed(set)) return "it is in use by a kernel component";
      return this.refuses(line);
    };
  }

  #plane() {
    const { commands } = this.machine;
    const logger = new MemoryLogger();
    return POLICY_BACKENDS.iptables(
      { clock: this.clock, commands, logger, random: () => 0 },
      { family: "IPv4", syncPeriodMs: 30_000 },
    );
  }

  /** A new process. */
  restart() {
    this.plane = this.#plane();
  }

  pod(name: string, address: string | undefined, labels: Record<string, string> = {}): void {
    this.state.setPod(
      `x/${name}` as PodKey,
      address === undefined ? undefined : {
        metadata: { name, namespace: "x", labels },
        spec: { nodeName: name.startsWith("far") ? "n2" : "n1", containers: [] },
        status: { phase: "Running", podIPs: [{ ip: address }] },
      },
    );
  }

  policy(name: string, from: Record<string, string>, port = 80): void {
    this.state.setPolicy(`x/${name}` as PolicyKey, {
      metadata: { namespace: "x", name },
      spec: {
        podSelector: { matchLabels: { app: name } },
        policyTypes: ["Ingress"],
        ingress: [{ from: [{ podSelector: { matchLabels: from } }], ports: [{ port }] }],
      },
    });
  }

  async sync() {
    const changes = this.planner.update();
    try {
      return await this.plane.sync(this.planner.plan, changes);
    } catch (error) {
      this.planner.forget();
      throw error;
    }
  }

  /** Returns the verdict of the machine for a connection to port 80. */
  verdict(from: string, to: string, port = 80) {
    const { iptables, kernel } = this.machine;
    return walkConnection({ chains: iptables.tool.table("filter"), sets: kernel.sets }, {
      from: parseIpAddress(from),
      to: parseIpAddress(to),
      transport: { protocol: "TCP", port: parsePort(port) },
    }).verdict;
  }

  /** Fails where the machine and the plan disagree. */
  check(plan: PolicyPlan = this.planner.plan): void {
    const view = viewPlan(plan);
    const all = [...plan.pods.values()].flatMap(({ addresses }) => addresses);
    for (const from of [...all, parseIpAddress("192.0.2.99")]) {
      for (const to of all) {
        for (const port of [80, 81]) {
          const transport = { protocol: "TCP", port: parsePort(port) } as const;
          const { isAllowed } = judgeConnection(view, { from, to, transport });
          assertEquals(
            this.verdict(from, to, port),
            isAllowed ? "ACCEPT" : "REJECT",
            `${from} ${to}`,
          );
        }
      }
    }
  }

  /** Inputs of tools that write, since a call. */
  writes(since: number) {
    return this.machine.commands.calls.slice(since)
      .filter(({ line }) => /restore/.test(line) && !/--version/.test(line));
  }

  /** All lines: rules of pods have no order. */
  get sorted(): readonly string[] {
    return this.machine.dump().split("\n").sort();
  }

  get calls(): number {
    return this.machine.commands.calls.length;
  }
}

async function started(): Promise<Stage> {
  const stage = new Stage();
  stage.pod("web", "192.0.2.1", { app: "web" });
  stage.pod("db", "192.0.2.2", { app: "db" });
  stage.pod("other", "192.0.2.3");
  stage.pod("far", "192.0.2.99", { app: "web" });
  stage.policy("db", { app: "web" });
  await stage.plane.start();
  await stage.sync();
  return stage;
}

Deno.test("the data plane writes sets, then rules, then who is judged by them", async () => {
  const stage = await started();
  await using _ = stage.plane;
  stage.check();
  const [first, second, third] = stage.writes(0);
  assertMatch(first!.stdin, /^create KUBE-RELAY-4-EGRESS hash:ip family inet /);
  assert(!/add KUBE-RELAY-4-/.test(first!.stdin));
  assertMatch(second!.stdin, /^\*filter\n/);
  assertEquals(third!.stdin, "add KUBE-RELAY-4-INGRESS 192.0.2.2 -exist\n");
  assertEquals(stage.verdict("192.0.2.1", "192.0.2.2"), "ACCEPT");
  assertEquals(stage.verdict("192.0.2.3", "192.0.2.2"), "REJECT");
});

Deno.test("a pod that no policy selects any more is open before its rules go", async () => {
  const stage = await started();
  await using _ = stage.plane;
  const verdicts = new Set<string>();
  stage.refuses = () => void verdicts.add(stage.verdict("192.0.2.1", "192.0.2.2"));
  stage.state.setPolicy("x/db" as PolicyKey, undefined);
  await stage.sync();
  stage.check();
  assertEquals([...verdicts], ["ACCEPT"]);
  const { stdin } = stage.writes(0).at(-3)!;
  assertEquals(stdin, "del KUBE-RELAY-4-INGRESS 192.0.2.2 -exist\n");
});

Deno.test("ranges that are closed, or no longer, deny nothing to known pods meanwhile", async () => {
  const stage = await started();
  await using _ = stage.plane;
  const verdicts = new Set<string>();
  stage.refuses = () => {
    verdicts.add(stage.verdict("192.0.2.1", "192.0.2.2"));
    verdicts.add(stage.verdict("192.0.2.2", "192.0.2.3"));
    return undefined;
  };
  for (const closedRanges of [[parseCidr("192.0.2.0/24")], []]) {
    stage.planner.setOptions({ closedRanges });
    await stage.sync();
    stage.check();
  }
  assertEquals([...verdicts], ["ACCEPT"]);
});

Deno.test("in a closed range, a pod is known after it is isolated, and only as long", async () => {
  const stage = await started();
  await using _ = stage.plane;
  stage.planner.setOptions({ closedRanges: [parseCidr("192.0.2.0/24")] });
  await stage.sync();
  const verdicts = new Set<string>();
  stage.refuses = () => void verdicts.add(stage.verdict("192.0.2.3", "192.0.2.52"));
  stage.pod("db-2", "192.0.2.52", { app: "db" });
  await stage.sync();
  stage.pod("db-2", undefined);
  await stage.sync();
  assertEquals([...verdicts], ["REJECT"]);
});

Deno.test("an event of a pod writes only its entries, whatever else there is", async () => {
  const stage = await started();
  await using _ = stage.plane;
  for (let each = 0; each < 1_000; each++) {
    stage.policy(`p${each}`, { app: `p${each}` });
    if (each % 10 === 0) {
      stage.pod(`p${each}`, `198.51.${100 + (each >> 8)}.${each & 255}`, { app: `p${each}` });
    }
  }
  await stage.sync();
  for (
    const [event, processes] of [
      [() => stage.pod("far-2", "192.0.2.50", { app: "web" }), 1],
      [() => stage.pod("far-2", undefined), 1],
      [() => stage.pod("other-2", "192.0.2.51"), 0],
      [() => stage.pod("db-2", "192.0.2.52", { app: "db" }), 2],
      [() => stage.pod("db-2", undefined), 2],
    ] as const
  ) {
    const before = stage.calls;
    event();
    const { full } = await stage.sync();
    const writes = stage.writes(before);
    const lines = writes.flatMap(({ stdin }) => stdin.trimEnd().split("\n"));
    assertEquals(full, false);
    assertEquals(stage.calls - before, writes.length, "nothing is read");
    assertEquals(writes.length, processes, lines.join("\n"));
    assert(lines.length <= 20, lines.join("\n"));
  }
  assertEquals(stage.verdict("192.0.2.1", "192.0.2.2"), "ACCEPT");
  assertEquals(stage.verdict("192.0.2.3", "192.0.2.2"), "REJECT");
});

Deno.test("policies that come, change and go leave the machine as one that was never another", async () => {
  const stage = await started();
  await using _ = stage.plane;
  const clean = stage.machine.dump();
  stage.policy("web", { app: "db" });
  stage.policy("db", { app: "other" }, 81);
  await stage.sync();
  stage.check();
  stage.pod("web", "192.0.2.2", { app: "web" });
  stage.pod("db", "192.0.2.1", { app: "db" });
  await stage.sync();
  stage.check();
  stage.pod("web", "192.0.2.1", { app: "web" });
  stage.pod("db", "192.0.2.2", { app: "db" });
  stage.state.setPolicy("x/web" as PolicyKey, undefined);
  stage.policy("db", { app: "web" });
  await stage.sync();
  assertEquals(stage.machine.dump(), clean);
});

Deno.test("a restart reads what there is, and writes nothing where nothing differs", async () => {
  const stage = await started();
  await stage.plane[Symbol.asyncDispose]();
  const clean = stage.machine.dump();
  stage.restart();
  await using _ = stage.plane;
  await stage.plane.start();
  assertEquals(stage.machine.dump(), clean);
  const before = stage.calls;
  await stage.plane.sync(stage.planner.plan, { ...stage.planner.update(), full: true });
  assertEquals(stage.writes(before), []);
  assertEquals(stage.machine.dump(), clean);
});

Deno.test("after a command that failed in any way, the next sync writes the difference", async () => {
  const goal = await started();
  goal.policy("web", { app: "db" });
  goal.pod("db-2", "192.0.2.52", { app: "db" });
  const before = goal.calls;
  await goal.sync();
  await goal.plane[Symbol.asyncDispose]();
  const commands = goal.calls - before;
  assert(commands >= 3);
  for (let nth = 1; nth <= commands; nth++) {
    for (
      const failure of ["timeout", "not-found", "failed", { code: 1, stderr: "?" }, {
        code: 137,
      }] as const
    ) {
      for (const carriedOut of [false, true]) {
        const stage = await started();
        await using _ = stage.plane;
        stage.policy("web", { app: "db" });
        stage.pod("db-2", "192.0.2.52", { app: "db" });
        stage.machine.commands.failCall(stage.calls + nth, failure, { carriedOut });
        await stage.sync().catch(() => {});
        await stage.sync();
        assertEquals(stage.sorted, goal.sorted, `${nth} ${JSON.stringify(failure)}`);
      }
    }
  }
});

Deno.test("a sync that ends after any command leaves each connection its old answer or its new one", async () => {
  const events: Record<string, (stage: Stage) => void> = {
    "a pod is isolated": (stage) => stage.policy("web", { app: "db" }),
    "a pod is isolated no more": (stage) => {
      stage.state.setPolicy("x/db" as PolicyKey, undefined);
    },
    "a pod has another list": (stage) => {
      stage.policy("db-3", { app: "web" }, 81);
      stage.pod("db", "192.0.2.2", { app: "db-3" });
    },
    "an address moves to a pod with another list": (stage) => {
      stage.policy("web", { app: "far" }, 81);
      stage.pod("db", undefined);
      stage.pod("web", "192.0.2.2", { app: "web" });
    },
    "an address moves to a pod without a list": (stage) => {
      stage.pod("db", undefined);
      stage.pod("other", "192.0.2.2");
    },
    "a pod has more addresses around its own": (stage) => {
      for (const last of [4, 8, 16, 33, 65, 129]) {
        stage.pod(`db-${last}`, `192.0.2.${last}`, { app: "db" });
      }
    },
  };
  for (const [name, event] of Object.entries(events)) {
    let commands = Infinity;
    for (let nth = 1; nth <= commands; nth++) {
      const stage = await started();
      await using _ = stage.plane;
      const answers = () =>
        [1, 2, 3, 99].flatMap((from) =>
          [1, 2, 3].flatMap((to) =>
            [80, 81].map((port) => {
              const [source, destination] = [`192.0.2.${from}`, `192.0.2.${to}`];
              return `${source} ${destination} ${port} ${stage.verdict(source, destination, port)}`;
            })
          )
        );
      const old = answers();
      event(stage);
      const before = stage.calls;
      stage.machine.commands.failCall(before + nth, "killed", { carriedOut: true });
      await stage.sync().catch(() => {});
      const during = answers();
      await stage.sync();
      if (!Number.isFinite(commands)) commands = stage.writes(before).length;
      const now = answers();
      for (const [index, answer] of during.entries()) {
        assert([old[index], now[index]].includes(answer), `${name}, command ${nth}: ${answer}`);
      }
      stage.check();
    }
  }
});

for (const tellsCommitOnly of [false, true]) {
  Deno.test(`a policy whose rule is refused allows nothing, and its pods stay isolated (${tellsCommitOnly})`, async () => {
    const stage = await started();
    await using _ = stage.plane;
    stage.machine.iptables.tellsCommitOnly = tellsCommitOnly;
    stage.policy("web", { app: "db" });
    stage.policy("other", { app: "db" });
    stage.pod("other", "192.0.2.3", { app: "other" });
    stage.refuses = (line) => line.includes('"x/web ingress 0"') ? "no" : undefined;
    const { quarantined } = await stage.sync();
    assertEquals(quarantined.map(({ key }) => `${key}`), ["x/web"]);
    assertEquals(stage.verdict("192.0.2.2", "192.0.2.1"), "REJECT");
    assertEquals(stage.verdict("192.0.2.2", "192.0.2.3"), "ACCEPT");
    assertEquals(
      [...stage.machine.iptables.tool.table("filter").keys()].filter((name) => /TRIAL/.test(name)),
      [],
    );
    stage.refuses = () => undefined;
    await stage.clock.advance(10_000);
    assertEquals((await stage.sync()).quarantined, []);
    stage.check();
  });
}

Deno.test("a set that is refused takes only the policies along that name it", async () => {
  const stage = await started();
  await using _ = stage.plane;
  stage.policy("web", { app: "other" });
  stage.pod("other", "192.0.2.3", { app: "other" });
  stage.refuses = (line) =>
    /^add KUBE-RELAY-4P-\S+ 192.0.2.3 /.test(line) ? "Hash is full" : undefined;
  const { quarantined } = await stage.sync();
  assertEquals(quarantined.map(({ key }) => `${key}`), ["x/web"]);
  assertEquals(stage.verdict("192.0.2.3", "192.0.2.1"), "REJECT");
  stage.refuses = () => undefined;
  await stage.clock.advance(10_000);
  assertEquals((await stage.sync()).quarantined, []);
  stage.check();
});

Deno.test("a set that the kernel lets go late is destroyed by a later sync, and not once it is wanted", async () => {
  const stage = await started();
  await using _ = stage.plane;
  const clean = stage.machine.dump();
  stage.policy("web", { app: "other" });
  await stage.sync();
  stage.refuses = (line) => line.startsWith("destroy") ? "it is in use" : undefined;
  stage.state.setPolicy("x/web" as PolicyKey, undefined);
  await stage.sync();
  assert(stage.machine.dump() !== clean);
  stage.refuses = () => undefined;
  await stage.sync();
  assertEquals(stage.machine.dump(), clean);
});

Deno.test("compare() and repair() find what another program changed", async () => {
  const stage = await started();
  await using _ = stage.plane;
  const { plan } = stage.planner;
  assertEquals(await stage.plane.compare(plan), []);
  const clean = stage.machine.dump();
  stage.machine.iptables.tool.restore(
    "*filter\n-I FORWARD -j ACCEPT\n:KUBE-RELAY-POLICY-DENY - [0:0]\nCOMMIT\n",
  );
  stage.machine.kernel.sets.get("KUBE-RELAY-4-INGRESS")!.clear();
  const found = await stage.plane.compare(plan);
  assertEquals(found.map(({ kind, name }) => `${kind} ${name}`), [
    "missing filter KUBE-RELAY-POLICY-DENY, rule 1",
    "missing filter KUBE-RELAY-POLICY-DENY, rule 2",
    "missing filter KUBE-RELAY-POLICY-DENY, rule 3",
    "reordered filter FORWARD",
    "missing KUBE-RELAY-4-INGRESS",
  ]);
  const { left } = await stage.plane.repair(plan);
  assertEquals(left, []);
  stage.machine.iptables.tool.restore("*filter\n-D FORWARD -j ACCEPT\nCOMMIT\n");
  assertEquals(stage.machine.dump(), clean);
});

Deno.test("a flush is noticed and repaired, and so is a rule above the jump", async () => {
  const stage = await started();
  await using _ = stage.plane;
  const clean = stage.machine.dump();
  for (
    const harm of [
      () => stage.machine.iptables.tool.flush("filter"),
      () => stage.machine.iptables.tool.flush("filter", { keepChains: true }),
      () =>
        stage.machine.iptables.tool.restore("*filter\n-D FORWARD -j KUBE-RELAY-POLICY\nCOMMIT\n"),
    ]
  ) {
    harm();
    assert(stage.machine.dump() !== clean);
    for (let looks = 0; looks < 5; looks++) await stage.clock.advance(10_000);
    assertEquals(stage.machine.dump(), clean);
  }
});

Deno.test("cleanup() removes every chain and set, a preview nothing", async () => {
  const stage = await started();
  await stage.plane[Symbol.asyncDispose]();
  const before = stage.machine.dump();
  assert((await stage.plane.previewCleanup()).removed.length > 5);
  assertEquals(stage.machine.dump(), before);
  const { failed } = await stage.plane.cleanup();
  assertEquals(failed, []);
  assertEquals(stage.machine.dump(), new FakeIpvsMachine().dump());
});

Deno.test("denied packets are logged with the name of the pod, and a pod that goes takes its rules along", async () => {
  const stage = await started();
  await using _ = stage.plane;
  const { plan } = stage.planner;
  stage.planner.setOptions({
    ...plan,
    deny: { action: "drop", log: { perMinute: 90, group: 100 } },
  });
  await stage.sync();
  const rules = stage.machine.iptables.tool.table("filter");
  assertEquals(
    rules.get("KUBE-RELAY-POLICY-NO-INGRESS"),
    [
      "-d 192.0.2.2 ! -s 192.0.2.2 -m limit --limit 90/min -j NFLOG --nflog-group 100 " +
      '--nflog-prefix "netpol to x/db:"',
      "-d 192.0.2.2 -s 192.0.2.2 -j RETURN",
      "-g KUBE-RELAY-POLICY-DENY-IN",
    ].sort((one, other) => one < other ? -1 : 1),
  );
  assertEquals(rules.get("KUBE-RELAY-POLICY-DENY"), ["-j DROP"]);
  assertEquals(stage.verdict("192.0.2.3", "192.0.2.2"), "DROP");
  assertEquals(stage.verdict("192.0.2.2", "192.0.2.2", 81), "ACCEPT");
  stage.pod("db-2", "192.0.2.52", { app: "db" });
  await stage.sync();
  const before = stage.calls;
  stage.pod("db", undefined);
  await stage.sync();
  const [, write] = stage.writes(before);
  assertEquals(write?.stdin.match(/^-D \S+-NO-INGRESS /gm)?.length, 2, write?.stdin);
  assertEquals(stage.verdict("192.0.2.3", "192.0.2.52"), "DROP");
});

Deno.test("start() fails where ipset is missing, before anything is written", async () => {
  const stage = new Stage();
  stage.machine.commands.on("ipset list -n", { code: 1, stderr: "Operation not permitted" });
  await assertRejects(() => stage.plane.start(), Error, "by ipset");
  await assertRejects(() => stage.sync(), Error, "start() has not succeeded");
  assertEquals(stage.writes(0), []);
});
