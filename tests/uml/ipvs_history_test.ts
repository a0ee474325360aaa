/**
 * Tests that the ipvs mode leaves the same state in a kernel with IPVS as a fresh start, whatever
 * happened before.
 *
 * @module
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import type { RawObject } from "../conformance/server.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { randomFrom } from "../support/builders/seeded_random.ts";
import { Churn } from "../support/stages/churn.ts";
import {
  type Death,
  IpvsKernelStage,
  MortalRunner,
  type StageObjects,
} from "../support/stages/ipvs_kernel_stage.ts";
import { isMissing, program, ROOT } from "../support/requirement.ts";
import { GUEST } from "./guest.ts";

const ignore = isMissing("ipvs mode on the guest's own network", [
  GUEST,
  ROOT,
  ...["ipvsadm", "ipset", "iptables", "ip6tables"].map(program),
]);

const CHANGES = 1_000;
/** As many as come together in a busy cluster; each sync costs some processes for each family. */
const CHANGES_IN_A_SYNC = 10;
/**
 * After this number of syncs everything is compared. No other program writes, so nothing may
 * differ.
 */
const COMPARED_SYNCS = 20;

function isService(object: RawObject): object is RawObject & Service {
  return object.kind === "Service";
}

function isSlice(object: RawObject): object is RawObject & EndpointSlice {
  return object.kind === "EndpointSlice";
}

function stageObjects(objects: readonly RawObject[]): StageObjects {
  return { services: objects.filter(isService), slices: objects.filter(isSlice) };
}

type StageOptions = NonNullable<Parameters<typeof IpvsKernelStage.started>[0]>;

/**
 * Returns the state after many changes. The stage ends before the next process begins, because it
 * would repair what that one removes.
 */
async function stateAfterChanges(churn: Churn): Promise<string> {
  await using stage = await IpvsKernelStage.started();
  for (let made = 1; made <= CHANGES; made++) {
    churn.next();
    if (made % CHANGES_IN_A_SYNC > 0) continue;
    const reports = await stage.sync(stageObjects(churn.objects));
    assertEquals(reports.map(({ full }) => full && made > CHANGES_IN_A_SYNC), [false, false]);
    if (made <= CHANGES - COMPARED_SYNCS * CHANGES_IN_A_SYNC) continue;
    await stage.compareAll();
    assertEquals(stage.drift, [], `false alarm after ${made} changes`);
  }
  return await stage.state();
}

/** Returns the state after a start on a kernel without objects of kube-relay. */
async function freshState(objects: StageObjects, options: StageOptions = {}): Promise<string> {
  await using stage = await IpvsKernelStage.started(options);
  await stage.cleanup();
  await stage.sync(objects);
  return await stage.state();
}

Deno.test({
  name: `ipvs mode: ${CHANGES} random changes leave the state of a fresh start`,
  ignore,
  async fn(t) {
    const seed = Number(Deno.env.get("KUBE_RELAY_SEED") ?? Math.floor(Math.random() * 2 ** 32));
    // TAP has no place for other output. With the seed the same changes are made again.
    await t.step(`KUBE_RELAY_SEED=${seed}`, () => {});
    const churn = new Churn(randomFrom(seed));
    const found = await stateAfterChanges(churn);
    assertEquals(found, await freshState(stageObjects(churn.objects)));
    await using stage = await IpvsKernelStage.started();
    await stage.cleanup();
  },
});

Deno.test({
  name:
    "ipvs mode: what this kernel refuses of a Service goes into quarantine, the others are served",
  ignore,
  async fn() {
    const endpoints = (service: string, address: string) =>
      testEndpointSlice(service, { addressType: "IPv6", endpoints: [address] });
    const good = {
      services: [1, 2].map((number) =>
        testService(`good-${number}`, { clusterIP: `fd00:172:30::4:${number}` })
      ),
      slices: [1, 2].map((number) => endpoints(`good-${number}`, `fd00:10::a0${number}`)),
    };
    const golden = await freshState(good);
    // No interface can have a multicast address, and no packet can be masqueraded to one.
    const all = {
      services: [
        testService("bad-address", { clusterIP: "ff05::7" }),
        testService("bad-endpoint", { clusterIP: "fd00:172:30::4:9" }),
        ...good.services,
      ],
      slices: [
        endpoints("bad-address", "fd00:10::a01"),
        endpoints("bad-endpoint", "ff05::9"),
        ...good.slices,
      ],
    };
    await using stage = await IpvsKernelStage.started();
    await stage.cleanup();
    const reports = await stage.sync(all);
    const reasons = reports.flatMap(({ quarantined }) => quarantined)
      .map(({ key, reason }) => `${key}: ${reason}`);
    assertEquals(reasons.length, 2, reasons.join("\n"));
    assertStringIncludes(reasons.join("\n"), "Cannot assign requested address");
    assertEquals(await stage.state(), golden);
    await stage.cleanup();
  },
});

/** Services of all kinds; `version` selects their endpoints and addresses. */
function servicesOf(version: 1 | 2): StageObjects {
  const names = version === 1 ? ["kept", "changed", "old"] : ["kept", "changed", "new"];
  const services = names.map((name) => {
    const number = 1 + ["kept", "changed", "old", "new"].indexOf(name);
    return testService(name, {
      type: "LoadBalancer",
      clusterIP: `172.30.3.${number}`,
      ports: [{ port: 80, nodePort: 31_000 + number }],
      externalTrafficPolicy: "Local",
      externalIPs: [`192.168.99.${number}`],
      loadBalancerSourceRanges: [version === 1 ? "10.0.0.0/8" : "10.9.0.0/16"],
    }, { ingress: [{ ip: `1.2.3.${number}` }] });
  });
  const slices = services.map(({ metadata: { name } }) => {
    const hosts = name.startsWith("changed") && version === 2 ? [2, 3] : [1, 2];
    return testEndpointSlice(name, {
      endpoints: hosts.map((host) => `10.180.0.${host}`),
      ports: [{ name: "", protocol: "TCP", port: 8080 }],
    });
  });
  return { services, slices };
}

/** Both families behave the same; each costs ten times as much as on a machine. */
const ONE_FAMILY = { families: ["IPv4"] } as const;

/** Brings the kernel to where the sync begins. */
async function prepare(before: "nothing" | "other Services"): Promise<void> {
  await using stage = await IpvsKernelStage.started(ONE_FAMILY);
  if (before === "nothing") await stage.cleanup();
  else await stage.sync(servicesOf(1));
}

/** Runs a whole process that may die; returns the number of programs started for writing. */
async function run(objects: StageObjects, death?: Death): Promise<number> {
  const runner = new MortalRunner(death);
  await using stage = await IpvsKernelStage.started({ ...ONE_FAMILY, runner });
  const synced = stage.sync(objects);
  if (death === undefined) await synced;
  else await assertRejects(() => synced, Error, "kube-relay is dead");
  return runner.writes;
}

Deno.test({
  name: "ipvs mode, with sets of a killed run and of other types in the way: as a fresh start",
  ignore,
  async fn() {
    const wanted = servicesOf(2);
    const golden = await freshState(wanted, ONE_FAMILY);
    await prepare("nothing");
    const lines = [
      "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536",
      "create NEW-KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 100",
      "create NEW-KUBE-EXTERNAL-IP hash:ip family inet",
      "create KUBE-IPVS-IPS hash:net family inet",
      "create KUBE-LOOP-BACK hash:ip,port,ip family inet6",
    ];
    const stdin = lines.map((line) => `${line}\n`).join("");
    assertEquals((await systemCommandRunner.run("ipset", ["restore"], { stdin })).stderr, "");
    await using stage = await IpvsKernelStage.started(ONE_FAMILY);
    await stage.sync(wanted);
    assertEquals(await stage.stateNow(), golden);
    await stage.cleanup();
    const { stdout } = await systemCommandRunner.run("ipset", ["list", "-n"]);
    assertEquals(stdout.split("\n").filter((name) => /^(NEW-)?KUBE-[^6]/.test(name)), []);
  },
});

for (const before of ["nothing", "other Services"] as const) {
  Deno.test({
    name: `ipvs mode, killed at each step of a sync after ${before}: as a fresh start`,
    ignore,
    async fn() {
      const wanted = servicesOf(2);
      const golden = await freshState(wanted, ONE_FAMILY);
      await prepare(before);
      const writes = await run(wanted);
      assert(writes >= 4, `only ${writes} programs`);
      for (let atWrite = 1; atWrite <= writes; atWrite++) {
        for (const half of [false, true]) {
          await prepare(before);
          await run(wanted, { atWrite, half });
          await using stage = await IpvsKernelStage.started(ONE_FAMILY);
          await stage.sync(wanted);
          const how = `${half ? "in the middle of" : "before"} write ${atWrite} of ${writes}`;
          assertEquals(await stage.stateNow(), golden, how);
        }
      }
      await using stage = await IpvsKernelStage.started(ONE_FAMILY);
      await stage.cleanup();
    },
  });
}
