import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { FakeIpvsMachine } from "../../tests/support/fake_ipvs_machine.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/ipvs_stage.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/service_plans.ts";
import type { IpvsBackendOptions } from "./backend_options.ts";
import { parseServerRecord } from "./server_record.ts";

const MINUTE = 60_000;
const GOING = "10.2.0.1:8080";
const WEB = { name: "web", clusterIp: "172.30.0.1" };
const BEFORE = ipvsPlanOf(testServicePlan({ ...WEB, to: ["10.1.0.1:8080", GOING] }));
const AFTER = ipvsPlanOf(testServicePlan({ ...WEB, to: ["10.1.0.1:8080"] }));

/** Runs of kube-relay on one machine, one after the other; its clock goes on between them. */
class Runs {
  readonly machine = new FakeIpvsMachine();
  #passedMs = 0;

  /** A run until it is stopped, or killed. */
  async run(
    action: (stage: IpvsStage) => Promise<void>,
    { isKilled = false, ...options }: Partial<IpvsBackendOptions> & { isKilled?: boolean } = {},
  ): Promise<void> {
    const stage = new IpvsStage(this.machine, options);
    stage.clock.jump(this.#passedMs);
    await stage.backend.start();
    await action(stage);
    const { text } = this.machine.recordFile;
    await stage[Symbol.asyncDispose]();
    // What a killed one had not written is lost.
    if (isKilled) this.machine.recordFile.text = text;
    this.#passedMs += stage.clock.now();
  }

  /** Nothing runs for so long, or the clock is set. */
  wait(ms: number): void {
    this.#passedMs += ms;
  }
}

/** An endpoint with a connection begins to drain, and ten minutes pass. */
async function drainingRuns(options: { readonly isKilled?: boolean } = {}): Promise<Runs> {
  const runs = new Runs();
  runs.machine.connections.set(GOING, 1);
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(10 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
  }, options);
  return runs;
}

/** Whether the endpoint is there before and after this time of a new run. */
async function assertEndsAfter(runs: Runs, ms: number): Promise<void> {
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    await stage.pass(ms - 10_000);
    assertEquals(stage.weight(GOING), 0, "it still drains");
    await stage.pass(20_000);
    assertEquals(stage.weight(GOING), undefined, "its time is over");
  });
}

for (const isKilled of [false, true]) {
  Deno.test(`IpvsBackend: draining goes on from its first moment after a restart, killed: ${isKilled}`, async () => {
    const runs = await drainingRuns({ isKilled });
    runs.wait(2 * MINUTE);
    await assertEndsAfter(runs, 3 * MINUTE);
  });
}

Deno.test("IpvsBackend: the time of draining is kept over many restarts", async () => {
  const runs = await drainingRuns();
  for (let restart = 0; restart < 4; restart++) {
    await runs.run(async (stage) => {
      await stage.sync(AFTER);
      await stage.pass(MINUTE);
      assertEquals(stage.weight(GOING), 0);
    }, { isKilled: restart % 2 === 0 });
  }
  await assertEndsAfter(runs, MINUTE);
});

Deno.test("IpvsBackend: the whole time begins anew where the clock was set back", async () => {
  const runs = await drainingRuns();
  runs.wait(-60 * MINUTE);
  await assertEndsAfter(runs, 15 * MINUTE);
});

Deno.test("IpvsBackend: a time that is over while nothing runs ends at the first look of the next run", async () => {
  const runs = await drainingRuns();
  runs.wait(60 * MINUTE);
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    assertEquals(stage.weight(GOING), 0);
    await stage.pass(31_000);
    assertEquals(stage.weight(GOING), undefined, "the first look takes it away");
  });
});

Deno.test("IpvsBackend: without a bound an endpoint drains as long as it likes, over restarts", async () => {
  const runs = await drainingRuns();
  runs.wait(60 * MINUTE);
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    await stage.pass(60 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
  }, { drainTimeoutMs: 0 });
});

Deno.test("IpvsBackend: after a reboot an endpoint that goes has its whole time", async () => {
  const runs = await drainingRuns();
  const { kernel } = runs.machine;
  kernel.table.apply({ kind: "flush" });
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.pass(5_000);
    assertEquals(parseServerRecord(runs.machine.recordFile.text ?? "").drains, []);
    await stage.sync(AFTER);
    await stage.pass(14 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
    await stage.pass(2 * MINUTE);
    assertEquals(stage.weight(GOING), undefined);
  });
});

Deno.test("IpvsBackend: one that came back and goes again has its whole time", async () => {
  const runs = await drainingRuns();
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(MINUTE);
  });
  await assertEndsAfter(runs, 14 * MINUTE);
});

for (const text of ["", "null", '{"version":7}', "\0\0\0", `{"version":1,"drains":[["`]) {
  Deno.test(`IpvsBackend serves in spite of a record of ${JSON.stringify(text)}`, async () => {
    const runs = await drainingRuns();
    runs.machine.recordFile.text = text;
    await assertEndsAfter(runs, 15 * MINUTE);
    await runs.run(async (stage) => {
      await stage.sync(AFTER);
      assertEquals(stage.logger.lines.filter(({ level }) => level === "warn"), []);
    });
  });
}

Deno.test("IpvsBackend serves where the state directory cannot be written, and says so once", async () => {
  const runs = new Runs();
  runs.machine.recordFile.problem = new Error("Permission denied (os error 13)");
  runs.machine.connections.set(GOING, 1);
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(5 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
    const told = stage.logger.lines.filter(({ message }) => message.includes("Cannot write"));
    assertEquals(told.length, 1);
    assertStringIncludes(JSON.stringify(told), "--state-dir");
  });
});

const [KEPT, LOST] = ["192.0.2.1", "192.0.2.2"].map((each) => parseIpAddress(each));
const PORT_SERVICE = testServicePlan({ ...WEB, nodePort: 30_080, to: ["10.1.0.1:8080"] });

function nodePortPlan(...nodePortAddresses: readonly (typeof KEPT)[]): ProxyPlan {
  return testProxyPlan([PORT_SERVICE], {
    shared: { nodePortAddresses: nodePortAddresses.map((each) => each!) },
  });
}

/** The node loses one of its two addresses while nothing runs. */
async function runsWithLostAddress(): Promise<Runs> {
  const runs = new Runs();
  const at = (addresses: readonly (typeof KEPT)[]) =>
    addresses.map((address) => ({ interfaceName: "eth0", address: address! }));
  runs.machine.interfaceAddresses = at([KEPT, LOST]);
  await runs.run((stage) => stage.sync(nodePortPlan(KEPT, LOST)).then(() => {}));
  assert(serversOn(runs, "192.0.2.2").length === 1);
  runs.machine.interfaceAddresses = at([KEPT]);
  return runs;
}

function serversOn({ machine }: Runs, address: string): string[] {
  const keys = machine.kernel.table.getServers().map(({ key }) => `${key}`);
  return keys.filter((key) => key.includes(` ${address}:`));
}

Deno.test("IpvsBackend takes away node ports of an address that was lost while nothing ran", async () => {
  const runs = await runsWithLostAddress();
  // Of somebody else, on the same address: another port, and another protocol.
  for (const server of ["-t 192.0.2.2:443", "-u 192.0.2.2:30080"]) {
    runs.machine.kernel.take("ipvsadm", `-A ${server} -s wlc`);
  }
  await runs.run((stage) => stage.sync(nodePortPlan(KEPT)).then(() => {}));
  assertEquals(serversOn(runs, "192.0.2.2"), ["-t 192.0.2.2:443", "-u 192.0.2.2:30080"]);
  assertEquals(serversOn(runs, "192.0.2.1"), ["-t 192.0.2.1:30080"]);
  const { nodePorts } = parseServerRecord(runs.machine.recordFile.text ?? "");
  assertEquals([[...nodePorts.addresses], [...nodePorts.ports]], [[KEPT], ["tcp 30080"]]);
});

Deno.test("IpvsBackend takes away node ports of a lost address although the first write fails", async () => {
  const runs = await runsWithLostAddress();
  await runs.run(async (stage) => {
    runs.machine.refuses = () => "no";
    await assertRejects(() => stage.sync(nodePortPlan(KEPT)));
    await stage.pass(5_000);
    runs.machine.refuses = () => undefined;
  }, { isKilled: true });
  await runs.run((stage) => stage.sync(nodePortPlan(KEPT)).then(() => {}));
  assertEquals(serversOn(runs, "192.0.2.2"), []);
});

/** Why a virtual server on a lost address may be somebody else's after all. */
const DOUBTS: readonly (readonly [
  string,
  (runs: Runs) => void,
  Partial<IpvsBackendOptions>?,
])[] = [
  ["the address is excluded", () => {}, { excludeCidrs: [parseCidr("192.0.2.2/32")] }],
  ["there is no record", ({ machine }) => machine.recordFile.text = undefined],
  ["the record cannot be read", ({ machine }) => machine.recordFile.text = "{"],
  ["no set of the kernel has the port", ({ machine: { kernel } }) => {
    kernel.sets.get("KUBE-NODE-PORT-TCP")?.clear();
  }],
  ["the record has other ports", ({ machine: { recordFile } }) => {
    recordFile.text = recordFile.text?.replace("tcp 30080", "tcp 30081");
  }],
];

for (const [doubt, raise, options] of DOUBTS) {
  Deno.test(`IpvsBackend leaves a virtual server on a lost address where ${doubt}`, async () => {
    const runs = await runsWithLostAddress();
    raise(runs);
    await runs.run((stage) => stage.sync(nodePortPlan(KEPT)).then(() => {}), options);
    assertEquals(serversOn(runs, "192.0.2.2"), ["-t 192.0.2.2:30080"]);
  });
}

Deno.test("IpvsBackend writes no record for changes of endpoints", async () => {
  const runs = await runsWithLostAddress();
  const { recordFile } = runs.machine;
  await runs.run(async (stage) => {
    await stage.sync(nodePortPlan(KEPT));
    await stage.pass(5_000);
    const before = recordFile.saves;
    const [plan] = nodePortPlan(KEPT).services.values();
    const changed = { ...plan!, affinityTimeoutSeconds: 60 };
    await stage.sync({ ...nodePortPlan(KEPT), services: new Map([[changed.key, changed]]) });
    await stage.pass(5_000);
    assertEquals(recordFile.saves, before);
  });
});

Deno.test("IpvsBackend.cleanup() takes a lost address's node ports away, and the record", async () => {
  const runs = await runsWithLostAddress();
  const stage = new IpvsStage(runs.machine);
  const preview = await stage.backend.previewCleanup!();
  assert(
    preview.removed.includes("virtual server 192.0.2.2:30080/TCP"),
    preview.removed.join("\n"),
  );
  assert(runs.machine.recordFile.text !== undefined, "a preview changes nothing");
  assertEquals((await stage.backend.cleanup()).failed, []);
  assertEquals(runs.machine.kernel.table.getServers(), []);
  assertEquals(runs.machine.recordFile.text, undefined);
});

Deno.test("IpvsBackend.compare() knows a lost address's node port as ours, and repair() takes it", async () => {
  const runs = await runsWithLostAddress();
  const stage = new IpvsStage(runs.machine);
  const found = await stage.backend.compare!(nodePortPlan(KEPT));
  assertStringIncludes(JSON.stringify(found), "192.0.2.2:30080");
  const { left } = await stage.backend.repair!(nodePortPlan(KEPT));
  assertEquals([left, serversOn(runs, "192.0.2.2")], [[], []]);
});
