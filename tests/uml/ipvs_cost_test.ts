/**
 * Measures the ipvs mode with 1,000 Services on a kernel with IPVS, compared with the bare tools.
 * Everything is ten times slower here, so only ratios count.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { clusterIpOf, serviceObjects } from "../bench/service_manifest.ts";
import { OTHER_NODE } from "../support/builders/address_plan.ts";
import { testNode } from "../support/builders/builders.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { Namespace } from "../support/stages/netns.ts";
import { manifestText, rawObjects } from "../support/builders/raw_objects.ts";
import { isSettled, RelayProcess } from "../support/stages/relay_process.ts";
import { RELAY_FLAGS } from "../support/stages/relay_scene.ts";
import { isMissing } from "../support/requirement.ts";
import { GUEST } from "./guest.ts";

const ignore = isMissing("the cost of 1,000 Services in ipvs mode", [
  GUEST,
  ...IPVS_MODE.requirements(),
]);

const SERVICES = 1_000;
/** Against the bare tools with the same input, all of them together. */
const MOST_LOAD = 1.5;
/** Against the start of each program that it runs, without input. */
const MOST_CHANGE = 5;
const STARTS = 20;
const ATTEMPTS = 5;

/** The whole manifest; `version` is one endpoint of the first Service. */
function manifest(version: number): string {
  const objects = Array.from({ length: SERVICES }, (_, index) => {
    const host = `${index >> 8}.${index & 255}`;
    return serviceObjects({
      name: `web-${index}`,
      clusterIp: clusterIpOf(index).replace("127.96.", "172.30."),
      protocol: "TCP",
      endpoints: [`10.180.${host}`, `10.${index === 0 ? 190 + version : 181}.${host}`],
      endpointPort: 8080,
      nodeName: OTHER_NODE,
    });
  }).flat();
  return manifestText([...rawObjects("Node", testNode()), ...objects]);
}

/** Milliseconds that a shell command takes in a namespace. */
async function timeOf(node: Namespace, command: string): Promise<number> {
  const start = performance.now();
  await node.output("sh", ["-ec", command]);
  return performance.now() - start;
}

/** Measures the tools alone, each with one input for everything. */
async function bareLoadMs(folder: string, rendered: string): Promise<number> {
  await using node = await Namespace.create("bare");
  // Comments are for readers; `ip` ignores those that follow its input.
  const parts = rendered.split(/^# ((?:ipset|ip6?tables-restore|ipvsadm|ip) .*)\n/m).slice(1);
  const commands: string[] = [];
  for (let at = 0; at < parts.length; at += 2) {
    const file = `${folder}/input-${at}`;
    await Deno.writeTextFile(file, parts[at + 1] ?? "");
    commands.push(`${parts[at]} <${file}`);
  }
  // All Services are of IPv4. IPv6 has its sets and rules, no virtual server, and the same device.
  const [device, ...more] = commands.filter((command) => command.startsWith("ip -batch")).reverse();
  assertEquals([commands.length, more.length], [7, 1]);
  commands.splice(commands.indexOf(device!), 1);
  return await timeOf(node, commands.join("\n"));
}

/** The times of both, in milliseconds. */
interface Cost {
  readonly ownMs: number;
  readonly bareMs: number;
}

/** The first sync of a kube-relay, against the tools alone on a node of their own. */
async function loadCost(
  relay: RelayProcess,
  { folder, rendered }: { readonly folder: string; readonly rendered: string },
): Promise<Cost> {
  const { families } = await relay.until(
    "everything is served",
    // Where reading takes its time, the first sync has a part of the Services.
    isSettled,
    60_000,
  );
  const ownMs = Math.max(...families.map(({ lastSync }) => lastSync!.durationMs));
  return { ownMs, bareMs: await bareLoadMs(folder, rendered) };
}

/** One changed endpoint, against the start of the one program that it takes. */
async function changeCost(
  relay: RelayProcess,
  { node, file, version }: {
    readonly node: Namespace;
    readonly file: string;
    readonly version: number;
  },
): Promise<Cost> {
  await replaceFile(file, manifest(version));
  const endpoint = `10.${190 + version}.0.0:8080`;
  const { families } = await relay.until(
    "the change is served",
    ({ families }) =>
      families.some(({ services }) =>
        services.some(({ endpoints }) => endpoints.some(({ address }) => address === endpoint))
      ) && families.every(({ pending }) => !pending),
    60_000,
  );
  const sync = families.find(({ family }) => family === "IPv4")?.lastSync;
  assertEquals(sync?.operations, { processes: 1, ipvsadm: 2 });
  const starts = `for i in $(seq ${STARTS}); do ipvsadm -R </dev/null; done`;
  return { ownMs: sync!.durationMs, bareMs: await timeOf(node, starts) / STARTS };
}

/** The best of several runs: other programs use the machine too. */
async function bestOf(
  t: Deno.TestContext,
  what: string,
  { most, measure }: { readonly most: number; readonly measure: (at: number) => Promise<Cost> },
): Promise<void> {
  const ratios: number[] = [];
  for (let at = 1; at <= ATTEMPTS; at++) {
    const { ownMs, bareMs } = await measure(at);
    ratios.push(ownMs / bareMs);
    // TAP has no place for other output.
    const figures = `${ownMs.toFixed(0)} ms, bare ${bareMs.toFixed(0)} ms`;
    await t.step(`${what}: ${figures}, ratio ${(ownMs / bareMs).toFixed(2)}`, () => {});
    if (ownMs / bareMs <= most) return;
  }
  assert(false, `${what}: ${ratios.map((ratio) => ratio.toFixed(2)).join(", ")}, not ${most}`);
}

Deno.test({
  name:
    `ipvs mode: ${SERVICES} Services cost little more than the bare tools, a change next to nothing`,
  ignore,
  async fn(t) {
    const folder = await Deno.makeTempDir();
    try {
      await Deno.mkdir(`${folder}/manifests`);
      const file = `${folder}/manifests/all.yaml`;
      await replaceFile(file, manifest(0));
      const source = [`--manifests=${folder}/manifests`, ...RELAY_FLAGS];
      await using node = await Namespace.create("node");
      const rendered = await RelayProcess.run(node, {
        folder,
        args: ["render", "--mode=ipvs", ...source],
      });
      const start = (on: Namespace) =>
        RelayProcess.start(on, { folder, args: [...source, ...IPVS_MODE.args] });
      await bestOf(t, `first sync of ${SERVICES} Services`, {
        most: MOST_LOAD,
        async measure() {
          await using fresh = await Namespace.create("fresh");
          await using relay = start(fresh);
          return await loadCost(relay, { folder, rendered });
        },
      });
      await using relay = start(node);
      await relay.settled();
      await bestOf(t, `one change among ${SERVICES} Services`, {
        most: MOST_CHANGE,
        measure: (version) => changeCost(relay, { node, file, version }),
      });
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
