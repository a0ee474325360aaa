// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Measures `kube-relay trace` on a real kernel with 10,000 Services of 2 endpoints each, in a
 * network namespace, in each mode that the machine supports.
 *
 * `deno task bench:trace [--services 10000] [--runs 3]`; `KUBE_RELAY=dist/kube-relay` takes the
 * built executable. The benchmark fails by CPU time, including that of tools, compared with that of
 * `version`. The elapsed time is printed too; 0.2 s of it is the final wait for further events.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import {
  iptablesRequirements,
  type IptablesVariant,
  leaveKubeletHint,
} from "../../support/stages/iptables_tools.ts";
import { startEchoServer } from "../../support/drivers/echo_network.ts";
import { Namespace } from "../../support/stages/netns.ts";
import { isSettled, RelayProcess } from "../../support/stages/relay_process.ts";
import { type Gate, gateRow, isFailure } from "../gates.ts";
import { writeManifests } from "./manifests.ts";
import { toolCpuMs } from "./tool_cpu.ts";

const flags = parseArgs(Deno.args, { string: ["services", "runs"] });
const SERVICES = Number(flags.services ?? 10_000);
const RUNS = Number(flags.runs ?? 3);

/** A busy machine may take a while to write 10,000 Services. */
const SETTLED_WITHIN_MS = 120_000;

/** A way in which Services are served. */
interface BenchWay {
  readonly mode: BackendMode;
  readonly variant?: IptablesVariant;
  /** Most CPU time, in times of `version`. */
  readonly atMost: number;
}

// Measured: 1.4, 1.8, 2.4 and 1.6. A monitor that reads all rules takes 3.0 in nftables mode, and 8 to 20
// with iptables-nft.
const WAYS: readonly BenchWay[] = [
  { mode: "nftables", atMost: 2.4 },
  { mode: "iptables", variant: "nft", atMost: 4 },
  { mode: "iptables", variant: "legacy", atMost: 5 },
  { mode: "userspace", atMost: 4 },
];

const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
try {
  await writeManifests(`${folder}/manifests`, SERVICES);
  const gates: Gate[] = [];
  for (const way of WAYS.filter(isHere)) gates.push(await measureWay(way));
  const table = new Table({ head: [`${SERVICES} Services`, "of version", "at most", ""] });
  table.push(...gates.map(gateRow));
  console.log(table.toString());
  if (gates.some(isFailure)) Deno.exitCode = 1;
} finally {
  await Deno.remove(folder, { recursive: true });
}

function isHere({ variant }: BenchWay): boolean {
  return variant === undefined || iptablesRequirements(variant).every(([, met]) => met);
}

async function measureWay({ mode, variant, atMost }: BenchWay): Promise<Gate> {
  await using node = await Namespace.create("bench");
  await using pods = await Namespace.create("pods");
  await prepare(node, pods);
  await startEchoServer(pods, { name: "pods", listen: [{ address: "0.0.0.0", port: 8080 }] });
  if (variant !== undefined) await leaveKubeletHint(node, variant);
  await using relay = RelayProcess.start(node, {
    folder,
    args: [`--mode=${mode}`, `--manifests=${folder}/manifests`, "--iptables-sync-period=1h"],
  });
  await relay.until("all Services are served", isSettled, SETTLED_WITHIN_MS);
  const by = ["ip", "netns", "exec", node.name];
  const best = async (argv: readonly string[]) => {
    const runs: { readonly cpu: number; readonly ms: number }[] = [];
    for (let run = 0; run < RUNS; run++) {
      const started = performance.now();
      const cpu = await toolCpuMs(argv, { by });
      runs.push({ cpu, ms: performance.now() - started });
    }
    const least = (of: "cpu" | "ms") => Math.min(...runs.map((run) => run[of]));
    return { cpu: least("cpu"), ms: least("ms") };
  };
  const version = await best(["version"]);
  const control = `--control-socket=${folder}/control.sock`;
  const trace = await best(["trace", "node", "ns1/service-1", control]);
  const said = `${trace.ms.toFixed(0)} ms, ${trace.cpu.toFixed(0)} of CPU; ` +
    `version ${version.ms.toFixed(0)}, ${version.cpu.toFixed(0)}`;
  return {
    name: `${variant === undefined ? mode : `${mode}-${variant}`}: ${said}`,
    value: trace.cpu / version.cpu,
    atMost,
  };
}

/** A node, and behind its only link the addresses of all endpoints. */
async function prepare(node: Namespace, pods: Namespace): Promise<void> {
  await node.ip(`link add out type veth peer name eth0 netns ${pods.name}`);
  await pods.ip("addr add 192.0.2.2/24 dev eth0");
  await pods.ip("link set eth0 up");
  await pods.ip("route add local 10.180.0.0/15 dev lo");
  await node.ip("addr add 192.0.2.1/24 dev out");
  await node.ip("link set out up");
  await node.ip("route add default via 192.0.2.2");
}
